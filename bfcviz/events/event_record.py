"""The event record and its kinds in plain Python; event_record.h is the same in C. `schema` says what they mean.

Used when bfcviz runs uncompiled. Internal to bfcviz.
"""

import ctypes

import numpy as np

from bfcviz.events.schema import EVENT, Flag, Kind

EXTEND, SPLIT, ALLOCATE, FREE, MERGE, RELEASE, OOM, MARK = map(int, Kind)
GREW, PADDING, HELD, PIECE = int(Flag.GREW), int(Flag.PADDING), int(Flag.HELD), int(Flag.PIECE)
RECORD = EVENT.itemsize
"""Bytes of an event."""
KIND_OFFSET: int = dict(EVENT.fields or {})["kind"][1]
"""Where the kind of an event lies in its bytes."""


class Event(ctypes.Structure):
    """One event record in memory, with the fields of `EVENT`."""

    _fields_ = tuple((name, np.ctypeslib.as_ctypes_type(EVENT[name])) for name in EVENT.names or ())
