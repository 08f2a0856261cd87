"""The options of a policy that serve a trace with the least memory: it tries all, or varies one after the other."""

import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bfcviz.answers import Answer
from bfcviz.errors import InvalidRequest
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.bfc_policy import MEMORY_OPTIONS
from bfcviz.whatif.policy import NO_LIMIT, Policy
from bfcviz.whatif.policy_replay import replay_limit
from bfcviz.whatif.policy_table import POLICIES, other_than_default, policy_of, policy_text, uncompared
from bfcviz.whatif.requests import RequestStream, stream_of
from bfcviz.whatif.search import (
    SearchControl,
    SearchStopped,
    Trial,
    TrialCache,
    TrialRunner,
    effort_text,
    searchable,
    trial_cache,
)
from bfcviz.whatif.smallest_limit import GRANULE, LimitSearch

# ------------------------------------------------------------------------------
# The values of options that a search tries.

VALUES: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    "bfc": {"fragmentation_fraction": (0.0, 0.1, 0.25, 0.5)},
    "xla": {
        "lower_order": ("ascending", "descending"),
        "lower_split": ("bfc", "exact"),
        "fragmentation_fraction": (0.0, 0.1, 0.25, 0.5),
    },
    "torch": {
        "max_split_size": (32 << 20, 64 << 20, 128 << 20, 512 << 20),
        "roundup_power2_divisions": (1, 2, 4, 8, 16),
        "max_non_split_rounding": (64 << 20, 256 << 20, 1 << 30),
        "large_segment_size": (12 << 20, 32 << 20, 64 << 20),
    },
    "stream_ordered": {"release_threshold": (0, 64 << 20, 1 << 30)},
}
"""Policy -> option -> the values to try, where those of `values_of` would not do."""

NOT_CHOSEN: Final[Mapping[str, frozenset[str]]] = {
    "bfc": frozenset({*MEMORY_OPTIONS, "version", "first_region", "exact_growth"}),
    "xla": frozenset({"collectives", "collective_alignment"}),
    # The threshold works only under a fraction; the last two are for the newest versions only.
    "torch": frozenset(
        {
            "device",
            "addresses",
            "garbage_collection_threshold",
            "max_non_split_rounding",
            "large_segment_size",
        }
    ),
    "cupy": frozenset({"ties"}),
    "live_bytes": frozenset({"unit"}),
    "rmm_pool": frozenset({"initial_pool_size"}),
    "stream_ordered": frozenset({"segment"}),
}
"""Options that say what the device, its driver, a version or the program is like: no setting alone changes them."""

_FACTORS: Final = (0.25, 0.5, 1, 2, 4)
_LEAST_SIZE: Final = 512


def option_values(
    policy: str, chosen: Mapping[str, Iterable[Any]] | Iterable[str] | None = None
) -> dict[str, list[Any]]:
    """Each option to vary and its values, the default first.

    Args:
        policy: a name of the table of policies.
        chosen: the options to vary, with or without their values; values can be texts such as `64MiB`. None: all that a
            user can choose.

    Raises:
        InvalidRequest: there is no such policy or option, an option has no value to vary, or a value is not one of it.
    """
    policy_of(policy)
    entry = POLICIES[policy]
    if chosen is None:
        names = [name for name in entry.options if name not in NOT_CHOSEN.get(policy, ())]
        found = {name: values_of(policy, name) for name in names}
        return {name: values for name, values in found.items() if len(values) > 1}
    given = chosen if isinstance(chosen, Mapping) else dict.fromkeys(chosen)
    return {name: _checked_option_values(policy, name, values) for name, values in given.items()}


def values_of(policy: str, option: str) -> list[Any]:
    """The values to try of one option, the default first."""
    default = POLICIES[policy].options[option]
    own = VALUES.get(policy, {}).get(option)
    if own is not None:
        values = list(own)
    elif isinstance(default, bool):
        values = [False, True]
    elif isinstance(default, int) and default >= _LEAST_SIZE:
        values = [int(default * factor) for factor in _FACTORS]
    else:
        values = []
    return [default, *(value for value in values if value != default)]


def _checked_option_values(policy: str, option: str, values: Iterable[Any] | None) -> list[Any]:
    if values is None:
        policy_of(
            policy, **{option: POLICIES[policy].options.get(option)}
        )  # raises, if there is no such option
        found = values_of(policy, option)
        if len(found) < 2:
            raise InvalidRequest(
                f"there are no values to try of option {option!r} of policy {policy!r}: give them, such as "
                f"{{{option!r}: [...]}}"
            )
        return found
    found = [policy_of(policy, **{option: value}).options[option] for value in values]
    if not found:
        raise InvalidRequest(f"option {option!r} has no value to try; give one or more")
    return found


