"""The results of searches as lines of text."""

from typing import Final

from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.policy_table import other_than_default, policy_text
from bfcviz.whatif.search.best_options import SMALLEST_LIMIT, BestOptions, TriedOptions
from bfcviz.whatif.search.largest_batch import LargestBatch
from bfcviz.whatif.search.smallest_limit import SmallestLimit

_LONGEST: Final = 72  # characters of a label
_MOST_ROWS: Final = 20


def limit_lines(found: SmallestLimit) -> list[str]:
    """The smallest limit, the failure under the next smaller one, and what was tried."""
    name = policy_text(found.policy, found.options)
    lines = []
    if found.limit_bytes is None:
        lines.append(f"{name}: no limit that fits was found before the search was stopped")
    else:
        lines.append(
            f"{name} serves all requests in {format_bytes(found.limit_bytes)} ({found.limit_bytes:,} bytes)"
        )
    if found.next_smaller is not None:
        failure = _failure(
            found.fails_at_request, found.fails_at_event, found.failed_size, found.failed_label
        )
        lines.append(f"under {found.next_smaller:,} bytes {failure}")
    least = (
        f"no rules can need less than {found.lower_bound:,} bytes, the most requested bytes in use at once"
    )
    lines.append(f"{least}{_added(found)}")
    lines += [f"note: {printable(note)}" for note in found.notes]
    failed = sum(not trial.fits for trial in found.tried)
    lines.append(
        f"{len(found.tried)} limits tried, {failed} of them fail; limits between those are not known to fail "
        f"({_effort(found.replays, found.seconds)})"
    )
    return lines if found.complete else [*lines, "the search was stopped: a smaller limit may fit"]


def batch_lines(found: LargestBatch) -> list[str]:
    """The largest batch, the failure of the next larger one, and the assumption."""
    name = policy_text(found.policy, found.options)
    within = f"within {format_bytes(found.limit)}"
    lines = []
    if found.factor is None:
        lines.append(f"{name}: no batch that fits {within} was found before the search was stopped")
    elif found.largest is not None:
        lines.append(f"{name} serves a batch of {found.largest:,} {within} (recorded: {found.batch:,})")
    else:
        lines.append(f"{name} serves {found.factor:.2f} times the recorded batch {within}")
    if found.next_factor is not None:
        failure = _failure(
            found.fails_at_request, found.fails_at_event, found.failed_size, found.failed_label
        )
        lines.append(f"with {found.next_factor:.4g} times the recorded batch {failure}")
    lines.append(f"assumption: the same requests in the same order; {printable(found.assumption)}")
    lines.append(_effort(found.replays, found.seconds))
    return lines if found.complete else [*lines, "the search was stopped: a larger batch may fit"]


def option_lines(found: BestOptions) -> list[str]:
    """The table of all options tried, the best first."""
    limit = "without a limit" if found.limit is None else f"under {format_bytes(found.limit)}"
    best = (
        "none of the options tried fits"
        if found.best is None or found.best.trial is None
        else policy_text(found.policy, other_than_default(found.policy, found.best.trial.options))
    )
    how = "all combinations" if found.method == "grid" else "one option after the other"
    lines = [f"best for {found.goal.replace('_', ' ')} {limit}: {best}", ""]
    lines += [f"{'reserved':>10} {'in use':>10} {'limit':>10} {'calls':>7}  options"]
    lines += [_option_row(row, found) for row in found.table[:_MOST_ROWS]]
    if len(found.table) > _MOST_ROWS:
        lines.append(f"and {len(found.table) - _MOST_ROWS:,} more")
    lines += ["", f"{len(found.table):,} tried, {how} ({_effort(found.replays, found.seconds)})"]
    return lines if found.complete else [*lines, "the search was stopped: not all options were tried"]


def _option_row(row: TriedOptions, found: BestOptions) -> str:
    trial = row.trial
    given = other_than_default(found.policy, row.options if trial is None else trial.options)
    options = policy_text(found.policy, given).partition(":")[2] or "defaults"
    if trial is None:
        return f"{'':>10} {'':>10} {'':>10} {'':>7}  {options}: {printable(row.error)}"
    limit = "" if trial.limit is None else format_bytes(trial.limit)
    numbers = f"{format_bytes(trial.peak_reserved):>10} {format_bytes(trial.peak_in_use):>10} {limit:>10}"
    failed = "" if trial.fits else f": request {trial.failed_at:,} fails"
    smallest = " (smallest)" if found.goal == SMALLEST_LIMIT and trial.fits else ""
    tie = " (ties with the best)" if row is not found.best and found.is_as_good(row) else ""
    return f"{numbers} {trial.driver_calls:>7,}  {options}{smallest}{tie}{failed}"


def _failure(request: int | None, event: int | None, size: int, label: str) -> str:
    name = printable(label) or "an allocation without label"
    name = name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
    at = "" if event is None else f" (event {event:,})"
    return f"request {request or 0:,}{at} fails: {format_bytes(size)} for {name}"


def _added(found: SmallestLimit) -> str:
    if found.added is None:
        return ""
    share = found.added / found.lower_bound if found.lower_bound else 0
    return (
        f"; these rules add {format_bytes(found.added)} ({100 * share:.1f} %) for rounding, fragmentation "
        f"and limits in multiples of {format_bytes(found.granule)}"
    )


def _effort(replays: int, seconds: float) -> str:
    return f"{replays:,} replays in {seconds:.2f} s"
