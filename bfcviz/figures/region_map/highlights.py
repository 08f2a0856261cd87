"""The chunks to highlight: those that an event touched, and the one that the user selected."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin_details import STATE_ONLY
from bfcviz.events.schema import Events, Kind
from bfcviz.figures.style.view_options import Selected
from bfcviz.model import Model

SPAN: Final = np.dtype([("address", "<u8"), ("size", "<u8")])


def touched(events: Events | None, chunks: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.void]:
    """The spans to outline for `events`, as `SPAN` records; each lies inside one region of `regions`.

    A SPLIT touches both parts, a MERGE the merged chunk, an EXTEND the new bytes of its region; an OOM the largest
    free chunk, which was too small. A RELEASE and a MARK touch nothing.
    """
    spans: list[tuple[int, int]] = []
    for event in events if events is not None else ():
        spans += _spans(event, chunks)
    found = np.array(sorted(set(spans)), dtype=SPAN)
    return found[_inside(found, regions)]


def _spans(event: np.void, chunks: NDArray[np.void]) -> list[tuple[int, int]]:
    kind = Kind(int(event["kind"]))
    own = [(int(event["address"]), int(event["size"]))]
    if kind in (Kind.EXTEND, Kind.ALLOCATE, Kind.FREE):
        return own
    if kind in (Kind.SPLIT, Kind.MERGE):
        both = chunks[chunks["handle"] == event["chunk"]]
        parts = [(int(chunk["address"]), int(chunk["size"])) for chunk in both]
        return parts + own if kind is Kind.SPLIT else parts
    if kind is Kind.OOM:
        free = chunks[~chunks["in_use"]]
        return [_span(free[np.argmax(free["size"])])] if len(free) else []
    return []


def _span(chunk: np.void) -> tuple[int, int]:
    return int(chunk["address"]), int(chunk["size"])


def _inside(spans: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.bool_]:
    if not len(regions) or not len(spans):
        return np.zeros(len(spans), dtype=bool)
    starts: NDArray[np.uint64] = regions["address"]
    ends: NDArray[np.uint64] = starts + regions["size"]
    low: NDArray[np.uint64] = spans["address"]
    high: NDArray[np.uint64] = low + spans["size"]
    at = np.searchsorted(starts, low, side="right") - 1
    return (at >= 0) & (high <= ends[at]) & (high > low)


def selected(chunks: NDArray[np.void], chosen: Selected | None) -> NDArray[np.void]:
    """The span of the selected chunk if it still exists, as at most one `SPAN` record."""
    if chosen is None or not len(chunks):
        return np.empty(0, SPAN)
    at = int(np.searchsorted(chunks["address"], np.uint64(chosen.address)))
    if at == len(chunks) or chunks["address"][at] != chosen.address:
        return np.empty(0, SPAN)
    born = int(chunks["born"][at]) if chunks["in_use"][at] else None
    spans = [(chosen.address, int(chunks["size"][at]))] if born == chosen.born else []
    return np.array(spans, SPAN)


def last_event(model: Model) -> Events | None:
    """The event before the model's step, shape (1,); None if there is none, or it did not happen in this heap."""
    if model.step <= model.trace.first:
        return None
    event = model.trace.read(model.step - 1, model.step)
    builds = model.trace.origin.details.get("history") == STATE_ONLY and event["kind"][0] != Kind.OOM
    return event if int(event["pool"][0]) == model.pool and not builds else None
