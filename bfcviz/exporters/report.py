"""What a report says of a trace: `HeapReport`, its data; its sentences and tables; all of it as JSON or Markdown.

Nothing here draws. The sentences and tables are plain text: each renderer escapes them in its own way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.account import DeviceAccount
from bfcviz.analysis.diagnosis import (
    Diagnosis,
    Verdict,
    failure_headline,
    free_words,
    request_words,
    verdict_sentence,
    verdict_title,
    without_failure,
)
from bfcviz.analysis.failures import diagnose, diagnosis_json, growing_sentence
from bfcviz.analysis.growth_forecast import Forecast, limit_forecast
from bfcviz.analysis.leaks import Growth, growth_until
from bfcviz.analysis.missing_numbers import missing_of_chunks
from bfcviz.analysis.pinned_runs import Pin, largest_first
from bfcviz.analysis.pool_growths import (
    Growths,
    PoolGrowth,
    growth_explanation,
    growths,
    growths_json,
)
from bfcviz.analysis.ranks import RankSet
from bfcviz.analysis.short_names import shortened_name
from bfcviz.events.label_table import NO_LABEL
from bfcviz.events.origin import Origin, holds_only_states, requested_bytes_known
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import failed_steps
from bfcviz.model.grouping import OF_SIZE, UNNAMED
from bfcviz.model.holders import Holders, holders, largest_holder_rows, other_holders
from bfcviz.model.model import Model, ModelStats
from bfcviz.model.timelines import TIMELINE, timeline
from bfcviz.terminal import escaped, json_text
from bfcviz.units import counted, format_bytes, signed_bytes

POINTS: Final = 600
"""Rows of a timeline: more would not be seen on a page."""

FAILURES: Final = 200  # failed requests that are listed

HEAPS: Final = 50  # heaps that are listed

_COMPARED: Final = 8  # heaps whose peaks are compared, to find the one to show

_GROUPINGS: Final = ("op", "kind", "stack", "phase", "shape", "stream")


@dataclass(frozen=True)
class HeapTotals:
    """One heap of a report, at its last step."""

    name: str
    stats: ModelStats
    regions: int


@dataclass(frozen=True)
class HeapReport:
    """A report of one heap of a trace, and of the file that it comes from."""

    origin: Origin  # where the trace comes from, and how complete it is
    length: int  # events of the trace
    steps: tuple[int, int]  # the first and the last step of the report
    pool: int  # the heap shown
    shown: Diagnosis  # the diagnosis of the failure shown, or (`requested` is 0) of the heap at its peak
    grown: Growths | None  # of a whole trace without a failure, the growths of the pool while enough was free
    stats: ModelStats  # the totals at the step shown
    failures: Sequence[Diagnosis]  # the diagnoses of all failed requests, in brief; at most `FAILURES`
    failed: int  # how many requests failed
    heaps: Sequence[HeapTotals]  # the heaps of the file at the last step; at most `HEAPS`
    model: Model  # the heap at the step shown
    series: NDArray[np.void]  # of TIMELINE, over the steps of the report; empty where the file has no history
    times: tuple[float, float]  # seconds of the first and the last event, since the first event of the trace
    holders: Sequence[Holders]  # who held the memory at the step shown, by each grouping that tells something
    growing: Growth | None = None  # of a whole trace without a failure
    forecast: Forecast | None = None  # when that reaches the limit
    saving: str = ""  # what a setting would save of `grown`, as a sentence; empty: nothing, or not known

    @property
    def options(self) -> Mapping[str, Any]:
        """The settings of the heap that a report shows."""
        return self.origin.pools[self.pool].options

    @property
    def has_failure(self) -> bool:
        """Whether a report is of a failed request; otherwise of a peak."""
        return self.shown.event is not None

    @property
    def worst_growth(self) -> PoolGrowth | None:
        """The growth of the pool that a report is about; None: a request failed, or none grew while enough was free."""
        return None if self.grown is None else self.grown.worst

    @property
    def has_history(self) -> bool:
        """Whether the file of a report says how the heap came into this state."""
        return not holds_only_states(self.origin.details)

    @property
    def status(self) -> str:
        """How complete the file of a report is: `complete`, `recording`, `truncated` or `degraded`."""
        return str(self.origin.status)

    @property
    def checks(self) -> list[str]:
        """How a reconstruction compares with the recorded numbers, as sentences of a report."""
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
    has_history = not holds_only_states(trace.origin.details)
    is_searched = not failed and (first, last) == (trace.first, len(trace))
    series = timeline(trace, chosen, first, last, POINTS) if has_history else np.zeros(0, TIMELINE)
    growing = growth_until(model, last) if is_searched else None
    return HeapReport(
        origin=trace.origin,
        length=len(trace),
        steps=(first, last),
        pool=chosen,
        shown=shown,
        grown=growths(trace, chosen) if is_searched else None,
        stats=model.stats(),
        failures=[diagnose(trace, step - 1, runs=0) for step in failed[:FAILURES]],
        failed=len(failed),
        heaps=_reported_heaps(trace, last),
        model=model,
        series=series,
        times=_reported_times(trace, (first, last)),
        holders=_telling_holders([holders(model, by) for by in _GROUPINGS]),
        growing=growing,
        forecast=None if growing is None else limit_forecast(model, growing, last),
    )


def _reported_pool(trace: Trace, failed: Sequence[int], pool: int | None, steps: tuple[int, int]) -> int:
    """The heap that a report shows."""
    if pool is not None:
        return pool
    if failed:
        return int(trace.read(failed[0] - 1, failed[0])["pool"][0])
    compared = range(min(len(trace.origin.pools), _COMPARED))
    if len(compared) < 2:
        return 0
    return max(compared, key=lambda each: (_reported_peak(trace, each, steps)[0], -each))


def _reported_peak(trace: Trace, pool: int, steps: tuple[int, int]) -> tuple[int, int]:
    """The most bytes in use within the steps of a report, and the first step with so many."""
    first, last = steps
    whole = timeline(trace, pool, first, last, points=1)
    if not len(whole):
        return 0, first
    return int(whole["bytes_in_use_max"][0]), int(whole["bytes_in_use_max_step"][0])


def _reported_heaps(trace: Trace, step: int) -> list[HeapTotals]:
    """The heaps of a report, each at its last step."""
    found = []
    for pool, heap in enumerate(trace.origin.pools[:HEAPS]):
        model = Model(trace, pool)
        model.seek(step)
        found.append(HeapTotals(heap.name, model.stats(), len(model.regions())))
    return found


def _telling_holders(found: Sequence[Holders]) -> list[Holders]:
    """The holders that a report shows: with a single one without a name they tell nothing."""
    return [
        each
        for each in found
        if len(rows := largest_holder_rows(each, 2)) > 1
        or (rows and each.by == "op" and each.path(rows[0]) != UNNAMED["op"])
    ]


def _reported_times(trace: Trace, steps: tuple[int, int]) -> tuple[float, float]:
    """The seconds from the start of the trace to the first and the last event of a report."""
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
    """A report as JSON text; of several ranks with all of them."""
    origin = report.origin
    values = {
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
        "totals": _report_totals_json(report.stats, origin, report.pool),
        "failures": [diagnosis_json(each) for each in report.failures],
        "failed_requests": report.failed,
        **(growths_json([report.grown]) if report.grown is not None else {}),
        **({} if report.growing is None else {"keeps_growing": _report_growing_json(report.growing)}),
        "heaps": [
            {"name": heap.name, "regions": heap.regions, **_report_totals_json(heap.stats, origin, pool)}
            for pool, heap in enumerate(report.heaps)
        ],
        "settings": {"bytes_limit": origin.pools[report.pool].limit, **report.options},
        "holders": {found.by: _report_holders_json(found) for found in report.holders},
        "timeline": _report_timeline_json(report),
        **({} if ranks is None else {"ranks": ranks.to_json()}),
    }
    return json_text(values) + "\n"


def _report_totals_json(stats: ModelStats, origin: Origin, pool: int) -> dict[str, int | None]:
    known = requested_bytes_known(origin.details, pool)
    return asdict(stats) | ({} if known else {"requested_bytes_in_use": None})


def _report_holders_json(found: Holders) -> list[dict[str, Any]]:
    """The holders of a report as JSON values."""
    rows = found.rows
    return [
        {
            "holder": found.path(row),
            "bytes": int(rows["own_bytes"][row]),
            "chunks": int(rows["own_chunks"][row]),
            "requested": int(rows["own_requested"][row]) if found.requested_known else None,
        }
        for row in largest_holder_rows(found, _HOLDERS)
    ]


def _report_growing_json(found: Growth) -> list[dict[str, Any]]:
    """What grows with every step of the program as JSON values."""
    rows = [(row, *found.a_step(row)) for row in range(min(found.growing, _HOLDERS))]
    return [
        {
            "holder": found.names[row],
            "bytes": int(found.rows["bytes"][row]),
            "bytes_a_step": num_bytes,
            "chunks_a_step": chunks,
            "every_step": found.is_every(row),
        }
        for row, chunks, num_bytes in rows
    ]


def _report_timeline_json(report: HeapReport) -> list[dict[str, Any]]:
    """The memory over the steps of a report as JSON values."""
    series = report.series
    if not len(series):
        return []
    fields = {"step": "step", "time_ns": "time", **{name: f"{name}_last" for name in _SERIES}}
    fields["external_fragmentation"] = "external_fragmentation_last"
    columns = [series[field].tolist() for field in fields.values()]
    return [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]


# ------------------------------------------------------------------------------
# The sentences and tables of a report, as plain text: each renderer escapes them in its own way.

MOST_ROWS: Final = 12
"""Holders, and chunks in the way, that are listed."""

GROWS: Final = "What keeps growing"

NO_HOLDERS: Final = "The file does not say who allocated the chunks; their sizes are all there is:"

_LONG: Final = 160  # characters of a name
_CALLERS: Final = 3  # frames of a stack that are named beside the innermost one
_FAR: Final = 2  # a limit so many times as large as all other sizes has no bar


class ReportRow(NamedTuple):
    """One line of a table in a report: a name, its value, and its share (0..1) of something, if it has one."""

    name: str
    value: str
    share: float | None = None
    note: str = ""


def title(report: HeapReport) -> str:
    """The title of a report: its verdict in a few words."""
    if report.worst_growth is not None:
        return "The pool grew while enough was free"
    if not report.has_failure and not report.has_history:
        return "The file does not say whether a request failed"
    if report.growing is not None:
        return "No request failed, but the memory in use keeps growing"
    return verdict_title(report.shown.verdict if report.has_failure else Verdict.NO_FAILURE)


def moment_words(report: HeapReport) -> str:
    """The moment that a report is about, as the end of a heading; empty for the state of a file."""
    return "at the failure" if report.has_failure else "at the peak" if report.has_history else ""


def summary(report: HeapReport) -> str:
    """What happened, in a sentence of a report."""
    found = report.shown
    where = f"in {found.pool_name} at step {found.told_step:,} of {report.length:,}"
    if report.has_failure:
        return f"{request_words(found)} {where}."
    at = "The heap is shown at its peak" if report.has_history else "The file holds the heap of one moment"
    return f"{at}: {format_bytes(report.stats.bytes_in_use)} in use {where}."


def numbers(report: HeapReport) -> str:
    """What was asked for and what was free, in a few words of a report; empty where that is not known."""
    found = report.shown
    if not report.has_failure or not found.knows("free_bytes", "largest_free_chunk"):
        return ""
    return f"{format_bytes(found.requested)} asked for, {free_words(found)}"


def explanation(report: HeapReport) -> str:
    """Why it happened, in a report; empty where nothing failed and the pool did not grow in vain."""
    if report.grown is not None and report.worst_growth is not None:
        return growth_explanation(report.grown)
    return verdict_sentence(report.shown) if report.has_failure else ""


def paragraphs(report: HeapReport) -> list[str]:
    """A report's first paragraphs: what happened, why, who holds the memory; of a pool that grew in vain first why."""
    first = [summary(report), explanation(report)]
    if report.worst_growth is not None:
        first.reverse()
    grows = ""
    if report.growing is not None:
        grows = growing_sentence(report.model.trace, report.growing, report.forecast)
    return [text for text in (*first, grows, holder_line(report)) if text]


