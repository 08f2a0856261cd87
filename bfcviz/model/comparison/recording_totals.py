"""Totals of a recording: its peaks, its fragmentation by three names, and how often each thing happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.origin_details import regions_known, requested_bytes_known
from bfcviz.events.schema import Kind
from bfcviz.model.browse.navigation import end_of_state, failures
from bfcviz.model.comparison.sides import RecordingSide
from bfcviz.model.timelines.fragmentation import external, internal
from bfcviz.model.timelines.timeline import TIMELINE, equal_parts, measured

POINTS: Final = 1000
"""Rows of the timeline of each recording, besides those that end at compared moments."""

BYTES, SHARE, COUNT, SECONDS = "bytes", "share", "count", "seconds"

_MEASURES: Final[dict[str, tuple[str, str]]] = {
    "peak_bytes_in_use": (BYTES, "the most bytes in use"),
    "peak_pool_bytes": (BYTES, "the most bytes of all regions"),
    "requested_at_peak": (BYTES, "requested bytes of the chunks in use at the peak"),
    "bytes_in_use_at_end": (BYTES, "bytes in use after the last event"),
    "pool_bytes_at_end": (BYTES, "bytes of all regions after the last event"),
    "external_fragmentation": (SHARE, "1 - largest free chunk / free bytes, at the peak (TensorFlow's)"),
    "worst_external_fragmentation": (SHARE, "the highest external fragmentation"),
    "peak_reserved_not_in_use": (SHARE, "1 - peak bytes in use / peak pool bytes (the ratio in papers)"),
    "internal_fragmentation": (SHARE, "1 - requested bytes / bytes in use, at the peak"),
    "failures": (COUNT, "requests that failed finally, of the first 1,000 OOM events"),
    "allocations": (COUNT, "ALLOCATE events"),
    "splits": (COUNT, "SPLIT events"),
    "merges": (COUNT, "MERGE events"),
    "extends": (COUNT, "EXTEND events: regions granted by the sub-allocator"),
    "releases": (COUNT, "RELEASE events: regions returned to the sub-allocator"),
    "seconds": (SECONDS, "from the first event to the last one"),
}
"""Measure -> its unit and its definition."""

_KINDS: Final = {
    "allocations": Kind.ALLOCATE,
    "splits": Kind.SPLIT,
    "merges": Kind.MERGE,
    "extends": Kind.EXTEND,
    "releases": Kind.RELEASE,
}
_NEEDS_REGIONS: Final = (
    "peak_pool_bytes",
    "pool_bytes_at_end",
    "external_fragmentation",
    "worst_external_fragmentation",
    "peak_reserved_not_in_use",
    "splits",
    "merges",
    "extends",
    "releases",
)
_NEEDS_REQUESTED: Final = ("requested_at_peak", "internal_fragmentation")
_NEEDS_HISTORY: Final = ("worst_external_fragmentation", "seconds", *_KINDS)


@dataclass(frozen=True)
class RecordingTotals:
    """The totals of one recording.

    Attributes:
        peak: the first step with the most bytes in use; where there is no history, the only state.
        series: of TIMELINE, over the whole recording; empty where there is no history.
        values: measure -> its value; None: not known.
    """

    peak: int
    series: NDArray[np.void]
    values: dict[str, float | None]


def recording_totals(side: RecordingSide, moments: Sequence[int]) -> RecordingTotals:
    """The totals of a recording; the model moves.

    Args:
        side: the recording.
        moments: steps at which a row of the series ends, too.
    """
    series = np.zeros(0, TIMELINE)
    with side.reading():
        if side.facts.only_state:
            peak = end_of_state(side.trace, side.facts.pool)
        else:
            series = _series(side, moments)
            peak = _peak(side, series)
        values = _values(side, peak, series)
    unknown = set(_unknown(side))
    known = {name: None if name in unknown else values[name] for name in _MEASURES}
    return RecordingTotals(peak, series, known)


def totals_table(a: RecordingTotals, b: RecordingTotals) -> pa.Table:
    """One row a measure: its value in A and in B (null: not known), the change, its unit and its definition."""
    pairs = [(a.values[name], b.values[name]) for name in _MEASURES]
    changes = [None if old is None or new is None else new - old for old, new in pairs]
    return pa.table(
        {
            "measure": pa.array(list(_MEASURES), pa.string()),
            "unit": pa.array([unit for unit, _ in _MEASURES.values()], pa.string()),
            "a": pa.array([old for old, _ in pairs], pa.float64()),
            "b": pa.array([new for _, new in pairs], pa.float64()),
            "change": pa.array(changes, pa.float64()),
            "definition": pa.array([text for _, text in _MEASURES.values()], pa.string()),
        }
    )


def highest_between(series: NDArray[np.void], steps: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The most bytes in use after any event from each of these ascending steps to the next; a row ends at each."""
    starts = np.searchsorted(series["step"], steps[:-1], side="right")
    stops = np.searchsorted(series["step"], steps[1:], side="right")
    values = series["bytes_in_use_max"]
    return np.array(
        [values[start:stop].max(initial=0) for start, stop in zip(starts, stops, strict=True)], np.uint64
    )


def _series(side: RecordingSide, moments: Sequence[int]) -> NDArray[np.void]:
    first, last = side.facts.first, side.facts.last
    side.model.seek(first)
    ends = {*equal_parts(first, last, POINTS), *(step for step in moments if step > first)}
    return measured(side.model, sorted(ends))


def _peak(side: RecordingSide, series: NDArray[np.void]) -> int:
    highest = series["bytes_in_use_max"]
    if not highest.any():
        return side.facts.first
    return int(series["bytes_in_use_max_step"][highest.argmax()])


def _values(side: RecordingSide, peak: int, series: NDArray[np.void]) -> dict[str, float | None]:
    model, facts = side.model, side.facts
    model.seek(facts.last)
    end = model.stats()
    model.seek(peak)
    at_peak = model.stats()
    pool = max(int(series["pool_bytes_max"].max(initial=0)), at_peak.pool_bytes)
    times = [int(side.trace.read(step, step + 1)["time"][0]) for step in _ends(facts.first, facts.last)]
    return {
        "peak_bytes_in_use": at_peak.bytes_in_use,
        "peak_pool_bytes": pool,
        "requested_at_peak": at_peak.requested_bytes_in_use,
        "bytes_in_use_at_end": end.bytes_in_use,
        "pool_bytes_at_end": end.pool_bytes,
        "external_fragmentation": external(at_peak),
        "worst_external_fragmentation": float(series["external_fragmentation_max"].max(initial=0.0)),
        "peak_reserved_not_in_use": 1 - at_peak.bytes_in_use / pool if at_peak.bytes_in_use else 0.0,
        "internal_fragmentation": internal(at_peak),
        "failures": len(failures(side.trace, facts.pool)),
        "seconds": (times[1] - times[0]) / 1e9 if times else 0.0,
        **{name: int(side.kinds[kind]) for name, kind in _KINDS.items()},
    }


def _ends(first: int, last: int) -> list[int]:
    return [first, last - 1] if last > first else []


def _unknown(side: RecordingSide) -> list[str]:
    details, pool = side.trace.origin.details, side.facts.pool
    unknown = [] if requested_bytes_known(details, pool) else list(_NEEDS_REQUESTED)
    if not regions_known(details, pool):
        unknown += _NEEDS_REGIONS
    return unknown + (list(_NEEDS_HISTORY) if side.facts.only_state else [])
