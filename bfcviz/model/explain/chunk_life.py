"""The life of one chunk: the events that began and ended it.

::

    a chunk in use   ... SPLIT -> ALLOCATE ============== FREE -> MERGE ...
    a free chunk     ... FREE / MERGE / SPLIT / EXTEND --- ALLOCATE / SPLIT / MERGE / RELEASE ...
                                              began        ended

The life of a free chunk is the time without a change: a merge that makes it larger begins a new life.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from bfcviz.events.event_source import BLOCK
from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import matches
from bfcviz.model.explain.operation import operation_of
from bfcviz.model.state.model import Model

_LOOK: Final = 8 * BLOCK
"""Events that are searched for the beginning or end of a life: a few milliseconds where they are in memory."""
_MERGES: Final = 64  # events after a FREE that are searched for its MERGEs


class ChunkSelection(Protocol):
    """A chunk by its address and its ALLOCATE event, such as `bfcviz.figures.style.view_options.Selected`."""

    @property
    def address(self) -> int:
        """Its start address."""

    @property
    def born(self) -> int | None:
        """`seq` of its ALLOCATE; None for a free chunk."""


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


def life_of(model: Model, selected: ChunkSelection) -> Life | None:
    """Find the life of a chunk, seen from the model's step.

    Args:
        model: it is not moved.
        selected: an allocation of the model's pool, in use at this step or not, or (`born` is None) a chunk that is
            free at this step.

    Returns:
        None where no such allocation exists, or no free chunk begins there.
    """
    if selected.born is None:
        return _of_free_chunk(model, selected.address)
    return _of_allocation(model, selected.address, selected.born)


def _of_allocation(model: Model, address: int, born: int) -> Life | None:
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
    ended = _first(trace, start, stop, model.pool, int(began["chunk"]))
    operation = operation_of(trace, born)
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
        merges=() if ended is None else _merges(trace, ended),
    )


def _of_free_chunk(model: Model, address: int) -> Life | None:
    trace, step = model.trace, model.step
    chunk = _chunk_at(model, address)
    if chunk is None or chunk["in_use"]:
        return None
    handle = int(chunk["handle"])
    began = _last(trace, max(trace.first, step - _LOOK), step, model.pool, handle)
    stop = min(len(trace), step + _LOOK)
    ended = _first(trace, step, stop, model.pool, handle)
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


def _first(trace: Trace, start: int, stop: int, pool: int, handle: int) -> np.void | None:
    """The first event of [start, stop) that concerns the chunk with this handle."""
    for block in trace.blocks(start, stop):
        found = matches(block, list(Kind), pool, handle)
        if len(found):
            event: np.void = block[found[0]]
            return event
    return None


def _last(trace: Trace, start: int, stop: int, pool: int, handle: int) -> np.void | None:
    """The last such event."""
    while stop > start:
        low = max(start, (stop - 1) // BLOCK * BLOCK)
        block = trace.read(low, stop)
        found = matches(block, list(Kind), pool, handle)
        if len(found):
            event: np.void = block[found[-1]]
            return event
        stop = low
    return None


def _merges(trace: Trace, freed: np.void) -> Sequence[np.void]:
    """The MERGEs of a FREE's operation, in order."""
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
