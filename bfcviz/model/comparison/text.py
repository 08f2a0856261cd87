"""A comparison of two recordings as lines of text: the answer first, then the numbers."""

from collections.abc import Iterator
from typing import Any, Final

from bfcviz.model.comparison.alignment import AlignedBy
from bfcviz.model.comparison.growth_changes import GrowthVerdict, HolderGrowth
from bfcviz.model.comparison.holder_changes import HolderVerdict
from bfcviz.model.comparison.recording_comparison import AT_END, AT_PEAK, RecordingComparison
from bfcviz.model.comparison.recording_totals import BYTES, SECONDS, SHARE
from bfcviz.model.comparison.sides import ComparedRecording
from bfcviz.model.explain.text.short_names import counted, shortened
from bfcviz.model.holders.text import duration
from bfcviz.units import format_bytes

_HOLDERS: Final = 12
"""Holders of a moment in a text."""

_MOMENTS: Final = 6
_GROWING: Final = 6
_WIDTH: Final = 64  # characters of a name
_SHORT: Final = 44  # characters of a name in the headline


def headline(found: RecordingComparison) -> str:
    """The answer in one line: the difference of the peaks and who makes it, then failures and new leaks."""
    who = parts_text(found)
    parts = [f"{peaks_text(found)}: {who}" if who else peaks_text(found)]
    failed = found.total("failures")
    if failed[0] != failed[1]:
        parts.append(f"requests that failed: {failed[0]:,.0f} in A, {failed[1]:,.0f} in B")
    leaks = [row for row in found.growth.rows if row.verdict is GrowthVerdict.ONLY_B]
    if leaks:
        grown = signed(sum(row.b or 0.0 for row in leaks))
        named = shortened(leaks[0].holder, _SHORT) + (
            f" and {len(leaks) - 1:,} more" if len(leaks) > 1 else ""
        )
        parts.append(f"B grows by {grown} every step, and A does not: {named}")
    return "; ".join(parts)


def same(found: RecordingComparison) -> bool:
    """Whether nothing that is compared differs; how long the recordings took does not count."""
    changes = zip(found.totals["unit"].to_pylist(), found.totals["change"].to_pylist(), strict=True)
    return (
        not any(change for unit, change in changes if unit != SECONDS)
        and set(found.holders["change"].to_pylist()) <= {HolderVerdict.SAME}
        and not any(
            row.verdict not in {GrowthVerdict.SAME, GrowthVerdict.UNKNOWN} for row in found.growth.rows
        )
    )


def peaks_text(found: RecordingComparison) -> str:
    """The difference of the peaks, without who makes it."""
    before, after = (int(value or 0) for value in found.total("peak_bytes_in_use"))
    if same(found):
        return f"no change: A and B use the same memory, {format_bytes(after)} at the peak"
    if before == after:
        return f"A and B need the same memory at their peaks, {format_bytes(after)}"
    size = f"{format_bytes(abs(after - before))} {'more' if after > before else 'less'}"
    share = f" ({100 * (after - before) / before:+,.1f} %)" if before else ""
    return f"B needs {size} at its peak{share}"


def parts_text(found: RecordingComparison) -> str:
    """Who makes the difference of the peaks; empty if it is 0 for every holder."""
    named, left = found.parts
    parts = [f"{signed(change)} {shortened(name, _SHORT)}" for name, change, _ in named]
    return ", ".join([*parts, *([f"{signed(left)} others"] if left and named else [])])


def comparison_lines(found: RecordingComparison) -> list[str]:
    """The report."""
    lines = [found.headline, "", *(_recording(each) for each in (found.a, found.b))]
    aligned = "not aligned" if found.alignment.by is AlignedBy.STATE else f"aligned by {found.alignment.by}"
    lines += [f"{aligned}: {found.alignment.reason}", *_totals(found)]
    for moment in (AT_PEAK, AT_END):
        lines += _holders(found, moment)
    lines += [*_moments(found), *_growth(found)]
    if found.notes:
        lines += ["", *(f"note: {note}" for note in found.notes)]
    return lines


def signed(size: float) -> str:
    """A difference of bytes with its sign: `+1.2 MiB`, `-256 B`, `0 B`."""
    return f"{'+' if size > 0 else ''}{format_bytes(size)}"


def value_text(value: float | None, unit: str, *, change: bool = False) -> str:
    """A measure in its unit; `unknown` for None."""
    if value is None:
        return "unknown"
    sign = "+" if change and value > 0 else ""
    if unit == BYTES:
        return f"{sign}{format_bytes(value)}"
    if unit == SHARE:
        return f"{sign}{100 * value:.1f} {'points' if change else '%'}"
    if unit == SECONDS:
        return f"{'-' if value < 0 else sign}{duration(round(abs(value) * 1e9))}"
    return f"{sign}{value:,.0f}"


def _recording(facts: ComparedRecording) -> str:
    return f"{facts.letter}: {facts.name}, {facts.heap}, {facts.last - facts.first:,} events, {facts.status}"


