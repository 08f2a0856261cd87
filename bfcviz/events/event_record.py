"""The event record and its kinds, in plain Python what event_record.h is in C. `schema` says what they mean.

Used when bfcviz runs uncompiled. Nothing here is for callers outside bfcviz.
"""

import ctypes
from typing import Any

import numpy as np

from bfcviz.events.schema import EVENT, Flag, Kind

EXTEND, SPLIT, ALLOCATE, FREE, MERGE, RELEASE, OOM, MARK = map(int, Kind)
GREW, PADDING, HELD = int(Flag.GREW), int(Flag.PADDING), int(Flag.HELD)
RECORD = EVENT.itemsize
"""Bytes of an event."""


class Event(ctypes.Structure):
    """One event record in memory, its fields as in `EVENT`."""

    _fields_ = tuple((name, np.ctypeslib.as_ctypes_type(EVENT[name])) for name in EVENT.names or ())
    place: Any = None  # the file's window it lies in and its place there; see `log_window`
