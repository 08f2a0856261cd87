"""Which addresses an event touched, as they lie in the heap right after it."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.model import Model

SPAN: Final = np.dtype([("address", "<u8"), ("size", "<u8")])


def touched(events: Events | None, chunks: NDArray[np.void], regions: NDArray[np.void]) -> NDArray[np.void]:
    """The spans to outline for `events`, each inside one region that is there now; `SPAN` records.

    A SPLIT touched both parts, a MERGE the chunk it made, an EXTEND its region's new bytes; an OOM points at
    the largest free chunk, which was too small. A RELEASE or a MARK leaves nothing to point at.
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
    at = np.searchsorted(regions["address"], spans["address"], side="right") - 1
    end = regions["address"][at] + regions["size"][at]
    inside: NDArray[np.bool_] = (at >= 0) & (spans["address"] + spans["size"] <= end) & (spans["size"] > 0)
    return inside


def last_event(model: Model) -> Events | None:
    """The event that led to the model's step, in an array; None before the first there is, or if another heap's."""
    if model.step <= model.trace.first:
        return None
    event = model.trace.read(model.step - 1, model.step)
    return event if int(event["pool"][0]) == model.pool else None
