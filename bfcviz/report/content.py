"""HeapReport: everything that a report says of a trace, as plain data; nothing here draws."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import Diagnosis
from bfcviz.analysis.diagnosis_json import diagnosis_json
from bfcviz.analysis.growths import Growths, PoolGrowth, growths, growths_json
from bfcviz.analysis.ranks import RankSet
from bfcviz.analysis.why import diagnose, failed_steps, without_failure
from bfcviz.events.origin import STATE_ONLY, Origin, Status
from bfcviz.events.trace import Trace
from bfcviz.model.grouping import UNNAMED
from bfcviz.model.holders import Holders, holders
from bfcviz.model.model import Model, ModelStats
from bfcviz.model.timelines import TIMELINE, timeline
from bfcviz.terminal import json_text

POINTS: Final = 600
"""Rows of a timeline: more would not be seen on a page."""

FAILURES: Final = 200
"""Failed requests that are listed."""

HEAPS: Final = 50
"""Heaps that are listed."""

_COMPARED: Final = 8
"""Heaps whose peaks are compared, to find the one to show."""

_GROUPINGS: Final = ("op", "kind", "stack", "phase", "shape", "stream")


@dataclass(frozen=True)
class HeapTotals:
    """One heap at the last step of the report."""

    name: str
    stats: ModelStats
    regions: int


@dataclass(frozen=True)
class HeapReport:
    """A report of one heap of a trace, and of the file that it comes from.

    Attributes:
        origin: where the trace comes from, and how complete it is.
        length: events of the trace.
        steps: the first and the last step of the report.
        pool: the heap shown.
        shown: the diagnosis of the failure shown, or (`requested` is 0) of the heap at its peak.
        grown: of a whole trace without a failure, the growths of the pool while enough was free.
        stats: the totals at the step shown.
        failures: the diagnoses of all failed requests, in brief; at most `FAILURES`.
        failed: how many requests failed.
        heaps: the heaps of the file at the last step; at most `HEAPS`.
        model: the heap at the step shown.
        series: of TIMELINE, over the steps of the report; empty where the file has no history.
        times: seconds of the first and the last event, since the first event of the trace.
        holders: who held the memory at the step shown, by each grouping that tells something.
        saving: what a setting would save of `grown`, as a sentence; empty: nothing, or not known.
    """

    origin: Origin
    length: int
    steps: tuple[int, int]
    pool: int
    shown: Diagnosis
    grown: Growths | None
    stats: ModelStats
    failures: Sequence[Diagnosis]
    failed: int
    heaps: Sequence[HeapTotals]
    model: Model
    series: NDArray[np.void]
    times: tuple[float, float]
    holders: Sequence[Holders]
    saving: str = ""

    @property
    def options(self) -> Mapping[str, Any]:
        """The settings of the heap shown."""
        return self.origin.pools[self.pool].options

    @property
    def has_failure(self) -> bool:
        """Whether the report is of a failed request; otherwise of a peak."""
        return self.shown.event is not None

    @property
    def worst_growth(self) -> PoolGrowth | None:
        """The growth that cost most; None: a request failed, or the pool never grew while enough was free."""
        return None if self.grown is None else self.grown.worst

    @property
    def has_history(self) -> bool:
        """Whether the file says how the heap came into this state."""
        return self.origin.details.get("history") != STATE_ONLY

    @property
    def status(self) -> str:
        """How complete the file is: `complete`, `truncated` or `degraded`."""
        status = self.origin.status
        return str(Status.TRUNCATED if status == Status.RECORDING else status)

    @property
    def checks(self) -> list[str]:
        """How a reconstruction compares with the recorded numbers, as sentences."""
        checks = self.origin.details.get("checks")
        found = checks if isinstance(checks, list) else []
        return [
            f"{check['checked']:,} recorded events of {check['pool']} were rebuilt; {check['differing']:,} differ."
            for check in found
            if isinstance(check, Mapping) and check.get("checked")
        ]


def report_of(
    trace: Trace, start: int | None = None, stop: int | None = None, pool: int | None = None
) -> HeapReport:
    """The report of the steps [start, stop] of a trace.

    Args:
        trace: the events.
        start: the first step; None: the first of the trace.
        stop: the last step; None: the last of the trace.
        pool: the heap to show; None: that of the first failed request, else that with the highest peak.

    Raises:
        TraceError: the trace has no such steps or heap, or events contradict each other.
    """
    first = trace.first if start is None else start
    last = len(trace) if stop is None else stop
    failed = failed_steps(trace, pool, first, last)
    chosen = _reported_pool(trace, failed, pool, (first, last))
    model = Model(trace, chosen)
    if failed:
        shown = diagnose(trace, failed[0] - 1, model)
        model.seek(failed[0])  # a failed request changes nothing, and pictures mark it at its own step
    else:
        model.seek(_reported_peak(trace, chosen, (first, last))[1])
        shown = without_failure(trace, chosen, model)
    if trace.origin.details.get("history") == STATE_ONLY:
        series = np.zeros(0, TIMELINE)
    else:
        series = timeline(trace, chosen, first, last, POINTS)
    return HeapReport(
        origin=trace.origin,
        length=len(trace),
        steps=(first, last),
        pool=chosen,
        shown=shown,
        grown=None if failed or (first, last) != (trace.first, len(trace)) else growths(trace, chosen),
        stats=model.stats(),
        failures=[diagnose(trace, step - 1, runs=0) for step in failed[:FAILURES]],
        failed=len(failed),
        heaps=_reported_heaps(trace, last),
        model=model,
        series=series,
        times=_reported_times(trace, (first, last)),
        holders=_telling_holders([holders(model, by) for by in _GROUPINGS]),
    )


def _reported_pool(trace: Trace, failed: Sequence[int], pool: int | None, steps: tuple[int, int]) -> int:
    if pool is not None:
        return pool
    if failed:
        return int(trace.read(failed[0] - 1, failed[0])["pool"][0])
    compared = range(min(len(trace.origin.pools), _COMPARED))
    return (
        max(compared, key=lambda each: (_reported_peak(trace, each, steps)[0], -each))
        if len(compared) > 1
        else 0
    )


def _reported_peak(trace: Trace, pool: int, steps: tuple[int, int]) -> tuple[int, int]:
    """The most bytes in use within the steps, and the first step with so many."""
    first, last = steps
    whole = timeline(trace, pool, first, last, points=1)
    if not len(whole):
        return 0, first
    return int(whole["bytes_in_use_max"][0]), int(whole["bytes_in_use_max_step"][0])


def _reported_heaps(trace: Trace, step: int) -> list[HeapTotals]:
    found = []
    for pool, heap in enumerate(trace.origin.pools[:HEAPS]):
        model = Model(trace, pool)
        model.seek(step)
        found.append(HeapTotals(heap.name, model.stats(), len(model.regions())))
    return found


def _telling_holders(found: Sequence[Holders]) -> list[Holders]:
    """Those that name a holder: with a single one without a name they tell nothing."""
    return [
        each
        for each in found
        if len(rows := largest(each, 2)) > 1
        or (rows and each.by == "op" and each.path(rows[0]) != UNNAMED["op"])
    ]


def largest(found: Holders, most: int) -> list[int]:
    """The rows of the holders with most bytes of their own, the largest first."""
    own = found.rows["own_bytes"].astype(np.int64)
    order = np.argsort(-own, kind="stable")[:most]
    return [row for row in order.tolist() if own[row]]


def _reported_times(trace: Trace, steps: tuple[int, int]) -> tuple[float, float]:
    first, last = steps
    if first == last:
        return 0.0, 0.0
    begin, left, right = (
        int(trace.read(event, event + 1)["time"][0]) for event in (trace.first, first, last - 1)
    )
    return (left - begin) / 1e9, (right - begin) / 1e9


# ------------------------------------------------------------------------------
# A report as one JSON object: sizes in bytes, null for unknown.

_HOLDERS: Final = 100
_SERIES: Final = ("bytes_in_use", "pool_bytes", "free_bytes", "largest_free_chunk")


def as_json(report: HeapReport, ranks: RankSet | None = None) -> str:
    """The report as JSON text; of several ranks with all of them."""
    all_of_them = {} if ranks is None else {"ranks": ranks.to_json()}
    return json_text(report_json(report) | all_of_them) + "\n"


def report_json(report: HeapReport) -> dict[str, Any]:
    """The report as JSON values."""
    origin = report.origin
    return {
        "file": origin.source,
        "format": str(origin.format),
        "status": report.status,
        "reasons": list(origin.reasons),
        "checks": report.checks,
        "events": report.length,
        "steps": list(report.steps),
        "seconds": list(report.times),
        "shown": {
            "because": "failure" if report.has_failure else "peak",
            "pool": report.pool,
            "step": report.shown.step,
            **diagnosis_json(report.shown),
        },
        "totals": asdict(report.stats),
        "failures": [diagnosis_json(each) for each in report.failures],
        "failed_requests": report.failed,
        **(growths_json([report.grown]) if report.grown is not None else {}),
        "heaps": [
            {"name": heap.name, "regions": heap.regions, **asdict(heap.stats)} for heap in report.heaps
        ],
        "settings": {"bytes_limit": origin.pools[report.pool].limit, **report.options},
        "holders": {found.by: _report_holders_json(found) for found in report.holders},
        "timeline": _report_timeline_json(report),
    }


def _report_holders_json(found: Holders) -> list[dict[str, Any]]:
    rows = found.rows
    return [
        {
            "holder": found.path(row),
            "bytes": int(rows["own_bytes"][row]),
            "chunks": int(rows["own_chunks"][row]),
            "requested": int(rows["own_requested"][row]) if found.requested_known else None,
        }
        for row in largest(found, _HOLDERS)
    ]


def _report_timeline_json(report: HeapReport) -> list[dict[str, Any]]:
    series = report.series
    if not len(series):
        return []
    fields = {"step": "step", "time_ns": "time", **{name: f"{name}_last" for name in _SERIES}}
    fields["external_fragmentation"] = "external_fragmentation_last"
    columns = [series[field].tolist() for field in fields.values()]
    return [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]