def _totals(found: RecordingComparison) -> Iterator[str]:
    rows = found.totals.to_pylist()
    yield ""
    yield f"{'':<30} {'A':>12} {'B':>12} {'B - A':>12}"
    for row in rows:
        values = [
            value_text(row[name], row["unit"], change=name == "change") for name in ("a", "b", "change")
        ]
        name = _NAMES.get(row["measure"], row["measure"].replace("_", " "))
        yield f"{name:<30} {values[0]:>12} {values[1]:>12} {values[2] if row['change'] else '':>12}".rstrip()


_NAMES: Final = {"failures": "failed requests", "seconds": "duration"}


def _holders(found: RecordingComparison, moment: str) -> Iterator[str]:
    rows = found.holders_at(moment).to_pylist()
    at = found.moments.to_pylist()[0 if moment == AT_PEAK else -1]
    if at["moment"] != moment:
        return
    changed = [row for row in rows if row["change"] != HolderVerdict.SAME]
    verdicts = [row["change"] for row in rows]
    counts = [f"{verdicts.count(verdict):,} {verdict}" for verdict in HolderVerdict if verdict in verdicts]
    what = "holders at the peaks" if moment == AT_PEAK else "holders at the ends"
    yield ""
    yield f"{what} (step {at['a_step']:,} of A, {at['b_step']:,} of B): {', '.join(counts) or 'none'}"
    for row in changed[:_HOLDERS]:
        yield _holder(row)
    if len(changed) > _HOLDERS:
        rest = sum(row["bytes_change"] for row in changed[_HOLDERS:])
        yield f"{signed(rest):>12}  {counted(len(changed) - _HOLDERS, 'more holder')}"


def _holder(row: dict[str, Any]) -> str:
    moved = row["change"] == HolderVerdict.MOVED
    size = format_bytes(row["moved_bytes"]) if moved else signed(row["bytes_change"])
    amounts = f"{format_bytes(row['a_bytes'])} -> {format_bytes(row['b_bytes'])}"
    if row["a_chunks"] != row["b_chunks"]:
        amounts += f", {row['a_chunks']:,} -> {row['b_chunks']:,} chunks"
    return f"{size:>12}  {row['change']:<8}  {shortened(row['holder'], _WIDTH)} ({amounts})"


def _moments(found: RecordingComparison) -> Iterator[str]:
    rows = [row for row in found.moments.to_pylist()[1:] if row["moment"] != AT_END]
    if not rows:
        return
    highest = [row["b_highest_since"] - row["a_highest_since"] for row in rows]
    different = [pair for pair in zip(highest, rows, strict=True) if pair[0] or pair[1]["bytes_change"]]
    different.sort(key=lambda pair: -max(abs(pair[0]), abs(pair[1]["bytes_change"])))
    yield ""
    count = counted(len(rows), "moment")
    yield f"from moment to moment: {count} compared, {len(different):,} with another use of memory"
    for change, row in different[:_MOMENTS]:
        most = f"at most {format_bytes(row['a_highest_since'])} -> {format_bytes(row['b_highest_since'])} before it"
        there = f"{format_bytes(row['a_bytes'])} -> {format_bytes(row['b_bytes'])} at it"
        yield f"{signed(change):>12}  {shortened(row['moment'], _WIDTH)} ({most}, {there})"


def _growth(found: RecordingComparison) -> Iterator[str]:
    growth = found.growth
    if found.alignment.by is AlignedBy.STATE:
        return
    yield ""
    a, b = growth.reasons
    if a and a == b:
        yield f"growth is not known: {a}"
        return
    yield from (
        f"growth of {letter} is not known: {reason}" for letter, reason in (("A", a), ("B", b)) if reason
    )
    if a and b:
        return
    if not growth.rows:
        yield "no holder grows with every step of the program"
    for row in growth.rows[:_GROWING]:
        yield f"{_rate(row)} every step: {shortened(row.holder, _WIDTH)}, {_VERDICTS[row.verdict]}"
    if len(growth.rows) > _GROWING:
        yield f"{counted(len(growth.rows) - _GROWING, 'more holder')} that grow every step"


def _rate(row: HolderGrowth) -> str:
    if row.verdict is GrowthVerdict.ONLY_A or row.b is None:
        return signed(row.a or 0.0)
    return signed(row.b) if row.verdict is not GrowthVerdict.UNKNOWN or row.b else signed(row.a or 0.0)


_VERDICTS: Final = {
    GrowthVerdict.ONLY_B: "in B and not in A: a new leak",
    GrowthVerdict.FASTER: "in B, and less in A",
    GrowthVerdict.SAME: "in both",
    GrowthVerdict.SLOWER: "in B, and more in A",
    GrowthVerdict.ONLY_A: "in A and no longer in B",
    GrowthVerdict.UNKNOWN: "in the recording whose steps are known",
}
