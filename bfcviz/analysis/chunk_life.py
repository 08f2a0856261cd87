"""The life of one chunk: the events that began and ended it.

::

    a chunk in use   ... SPLIT -> ALLOCATE ============== FREE -> MERGE ...
    a free chunk     ... FREE / MERGE / SPLIT / EXTEND --- ALLOCATE / SPLIT / MERGE / RELEASE ...
                                              began        ended

The life of a free chunk is the time without a change: a merge that makes it larger begins a new life.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bfcviz.analysis.free_chunk_search import operation_of_event
from bfcviz.analysis.short_names import short_name
from bfcviz.events.event_source import BLOCK
from bfcviz.events.schema import Events, Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import matches
from bfcviz.model.model import Model
from bfcviz.units import counted, format_bytes

_LOOK: Final = 8 * BLOCK
"""Events that are searched for the beginning or end of a life: a few milliseconds where they are in memory."""
_MERGES: Final = 64  # events after a FREE that are searched for its MERGEs


@dataclass(frozen=True)
class Life:
    """What the trace says about one chunk, seen from a step.

    Attributes:
        trace: the trace with its events.
        step: the step from which it is seen.
        in_use: whether it is in use at that step.
        address, size: its start address and its bytes.
        region: slot of its region.
        handle: its handle, which the heap may reuse later.
        began: the ALLOCATE of an allocation, or the event that left the free chunk as it is; None where that event is
            before the events searched.
        ended: its FREE, or the first event that changes the free chunk; None where none is before step `looked_to`.
        splits, extends: of an allocation, the events that made its chunk.
        merges: of an allocation, the MERGEs that followed its FREE.
    """

    trace: Trace
    step: int
    in_use: bool
    address: int
    size: int
    region: int
    handle: int
    began: np.void | None
    ended: np.void | None
    looked_to: int
    splits: Sequence[np.void] = ()
    extends: Sequence[np.void] = ()
    merges: Sequence[np.void] = ()


def life_of(model: Model, address: int, born: int | None) -> Life | None:
    """Find the life of a chunk, seen from the model's step; the model is not moved.

    Args:
        model: the heap.
        address: where the chunk begins.
        born: `seq` of the ALLOCATE of an allocation, in use at this step or not; None: a chunk that is free at this
            step.

    Returns:
        None where no such allocation exists, or no free chunk begins there.
    """
    return _life_of_free_chunk(model, address) if born is None else _life_of_allocation(model, address, born)


def _life_of_allocation(model: Model, address: int, born: int) -> Life | None:
    trace, step = model.trace, model.step
    if not 0 <= born < len(trace):
        return None
    began = trace.read(born, born + 1)[0]
    if (began["kind"], began["pool"], began["address"]) != (Kind.ALLOCATE, model.pool, address):
        return None
    chunk = _chunk_at(model, address)
    in_use = chunk is not None and bool(chunk["in_use"]) and int(chunk["born"]) == born
    start = step if in_use else born + 1  # it ends after a step at which it is in use
    stop = min(len(trace), start + _LOOK)
    ended = _first_event_of_chunk(trace, start, stop, model.pool, int(began["chunk"]))
    operation = operation_of_event(trace, born)
    splits, extends = ((), ()) if operation is None else (operation.splits, operation.extends)
    return Life(
        trace=trace,
        step=step,
        in_use=in_use,
        address=address,
        size=int(began["size"]),
        region=int(began["region"]),
        handle=int(began["chunk"]),
        began=began,
        ended=ended,
        looked_to=stop,
        splits=splits,
        extends=extends,
        merges=() if ended is None else _merges_at_life_end(trace, ended),
    )


def _life_of_free_chunk(model: Model, address: int) -> Life | None:
    trace, step = model.trace, model.step
    chunk = _chunk_at(model, address)
    if chunk is None or chunk["in_use"]:
        return None
    handle = int(chunk["handle"])
    began = _last_event_of_chunk(trace, max(trace.first, step - _LOOK), step, model.pool, handle)
    stop = min(len(trace), step + _LOOK)
    ended = _first_event_of_chunk(trace, step, stop, model.pool, handle)
    return Life(
        trace=trace,
        step=step,
        in_use=False,
        address=address,
        size=int(chunk["size"]),
        region=int(chunk["region"]),
        handle=handle,
        began=began,
        ended=ended,
        looked_to=stop,
    )


def _chunk_at(model: Model, address: int) -> np.void | None:
    """The chunk that begins at an address, of CHUNK."""
    chunks = model.chunks()
    at = int(np.searchsorted(chunks["address"], np.uint64(address)))
    if at == len(chunks) or int(chunks["address"][at]) != address:
        return None
    found: np.void = chunks[at]
    return found


def _first_event_of_chunk(trace: Trace, start: int, stop: int, pool: int, handle: int) -> np.void | None:
    """The first event of [start, stop) that concerns the chunk with this handle."""
    for block in trace.blocks(start, stop):
        found = matches(block, list(Kind), pool, handle)
        if len(found):
            event: np.void = block[found[0]]
            return event
    return None


def _last_event_of_chunk(trace: Trace, start: int, stop: int, pool: int, handle: int) -> np.void | None:
    """The last event of [start, stop) that concerns the chunk with this handle."""
    while stop > start:
        low = max(start, (stop - 1) // BLOCK * BLOCK)
        block = trace.read(low, stop)
        found = matches(block, list(Kind), pool, handle)
        if len(found):
            event: np.void = block[found[-1]]
            return event
        stop = low
    return None


def next_user(life: Life) -> np.void | None:
    """The ALLOCATE that uses the address of an allocation next, after its FREE; None where none is found nearby."""
    if life.ended is None or life.ended["kind"] != Kind.FREE:
        return None
    freed = life.ended
    first = int(freed["seq"]) + 1
    for block in life.trace.blocks(first, min(len(life.trace), first + _LOOK)):
        mine = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == freed["pool"])
        # Below the start of an allocation the difference wraps and is larger than any size.
        at = np.flatnonzero(mine & (np.uint64(life.address) - block["address"] < block["size"]))
        if len(at):
            event: np.void = block[at[0]]
            return event
    return None


def _merges_at_life_end(trace: Trace, freed: np.void) -> Sequence[np.void]:
    """The MERGEs of a FREE's operation, at the end of a chunk's life, in order."""
    first = int(freed["seq"]) + 1
    events: Events = trace.read(first, min(len(trace), first + _MERGES))
    found: list[np.void] = []
    for event in events[(events["pool"] == freed["pool"]) & (events["kind"] != Kind.MARK)]:
        if event["kind"] != Kind.MERGE or freed["chunk"] not in (event["chunk"], event["other"]):
            break
        found.append(event)
        if event["other"] == freed["chunk"]:  # merged away: later events do not concern it
            break
    return found


# ------------------------------------------------------------------------------
# Sentences about the life of a chunk.

_UNITS: Final = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))


def source_words(life: Life) -> str:
    """The life of a chunk in words: where the chunk of an allocation came from."""
    padded = any(int(event["flags"]) & Flag.PADDING for event in life.splits)
    rest = sum(int(event["size"]) for event in life.splits if not int(event["flags"]) & Flag.PADDING)
    whole = format_bytes(life.size + rest)
    source = f"Split from a free chunk of {whole}" if rest else "Took a whole free chunk"
    source += ", behind alignment padding" if padded else ""
    granted = sum(int(event["size"]) for event in life.extends)
    return f"{source}; the pool grew by {format_bytes(granted)} for it." if granted else f"{source}."


def merge_words(life: Life, freed: np.void) -> str:
    """The life of a chunk in words: what its FREE merged it with."""
    if int(freed["flags"]) & Flag.HELD:
        return "it cannot merge until its timestamp is safe"
    if not life.merges:
        return "no neighbour was free, so it did not merge"
    sides = [
        f"the free chunk after it ({format_bytes(int(event['size']))})"
        if event["chunk"] == life.handle
        else "the free chunk before it"
        for event in life.merges
    ]
    return f"merged with {' and '.join(sides)}, now in bin {life.merges[-1]['bin']}"


def beginning_words(life: Life, event: np.void) -> str:
    """The life of a free chunk in words: the event that left it as it is."""
    first = event["chunk"] == life.handle
    padding = bool(int(event["flags"]) & Flag.PADDING)
    reasons = {
        Kind.EXTEND: "the sub-allocator granted it",
        Kind.FREE: f"{_life_holder_name(life, event)} freed it",
        Kind.MERGE: f"it merged with the free chunk after it ({format_bytes(int(event['size']))})",
        Kind.SPLIT: "split off as alignment padding" if first and padding else "left over from a split",
    }
    return reasons[Kind(int(event["kind"]))]


def next_words(life: Life) -> str:
    """The life of a free chunk in words: the first event that changes it."""
    event = life.ended
    if event is None:
        return end_words(life, "used or changed")
    at, kind = f"at step {int(event['seq']) + 1:,}", event["kind"]
    if kind == Kind.ALLOCATE:
        return f"Allocated whole by {_life_holder_name(life, event)} {at}."
    if kind == Kind.SPLIT:
        operation = operation_of_event(life.trace, int(event["seq"]))
        return f"Split {at}" + (
            "." if operation is None else f" for {_life_holder_name(life, operation.end)}."
        )
    if kind == Kind.RELEASE:
        return f"Released to the sub-allocator with its region {at}."
    if event["other"] == life.handle:
        return f"Merged {at} into the free chunk before it."
    return f"Merged {at} with the free chunk after it ({format_bytes(int(event['size']))})."


def end_words(life: Life, what: str) -> str:
    """The life of a chunk in words: that it has no end; `what` is the end, such as `freed`."""
    if life.looked_to == len(life.trace):
        return f"Not {what} by the end of the trace."
    return f"Not {what} up to step {life.looked_to:,}; later events were not searched."


def span_words(life: Life, began: np.void, ended: np.void | None) -> str:
    """The life of a chunk in words: how long it is in use, until it is freed or until this step."""
    last = life.trace.read(life.step - 1, life.step)[0] if ended is None else ended
    steps, elapsed = int(last["seq"] - began["seq"]), int(last["time"] - began["time"])
    text = counted(steps, "step")
    for scale, unit in _UNITS:
        if elapsed >= scale:
            return f"{text} ({elapsed / scale:.1f} {unit})"
    return text


def _life_holder_name(life: Life, event: np.void) -> str:
    return short_name(life.trace, int(event["label"]))


def chunk_unchanged_at(life: Life, step: int) -> bool:
    """Whether the chunk is at `step` as it was at the step of its life."""
    if life.began is None or life.ended is None:
        return False
    first, last = int(life.began["seq"]) + 1, int(life.ended["seq"])
    return first <= life.step <= last and first <= step <= last