def advice(report: HeapReport) -> list[str]:
    """What would have helped, in a report, one sentence each."""
    return [each.text for each in report.shown.advice] or [report.saving] * bool(report.saving)


def sizes(report: HeapReport) -> list[ReportRow]:
    """The sizes that are easily confused, as rows of a report; the share is of the largest."""
    found = report.shown
    values: list[tuple[str, int | None, str]] = [("limit", found.bytes_limit, "")]
    if found.recorded.has_heap:
        fragmentation = f"external fragmentation {100 * found.external_fragmentation:.1f} %"
        known = [
            ("pool_bytes", "pool", found.pool_bytes, f"in {counted(found.regions.count, 'region')}"),
            ("bytes_in_use", "in use", found.bytes_in_use, f"in {counted(found.chunks_in_use, 'chunk')}"),
            ("", "wasted of that", found.wasted, "not requested" if found.wasted is not None else ""),
            ("free_bytes", "free in the pool", found.free_bytes, f"in {counted(found.free_chunks, 'chunk')}"),
            ("largest_free_chunk", "largest free chunk", found.largest_free_chunk, fragmentation),
        ]
        values += [
            (name, size, note) if found.knows(number) else (name, None, "")
            for number, name, size, note in known
        ]
    if report.has_failure:
        values.insert(0, ("asked for", found.requested, "" if found.recorded.is_exact else "printed rounded"))
        if found.device_used is not None:
            values.append(("in use on the device, by its driver", found.device_used, ""))
    else:
        values.append(("peak in use until then", report.stats.peak_bytes_in_use, ""))
    most = max([size or 0 for name, size, _ in values if name != "limit"] + [1])
    return [
        # A limit far above all the others would make their bars too short to compare.
        ReportRow(name, "unknown" if size is None else format_bytes(size), None, note)
        if size is None or size > _FAR * most
        else ReportRow(
            name, format_bytes(size), size / max(most, min(found.bytes_limit or 0, _FAR * most)), note
        )
        for name, size, note in values
    ]