# ------------------------------------------------------------------------------
# The best options of a policy for a trace, by trying all combinations, or one option after the other.

MOST_COMBINATIONS: Final = 64
"""So many combinations are all tried; of more, one option after the other is varied."""

GOALS: Final[Mapping[str, Callable[[Trial], float]]] = {
    "reserved": lambda trial: trial.peak_reserved,
    "in_use": lambda trial: trial.peak_in_use,
    "reserved_not_in_use": lambda trial: trial.reserved_not_in_use,
    "driver_calls": lambda trial: trial.driver_calls,
}
"""What is made small: a name, and the number of a trial under the limit."""

SMALLEST_LIMIT: Final = "smallest_limit"
"""The goal for which each combination is searched for its smallest limit, up to the one given."""

_MOST_ROWS: Final = 20
"""Rows of a text."""


@dataclass(frozen=True)
class TriedOptions:
    """One row of the table of `best_options`: the options tried, and their numbers.

    Attributes:
        options: that were varied, with their values.
        trial: its numbers, under its smallest limit if that is the goal; None: the policy refused to serve.
        error: why it refused; empty if it did not.
    """

    options: Mapping[str, Any] = field(hash=False)
    trial: Trial | None
    error: str = ""


@dataclass(frozen=True, repr=False)
class BestOptions(Answer):
    """The result of `best_options`.

    Attributes:
        policy: name of the rules.
        limit: memory limit in bytes; None: none.
        goal: what was made small.
        table: all options tried, the best first: those that fit, by the goal; then those that fail, the one that served
            most requests first; then those that were refused.
        method: `grid`: all combinations; `coordinate`: one option after the other, until none improves. A coordinate
            search can miss the best combination.
        replays: how many replays were made; those in the cache do not count.
        seconds: time of the search.
        complete: whether the search was not stopped.
    """

    policy: str
    limit: int | None
    goal: str
    table: tuple[TriedOptions, ...] = field(repr=False)
    method: str
    replays: int
    seconds: float
    complete: bool = True

    def __str__(self) -> str:
        return "\n".join(option_lines(self))

    @property
    def best(self) -> TriedOptions | None:
        """The best options that fit; None: none of those tried does."""
        first = self.table[0] if self.table else None
        return first if first is not None and first.trial is not None and first.trial.fits else None

    def is_as_good(self, row: TriedOptions) -> bool:
        """Whether a row of tried options reaches the goal as well as the best one; they may differ in other numbers."""
        best = self.best
        if best is None or best.trial is None or row.trial is None or not row.trial.fits:
            return False
        return _option_goal_value(row.trial, self.goal) == _option_goal_value(best.trial, self.goal)

    @property
    def options(self) -> Mapping[str, Any] | None:
        """The best options; None: none of those tried fits."""
        return None if self.best is None else self.best.options


