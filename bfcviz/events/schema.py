"""The event record: 64 bytes, little endian, that say what happened to the heap and can be undone.

`FIELDS` describes its fields. event_record.h holds the same record and kinds for C and Cython; a test compares them.

What they hold for each kind (`-`: 0):

========  ==================  =====================  ==========  ==========================  =================
kind      address             size                   requested   other                       bin
========  ==================  =====================  ==========  ==========================  =================
EXTEND    start of the grant  bytes granted          rounded     -                           of the new chunk
SPLIT     remainder's start   remainder's size       -           remainder's handle          of the remainder
ALLOCATE  chunk start         chunk size             asked for   allocation id (low 32)      it was found in
FREE      chunk start         chunk size             asked for   `seq` of its ALLOCATE (32)  of the chunk
MERGE     absorbed's start    absorbed's size        -           absorbed's handle           of the result
RELEASE   region start        region size            -           -                           of the region
OOM       free bytes          largest free chunk     asked for   -                           the search began
MARK      -                   the mark's value       -           -                           -1
========  ==================  =====================  ==========  ==========================  =================

`chunk` is: EXTEND the new free chunk; SPLIT the parent, which keeps its address and loses `size` bytes at its
end; ALLOCATE and FREE the chunk; MERGE the survivor, whose end grows by `size`; RELEASE the region's one free
chunk (MERGE events join separate chunks first). A freed chunk that coalesces writes FREE,
then MERGE for the next neighbour, then MERGE into the previous one. An allocation that splits writes SPLIT
(padding first, if any), then ALLOCATE. EXTEND with `Flag.GREW` extends the region in slot `region`; a MERGE
event may then join the new chunk with the last one.
"""

from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.native import MIN_CHUNK as MIN_CHUNK
from bfcviz.native import NUM_BINS as NUM_BINS
from bfcviz.native import bin_of as bin_of

FIELDS: Final[dict[str, tuple[str, str, str]]] = {
    "seq": ("<u8", "step", "position in the log, from 0: the step before this event"),
    "time": ("<i8", "ns", "from the origin's start, when the operation began; not below the event before"),
    "address": ("<u8", "address", "an address; of an OOM the free bytes, of a MARK 0"),
    "size": (
        "<u8",
        "bytes",
        "of the chunk or region; of an OOM the largest free chunk, of a MARK its value (or a float64's bits)",
    ),
    "requested": ("<u8", "bytes", "that the caller asked for; of an EXTEND rounded"),
    "chunk": ("<u4", "handle", "of the chunk the event is about"),
    "other": (
        "<u4",
        "handle",
        "of the second chunk, or a number by kind: an allocation id, the seq of an ALLOCATE",
    ),
    "label": ("<u4", "number", "of an interned name (see `bfcviz.events.label_table`); 0 = none"),
    "thread": ("<u2", "number", "of the thread that allocated the chunk (for other kinds: that acted)"),
    "stream": ("<u2", "number", "of the stream; 0 = none"),
    "region": ("<u2", "slot", "of the region the chunk lies in"),
    "by": ("<u2", "number", 'of the thread that acted; SQL needs it in quotes: "by"'),
    "kind": (
        "u1",
        "number",
        "of `Kind`: 1 EXTEND, 2 SPLIT, 3 ALLOCATE, 4 FREE, 5 MERGE, 6 RELEASE, 7 OOM, 8 MARK",
    ),
    "bin": ("i1", "number", "of the bin, by kind; -1 = none"),
    "flags": ("u1", "bits", "of `Flag`: 1 GREW, 2 PADDING, 4 HELD, 8 PIECE, 16 UPPER, 32 CENTRAL_GAP"),
    "pool": ("u1", "number", "of the heap: an index into the origin's pools"),
}
"""Of each field of an event its type, unit and meaning; also in the schema of Parquet files and of `bfcviz sql`.

Names follow TensorFlow's own trace where it has the field.
"""

EVENT = np.dtype([(name, kind) for name, (kind, _, _) in FIELDS.items()])
"""One event."""

Events = NDArray[np.void]
"""An array of `EVENT`."""

MAX_POOLS: Final = 256
"""Heaps of a log or trace: `pool` has one byte."""


class Kind(IntEnum):
    """The kind of an event: what happened. 0 is no event: this record of the log was never written."""

    EXTEND = 1
    SPLIT = 2
    ALLOCATE = 3
    FREE = 4
    MERGE = 5
    RELEASE = 6
    OOM = 7
    MARK = 8


class Flag(IntFlag):
    """Bits of an event's field `flags`."""

    GREW = 1  # EXTEND grew an existing region
    PADDING = 2  # SPLIT cut alignment padding off the front: the request gets the remainder
    HELD = 4  # FREE: the chunk is not merged until its timestamp is safe
    PIECE = 8  # ALLOCATE: a further chunk of the allocation before, which lies across regions
    # Reserved for XLA's spatially partitioned heap: the tag of the chunk. None of them: lower.
    UPPER = 16
    CENTRAL_GAP = 32


def bin_numbers(sizes: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The value of an event's field `bin` for each size: its `bin_of`."""
    # From the last bin's start on the size does not matter; below it float64 is exact.
    units = np.clip(sizes // np.uint64(MIN_CHUNK), 1, 1 << (NUM_BINS - 1)).astype(np.float64)
    _, exponent = np.frexp(units)
    numbers: NDArray[np.intp] = exponent.astype(np.intp) - 1
    return numbers


# ------------------------------------------------------------------------------
# Check events before other code trusts them: a file can hold anything.

FIRST_KIND = min(Kind)

LAST_KIND = max(Kind)


class Fault(NamedTuple):
    """The first invalid event of some, and why it is invalid."""

    event: int
    why: str


def first_fault(events: Events, start: int, num_pools: int) -> Fault | None:
    """The first invalid one of `events`, of which the first is event number `start`; None if all are valid.

    Checks the fields that readers use as indices (`seq`, `kind`, `pool`, `bin`), in a few passes over arrays: about
    1 ms for 131,072 events. The model checks whether the events fit each other.
    """
    numbers = np.arange(start, start + len(events), dtype=np.uint64)
    bad = (events["seq"] != numbers) | wrong_fields(events, num_pools)
    if not bad.any():
        return None
    index = int(bad.argmax())
    return Fault(start + index, _event_fault_text(events[index], start + index, num_pools))


def wrong_fields(events: Events, num_pools: int) -> NDArray[np.bool_]:
    """Which events have a `kind`, `pool` or `bin` that does not exist; shape (n,)."""
    # Unsigned, so that one comparison finds values below and above the range.
    bad: NDArray[np.bool_] = (events["kind"] - np.uint8(FIRST_KIND)) > LAST_KIND - FIRST_KIND
    bad |= (events["bin"].view(np.uint8) + np.uint8(1)) > NUM_BINS
    if num_pools <= 255:
        bad |= events["pool"] >= num_pools
    return bad


def _event_fault_text(record: np.void, event: int, num_pools: int) -> str:
    if record["kind"] == 0:
        return "is empty"
    if record["seq"] != event:
        return f"has seq {record['seq']}"
    if not FIRST_KIND <= record["kind"] <= LAST_KIND:
        return f"is of kind {record['kind']}; kinds are {FIRST_KIND} to {LAST_KIND}"
    if record["pool"] >= num_pools:
        return f"is of pool {record['pool']}, of {num_pools} pools"
    return f"has bin {record['bin']}; bins are -1 to {NUM_BINS - 1}"