def pins(report: HeapReport) -> tuple[str, list[ReportRow]]:
    """What a report says lies in the way of the request at the best place: a sentence, and its chunks, largest first.

    Of a growth: the lines of code beside the free memory, with the share that each strands.
    """
    found = report.shown
    if (worst := report.worst_growth) is not None and (worst.pins or worst.empty):
        rows = [
            ReportRow(
                short_report_name(pin.line),
                format_bytes(pin.stranded),
                pin.stranded / max(worst.free, 1),
                f"{format_bytes(pin.bytes)} in {counted(pin.chunks, 'chunk')}",
            )
            for pin in worst.pins[:MOST_ROWS]
        ]
        if worst.empty:
            name, note = "regions without a chunk in use", "each is too small"
            rows.append(ReportRow(name, format_bytes(worst.empty), worst.empty / max(worst.free, 1), note))
        return f"At step {worst.step:,}, with the free memory that each line of code strands:", rows
    if not report.has_failure or not found.pinned_by or not found.runs:
        return "", []
    run = found.runs[0]
    shown = largest_first(run.pins)[:MOST_ROWS]
    sentence = (
        f"The request would fit at {run.address:#x} (region {run.region}) if {format_bytes(run.bytes_in_use)} in "
        f"{counted(run.chunks_in_use, 'chunk')} were freed."
    )
    if run.chunks_in_use > len(shown):
        sentence += f" The {len(shown)} largest:"
    return sentence, [_report_pin_row(pin, run.bytes_in_use) for pin in shown]


