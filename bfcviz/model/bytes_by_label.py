"""Bytes in use by label, or by another field, over a whole trace: times the steps in use, and at some moments."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.model import model_chunks_in_use
from bfcviz.model.trace_index import known_index, with_index_byte_steps, with_index_sums

Floats = NDArray[np.float64]


def byte_steps(trace: Trace, pool: int, name: str) -> NDArray[np.float64]:
    """Bytes in use times steps in use, summed over the trace, by label or by another field `name`."""
    index = known_index(trace, pool)
    if index is not None and name == "label":
        return index.byte_steps
    totals = _carried_byte_steps(trace, pool, name)
    for block in trace.blocks():
        totals = with_index_byte_steps(totals, block, pool, name, len(trace))
    return totals


def _carried_byte_steps(trace: Trace, pool: int, name: str) -> Floats:
    """Bytes times steps in use, by label or by another field, of the chunks in use before the first event."""
    carried = model_chunks_in_use(trace, pool, trace.first)
    found = np.bincount(carried[name], weights=carried["size"] * float(len(trace) - trace.first))
    return found.astype(np.float64)


def bytes_of_labels(trace: Trace, pool: int) -> tuple[Floats, Floats]:
    """Bytes by label: `byte_steps` and `bytes_at_moments` of all labels; the events are read once, if at all."""
    labels = len(trace.labels)
    if known_index(trace, pool) is not None:
        return byte_steps(trace, pool, "label"), bytes_at_moments(trace, pool, labels)
    totals = _carried_byte_steps(trace, pool, "label")

    def summed() -> Iterator[Events]:
        nonlocal totals
        for block in trace.blocks():
            totals = with_index_byte_steps(totals, block, pool, "label", len(trace))
            yield block

    moments = np.array(list(_fullest_moments(trace, pool, labels, _ends_of_parts(trace, labels), summed())))
    return totals, moments


_MOST_MOMENTS: Final = 24
_MOST_NUMBERS: Final = 1 << 21  # of all moments; where labels hardly repeat there are fewer


def bytes_at_moments(trace: Trace, pool: int, labels: int) -> Floats:
    """Bytes in use by label number, below `labels`, at moments all over the trace: shape (moments, labels).

    These are the fullest moment of each of some equal parts of the trace, and its end. Of a trace whose index has the
    largest labels of its blocks, it is the mean of each part.
    """
    parts = _ends_of_parts(trace, labels)
    count = len(parts)
    index = known_index(trace, pool)
    if index is None or not index.knows_holders:
        return np.array(list(_fullest_moments(trace, pool, labels, parts, trace.blocks())))
    held = index.held_within(trace.first, len(trace))
    held = held[held["label"] < labels]
    rows = np.searchsorted(parts, held["stop"]).clip(max=count - 1)
    sums = np.bincount(rows * labels + held["label"], held["byte_steps"], count * labels)
    found: Floats = sums.reshape(count, labels).astype(np.float64)
    return found


def _ends_of_parts(trace: Trace, labels: int) -> Floats:
    """The ends of the equal parts of a trace in which bytes by label are looked at."""
    count = max(min(_MOST_MOMENTS, _MOST_NUMBERS // max(labels, 1)), 4)
    found: Floats = np.linspace(trace.first, len(trace), count + 1)[1:]
    return found


def _fullest_moments(
    trace: Trace, pool: int, labels: int, parts: Floats, blocks: Iterable[Events]
) -> Iterator[Floats]:
    """Bytes in use by label number: of each part, given by its end, where most are in use; then at the end."""
    carried = model_chunks_in_use(trace, pool, trace.first)
    now = with_index_sums(np.zeros(labels), carried["label"], carried["size"].astype(np.float64))[:labels]
    fullest, part = now, 0
    for block in blocks:
        kinds = np.where(block["pool"] == pool, block["kind"], 0)
        at = np.flatnonzero((kinds == Kind.ALLOCATE) | (kinds == Kind.FREE))
        at = at[block["label"][at] < labels]
        sizes = block["size"][at].astype(np.float64)
        signed, numbers = np.where(kinds[at] == Kind.FREE, -sizes, sizes), block["label"][at]
        edges = np.searchsorted(block["seq"][at].astype(np.float64), parts[part:]).tolist()
        start = 0
        for stop in [*edges, len(at)]:
            if stop > start:
                most = start + int(np.cumsum(signed[start:stop]).argmax()) + 1
                there = with_index_sums(now, numbers[start:most], signed[start:most])
                now = with_index_sums(there, numbers[most:stop], signed[most:stop])
                fullest = max(fullest, there, key=np.sum)
            start = stop
            if stop == len(at):
                break
            yield fullest
            fullest, part = now, part + 1
    yield fullest
    yield now
