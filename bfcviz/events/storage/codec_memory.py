"""The tables of `block_codec` in plain Python; codec_memory.pxd is the same in C. Internal to `events.storage`.

Arrays of NumPy hold them: `rows(array)` is a ctypes array over its memory here, and a pointer when compiled.
"""

import ctypes
from functools import partial
from typing import Any

import numpy as np

from bfcviz.events.event_record import Event

ROW = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("requested", "<u8"),
        ("chunk", "<u4"),
        ("born", "<u4"),  # low 32 bits of the `seq` of its ALLOCATE
        ("label", "<u4"),
        ("before", "<u4"),  # the neighbours' handles + 1; 0: unknown, or none
        ("after", "<u4"),
        ("thread", "<u2"),
        ("stream", "<u2"),
        ("region", "<u2"),
        ("pool", "u1"),
        ("state", "u1"),
    ],
    align=True,
)
"""What the codec knows of a chunk; `state`: one of the numbers below."""

HABIT = np.dtype([("size", "<u8"), ("requested", "<u8"), ("label", "<u4")], align=True)
"""What was allocated in some circumstances the last time."""

UNKNOWN, FREE_CHUNK, USED_CHUNK = range(3)

# The numbers of the fields, as in `block_codec.CODED`.
SEQ, POOL, KIND, TIME, BY, CHUNK, OTHER, REGION, STREAM = range(9)
SIZE, ADDRESS, REQUESTED, LABEL, THREAD, BIN, FLAGS = range(9, 16)
NUM_FIELDS = 16

NUM_KINDS = 1 << 12
"""Of the table of kinds: those that followed each four operations."""


def _codec_table_structure(name: str, dtype: np.dtype[np.void]) -> Any:
    """The ctypes structure of a row in a table of the codec's memory."""
    fields = [(field, np.ctypeslib.as_ctypes_type(dtype[field])) for field in dtype.names or ()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


_Row, _Habit = _codec_table_structure("_Row", ROW), _codec_table_structure("_Habit", HABIT)


def _memory_of(kind: Any, array: Any) -> Any:
    """The memory of a contiguous array for the codec, which may be read-only, as C values. It does not keep it."""
    return (kind * (array.nbytes // ctypes.sizeof(kind))).from_address(array.ctypes.data)


events, rows, habits = (partial(_memory_of, kind) for kind in (Event, _Row, _Habit))
words, handles, masks = (
    partial(_memory_of, kind) for kind in (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint16)
)


def event(table: Any, index: int) -> Any:
    """One record, or row, of a table of the codec, to read and write."""
    return table[index]


row = habit = event


def put(table: Any, index: int, record: Any) -> None:
    """Copy one record into a table of the codec."""
    table[index] = record
