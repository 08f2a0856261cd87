"""The options that save most memory: the best ones of any policy, and the line to set for the job's own allocator."""

import itertools
import math
import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from bfcviz.analysis.heap_settings import Family
from bfcviz.answers import Answer
from bfcviz.errors import InvalidRequest
from bfcviz.formats import cupy, rmm, tensorflow, torch, xla
from bfcviz.terminal import printable
from bfcviz.units import MiB, counted, format_bytes
from bfcviz.whatif.heap_policies import MEMORY_OPTIONS
from bfcviz.whatif.policy import NO_LIMIT, Policy
from bfcviz.whatif.policy_table import (
    POLICIES,
    OwnRules,
    on_device,
    other_than_default,
    own_or_bfc_rules,
    policy_of,
    policy_text,
    replay_limit,
    uncompared,
)
from bfcviz.whatif.requests import RequestStream, are_failed, stream_of
from bfcviz.whatif.search import (
    GRANULE,
    LimitSearch,
    SearchControl,
    SearchStopped,
    Trial,
    TrialCache,
    TrialRunner,
    effort_text,
    searchable,
    trial_cache,
)

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
    """One row of the table of a search.

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
        """Whether a row of the table reaches the goal as well as the best one; others may differ in other numbers."""
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
    stream = searchable(stream_of(source, pool))
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
    """One search; a combination is the values of all varied options."""

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
        """Try all combinations."""
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
        """All tried, the best first."""
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
        """Ascending from the best."""
        trial = tried.trial
        if trial is None:
            return (2,)
        if not trial.fits:
            return (1, -trial.served)
        return (0, _option_goal_value(trial, self.goal), trial.peak_reserved, trial.driver_calls)


def _option_goal_value(trial: Trial, goal: str) -> float:
    """What a goal makes small."""
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


# ------------------------------------------------------------------------------
# Find the setting of a job's own allocator that saves most memory, and write it as the line to set.


ENOUGH: Final = 0.01
"""Settings within this share of the least memory count as equal: the one with the fewest options is proposed."""

SPACES: Final[Mapping[str, Sequence[tuple[Mapping[str, Any], tuple[str, ...]]]]] = {
    # Two spaces: with expandable segments PyTorch cannot return the blocks that max_split_size keeps whole.
    "torch": (
        ({}, ("max_split_size", "roundup_power2_divisions")),
        ({"expandable_segments": True}, ("roundup_power2_divisions",)),
    ),
    "bfc": (({}, ("allow_growth", "garbage_collection", "fragmentation_fraction")),),
}
"""Policy -> the options that are fixed and those that are varied, for each part of the search."""

REFINED: Final[Mapping[str, Sequence[Any]]] = {
    "roundup_power2_divisions": tuple(
        text
        for size in (4, 32, 256)
        for text in (f"[{size}:4,>:1]", f"[{size}:1,>:4]", f"[{size}:1,>:8]", f"[{size}:8,>:2]")
    )
}
"""PyTorch's divisions by size in MiB, varied after the rest, from the best settings on."""

NEWEST: Final[Mapping[str, Sequence[Any]]] = {
    "large_segment_size": (12 * MiB, 32 * MiB, 64 * MiB),
    "max_non_split_rounding": (64 * MiB, 256 * MiB, 1024 * MiB),
}
"""Options that only new versions of PyTorch know, varied last: an older one refuses to start with them."""

INITIAL_SHARES: Final = (0.0, 1.0, 1.02, 1.05, 1.1, 1.25, 1.5)
"""Initial sizes of RMM's pool, as shares of the most requested bytes in use at once."""

_SET_RMM: Final = "rmm.mr.set_current_device_resource({})"

_CHOSEN: Final = ("expandable_segments", "max_split_size", "roundup_power2_divisions", *NEWEST)
_OF_TORCH: Final[Mapping[str, Callable[[Any], str]]] = {
    "expandable_segments": "expandable_segments:{}".format,
    "max_split_size": lambda value: f"max_split_size_mb:{value // MiB}",
    "roundup_power2_divisions": "roundup_power2_divisions:{}".format,
    "max_non_split_rounding": lambda value: f"max_non_split_rounding_mb:{value // MiB}",
    "large_segment_size": lambda value: f"large_segment_size_mb:{value // MiB}",
    "garbage_collection_threshold": "garbage_collection_threshold:{}".format,
}
_OF_TENSORFLOW: Final = {
    "allow_growth": tensorflow.FORCE_GROWTH,
    "garbage_collection": tensorflow.COLLECTION,
}