def growing_rows(report: HeapReport) -> list[ReportRow]:
    """The holders that grow with every step of the program, as rows of a report; the share is of all that grew so."""
    if (found := report.growing) is None:
        return []
    rows = [(row, *found.a_step(row)) for row in range(min(found.growing, MOST_ROWS))]
    return [
        ReportRow(
            short_report_name(found.names[row]),
            f"{signed_bytes(num_bytes)} {'every' if found.is_every(row) else 'a'} step",
            int(found.rows["bytes"][row]) / max(found.grown_bytes, 1),
            f"{chunks:+,.1f} chunks {'every' if found.is_every(row) else 'a'} step",
        )
        for row, chunks, num_bytes in rows
    ]


def _report_pin_row(pin: Pin, whole: int) -> ReportRow:
    """The row of a report on one chunk in the way."""
    return ReportRow(
        short_report_name(pin.label) or NO_LABEL,
        format_bytes(pin.size),
        pin.size / max(whole, 1),
        ", ".join([f"at {pin.address:#x}", *pin.notes]),
    )


def holder_line(report: HeapReport) -> str:
    """The largest holders in one sentence of a report; empty where the file names none."""
    if not report.holders:
        return ""
    found = report.holders[0]
    rows = [row for row in holder_rows(found) if not row.name.endswith(" others")][:3]
    parts = ", ".join(f"{row.name} {100 * (row.share or 0):.0f} %" for row in rows)
    return f"Of the {format_bytes(found.bytes_in_use)} in use, by {found.by}: {parts}." if parts else ""


