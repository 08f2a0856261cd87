"""A comparison as text: a row a policy, then the definition of each measure, the assumptions and what is missing."""

import re
from html import escape
from textwrap import wrap
from typing import Any, Final

from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.comparison.comparison import MEASURES, MOST_RECORDED, Comparison, PolicyResult
from bfcviz.whatif.comparison.failure_text import failure_text
from bfcviz.whatif.usual_policies import GROWING_BFC

_WIDTH: Final = 110
_NAME: Final = 14  # characters: a longer name of a policy has a line of its own

_WORDS: Final = {
    "peak_reserved": "peak pool",
    "peak_in_use": "in use",
    "reserved_not_in_use": "not in use",
    "external_fragmentation": "external",
    "internal_fragmentation": "internal",
    "splits": "splits",
    "merges": "merges",
    "driver_calls": "calls",
    "stall_s": "stall",
}
"""Measure -> its name in texts: of its column."""

_WORDS_OF_FAILURES: Final = {
    "failure_external_fragmentation": "external in a failure",
    "failure_free_bytes": "free in a failure",
    "failure_room_bytes": "not yet taken in a failure",
}

_KINDS: Final = {
    "bound": "bound: no allocator can need less: `live_bytes` has only the requested bytes in use at a time",
    "plan": "plan: no allocator: all lifetimes are known before the first request; an allocator seldom needs less. "
    "`packed` puts all blocks into one region, sizes rounded up to 256 bytes",
}
"""Kind of a policy -> what it is."""

TRUST: Final = (
    "which to trust: peak pool says whether the job fits; not in use, what the rules add to it; external at a failure, "
    "why free memory did not serve; internal, what rounding costs; calls and stall, whether the job slows down"
)

COLUMNS: Final = ("policy", *_WORDS.values(), "result")


def comparison_text(comparison: Comparison) -> str:
    """The whole comparison."""
    lines = [*wrap(_head(comparison), _WIDTH), "", *_table(table_rows(comparison)), ""]
    failed = failures(comparison)
    found = [*failed, *([""] if failed else []), *notes(comparison)]
    return "\n".join([*lines, *(line for text in found for line in wrap(text, _WIDTH) or [""])])


def comparison_html(comparison: Comparison) -> str:
    """The same as a piece of HTML for a notebook: the table, the failures; definitions below a fold."""
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    rows = ["".join(f"<td>{_unbroken(cell)}</td>" for cell in row) for row in table_rows(comparison)]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    failed = "".join(f"<li>{escape(line)}</li>" for line in failures(comparison))
    defined = "".join(f"<li>{escape(line)}</li>" for line in notes(comparison))
    return (
        f"<p>{escape(_head(comparison))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<ul>{failed}</ul><details><summary>Definitions and assumptions</summary><ul>{defined}</ul></details>"
    )


def _unbroken(cell: str) -> str:
    """A cell of HTML: a number stays in one line with its unit, however narrow the notebook is."""
    return re.sub(r"(?<=\d) ", "\N{NO-BREAK SPACE}", escape(cell))


def verdict_text(comparison: Comparison) -> str:
    """Which policy needs the least memory, and how many fail, in one sentence."""
    allocators = [result for result in comparison.results if result.is_allocator]
    fitting = [result for result in allocators if result.outcome is not None and result.outcome.fits]
    failing = len(allocators) - len(fitting)
    limit = "" if comparison.limit is None else f" in {format_bytes(comparison.limit)}"
    if not allocators:
        return "No allocator was asked about"
    if not fitting:
        return f"{'The policy does' if failing == 1 else f'All {failing} policies do'} not fit{limit}"
    best = min(fitting, key=_peak)
    least = f"Least memory: {printable(best.name)}, {format_bytes(_peak(best))}"
    return (
        f"{least}; {failing} of {len(allocators)} do not fit{limit}"
        if failing
        else f"{least}; all fit{limit}"
    )


def _peak(result: PolicyResult) -> int:
    return 0 if result.outcome is None else result.outcome.peak_reserved


