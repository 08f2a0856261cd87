"""The sentences and tables of a report, as plain text: each renderer escapes them in its own way."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from bfcviz.analysis import short_names
from bfcviz.analysis.account import DeviceAccount
from bfcviz.analysis.diagnosis import (
    Pin,
    Verdict,
    failure_headline,
    free_words,
    request_words,
    verdict_sentence,
    verdict_title,
)
from bfcviz.analysis.growths import growth_line, growth_sentence
from bfcviz.analysis.ranks import RankSet
from bfcviz.model.holders import Holders
from bfcviz.report.content import HeapReport, largest
from bfcviz.terminal import escaped
from bfcviz.units import format_bytes

_BAR: Final = 20  # characters

# ------------------------------------------------------------------------------
# The sentences and tables of a report, as plain text: each renderer escapes them in its own way.

MOST_ROWS: Final = 12
"""Holders, and chunks in the way, that are listed."""

NO_HOLDERS: Final = "The file does not say who allocated the chunks; their sizes are all there is:"

_LONG: Final = 160  # characters of a name
_CALLERS: Final = 3  # frames of a stack that are named beside the innermost one
_FAR: Final = 2  # a limit so many times as large as all other sizes has no bar


class ReportRow(NamedTuple):
    """One line of a table: a name, its value, and its share (0..1) of something, if it has one."""

    name: str
    value: str
    share: float | None = None
    note: str = ""


def title(report: HeapReport) -> str:
    """The verdict in a few words."""
    if report.worst_growth is not None:
        return "The pool grew while enough was free"
    if not report.has_failure and not report.has_history:
        return "The file does not say whether a request failed"
    return verdict_title(report.shown.verdict if report.has_failure else Verdict.NO_FAILURE)


def summary(report: HeapReport) -> str:
    """What happened, in a sentence."""
    found = report.shown
    where = f"in {found.pool_name} at step {found.told_step:,} of {report.length:,}"
    if not report.has_failure:
        at = (
            "The heap is shown at its peak" if report.has_history else "The file holds the heap of one moment"
        )
        return f"{at}: {format_bytes(report.stats.bytes_in_use)} in use {where}."
    return f"{request_words(found)} {where}."


def numbers(report: HeapReport) -> str:
    """What was asked for and what was free, in a few words; empty where that is not known."""
    found = report.shown
    if not report.has_failure or not found.knows("free_bytes", "largest_free_chunk"):
        return ""
    return f"{format_bytes(found.requested)} asked for, {free_words(found)}"


def explanation(report: HeapReport) -> str:
    """Why, with the numbers; empty where nothing failed and the pool did not grow in vain."""
    if report.grown is not None and (worst := report.worst_growth) is not None:
        return f"{growth_line(report.grown)}. At step {worst.step:,}, {growth_sentence(worst)}"
    return verdict_sentence(report.shown) if report.has_failure else ""


def paragraphs(report: HeapReport) -> list[str]:
    """What happened, why, and who holds the memory; of a pool that grew in vain first why."""
    first = [summary(report), explanation(report)]
    if report.worst_growth is not None:
        first.reverse()
    return [text for text in (*first, holder_line(report)) if text]


def advice(report: HeapReport) -> list[str]:
    """What would have helped, one sentence each."""
    return [each.text for each in report.shown.advice] or [report.saving] * bool(report.saving)


def sizes(report: HeapReport) -> list[ReportRow]:
    """The sizes that are easily confused, beside each other; the share is of the largest."""
    found = report.shown
    values: list[tuple[str, int | None, str]] = [("limit", found.bytes_limit, "")]
    if found.recorded.has_heap:
        fragmentation = f"external fragmentation {100 * found.external_fragmentation:.1f} %"
        known = [
            ("pool_bytes", "pool", found.pool_bytes, _in_count_text(found.regions.count, "region")),
            ("bytes_in_use", "in use", found.bytes_in_use, _in_count_text(found.chunks_in_use, "chunk")),
            ("", "wasted of that", found.wasted, "not requested" if found.wasted is not None else ""),
            ("free_bytes", "free in the pool", found.free_bytes, _in_count_text(found.free_chunks, "chunk")),
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


def _in_count_text(number: int, what: str) -> str:
    return f"in {number:,} {what}{'' if number == 1 else 's'}"


def pins(report: HeapReport) -> tuple[str, list[ReportRow]]:
    """What lies in the way at the best place for the request: a sentence, and its chunks, the largest first.

    Of a growth: the lines of code beside the free memory, with the share that each strands.
    """
    found = report.shown
    if (worst := report.worst_growth) is not None and (worst.pins or worst.empty):
        rows = [
            ReportRow(
                shortened(pin.line),
                format_bytes(pin.stranded),
                pin.stranded / max(worst.free, 1),
                f"{format_bytes(pin.bytes)} {_in_count_text(pin.chunks, 'chunk')}",
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
    shown = sorted(run.pins, key=lambda pin: (-pin.size, pin.address))[:MOST_ROWS]
    sentence = (
        f"The request would fit at {run.address:#x} (region {run.region}) if {format_bytes(run.bytes_in_use)} in "
        f"{run.chunks_in_use:,} chunk{'s' * (run.chunks_in_use != 1)} were freed."
    )
    if run.chunks_in_use > len(shown):
        sentence += f" The {len(shown)} largest:"
    return sentence, [_report_pin_row(pin, run.bytes_in_use) for pin in shown]


def _report_pin_row(pin: Pin, whole: int) -> ReportRow:
    notes = [f"at {pin.address:#x}"]
    if pin.age is not None:
        notes.append(
            f"allocated {pin.age:,} events before" + ("" if pin.age_s is None else f" ({pin.age_s:.3g} s)")
        )
    if pin.freed is not None:
        notes.append(f"freed at event {pin.freed:,}")
    frames = pin.details.get("stack", "").strip().splitlines()
    return ReportRow(
        shortened(pin.label) or "no name",
        format_bytes(pin.size),
        pin.size / max(whole, 1),
        ", ".join(notes + frames[:1]),
    )


def holder_line(report: HeapReport) -> str:
    """The largest holders in one sentence; empty where the file names none."""
    if not report.holders:
        return ""
    found = report.holders[0]
    rows = [row for row in holder_rows(found) if not row.name.endswith(" others")][:3]
    parts = [f"{row.name} {100 * (row.share or 0):.0f} %" for row in rows]
    return (
        f"Of the {format_bytes(found.bytes_in_use)} in use, by {found.by}: {', '.join(parts)}."
        if parts
        else ""
    )


def holder_rows(found: Holders) -> list[ReportRow]:
    """The holders with most bytes, and a row for the others; the share is of all bytes in use."""
    whole, own, chunks = max(found.bytes_in_use, 1), found.rows["own_bytes"], found.rows["own_chunks"]
    rows = largest(found, MOST_ROWS)
    lines = []
    for row in rows:
        name, callers = _holder_name(found, row)
        note = _in_count_text(int(chunks[row]), "chunk") + (f", called by {callers}" if callers else "")
        lines.append(ReportRow(name, format_bytes(int(own[row])), int(own[row]) / whole, note))
    rest = found.bytes_in_use - sum(int(own[row]) for row in rows)
    if rest:
        others = len(largest(found, len(found))) - len(rows)
        left = found.chunks_in_use - sum(int(chunks[row]) for row in rows)
        lines.append(
            ReportRow(f"{others:,} others", format_bytes(rest), rest / whole, _in_count_text(left, "chunk"))
        )
    return lines


def _holder_name(found: Holders, row: int) -> tuple[str, str]:
    """The path of a holder; of a stack its innermost frame, and the callers of that."""
    if found.by != "stack":
        return shortened(found.path(row)) or "no name", ""
    frames: list[str] = []
    while row > 0 and len(frames) <= _CALLERS:
        frames.append(shortened(found.names[row]))
        row = int(found.rows["parent"][row])
    return frames[0], " < ".join(frames[1:])


def by_size(report: HeapReport) -> list[ReportRow]:
    """The chunks in use by their size, those with most bytes first: all there is where the file names no holder."""
    chunks = report.model.in_use()["size"]
    sizes, counts = np.unique(chunks, return_counts=True)
    bytes_of = sizes.astype(np.float64) * counts
    whole = max(float(bytes_of.sum()), 1.0)
    order = np.argsort(-bytes_of, kind="stable")
    rows = [
        ReportRow(
            f"{int(counts[at]):,} x {format_bytes(int(sizes[at]))}",
            format_bytes(int(sizes[at]) * int(counts[at])),
            float(bytes_of[at]) / whole,
        )
        for at in order[:MOST_ROWS].tolist()
    ]
    rest = order[MOST_ROWS:]
    if len(rest):
        left = float(bytes_of[rest].sum())
        rows.append(
            ReportRow(
                f"{int(counts[rest].sum()):,} chunks of {len(rest):,} other sizes",
                format_bytes(left),
                left / whole,
            )
        )
    return rows


def settings(report: HeapReport) -> list[ReportRow]:
    """The settings of the heap that are known."""
    heap = report.origin.pools[report.pool]
    limit = "unknown" if heap.limit is None else f"{format_bytes(heap.limit)} ({heap.limit:,} B)"
    framework = report.origin.details.get("framework")
    rows = [ReportRow("limit", limit), ReportRow("framework", str(framework) if framework else "unknown")]
    return rows + [ReportRow(name, shortened(str(value))) for name, value in report.options.items()]


def completeness(report: HeapReport) -> list[str]:
    """How complete the input is, one sentence each."""
    words = {
        "complete": "The file is complete: nothing is missing and nothing was guessed.",
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
    return found + report.checks


def other_failures(report: HeapReport) -> list[ReportRow]:
    """Every failed request in one line, if there are several."""
    if report.failed < 2:
        return []
    rows = [
        ReportRow(
            f"step {each.told_step:,}",
            f"{each.pool_name}: {failure_headline(each)}",
            None,
            shortened(each.label),
        )
        for each in report.failures
    ]
    left = report.failed - len(rows)
    return rows + ([ReportRow(f"and {left:,} more", "")] if left else [])


def other_heaps(report: HeapReport) -> list[ReportRow]:
    """Every heap of the file at the last step, if there are several."""
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
    """The file, its format, its size and the steps of the report, in a few words each."""
    origin, (first, last) = report.origin, report.steps
    found = [str(origin.format), f"{report.length:,} events"]
    if (first, last) != (0, report.length):
        found.append(f"steps {first:,} to {last:,}")
    seconds = report.times[1] - report.times[0]
    if seconds > 0:
        found.append(f"{seconds:.3g} s")
    return [*found, report.status]


def shortened(text: str) -> str:
    """The text without its middle where it is longer than a name may be."""
    return short_names.shortened(text, _LONG)


# ------------------------------------------------------------------------------
# A report as Markdown, for an issue or a chat: the same data as the page, without pictures.


def as_markdown(report: HeapReport, ranks: RankSet | None = None) -> str:
    """The report as Markdown text; of several ranks a table of them first."""
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
        lines += [
            "",
            "## What would help",
            "",
            *(f"{n}. {escaped(text)}" for n, text in enumerate(advised, 1)),
        ]
    lines += _report_section_markdown("Sizes", sizes(report))
    if report.shown.account is not None:
        lines += _report_section_markdown("Memory of the device", *_device_account_rows(report.shown.account))
    sentence, rows = pins(report)
    lines += _report_section_markdown("What is in the way", rows, sentence)
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
    """The parts of the device's memory, and a sentence."""
    rows = [
        ReportRow(
            part.name,
            format_bytes(part.size),
            part.size / account.total if account.total else None,
            part.note,
        )
        for part in account.parts
        if part.size
    ]
    return rows, " ".join([f"{account.device}: {account.short}.", *account.contradictions])


def _ranks_markdown(ranks: RankSet) -> list[str]:
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
    """A heading and a table; nothing without rows."""
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