def best_options(  # noqa: PLR0913  the question, and how to search
    source: Any,
    policy: str,
    limit: int | str | None = None,
    *,
    options: Mapping[str, Iterable[Any]] | Iterable[str] | None = None,
    goal: str = "reserved",
    pool: int | str | None = None,
    with_failed: bool = True,
    control: SearchControl | None = None,
    cache: TrialCache | str | os.PathLike[str] | None = None,
) -> BestOptions:
    """Find the options of a policy that serve a trace under a limit with the least memory.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a RequestStream, or a live heap.
        policy: a name of the table of policies, or a text: its options stay as given.
        limit: bytes, or text such as `12GiB`; None: the limit that the trace had, or none.
        options: the names of those to vary, or names with their values; None: all that a user can choose.
        goal: what to make small: a name of `GOALS`, or `smallest_limit`, which takes about 20 times as long.
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first.
        with_failed: whether requests that failed in the trace are served, too; see `RequestStream.without_failed`.
        control: progress and stop.
        cache: of results; or a folder for one on disk. None: the shared one in memory.

    Raises:
        InvalidRequest: there is no such policy, option, goal or heap; or the trace allocates or frees nothing.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    if goal not in {*GOALS, SMALLEST_LIMIT}:
        raise InvalidRequest(f"there is no goal {goal!r}; there are: {', '.join([*GOALS, SMALLEST_LIMIT])}")
    fixed = policy_of(policy)
    values = {
        name: choices
        for name, choices in option_values(fixed.name, options).items()
        if name not in fixed.options
    }
    stream = searchable(stream_of(source, pool, with_failed=with_failed))
    num_bytes = stream.limit if limit is None else replay_limit(limit)
    runner = TrialRunner(trial_cache(cache), control or SearchControl())
    search = _OptionSearch(stream, fixed.name, fixed.options, num_bytes, goal, runner)
    method = "grid" if math.prod(map(len, values.values())) <= MOST_COMBINATIONS else "coordinate"
    begun, complete = time.perf_counter(), True
    try:
        search.grid(values) if method == "grid" else search.coordinate(values)
    except (SearchStopped, KeyboardInterrupt):
        complete = False
    seconds = time.perf_counter() - begun
    table = search.ranked()
    return BestOptions(fixed.name, num_bytes, goal, table, method, runner.replays, seconds, complete)


class _OptionSearch:
    """One search of the best options; a combination is the values of all varied options."""

    def __init__(  # noqa: PLR0913, PLR0917  what `best_options` was asked
        self,
        stream: RequestStream,
        policy: str,
        fixed: Mapping[str, Any],
        limit: int | None,
        goal: str,
        runner: TrialRunner,
    ) -> None:
        self.stream, self.policy, self.fixed, self.limit = stream, policy, fixed, limit
        self.goal, self.runner = goal, runner
        self.tried: dict[tuple[Any, ...], TriedOptions] = {}

    def grid(self, values: Mapping[str, list[Any]]) -> None:
        """Try all combinations of the options."""
        self.runner.expected = math.prod(map(len, values.values()))
        for combination in itertools.product(*values.values()):
            self._try(dict(zip(values, combination, strict=True)))

    def coordinate(self, values: Mapping[str, list[Any]]) -> None:
        """From the defaults, vary one option after the other, and keep its best value, until none improves."""
        at = {name: choices[0] for name, choices in values.items()}
        rounds = sum(len(choices) - 1 for choices in values.values())
        best = self._try(at)
        while True:
            self.runner.expected = self.runner.done + rounds
            before = best
            for name, choices in values.items():
                for value in choices:
                    found = self._try({**at, name: value})
                    if self._rank(found) < self._rank(best):
                        best = found
                at = dict(best.options)
            if best is before:
                return

    def ranked(self) -> tuple[TriedOptions, ...]:
        """All options tried, the best first."""
        return tuple(sorted(self.tried.values(), key=self._rank))

    def _try(self, options: Mapping[str, Any]) -> TriedOptions:
        key = tuple(options.values())
        if key not in self.tried:
            shown = ", ".join(f"{name}={_tried_option_text(value)}" for name, value in options.items())
            given = {name: value for name, value in options.items() if value is not None}
            try:
                policy = policy_of(self.policy, **{**self.fixed, **given})
                trial = self._trial(policy, f"{self.policy} {shown}")
            except InvalidRequest as error:
                self.runner.done += 1
                self.tried[key] = TriedOptions(options, None, str(error))
            else:
                self.tried[key] = TriedOptions(options, trial)
        return self.tried[key]

    def _trial(self, policy: Policy, text: str) -> Trial:
        if self.goal != SMALLEST_LIMIT:
            return self.runner.run(self.stream, policy, self.limit, text)
        most = NO_LIMIT if self.limit is None else self.limit
        trial = self.runner.run(self.stream, policy, most, text)
        if not trial.fits:
            return trial
        search = LimitSearch(self.stream, policy, GRANULE, most, self.runner)
        search.run()
        return min((each for each in search.tried.values() if each.fits), key=lambda each: each.limit or 0)

    def _rank(self, tried: TriedOptions) -> tuple[float, ...]:
        """The rank of tried options; ascending from the best."""
        trial = tried.trial
        if trial is None:
            return (2,)
        if not trial.fits:
            return (1, -trial.served)
        return (0, _option_goal_value(trial, self.goal), trial.peak_reserved, trial.driver_calls)


def _option_goal_value(trial: Trial, goal: str) -> float:
    """The number of a trial that the goal of `best_options` makes small."""
    return trial.limit or 0 if goal == SMALLEST_LIMIT else GOALS[goal](trial)


def _tried_option_text(value: Any) -> str:
    return format_bytes(value) if type(value) is int and value >= 1024 else str(value).lower()


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
    lines += [_tried_options_row(row, found) for row in found.table[:_MOST_ROWS]]
    if len(found.table) > _MOST_ROWS:
        lines.append(f"and {len(found.table) - _MOST_ROWS:,} more")
    lines += ["", f"{len(found.table):,} tried, {how} ({effort_text(found.replays, found.seconds)})"]
    lines += uncompared([found.policy])
    return lines if found.complete else [*lines, "the search was stopped: not all options were tried"]


def _tried_options_row(row: TriedOptions, found: BestOptions) -> str:
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
