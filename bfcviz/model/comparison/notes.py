"""What a reader of a comparison has to know of the two recordings, as sentences."""

from collections.abc import Iterator, Mapping
from typing import Final

from bfcviz.events.origin import Status
from bfcviz.model.comparison.common_holders import CommonHolders
from bfcviz.model.comparison.sides import RecordingSide
from bfcviz.model.holders.grouping import UNNAMED
from bfcviz.units import format_bytes

_REASONS: Final = 3
_LIMIT: Final = "limit"


def notes(a: RecordingSide, b: RecordingSide, holders: CommonHolders) -> Iterator[str]:
    """The settings that differ, then what is missing or was inferred."""
    changed = list(_changed_settings(a, b))
    if changed:
        yield f"settings that differ: {', '.join(changed)}"
    if a.facts.heap != b.facts.heap:
        yield f"different heaps are compared: {a.facts.heap!r} of A with {b.facts.heap!r} of B"
    for side in (a, b):
        yield from _of_one(side)
    for number, side in enumerate((a, b)):
        named = set(range(len(holders))) - {holders.unnamed}
        if len(side.allocations) + len(side.held) and not any(
            holders.allocated[number, row] for row in named
        ):
            yield (
                f"{side.facts.letter}: {UNNAMED[side.how.by]} in the whole recording, so all its memory is one holder; "
                f"choose another grouping than {side.how.by!r}, or record with labels (bfcviz.label, bfcviz.phase)"
            )
    if holders.moved_lines:
        yield (
            f"holders that differ only in the number of a line of code are one holder, named as in B: "
            f"{holders.moved_lines:,}"
        )


def _of_one(side: RecordingSide) -> Iterator[str]:
    facts = side.facts
    if not len(side.allocations) + len(side.held):
        what = "events" if facts.first == facts.last else "allocations of this heap"
        yield f"{facts.letter} has no {what}"
    if facts.first:
        yield (
            f"{facts.letter} begins at step {facts.first:,} with the state there: what happened before is not "
            "compared, and its counts leave it out"
        )
    if facts.heaps > 1:
        yield f"{facts.letter} has {facts.heaps:,} heaps; number {facts.pool}, {facts.heap!r}, is compared"
    if facts.status != Status.COMPLETE:
        said = "; ".join(facts.reasons[:_REASONS])
        more = f"; and {len(facts.reasons) - _REASONS:,} more" if len(facts.reasons) > _REASONS else ""
        yield f"{facts.letter} is {_STATUS[facts.status]}{f': {said}{more}' if said else ''}"


_STATUS: Final[Mapping[Status, str]] = {
    Status.RECORDING: "still recorded: what comes later is not compared",
    Status.TRUNCATED: "truncated: its end is missing, so later moments and its totals are not comparable",
    Status.DEGRADED: "degraded: some of it is missing or was guessed",
}


def _changed_settings(a: RecordingSide, b: RecordingSide) -> Iterator[str]:
    pools = [side.trace.origin.pools[side.facts.pool] for side in (a, b)]
    before, after = ({_LIMIT: pool.limit, **pool.options} for pool in pools)
    for name in before:
        # Files of different formats hold different settings: what only one of them has says nothing.
        if name in after and None not in (before[name], after[name]) and before[name] != after[name]:
            yield f"{name} {_value(name, before[name])} -> {_value(name, after[name])}"


def _value(name: str, value: object) -> str:
    return format_bytes(value) if name == _LIMIT and isinstance(value, int) else repr(value)[:60]
