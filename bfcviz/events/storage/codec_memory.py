"""The tables of `block_codec` in plain Python; codec_memory.pxd is the same in C. Internal to `events.storage`.

Arrays of NumPy hold them: `rows(array)` is a ctypes array over its memory here, and a pointer when compiled.
"""

import ctypes
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


def _codec_table_view(kind: Any, array: Any) -> Any:
    return (kind * len(array)).from_buffer(array)


def events(array: Any) -> Any:
    """The memory of the codec's events: the records of a contiguous array of EVENT; they may be read-only."""
    return (Event * len(array)).from_address(array.ctypes.data)


def rows(array: Any) -> Any:
    """The memory of the codec's table of chunks: the rows of an array of ROW."""
    return _codec_table_view(_Row, array)


def habits(array: Any) -> Any:
    """The rows of an array of HABIT."""
    return _codec_table_view(_Habit, array)


def words(array: Any) -> Any:
    """The memory of the codec's words: the values of a contiguous array of 8-byte integers; they may be read-only."""
    return (ctypes.c_uint64 * (array.nbytes // 8)).from_address(array.ctypes.data)


def handles(array: Any) -> Any:
    """The memory of the codec's handles: the values of an array of u4."""
    return _codec_table_view(ctypes.c_uint32, array)


def masks(array: Any) -> Any:
    """The memory of the codec's masks: the values of a contiguous array of u2; they may be read-only."""
    return (ctypes.c_uint16 * len(array)).from_address(array.ctypes.data)


def event(table: Any, index: int) -> Any:
    """One record of the codec's events, to read and write."""
    return table[index]


def row(table: Any, index: int) -> Any:
    """One row of the codec's table of chunks, to read and write."""
    return table[index]


def habit(table: Any, index: int) -> Any:
    """One row, to read and write."""
    return table[index]


def put(table: Any, index: int, record: Any) -> None:
    """Copy one record into a table of the codec."""
    table[index] = record