def table_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The cells of each policy, as text; the names of the columns are `COLUMNS`."""
    numbers = comparison.to_arrow().to_pylist()
    return [_row(result, row) for result, row in zip(comparison.results, numbers, strict=True)]


def failures(comparison: Comparison) -> list[str]:
    """A sentence for each policy that failed or cannot serve the requests."""
    numbers = comparison.to_arrow().to_pylist()
    return [
        f"{result.name}: {printable(result.message) if result.message else failure_text(row)}"
        for result, row in zip(comparison.results, numbers, strict=True)
        if result.message or (result.failed_request is not None and result.is_allocator)
    ]


def notes(comparison: Comparison) -> list[str]:
    """Definitions, assumptions, and what the stream says of itself."""
    failed = any(result.failed_request is not None for result in comparison.results)
    words = _WORDS | (_WORDS_OF_FAILURES if failed else {})
    found = [f"{word}: {MEASURES[name]}" for name, word in words.items()]
    kinds = {result.kind for result in comparison.results}
    found += [text for kind, text in _KINDS.items() if kind in kinds]
    if failed:
        found.append(
            "numbers of a policy that fails end at its first failure: they are no numbers of the whole job"
        )
    found += [TRUST, f"assumption: a driver call takes {comparison.call_cost_us:g} microseconds"]
    found += _policy_notes(comparison)
    found += _unknown_cells(comparison)
    return [*found, *(f"note: {printable(note)}" for note in comparison.stream.notes)]


def _policy_notes(comparison: Comparison) -> list[str]:
    """Where the job's own rules come from, and what is assumed of the others."""
    named = {result.name.partition(":")[0] for result in comparison.results}
    own, found = comparison.own, []
    if own is not None:
        found.append(f"{own.role}: {printable(own.why)}")
    if any(result.name == GROWING_BFC for result in comparison.results):
        found.append(
            f"{GROWING_BFC}: garbage collection is on, as TensorFlow sets it for GPUs "
            "(TF_ENABLE_GPU_GARBAGE_COLLECTION)"
        )
    if "stream_ordered" in named:
        found.append(
            "stream_ordered: the driver's pool of cudaMallocAsync, whose rules are not public; assumed: it grows by "
            "multiples of 32 MiB, unless `segment` says otherwise, and keeps all it has"
        )
    return found


def _unknown_cells(comparison: Comparison) -> list[str]:
    """Which cells are empty, because a stream is too long to record its events."""
    if len(comparison.stream) <= MOST_RECORDED:
        return []
    known = ["splits", "merges"]
    served = [result for result in comparison.results if result.is_allocator and result.outcome is not None]
    if any(result.free_at_peak is None for result in served):
        known.insert(0, "external of some policies")
    return [
        f"not known: {', '.join(known)}: above {MOST_RECORDED:,} requests the events of a policy are not recorded"
    ]


def _head(comparison: Comparison) -> str:
    stream = comparison.stream
    limit = "no limit" if comparison.limit is None else f"limit {format_bytes(comparison.limit)}"
    least = format_bytes(int(stream.live_bytes.max(initial=0)))
    return (
        f"{printable(stream.source) or 'requests'}: {len(stream):,} requests, {limit}; no allocator can need less than "
        f"{least} (the peak of the requested bytes in use). {verdict_text(comparison)}."
    )


def _row(result: PolicyResult, row: dict[str, Any]) -> tuple[str, ...]:
    if result.outcome is None:
        return (result.title, *[""] * (len(COLUMNS) - 2), "cannot serve")
    calls = [row[f"driver_{kind}"] for kind in ("grants", "refusals", "releases")]
    stall = row["stall_s"]
    shares = ("reserved_not_in_use", "external_fragmentation", "internal_fragmentation")
    return (
        result.title,
        format_bytes(row["peak_reserved"]),
        format_bytes(row["peak_in_use"]),
        *(_percent(row[share]) for share in shares),
        *("" if row[kind] is None else f"{row[kind]:,}" for kind in ("splits", "merges")),
        "" if calls[0] is None else f"{sum(calls):,}",
        "" if stall is None else seconds_text(stall),
        _verdict(result, fits=row["fits"]),
    )


def _verdict(result: PolicyResult, *, fits: bool) -> str:
    if result.is_allocator:
        return "fits" if fits else "out of memory"
    return result.kind if fits else f"{result.kind}: above limit"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def seconds_text(seconds: float) -> str:
    """A duration in ms or s."""
    return f"{1000 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Aligned columns: the first and the last at their left, numbers at their right.

    A long name has a line of its own. A word of the head with a space before its last word has two lines.
    """
    head = [name.rpartition(" ") if name.startswith("not ") else ("", "", name) for name in COLUMNS]
    heads = [tuple(over for over, _, _ in head), tuple(name for _, _, name in head)]
    lines = [*heads, *(("" if len(row[0]) > _NAME else row[0], *row[1:]) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    found = [_aligned(line, widths) for line in lines]
    for at in range(len(rows), 0, -1):
        if len(rows[at - 1][0]) > _NAME:
            found.insert(at + 1, rows[at - 1][0])
    return found


def _aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    last = len(widths) - 1
    return "  ".join(
        cell.ljust(width) if column in (0, last) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()