@dataclass(frozen=True, repr=False)
class Tuned(Answer):
    """The result of `tune`; sizes in bytes.

    Attributes:
        own: the rules of the job.
        limit: memory of the device, or what a fraction leaves of it; None: no limit.
        now: the numbers of the job's own settings; None: they cannot be served so, `why_not` says why.
        best: those of the proposed settings; None: none of those tried fits.
        line: the line to set first; empty: none saves more than `ENOUGH`.
        graph_pools: what sharing one graph pool would save; None: the file has no two of them.
        newest: the numbers with options of `NEWEST`, too; None: these save no more than `ENOUGH` beside `best`.
        tried: how many settings were served.
        failed: how many requests failed in the trace: they were left out.
        failed_fit: whether the proposed settings serve these, too, under the limit; None: none failed, or no limit.
        complete: whether the search was not stopped.
        notes: of the requests.
    """

    own: OwnRules
    limit: int | None
    now: Trial | None
    best: Trial | None
    line: str
    tried: int
    failed: int = 0
    failed_fit: bool | None = None
    complete: bool = True
    why_not: str = ""
    notes: tuple[str, ...] = field(default=(), repr=False)
    newest: Trial | None = None
    graph_pools: "TunedGraphPools | None" = None

    def __str__(self) -> str:
        return "\n".join(tuned_lines(self))


class TunedGraphPools(NamedTuple):
    """What `tune` finds of the private pools of PyTorch that CUDA graphs are captured into; peaks in bytes.

    Attributes:
        number: how many there are.
        apart: peak of all memory if no pool serves the requests of another, as in the file.
        shared: the same if all graphs are captured into one pool.
    """

    number: int
    apart: int
    shared: int


def tune(
    stream: RequestStream,
    limit: int | None = None,
    *,
    device: int | None = None,
    with_failed: bool = False,
    control: SearchControl | None = None,
) -> Tuned:
    """Search the settings of the job's own allocator for those with the least memory at its peak.

    Args:
        stream: the requests.
        limit: in bytes; None: that of the trace, or none.
        device: bytes of the device, of which the limit is a share; None: the limit is that of the device.
        with_failed: whether requests that failed in the trace are served.
        control: progress and stop.

    Raises:
        InvalidRequest: the file does not say which allocator the job had, or that one has no options to choose.
    """
    asked = stream if with_failed else stream.without_failed()
    own = own_or_bfc_rules(asked)
    resources = _tunable_resources(asked)
    spaces = () if resources else _tunable_option_spaces(stream, own)
    num_bytes = stream.limit if limit is None else limit
    runner = TrialRunner(trial_cache(None), control or SearchControl())
    now, why_not, complete, pools = None, "", True, None
    rows: list[TriedOptions] = []
    try:
        if own.role:
            now = runner.run(asked, on_device(own.policy, device), num_bytes, "the job's own settings")
        else:
            why_not = "a log of RMM does not say which resource served the requests"
        for policy in resources:
            trial = runner.run(asked, policy, num_bytes, policy.name)
            rows.append(TriedOptions(policy.options, trial))
        if own.policy.name == "torch":
            pools = _graph_pools(asked, own.policy)
    except InvalidRequest as error:
        why_not = str(error)
    except (SearchStopped, KeyboardInterrupt):
        complete = False
    for fixed, choices in spaces if complete else ():
        # JAX lets a user set growth only.
        names = ("allow_growth",) if stream.family == Family.JAX else choices
        varied = {*names, *(_CHOSEN if own.policy.name == "torch" else ())}
        kept = {key: value for key, value in own.policy.options.items() if key not in varied}
        policy = on_device(policy_of(own.policy.name, **kept, **fixed), device)
        found = best_options(
            asked, policy_text(policy.name, policy.options), num_bytes, options=names, control=control
        )
        rows += found.table
        if not found.complete:
            complete = False
            break
    best = _proposed_setting([row.trial for row in rows if row.trial is not None], now)
    newest = None
    if complete and own.policy.name == "torch" and best is not None:
        best, complete = _refined_setting(asked, best, REFINED, num_bytes, control, rows)
        if complete:
            newest, complete = _refined_setting(asked, best, NEWEST, num_bytes, control, rows)
    saves = best is not None and (
        now is None or not now.fits or best.peak_reserved < (1 - ENOUGH) * now.peak_reserved
    )
    failed = int(are_failed(stream.rows).sum()) // 2
    return Tuned(
        own=own,
        limit=num_bytes,
        now=now,
        best=best if saves else now,
        line=setting_line(best, stream.family) if saves and best is not None else "",
        tried=len(rows),
        failed=0 if with_failed else failed,
        failed_fit=_setting_serves_failed(stream, best if saves else now, num_bytes)
        if failed and not with_failed
        else None,
        complete=complete,
        why_not=why_not,
        notes=asked.notes,
        newest=newest if newest != best else None,
        graph_pools=pools,
    )


