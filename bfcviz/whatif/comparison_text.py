"""A comparison as text: a row a policy, then the definition of each measure, the assumptions and what is missing."""

from html import escape
from textwrap import wrap
from typing import Any, Final

from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.comparison import MEASURES, Comparison, PolicyResult

_WIDTH: Final = 110
_LONGEST: Final = 72  # characters of the label of a failed request

_WORDS: Final = {
    "peak_reserved": "peak pool",
    "peak_in_use": "in use",
    "unused_share": "F2 unused",
    "scattered_share": "F1 scattered",
    "rounding_share": "F3 rounding",
    "driver_calls": "calls",
    "stall_s": "stall",
    "failure_scattered_share": "F1 in a failure",
    "failure_free_bytes": "free in a failure",
}
"""Measure -> its name in texts: of its column, if it has one."""

COLUMNS: Final = (
    "policy",
    *(_WORDS[name] for name in ("peak_reserved", "peak_in_use")),
    *(_WORDS[f"{name}_share"] for name in ("unused", "scattered", "rounding")),
    *("splits", "merges", _WORDS["driver_calls"], _WORDS["stall_s"], "result"),
)


def comparison_text(comparison: Comparison) -> str:
    """The whole comparison."""
    lines = [*wrap(_head(comparison), _WIDTH), "", *_table([COLUMNS, *table_rows(comparison)]), ""]
    found = [*failures(comparison), "", *notes(comparison)]
    return "\n".join([*lines, *(line for text in found for line in wrap(text, _WIDTH) or [""])])


def comparison_html(comparison: Comparison) -> str:
    """The same as a piece of HTML for a notebook: the table, the failures; definitions below a fold."""
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in table_rows(comparison)]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    failed = "".join(f"<li>{escape(line)}</li>" for line in failures(comparison))
    defined = "".join(f"<li>{escape(line)}</li>" for line in notes(comparison))
    return (
        f"<p>{escape(_head(comparison))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<ul>{failed}</ul><details><summary>Definitions and assumptions</summary><ul>{defined}</ul></details>"
    )


def table_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The cells of each policy, as text; the names of the columns are `COLUMNS`."""
    numbers = comparison.to_arrow().to_pylist()
    return [_row(result, row) for result, row in zip(comparison.results, numbers, strict=True)]


def failures(comparison: Comparison) -> list[str]:
    """A sentence for each policy that failed or cannot serve the requests."""
    numbers = comparison.to_arrow().to_pylist()
    return [
        f"{result.name}: {printable(result.message) if result.message else _failure(row)}"
        for result, row in zip(comparison.results, numbers, strict=True)
        if result.message or (result.failed_request is not None and not result.is_bound)
    ]


def notes(comparison: Comparison) -> list[str]:
    """Definitions, assumptions, and what the stream says of itself."""
    defined = [f"{word}: {MEASURES[name]}" for name, word in _WORDS.items()]
    cost = f"assumption: a driver call takes {comparison.call_cost_us:g} microseconds"
    return [*defined, cost, *(f"note: {printable(note)}" for note in comparison.stream.notes)]


def _head(comparison: Comparison) -> str:
    stream = comparison.stream
    limit = "no limit" if comparison.limit is None else f"limit {format_bytes(comparison.limit)}"
    live = format_bytes(int(stream.live_bytes.max(initial=0)))
    return (
        f"{printable(stream.source) or 'requests'}: {len(stream):,} requests, {limit}; no allocator can need less "
        f"than {live} (the peak of the requested bytes in use)"
    )


def _row(result: PolicyResult, row: dict[str, Any]) -> tuple[str, ...]:
    if result.outcome is None:
        return (result.name, *[""] * (len(COLUMNS) - 2), "cannot serve")
    calls = [row[f"driver_{kind}"] for kind in ("grants", "refusals", "releases")]
    stall = row["stall_s"]
    return (
        result.name,
        format_bytes(row["peak_reserved"]),
        format_bytes(row["peak_in_use"]),
        *(_percent(row[f"{share}_share"]) for share in ("unused", "scattered", "rounding")),
        *("" if row[kind] is None else f"{row[kind]:,}" for kind in ("splits", "merges")),
        "" if calls[0] is None else f"{sum(calls):,}",
        "" if stall is None else _seconds(stall),
        _verdict(result, fits=row["fits"]),
    )


def _verdict(result: PolicyResult, *, fits: bool) -> str:
    if result.is_bound:
        return "bound" if fits else "bound, above the limit"
    return "fits" if fits else "out of memory"


def _failure(row: dict[str, Any]) -> str:
    """When the first request failed, and what was free."""
    label = printable(row["failed_label"] or "an allocation without label")
    label = label if len(label) <= _LONGEST else f"...{label[3 - _LONGEST :]}"
    event = f" (event {row['failed_event']:,})" if row["failed_event"] >= 0 else ""
    marks = row["marks_before_failure"]
    value = f" {row['failed_after_mark_value']:,}" if row["failed_after_mark_value"] else ""
    mark = f", after {printable(row['failed_after_mark'])}{value} (mark {marks:,})" if marks else ""
    share = row["failure_scattered_share"]
    scattered = "" if share is None else f" (F1 {_percent(share)})"
    asked, free = format_bytes(row["failed_size"]), format_bytes(row["failure_free_bytes"])
    return (
        f"out of memory at request {row['failed_request']:,}{event}{mark}: {asked} asked for {label}, "
        f"{free} free{scattered}"
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Aligned columns: the first and the last at their left, numbers at their right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