def holder_rows(found: Holders) -> list[ReportRow]:
    """The largest holders as rows of a report, and a row for the others; the share is of all bytes in use."""
    whole, own, chunks = max(found.bytes_in_use, 1), found.rows["own_bytes"], found.rows["own_chunks"]
    rows = largest_holder_rows(found, MOST_ROWS)
    lines = []
    for row in rows:
        name, callers = _holder_name(found, row)
        note = f"in {counted(int(chunks[row]), 'chunk')}" + (f", called by {callers}" if callers else "")
        lines.append(ReportRow(name, format_bytes(int(own[row])), int(own[row]) / whole, note))
    rest = other_holders(found, rows)
    if rest.bytes:
        note, name = f"in {counted(rest.chunks, 'chunk')}", f"{rest.holders:,} others"
        lines.append(ReportRow(name, format_bytes(rest.bytes), rest.bytes / whole, note))
    return lines


def _holder_name(found: Holders, row: int) -> tuple[str, str]:
    """The name of a holder in a report: its path; of a stack its innermost frame, and the callers of that."""
    if found.by != "stack":
        return short_report_name(found.path(row)) or NO_LABEL, ""
    frames: list[str] = []
    while row > 0 and len(frames) <= _CALLERS:
        frames.append(short_report_name(found.names[row]))
        row = int(found.rows["parent"][row])
    return frames[0], " < ".join(frames[1:])


def by_size(report: HeapReport) -> list[ReportRow]:
    """Rows of a report on the chunks in use by size, those with most bytes first: where the file names no holder.

    Sizes of the same text are one row, as in a dashboard.
    """
    found = holders(report.model, "size")
    own, chunks, whole = found.rows["own_bytes"], found.rows["own_chunks"], max(found.bytes_in_use, 1)
    shown = largest_holder_rows(found, MOST_ROWS)
    rows = [
        ReportRow(
            f"{int(chunks[row]):,} x {found.path(row).removeprefix(OF_SIZE)}",
            format_bytes(int(own[row])),
            int(own[row]) / whole,
        )
        for row in shown
    ]
    rest = other_holders(found, shown)
    if rest.holders:
        name = f"{counted(rest.chunks, 'chunk')} of {counted(rest.holders, 'other size')}"
        rows.append(ReportRow(name, format_bytes(rest.bytes), rest.bytes / whole))
    return rows


def settings(report: HeapReport) -> list[ReportRow]:
    """The settings of the heap that are known, as rows of a report."""
    heap = report.origin.pools[report.pool]
    limit = "unknown" if heap.limit is None else f"{format_bytes(heap.limit)} ({heap.limit:,} B)"
    framework = report.origin.details.get("framework")
    rows = [ReportRow("limit", limit), ReportRow("framework", str(framework) if framework else "unknown")]
    return rows + [ReportRow(name, short_report_name(str(value))) for name, value in report.options.items()]


def completeness(report: HeapReport) -> list[str]:
    """How complete the file of a report is, one sentence each."""
    missing = missing_of_chunks(report.model.trace, report.pool)
    words = {
        "complete": "The file was read whole, and nothing was guessed."
        if missing
        else "The file is complete: nothing is missing and nothing was guessed.",
        "recording": "The program was at work when this was made: what it did later is not shown.",
        "truncated": "The file is truncated: its events are right, but the end is missing.",
        "degraded": "The file is degraded: events or names are missing, or were guessed.",
    }
    found = [
        words[report.status],
        *(f"{reason[:1].upper()}{reason[1:]}." for reason in report.origin.reasons),
    ]
    if not report.has_history:
        found.append(
            "It holds the heap of single moments, and no history: there is nothing over time to show."
        )
    if missing:
        found.append(f"{missing[:1].upper()}{missing[1:]}.")
    return found + report.checks


def other_failures(report: HeapReport) -> list[ReportRow]:
    """Rows of a report on every failed request, if there are several."""
    if report.failed < 2:
        return []
    rows = [
        ReportRow(
            f"step {each.told_step:,}",
            f"{each.pool_name}: {failure_headline(each)}",
            None,
            short_report_name(each.label),
        )
        for each in report.failures
    ]
    left = report.failed - len(rows)
    return rows + ([ReportRow(f"and {left:,} more", "")] if left else [])


def other_heaps(report: HeapReport) -> list[ReportRow]:
    """Rows of a report on every heap of the file at the last step, if there are several."""
    if len(report.origin.pools) < 2:
        return []
    rows = [
        ReportRow(
            heap.name,
            f"{format_bytes(heap.stats.bytes_in_use)} in use of {format_bytes(heap.stats.pool_bytes)} pool",
            None,
            f"largest free chunk {format_bytes(heap.stats.largest_free_chunk)}",
        )
        for heap in report.heaps
    ]
    left = len(report.origin.pools) - len(rows)
    return rows + ([ReportRow(f"and {left:,} more", "")] if left else [])


