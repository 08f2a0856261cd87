"""Leaks and growth as sentences."""

from collections.abc import Iterator
from typing import Final

from bfcviz.events.trace import Trace
from bfcviz.model.holders.growth import Growth
from bfcviz.model.holders.holder_paths import place_in_code
from bfcviz.model.holders.leaks import Leaks
from bfcviz.units import format_bytes

_MOST: Final = 10
"""Holders in a text."""


def growth_lines(trace: Trace, found: Growth, most: int = _MOST) -> list[str]:
    """What was compared; then a line for each holder that grew every step."""
    steps = found.steps
    if steps.reason:
        return [f"growth is not known: {steps.reason}"]
    lines = [compared_text(found)]
    count = found.growing
    if not count:
        return [*lines, "no holder grew every step"]
    lines += [_growth_line(trace, found, row) for row in range(min(count, most))]
    if count > most:
        left = sum(found.a_step(row)[1] for row in range(most, count))
        lines.append(f"{_signed(left)} every step: {count - most:,} more holders")
    return lines


def compared_text(found: Growth) -> str:
    """Which steps were compared."""
    steps = found.steps
    first, last = (f"{number:,}" for number in (steps.numbers[0], steps.numbers[-1]))
    parts = [f"compared the ends of {len(steps.ends):,} equal steps, {first} to {last} of {steps.found:,}"]
    if steps.every > 1:
        parts.append(f"one in {steps.every:,}")
    if steps.warm_up:
        parts.append(f"after {steps.warm_up:,} of warm-up")
    if steps.found > steps.equal:
        parts.append(f"without {steps.found - steps.equal:,} that did less or more")
    return f"{', '.join(parts)} (marks {steps.name!r})"


def _growth_line(trace: Trace, found: Growth, row: int) -> str:
    return f"{growth_text(found, row)}{_place(trace, int(found.rows['label'][row]), found.names[row])}"


def growth_text(found: Growth, row: int) -> str:
    """`+12 chunks, +3.1 MiB every step: layer_1/MatMul`."""
    chunks, size = found.a_step(row)
    same = len(set(map(int, found.chunks[row, 1:] - found.chunks[row, :-1]))) == 1
    amount = f"{chunks:+,.0f}" if same and chunks == int(chunks) else f"about {chunks:+,.1f}"
    return (
        f"{amount} {'chunk' if amount == '+1' else 'chunks'}, {_signed(size)} every step: {found.names[row]}"
    )


def leak_lines(trace: Trace, found: Leaks, most: int = _MOST) -> list[str]:
    """How much was never freed; then a line for each holder of it."""
    where = "" if found.phase is None else f" in phase {found.phase!r}"
    total = f"{format_bytes(found.bytes)} in {_count(len(found.chunks), 'chunk')}"
    events = f"events {found.start:,} to {found.stop - 1:,}" if found.stop > found.start else "no event"
    lines = [f"allocated by {events}{where} and not freed by step {found.until:,}, the last one: {total}"]
    lines += _holders(trace, found, most)
    if len(found.rows) > most:
        rest = found.rows[most:]
        size, chunks = int(rest["bytes"].sum()), int(rest["chunks"].sum())
        lines.append(f"{format_bytes(size)} in {_count(chunks, 'chunk')}: {len(rest):,} more holders")
    return lines


def _holders(trace: Trace, found: Leaks, most: int) -> Iterator[str]:
    for row in range(min(len(found.rows), most)):
        each = found.rows[row]
        chunks = found.chunks_of(row)
        at = _place(trace, int(chunks["label"][0]), found.names[row])
        yield (
            f"{format_bytes(int(each['bytes']))} in {_count(int(each['chunks']), 'chunk')}: {found.names[row]}{at}; "
            f"the oldest at {int(chunks['address'][0]):#x}, {int(each['oldest_events']):,} events "
            f"({duration(int(each['oldest_ns']))}) old"
        )


def duration(nanoseconds: int) -> str:
    """A duration with its unit: `1.5 ms`."""
    value, unit = float(nanoseconds), "ns"
    for larger in ("µs", "ms", "s"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} ns" if unit == "ns" else f"{value:,.1f} {unit}"


def _place(trace: Trace, label: int, name: str) -> str:
    """The place in the code of a label, unless the holder's name says it."""
    place = place_in_code(trace.labels[label].details.get("stack", ""))
    return "" if place in ("", name) else f", allocated at {place}"


def _signed(size: float) -> str:
    return f"{'+' if size >= 0 else ''}{format_bytes(size)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