def _tunable_option_spaces(
    stream: RequestStream, own: OwnRules
) -> Sequence[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """What is searched of the options of the job's own allocator.

    Raises:
        InvalidRequest: it is not known, or has no options to choose.
    """
    if not own.role:
        raise InvalidRequest(
            f"{stream.source or 'the file'} does not say which allocator the job had, so that there is no setting to "
            "propose; `bfcviz whatif` compares allocators"
        )
    if own.policy.name not in SPACES:
        raise InvalidRequest(
            f"the allocator of {stream.source or 'the file'} is {own.policy.name}, which has no option that changes "
            "where requests are placed; `bfcviz whatif` compares it with others"
        )
    return SPACES[own.policy.name]


def _tunable_resources(stream: RequestStream) -> list[Policy]:
    """The allocators that a user of CuPy or RMM can choose from; none for other frameworks."""
    if stream.family == Family.CUPY:
        return [policy_of("cupy"), policy_of("stream_ordered")]
    if stream.family == Family.RMM:
        most = int(stream.live_bytes.max(initial=0))
        sizes = [-(-int(share * most) // MiB) * MiB for share in INITIAL_SHARES]
        return [
            *(policy_of("rmm_pool", initial_pool_size=size) for size in dict.fromkeys(sizes)),
            policy_of("stream_ordered"),
        ]
    return []


def _graph_pools(stream: RequestStream, policy: Policy) -> TunedGraphPools | None:
    """Serve the requests with the graph pools apart, and with one for all: each pool has caches of its own."""
    names = [
        label.details.get("private_pool", "") for label in map(stream.labels.__getitem__, stream.label_names)
    ]
    pools = sorted({name for name in names if name})
    if len(pools) < 2:
        return None
    number_of = dict(
        zip(stream.label_names, (pools.index(name) + 1 if name else 0 for name in names), strict=True)
    )
    numbers = np.array([number_of.get(label, 0) for label in stream.rows["label"].tolist()])
    peaks = []
    for pool in (numbers, np.minimum(numbers, 1)):
        rows = stream.rows.copy()
        # Each pair of a pool and a stream becomes a stream of its own.
        pairs, stream_of = np.unique((pool << 16) + stream.rows["stream"], return_inverse=True)
        if len(pairs) > np.iinfo(rows["stream"].dtype).max:
            return None
        rows["stream"] = stream_of
        peaks.append(policy.serve(replace(stream, rows=rows)).peak_reserved)
    return TunedGraphPools(len(pools), *peaks)


def _refined_setting(  # noqa: PLR0913, PLR0917  what is searched, and where
    stream: RequestStream,
    best: Trial,
    options: Mapping[str, Sequence[Any]],
    limit: int | None,
    control: SearchControl | None,
    rows: list[TriedOptions],
) -> tuple[Trial, bool]:
    """The best trial after these options were varied one after the other, and whether the search was not stopped.

    The search begins at `best`; `rows` gets what was tried.
    """
    for name, values in options.items():
        if name == "max_non_split_rounding" and best.options.get("max_split_size") is None:
            continue  # it is of blocks that are not split
        kept = {key: value for key, value in best.options.items() if key != name}
        found = best_options(
            stream, policy_text(best.policy, kept), limit, options={name: values}, control=control
        )
        rows += found.table
        best = _proposed_setting([row.trial for row in found.table if row.trial is not None], best) or best
        if not found.complete:
            return best, False
    return best, True


def _proposed_setting(trials: Sequence[Trial], now: Trial | None) -> Trial | None:
    """Of the trials that fit and need about the least memory, the one with the fewest options; None: none fits."""
    fitting = [trial for trial in (*trials, *([now] if now else [])) if trial.fits]
    if not fitting:
        return None
    most = (1 + ENOUGH) * min(trial.peak_reserved for trial in fitting)
    near = [trial for trial in fitting if trial.peak_reserved <= most]
    return min(
        near,
        key=lambda trial: (
            len(other_than_default(trial.policy, trial.options)),
            trial.peak_reserved,
            trial.driver_calls,
        ),
    )


def _setting_serves_failed(stream: RequestStream, chosen: Trial | None, limit: int | None) -> bool | None:
    if chosen is None or limit is None:
        return None
    return policy_of(chosen.policy, **chosen.options).serve(stream, limit, stop_at_failure=True).fits


def setting_line(found: Trial | Policy, family: str) -> str:
    """The options of a policy as the line that sets them; for the shell where variables do."""
    name = found.policy if isinstance(found, Trial) else found.name
    options = {
        key: value for key, value in other_than_default(name, found.options).items() if key != "device"
    }
    if name == "torch":
        words = [write(options[key]) for key, write in _OF_TORCH.items() if key in options]
        text = shlex.quote(",".join(words))
        return f"export {torch.CONF}={text}" if words else f"unset {torch.NEW_CONF} {torch.CONF}"
    if name == "bfc" and family == Family.JAX:
        return f"export {xla.PREALLOCATE}={str(not options.get('allow_growth', False)).lower()}"
    if name == "bfc" and family == Family.OWN:
        return f"AllocatorOptions({', '.join(f'{key}={value!r}' for key, value in options.items())})"
    if name == "bfc" and family == Family.TENSORFLOW:
        words = [f"{name}={str(options.get(key, False)).lower()}" for key, name in _OF_TENSORFLOW.items()]
        fraction = options.get("fragmentation_fraction")
        rest = f"  # and {tensorflow.WORDS.fraction.format(fraction=fraction)}" if fraction else ""
        return f"export {' '.join(words)}{rest}"
    return _resource_line(name, options, family) or policy_text(name, options)


def _resource_line(name: str, options: Mapping[str, Any], family: str) -> str:
    """The Python line that makes CuPy or RMM use an allocator; empty for others."""
    if name == "rmm_pool":
        size = options.get("initial_pool_size", 0)
        return _SET_RMM.format(
            f"rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size={size})"
        )
    if name != "stream_ordered":
        return ""
    if family == Family.RMM:
        return _SET_RMM.format(rmm.WORDS.other)
    return str(cupy.WORDS.other) if family == Family.CUPY else ""


def _current_setting_line(found: Tuned) -> str:
    now = found.now
    if now is None:
        text = (
            f"{found.own.text}: {found.why_not or 'not served'}"
            if found.own.role
            else f"not known: {found.why_not}"
        )
        return f"now: {text}"
    result = "fits" if now.fits else f"request {now.failed_at:,} fails"
    return (
        f"now: {found.own.text}: peak {format_bytes(now.peak_reserved)}, {now.driver_calls:,} driver calls, "
        f"{result}{_tuned_limit_text(found.limit)} ({found.own.why})"
    )


def _graph_pool_lines(found: Tuned) -> list[str]:
    """What `tuned_lines` says of the private pools of CUDA graphs."""
    if found.own.policy.name != "torch":
        return []
    pools = found.graph_pools
    if pools is None:
        return ["graph pools: the file has no two of them, so there is none to share"]
    line = (
        f"graph pools: {pools.number} in the file, each apart: peak {format_bytes(pools.apart)}; if all graphs share "
        "one (torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()), the same handle for all): "
        f"{format_bytes(pools.shared)}"
    )
    return [line]


def tuned_lines(found: Tuned) -> list[str]:
    """The line to set and what it saves, first; then what was tried and what is not known."""
    lines, now, best = [], found.now, found.best
    if found.line and best is not None:
        before = "" if now is None or not now.fits else f" instead of {format_bytes(now.peak_reserved)}"
        served = " (the job's own settings fail)" if now is not None and not now.fits else ""
        lines.append(f"{found.line}   # {format_bytes(best.peak_reserved)}{before}{served}")
    elif best is not None and best.fits:
        lines.append(
            f"keep {found.own.text}: no setting tried needs {100 * ENOUGH:g} % less than its "
            f"{format_bytes(best.peak_reserved)}"
        )
    else:
        lines.append("no setting tried serves the job" + _tuned_limit_text(found.limit))
    if found.line.startswith("export " + torch.CONF):
        lines.append(
            f"from PyTorch 2.9 on the variable is {torch.NEW_CONF}; this older name is still read, too"
        )
    if found.newest is not None:
        size = format_bytes(found.newest.peak_reserved)
        lines.append(
            f"{setting_line(found.newest, '')}   # {size}, with {_pytorch_for_setting(found.newest)}"
        )
    lines.append("")
    lines.append(_current_setting_line(found))
    if found.line and best is not None:
        lines.append(
            f"proposed: {policy_text(best.policy, other_than_default(best.policy, best.options))}: peak "
            f"{format_bytes(best.peak_reserved)}, {best.driver_calls:,} driver calls"
        )
    lines += _graph_pool_lines(found)
    if found.failed:
        word = {True: "would be served, too", False: "would fail, too", None: "no limit is known"}
        lines.append(
            f"left out: {counted(found.failed, 'request')} that failed in the file (--with-failed includes all): "
            f"{word[found.failed_fit]}"
        )
    lines += [f"note: {note}" for note in found.notes if "left out" not in note]
    lines += uncompared([found.own.policy.name if found.best is None else found.best.policy])
    lines.append(f"{found.tried:,} settings tried")
    return lines if found.complete else [*lines, "the search was stopped: another setting may need less"]


def _pytorch_for_setting(trial: Trial) -> str:
    """The PyTorch that knows the options of a trial."""
    changed = other_than_default(trial.policy, trial.options)
    return "PyTorch 2.11 or later" if "large_segment_size" in changed else "PyTorch 2.6 or later"


def _tuned_limit_text(limit: int | None) -> str:
    """The limit that a setting was searched for, in a line of `tuned_lines`."""
    return " without a limit" if limit is None else f" under {format_bytes(limit)}"