def facts(report: HeapReport) -> list[str]:
    """The file of a report, its format, its size and its steps, in a few words each."""
    origin, (first, last) = report.origin, report.steps
    found = [str(origin.format), f"{report.length:,} events"]
    if (first, last) != (0, report.length):
        found.append(f"steps {first:,} to {last:,}")
    seconds = report.times[1] - report.times[0]
    if seconds > 0:
        found.append(f"{seconds:.3g} s")
    return [*found, report.status]


def short_report_name(text: str) -> str:
    """A name in a report: the text without its middle where it is longer than a name may be."""
    return shortened_name(text, _LONG)


# ------------------------------------------------------------------------------
# A report as Markdown, for an issue or a chat: the same data as the page, without pictures.

_BAR: Final = 20  # characters


def as_markdown(report: HeapReport, ranks: RankSet | None = None) -> str:
    """A report as Markdown text; of several ranks a table of them first."""
    lines = [
        *([] if ranks is None else _ranks_markdown(ranks)),
        f"# {escaped(title(report))}",
        "",
        *([f"**{escaped(numbers(report))}**", ""] if numbers(report) else []),
        escaped(f"{report.origin.source or 'A trace'}: {', '.join(facts(report))}"),
        "",
        *map(escaped, paragraphs(report)),
    ]
    if advised := advice(report):
        lines += ["", "## What would help", ""]
        lines += [f"{number}. {escaped(text)}" for number, text in enumerate(advised, 1)]
    lines += _report_section_markdown("Sizes", sizes(report))
    if report.shown.account is not None:
        lines += _report_section_markdown("Memory of the device", *_device_account_rows(report.shown.account))
    sentence, rows = pins(report)
    lines += _report_section_markdown("What is in the way", rows, sentence)
    lines += _report_section_markdown(GROWS, growing_rows(report))
    for found in report.holders:
        lines += _report_section_markdown(
            f"Who holds the memory, by {found.by.replace('_', ' ')}", holder_rows(found)
        )
    if not report.holders:
        lines += _report_section_markdown("Chunks in use, by size", by_size(report), NO_HOLDERS)
    lines += _report_section_markdown("Settings", settings(report))
    lines += _report_section_markdown("All failed requests", other_failures(report))
    lines += _report_section_markdown("All heaps of the file", other_heaps(report))
    lines += ["", "## How complete the file is", ""]
    lines += [f"- {escaped(text)}" for text in completeness(report)]
    return "\n".join(lines) + "\n"


def _device_account_rows(account: DeviceAccount) -> tuple[list[ReportRow], str]:
    """Rows of a report on the parts of the device's memory, and a sentence."""
    whole = account.total
    rows = [
        ReportRow(part.name, format_bytes(part.size), part.size / whole if whole else None, part.note)
        for part in account.parts
        if part.size
    ]
    return rows, " ".join([f"{account.device}: {account.short}.", *account.contradictions])


def _ranks_markdown(ranks: RankSet) -> list[str]:
    """What a report as Markdown begins with where there are several ranks: what differs, and their table."""
    head, *rows = ranks.rows
    texts = [ranks.headline, *ranks.failure_lines, *ranks.difference_lines, *ranks.problem_lines]
    return [
        "# Ranks",
        "",
        *(f"- {escaped(text)}" for text in texts),
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(map(escaped, row))} |" for row in rows),
        "",
        f"The rest is about {escaped(ranks.worst_heap.name)}.",
        "",
    ]


def _report_section_markdown(title: str, rows: Sequence[ReportRow], sentence: str = "") -> list[str]:
    """A section of a report as Markdown: a heading and a table; nothing without rows."""
    if not rows:
        return []
    has_shares = any(row.share is not None for row in rows)
    lines = ["", f"## {title}", ""]
    lines += [escaped(sentence), ""] if sentence else []
    lines += [f"| | | |{' |' * has_shares}", f"|---|---:|---|{'---|' * has_shares}"]
    for row in rows:
        cells = [escaped(row.name), escaped(row.value), escaped(row.note)]
        if has_shares:
            cells.append("" if row.share is None else "█" * round(_BAR * row.share))
        lines.append(f"| {' | '.join(cells)} |")
    return lines
