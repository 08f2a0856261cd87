"""Searches by bisection: the smallest limit under which a policy serves all requests, and the largest batch that fits.

A search replays one request stream many times. It takes a stream, a policy and a `SearchControl` for progress and stop;
each result of a replay is kept in a `TrialCache`.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.answers import Answer
from bfcviz.errors import FileError, InvalidRequest
from bfcviz.events.storage.files import parse_file_json, read_small, replacing
from bfcviz.formats.tensorflow import UNIT
from bfcviz.terminal import printable
from bfcviz.units import bytes_range, format_bytes
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.own_rules import own_or_bfc_rules
from bfcviz.whatif.policy import NO_LIMIT, Policy
from bfcviz.whatif.policy_table import (
    POLICIES,
    InOrder,
    Orders,
    in_orders,
    is_of_table,
    policy_of,
    policy_text,
    replay_limit,
    uncompared,
)
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream, are_failed, stream_of

# ------------------------------------------------------------------------------
# Trials: one replay each; how a search makes, counts, caches, shows and stops them, and bisects.


Progress = Callable[[int, int, str], object]
"""Called with replays done, replays expected, and a text; the expected number can change."""


class SearchStopped(Exception):
    """The search was stopped by `SearchControl.stop`."""


class SearchControl:
    """Reports the progress of one search and stops it, from any thread.

    A stopped search, and one that Ctrl-C interrupts, returns what it knows; `complete` of its result is false.

    Args:
        progress: called before each replay, in the thread of the search.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Stop the search before its next replay."""
        self._stopped.set()

    def report(self, done: int, total: int, text: str) -> None:
        """Report the progress.

        Raises:
            SearchStopped: the search must end.
        """
        if self._progress is not None and not self.stopped:
            self._progress(done, max(done, total), text)
        if self.stopped:
            raise SearchStopped


MOST_KEPT: Final = 20_000
"""Results in memory; the oldest one is dropped."""

_MOST_BYTES: Final = 1 << 16
"""Of one file: a longer one was not written by this class."""


class TrialKey(NamedTuple):
    """What the result of a trial depends on.

    Attributes:
        stream: digest of the requests.
        policy: name of the rules.
        options: all options, defaults included, as JSON.
        limit: memory limit in bytes; None: none.
    """

    stream: str
    policy: str
    options: str
    limit: int | None


class TrialCache:
    """Keeps results of trials in memory and, if a folder is given, one small JSON file each.

    Several processes can use one folder. Files of another version of bfcviz, and damaged files, are not used.

    Args:
        folder: for the files; it is made if it does not exist.

    Raises:
        FileError: the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._known: dict[TrialKey, Mapping[str, Any]] = {}
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(self._folder, "", f"cannot be made: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: TrialKey) -> Mapping[str, Any] | None:
        """The result of this key; None: not known."""
        found = self._known.get(key)
        if found is None and self._folder is not None:
            found = self._read(key)
            if found is not None:
                self._known[key] = found
        return found

    def put(self, key: TrialKey, result: Mapping[str, Any]) -> None:
        """Keep a result of numbers and texts.

        Raises:
            FileError: its file cannot be written.
        """
        while len(self._known) >= MOST_KEPT:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread was faster
                del self._known[next(iter(self._known))]
        self._known[key] = result
        if self._folder is not None:
            path = self._folder / _trial_file_name(key)
            with replacing(path, overwrite=True) as made:
                made.write_text(
                    json.dumps({"key": _trial_key_json(key), "result": dict(result)}), encoding="utf-8"
                )

    def _read(self, key: TrialKey) -> Mapping[str, Any] | None:
        assert self._folder is not None
        path = self._folder / _trial_file_name(key)
        if not path.exists():
            return None
        try:
            found = parse_file_json(read_small(path, _MOST_BYTES))
        except (FileError, ValueError):
            return None
        if not isinstance(found, dict) or found.get("key") != _trial_key_json(key):
            return None
        result = found.get("result")
        return result if isinstance(result, dict) else None


SHARED: Final = TrialCache()
"""The cache of searches without one of their own: in memory, until the process ends."""


def trial_cache(cache: TrialCache | str | os.PathLike[str] | None) -> TrialCache:
    """The cache itself, that of a folder, or the shared one."""
    if cache is None:
        return SHARED
    return cache if isinstance(cache, TrialCache) else TrialCache(cache)


def trial_options(policy: Policy) -> str | None:
    """All options of the policy of a trial as JSON; None: not of the table, so its name does not say its rules."""
    if not is_of_table(policy):
        return None
    return json.dumps({**POLICIES[policy.name].options, **policy.options}, sort_keys=True, default=str)


def _trial_key_json(key: TrialKey) -> list[Any]:
    return [version("bfcviz"), *key]


def _trial_file_name(key: TrialKey) -> str:
    return f"{blake2b(json.dumps(_trial_key_json(key)).encode(), digest_size=16).hexdigest()}.json"


_LONGEST: Final = 72
"""Characters of a label."""


@dataclass(frozen=True)
class Trial:
    """One replay that ends at the first request that fails; sizes in bytes.

    Attributes:
        policy: name of the rules.
        options: of the policy: those that were given.
        limit: memory limit; None: none.
        fits: whether every request was served.
        failed_at: index in the stream of the first request that failed; -1: none.
        served: number of requests tried.
        peak_reserved: the most that the driver had granted.
        peak_in_use: the most in blocks in use.
        reserved_not_in_use: 1 - peak_in_use / peak_reserved.
        internal_fragmentation: what rounding wastes, where most is in use.
        driver_calls: segments granted, refused and released together.
        seconds: time of the replay.
    """

    policy: str
    options: Mapping[str, Any] = field(hash=False)
    limit: int | None
    fits: bool
    failed_at: int
    served: int
    peak_reserved: int
    peak_in_use: int
    reserved_not_in_use: float
    internal_fragmentation: float
    driver_calls: int
    seconds: float = field(compare=False)

    @classmethod
    def of(cls, outcome: Outcome, seconds: float) -> "Trial":
        """The trial of an outcome."""
        failures = outcome.failures
        return cls(
            policy=outcome.policy,
            options=dict(outcome.options),
            limit=outcome.limit,
            fits=outcome.fits,
            failed_at=int(failures[0]) if len(failures) else -1,
            served=outcome.served,
            peak_reserved=outcome.peak_reserved,
            peak_in_use=outcome.peak_in_use,
            reserved_not_in_use=outcome.reserved_not_in_use,
            internal_fragmentation=outcome.internal_fragmentation,
            driver_calls=sum(outcome.driver_calls),
            seconds=seconds,
        )


class TrialRunner:
    """Replays streams, or takes the trial from the cache.

    Args:
        cache: of trials.
        control: is told of each trial before it begins.

    Attributes:
        expected: how many trials the search expects; it may change.
        done: trials made or taken from the cache.
        replays: trials that were made.
    """

    def __init__(self, cache: TrialCache, control: SearchControl) -> None:
        self.expected = 0
        self.done = 0
        self.replays = 0
        self._cache = cache
        self._control = control

    def run(self, stream: RequestStream, policy: Policy, limit: int | None, text: str) -> Trial:
        """The trial of one stream, policy and limit; `text` says what is tried.

        Raises:
            SearchStopped: the search must end.
            InvalidRequest: the policy cannot serve the stream, or not under such a limit.
        """
        self._control.report(self.done, self.expected, text)
        options = trial_options(policy)
        key = None if options is None else TrialKey(stream.digest, policy.name, options, limit)
        made = None if key is None else _cached_trial(self._cache.get(key))
        if made is None:
            begun = time.perf_counter()
            outcome = policy.serve(stream, limit, stop_at_failure=True)
            made = Trial.of(outcome, time.perf_counter() - begun)
            self.replays += 1
            if key is not None:
                self._cache.put(key, {**vars(made)})
        self.done += 1
        return made


def _cached_trial(result: Mapping[str, Any] | None) -> Trial | None:
    """The trial of a result from a cache; None: there is none, or its file holds something else."""
    if result is None or result.keys() != _NUMBERS.keys() | {"policy", "options", "limit"}:
        return None
    if any(type(result[name]) not in kinds for name, kinds in _NUMBERS.items()):
        return None
    return Trial(**result)


_NUMBERS: Final = {
    each.name: (float, int) if each.type is float else (each.type,)
    for each in fields(Trial)
    if each.type in (bool, int, float)
}
"""The types of the fields that are numbers."""


def trial_failure_text(request: int | None, event: int | None, size: int, label: str) -> str:
    """Which request failed in a trial: its number, its event in the trace, its bytes and its label."""
    name = printable(label) or "an allocation without label"
    name = name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
    at = "" if event is None else f" (event {event:,})"
    return f"request {request or 0:,}{at} fails: {format_bytes(size)} for {name}"


def effort_text(replays: int, seconds: float) -> str:
    """How much work a search was."""
    return f"{replays:,} replays in {seconds:.2f} s"


def bisect_trials(bad: int, good: int, works: Callable[[int], bool]) -> tuple[int, int]:
    """Two neighbours that trials find: on the side of `bad` one that does not work, and the other one, which does.

    Args:
        bad: does not work.
        good: works; above or below `bad`.
        works: tries a number between them.
    """
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if works(middle):
            good = middle
        else:
            bad = middle
    return bad, good


def expected_steps(bad: int, good: int) -> int:
    """How many numbers `bisect_trials` tries, at most."""
    return max(abs(good - bad) - 1, 0).bit_length()


def searchable(stream: RequestStream) -> RequestStream:
    """The same stream, if trials can find anything about it.

    Raises:
        InvalidRequest: no search can say anything about it: it allocates nothing, or frees nothing.
    """
    if not stream.allocations:
        raise InvalidRequest(f"{stream.source or 'the trace'} has no allocation: there is nothing to serve")
    if not ((stream.rows["kind"] == FREE) & ~are_failed(stream.rows)).any():
        total = format_bytes(int(stream.live_bytes.max()))
        raise InvalidRequest(
            f"none of the {stream.allocations:,} allocations of {stream.source or 'the trace'} is freed: under any "
            f"rules they need {total}, and what rounding adds, so that there is nothing to compare; record a "
            "trace with frees (`bfcviz record`). `bfcviz why` says why a request failed, and what would have helped"
        )
    return stream


# ------------------------------------------------------------------------------
# The smallest memory limit under which a policy serves all requests of a trace, by bisection.
#
# A policy need not be monotone: it may fail under a limit and serve the same requests under a smaller one, because
# another limit moves blocks to other places. So the result says only what was tried: the limit found fits, the next
# smaller one fails, and so do all smaller limits that were tried on the way.


GRANULE: Final = UNIT
"""Limits are multiples of this, in bytes: BFC rounds its limit down to one."""

_REPLAYS: Final = 16
"""About so many a search needs: of long streams fewer orders of ties are searched."""

_FIRST_STEP: Final = 64
"""The first step up from the lower bound is this part of it."""


@dataclass(frozen=True, repr=False)
class SmallestLimit(Answer):
    """The result of `smallest_limit`; sizes in bytes.

    Attributes:
        policy: name of the rules.
        options: of the policy: those that were given.
        limit_bytes: the smallest limit found that fits; None: none was found before the search was stopped.
        next_smaller: the largest limit below it that was tried; if `complete`, one granule smaller. It fails. None:
            there is none.
        fails_at_request: index in the stream of the first request that fails under it; None as above.
        fails_at_event: index of its event in the trace; None also for a request that is no event of the trace.
        failed_size: requested bytes of that request.
        failed_label: its name.
        lower_bound: the most requested bytes in use: no rules can need less.
        replays: how many replays were made; those in the cache do not count.
        seconds: time of the search.
        tried: all trials, in order.
        complete: whether the search was not stopped.
        notes: of the stream: what is missing or assumed.
        granule: only multiples of this were tried.
        orders: the same limit where ties between equal free blocks are decided otherwise; None: not searched.
    """

    policy: str
    options: Mapping[str, Any] = field(hash=False)
    limit_bytes: int | None
    next_smaller: int | None
    fails_at_request: int | None
    fails_at_event: int | None
    failed_size: int
    failed_label: str
    lower_bound: int
    replays: int
    seconds: float
    tried: tuple[Trial, ...] = field(repr=False)
    complete: bool = True
    notes: tuple[str, ...] = field(default=(), repr=False)
    granule: int = 1
    orders: Orders | None = None

    def __str__(self) -> str:
        return "\n".join(limit_lines(self))

    @property
    def added(self) -> int | None:
        """Bytes that the rules need above the lower bound, for rounding and fragmentation."""
        return None if self.limit_bytes is None else self.limit_bytes - self.lower_bound


def smallest_limit(  # noqa: PLR0913  the question, and how to search
    source: Any,
    policy: str | Policy | None = None,
    *,
    pool: int | str | None = None,
    granule: int | str = GRANULE,
    at_most: int | str | None = None,
    control: SearchControl | None = None,
    cache: TrialCache | str | os.PathLike[str] | None = None,
) -> SmallestLimit:
    """Find the smallest memory limit under which a policy serves all requests of a trace.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a RequestStream, or a live heap.
        policy: a name of the table of policies, a text such as `torch:max_split_size=128MiB`, or a Policy. None: the
            job's own rules where the trace says them, else `bfc` (`own_rules.own_or_bfc_rules`).
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first.
        granule: only multiples of this are tried: bytes, or text such as `2MiB`.
        at_most: the largest limit to try; None: 64 TiB.
        control: progress and stop.
        cache: of results; or a folder for one on disk. None: the shared one in memory.

    Raises:
        InvalidRequest: there is no such policy, heap or limit; the trace allocates or frees nothing; or the policy
            cannot serve it under `at_most`.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    given = None if policy is None else policy_of(policy)  # before the file is read, which may take long
    stream = searchable(stream_of(source, pool))
    chosen = given or own_or_bfc_rules(stream).policy
    step, most = replay_limit(granule, "granule"), replay_limit(at_most, "at_most")
    if step is None:
        raise InvalidRequest(f"the granule is {granule}; give 1 byte or more, such as '2MiB'")
    runner = TrialRunner(trial_cache(cache), control or SearchControl())

    def search_of(rules: Policy) -> LimitSearch:
        return LimitSearch(stream, rules, step, NO_LIMIT if most is None else most, runner)

    search = search_of(chosen)
    begun, complete, orders = time.perf_counter(), True, None
    try:
        search.run()
        orders = in_orders(
            chosen,
            search.found(),
            lambda rules: _found_limit(search_of(rules)),
            requests=len(stream) * _REPLAYS,
        )
    except (SearchStopped, KeyboardInterrupt):
        complete = False
    found = search.result(time.perf_counter() - begun, complete=complete)
    return replace(found, orders=orders)


def _found_limit(search: "LimitSearch") -> InOrder:
    """The limit that a search finds; it does not fit if none up to the largest one does."""
    with suppress(InvalidRequest):
        search.run()
    return search.found()


class LimitSearch:
    """One search; limits are counted in granules.

    Args:
        granule: in bytes.
        most: the largest limit to try, in bytes.

    Attributes:
        tried: trials by number of granules, in order.

    Raises:
        InvalidRequest: the requests in use at once exceed `most`.
    """

    def __init__(
        self, stream: RequestStream, policy: Policy, granule: int, most: int, runner: TrialRunner
    ) -> None:
        self.stream, self.policy, self.granule, self.runner = stream, policy, granule, runner
        self.lower_bound = int(stream.live_bytes.max(initial=0))
        self.tried: dict[int, Trial] = {}
        self._least = max(-(-self.lower_bound // granule), 1)
        self._most = most // granule
        if self._most < self._least:
            raise InvalidRequest(
                f"the trace has {format_bytes(self.lower_bound)} in use at once, so that no rules can serve it in "
                f"{format_bytes(most)}; give a larger limit"
            )

    def run(self) -> None:
        """Find two neighbours of which the larger one fits.

        Raises:
            InvalidRequest: the policy cannot serve the stream, or not under the largest limit.
            SearchStopped: the search must end.
        """
        bad, good = self._bracket()
        self.runner.expected = self.runner.done + expected_steps(bad, good)
        bad, good = bisect_trials(bad, good, self._fits)
        if bad:
            self._fits(bad)  # the lower bound itself fits: its next smaller one is shown to fail, too

    def found(self) -> InOrder:
        """The smallest limit that fits, of those tried; the largest one tried if none does."""
        fitting = [number for number, trial in self.tried.items() if trial.fits]
        return InOrder(bool(fitting), self.granule * min(fitting, default=max(self.tried, default=0)))

    def result(self, seconds: float, *, complete: bool) -> SmallestLimit:
        """What is known so far."""
        good = min((each for each, trial in self.tried.items() if trial.fits), default=None)
        below = [
            each for each, trial in self.tried.items() if not trial.fits and (good is None or each < good)
        ]
        failed = self.tried[max(below)] if below else None
        row = None if failed is None else self.stream.rows[failed.failed_at]
        event = None if row is None or row["event"] < 0 else int(row["event"])
        return SmallestLimit(
            policy=self.policy.name,
            options=dict(self.policy.options),
            limit_bytes=None if good is None else good * self.granule,
            next_smaller=max(below) * self.granule if below else None,
            fails_at_request=None if failed is None else failed.failed_at,
            fails_at_event=event,
            failed_size=0 if row is None else int(row["size"]),
            failed_label="" if row is None else self.stream.labels.name(int(row["label"])),
            lower_bound=self.lower_bound,
            replays=self.runner.replays,
            seconds=seconds,
            tried=tuple(self.tried.values()),
            complete=complete,
            notes=self.stream.notes,
            granule=self.granule,
        )

    def _bracket(self) -> tuple[int, int]:
        """A number of granules that is too few, and one that fits; the steps up double.

        Raises:
            InvalidRequest: none fits.
        """
        bad, good = self._least - 1, self._least
        step = max(self._least // _FIRST_STEP, 1)
        self.runner.expected = expected_steps(0, step) + 3
        while not self._fits(good):
            if good == self._most:
                raise InvalidRequest(self._refusal(good))
            bad, good, step = good, min(good + step, self._most), 2 * step
        return bad, good

    def _fits(self, granules: int) -> bool:
        if granules not in self.tried:
            limit = granules * self.granule
            text = f"{self.policy.name} under {format_bytes(limit)}"
            self.tried[granules] = self.runner.run(self.stream, self.policy, limit, text)
        return self.tried[granules].fits

    def _refusal(self, granules: int) -> str:
        trial = self.tried[granules]
        row = self.stream.rows[trial.failed_at]
        return (
            f"{self.policy.name} cannot serve the trace under {format_bytes(granules * self.granule)}: request "
            f"{trial.failed_at:,} of {format_bytes(int(row['size']))} fails, with {format_bytes(trial.peak_in_use)} in "
            "use at most before; give a larger limit, or other options"
        )


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
    lines += _lines_of_orders(found)
    if found.next_smaller is not None:
        failure = trial_failure_text(
            found.fails_at_request, found.fails_at_event, found.failed_size, found.failed_label
        )
        lines.append(f"under {found.next_smaller:,} bytes {failure}")
    least = (
        f"no rules can need less than {found.lower_bound:,} bytes, the most requested bytes in use at once"
    )
    lines.append(f"{least}{_limit_overhead_text(found)}")
    lines += uncompared([found.policy])
    lines += [f"note: {printable(note)}" for note in found.notes]
    failed = sum(not trial.fits for trial in found.tried)
    lines.append(
        f"{len(found.tried)} limits tried, {failed} of them fail; limits between those are not known to fail "
        f"({effort_text(found.replays, found.seconds)})"
    )
    return lines if found.complete else [*lines, "the search was stopped: a smaller limit may fit"]


def _lines_of_orders(found: SmallestLimit) -> list[str]:
    """The range of limits, where ties decide it."""
    orders = found.orders
    if found.limit_bytes is None or orders is None or not orders.decide:
        return []
    known = [each.amount for each in orders.found if each.fits]
    unfit = orders.tried - orders.fitting
    failed = f"; {unfit} of them fit under no limit tried" if unfit else ""
    return [
        (
            f"{bytes_range(min(known), max(known))}: {orders.by} decides between free blocks of "
            f"one size ({orders.tried} orders tried{failed}); give {max(known):,} bytes"
        )
    ]


def _limit_overhead_text(found: SmallestLimit) -> str:
    if found.added is None:
        return ""
    share = found.added / found.lower_bound if found.lower_bound else 0
    return (
        f"; these rules add {format_bytes(found.added)} ({100 * share:.1f} %) for rounding, fragmentation "
        f"and limits in multiples of {format_bytes(found.granule)}"
    )


# ------------------------------------------------------------------------------
# How far a batch can grow before a request fails, by bisection over the factor.
#
# As for the smallest limit, a policy need not be monotone: the factor found fits, the next larger one fails, and every
# larger factor that was tried fails, too.


_STEP_WORDS: Final = ("step", "iteration", "batch", "epoch")
"""Marks with one of these words in their names separate steps; the first words first."""


@dataclass(frozen=True)
class ScaledRequests:
    """A stream, and which of its blocks grow with the batch; the others stay.

    This is a model: it assumes that every chosen block is proportional to the batch, and that the program makes the
    same requests in the same order. Workspaces of convolutions, and kernels chosen by size, do not obey it.

    Attributes:
        stream: the requests as recorded.
        grows: for each request, bool[n]: an allocation of a block that grows.
        assumption: which blocks grow and why, as a sentence.
    """

    stream: RequestStream = field(repr=False)
    grows: NDArray[np.bool_] = field(repr=False)
    assumption: str

    def times(self, numerator: int, denominator: int) -> RequestStream:
        """The requests, with the blocks that grow `numerator / denominator` as large; sizes are rounded up.

        Raises:
            InvalidRequest: a block would have 2^62 bytes or more.
        """
        rows = self.stream.rows.copy()
        sizes = rows["size"][self.grows]
        if int(sizes.max(initial=0)) * numerator >= denominator << 62:
            raise InvalidRequest(
                f"a block of {format_bytes(int(sizes.max()))} times {numerator / denominator:g} exceeds 2^62 bytes"
            )
        whole, part = np.divmod(sizes, denominator)  # so that no product exceeds 63 bits
        rows["size"][self.grows] = whole * numerator - (-part * numerator // denominator)
        return replace(self.stream, rows=rows)

    def peak_growing(self) -> int:
        """The most requested bytes in use of blocks that grow."""
        return int(_batch_allocations_only(self.stream, self.grows).live_bytes.max(initial=0))


def scaled_requests(stream: RequestStream, labels: str | Sequence[str] | None = None) -> ScaledRequests:
    """Choose the blocks that grow with the batch.

    Args:
        stream: the requests.
        labels: one or more names, or patterns such as `*/activation*`, of the blocks that grow. None: all but those
            allocated before the first step, and those allocated before the last step and never freed: weights and the
            state of an optimizer. Without marks of steps: all that are freed.

    Raises:
        InvalidRequest: no block has such a label, or none would grow.
    """
    made = stream.rows["kind"] == ALLOCATE
    if labels is not None:
        return _batch_requests_by_label(stream, made, [labels] if isinstance(labels, str) else labels)
    steps = _step_marks(stream)
    never_freed = np.ones(stream.blocks, bool)
    blocks: NDArray[np.int64] = stream.rows["block"]
    freed = blocks[stream.rows["kind"] == FREE]
    never_freed[freed] = False
    stays = never_freed[blocks]
    if len(steps):
        at = np.arange(len(stream))
        grows = made & (at > steps[0]) & ~(stays & (at < steps[-1]))
        name = stream.labels.name(int(stream.rows["label"][steps[0]]))
        why = f"blocks from before the first mark {name!r}, or before the last one and never freed, stay as they are"
    else:
        grows = made & ~stays
        why = "the trace has no marks of steps, so blocks that are never freed stay as they are"
    stay, grow = (_batch_allocations_text(stream, chosen) for chosen in (made & ~grows, grows))
    assumption = f"{why}: {stay}; all others, {grow}, grow in proportion"
    if not grows.any():
        raise InvalidRequest(f"no block grows with the batch: {assumption}; name the labels that do")
    return ScaledRequests(stream, grows, assumption)


def _batch_requests_by_label(
    stream: RequestStream, made: NDArray[np.bool_], labels: Sequence[str]
) -> ScaledRequests:
    numbers = np.unique(stream.rows["label"][made])
    names = {int(number): stream.labels.name(int(number)) for number in numbers}
    chosen: list[int] = []
    for each in labels:
        found = [number for number, name in names.items() if name == each or fnmatchcase(name, each)]
        if not found:
            raise InvalidRequest(
                f"no allocation has a label {each!r}; give a name, or a pattern such as '*conv*'"
            )
        chosen += found
    grows = made & np.isin(stream.rows["label"], chosen)
    listed = ", ".join(map(repr, labels))
    grow = _batch_allocations_text(stream, grows)
    assumption = f"blocks with labels {listed}, {grow}, grow in proportion; all others stay"
    return ScaledRequests(stream, grows, assumption)


def _batch_allocations_text(stream: RequestStream, chosen: NDArray[np.bool_]) -> str:
    """How many allocations, and the most of their bytes in use."""
    most = int(_batch_allocations_only(stream, chosen).live_bytes.max(initial=0))
    return f"{np.count_nonzero(chosen):,} allocations with at most {format_bytes(most)} in use"


def _batch_allocations_only(stream: RequestStream, chosen: NDArray[np.bool_]) -> RequestStream:
    """The stream, with all other allocations empty."""
    rows = stream.rows.copy()
    rows["size"][(rows["kind"] == ALLOCATE) & ~chosen] = 0
    return replace(stream, rows=rows)


def _step_marks(stream: RequestStream) -> NDArray[np.intp]:
    """Indices of the marks that separate steps; empty if no marks do."""
    marks = np.flatnonzero(stream.rows["kind"] == MARK)
    labels = stream.rows["label"][marks]
    names = {int(number): stream.labels.name(int(number)).casefold() for number in np.unique(labels)}
    for word in _STEP_WORDS:
        chosen = [number for number, name in names.items() if word in name]
        if chosen:
            return marks[np.isin(labels, chosen)]
    return marks[:0]


HUNDREDTHS: Final = 100
"""Without the size of the batch, factors are multiples of 1/100."""


@dataclass(frozen=True, repr=False)
class LargestBatch(Answer):
    """The result of `largest_batch`; sizes in bytes.

    Attributes:
        policy: name of the rules.
        options: of the policy: those that were given.
        limit: the memory limit.
        batch: size of the recorded batch; None: not given.
        largest: the largest batch that fits; None: the batch was not given, or none was found before the stop.
        factor: the largest factor found that fits; below 1: the recorded batch does not fit. None: none was found.
        next_factor: the smallest larger one that was tried; it fails. None: none was found.
        fails_at_request: index in the stream of the first request that fails with it.
        fails_at_event: index of its event in the trace; None also for a request that is no event of the trace.
        failed_size: requested bytes of that request, as scaled.
        failed_label: its name.
        assumption: which blocks grow, as a sentence.
        replays: how many replays were made.
        seconds: time of the search.
        complete: whether the search was not stopped.
    """

    policy: str
    options: Mapping[str, Any] = field(hash=False)
    limit: int
    batch: int | None
    largest: int | None
    factor: float | None
    next_factor: float | None
    fails_at_request: int | None
    fails_at_event: int | None
    failed_size: int
    failed_label: str
    assumption: str
    replays: int
    seconds: float
    complete: bool = True

    def __str__(self) -> str:
        return "\n".join(batch_lines(self))


def largest_batch(  # noqa: PLR0913  the question, and how to search
    source: Any,
    policy: str | Policy = "bfc",
    limit: int | str | None = None,
    *,
    batch: int | None = None,
    labels: str | Sequence[str] | None = None,
    pool: int | str | None = None,
    control: SearchControl | None = None,
    cache: TrialCache | str | os.PathLike[str] | None = None,
) -> LargestBatch:
    """Find how far the batch can grow, in proportion, before a request fails under a limit.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a RequestStream, or a live heap.
        policy: a name of the table of policies, a text with options, or a Policy.
        limit: bytes, or text such as `12GiB`; None: the limit that the trace had.
        batch: size of the recorded batch: whole batches are tried. None: factors in steps of 1/100.
        labels: names or patterns of the blocks that grow; None: see `scaled_requests`.
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first.
        control: progress and stop.
        cache: of results; or a folder for one on disk. None: the shared one in memory.

    Raises:
        InvalidRequest: there is no such policy, heap, label or limit; nothing grows; or even the blocks that do not
            grow fail.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    chosen, stream = policy_of(policy), searchable(stream_of(source, pool))
    num_bytes = stream.limit if limit is None else replay_limit(limit)
    if num_bytes is None:
        raise InvalidRequest(
            "the trace does not say which memory limit it had; give one, such as limit='12GiB'"
        )
    if batch is not None and batch < 1:
        raise InvalidRequest(
            f"the batch is {batch}; give the number of samples that the trace was recorded with"
        )
    runner = TrialRunner(trial_cache(cache), control or SearchControl())
    search = _BatchSearch(scaled_requests(stream, labels), chosen, num_bytes, batch, runner)
    begun, complete = time.perf_counter(), True
    try:
        search.run()
    except (SearchStopped, KeyboardInterrupt):
        complete = False
    return search.result(time.perf_counter() - begun, complete=complete)


class _BatchSearch:
    """One search; factors are counted in samples of the batch, or in hundredths."""

    def __init__(
        self, requests: ScaledRequests, policy: Policy, limit: int, batch: int | None, runner: TrialRunner
    ) -> None:
        self.requests, self.policy, self.limit = requests, policy, limit
        self.batch, self.runner = batch, runner
        self.unit = batch or HUNDREDTHS
        self.tried: dict[int, Trial] = {}

    def run(self) -> None:
        """Find two neighbours of which the smaller one fits.

        Raises:
            InvalidRequest: the blocks that do not grow do not fit.
        """
        most = self.limit * self.unit // max(self.requests.peak_growing(), 1) + 1  # too much for any rules
        most = min(most, (1 << 61) // self.unit)  # so that products stay below 2^63
        good, bad = self.unit, most
        self.runner.expected = expected_steps(bad, good) + 1
        if bad <= good or not self._fits(good):
            good, bad = 0, min(good, most)
            if not self._fits(good):
                raise InvalidRequest(self._refusal())
            self.runner.expected = self.runner.done + expected_steps(bad, good) + 1
        bad, good = bisect_trials(bad, good, self._fits)
        self._fits(bad)

    def result(self, seconds: float, *, complete: bool) -> LargestBatch:
        """What is known so far."""
        good = max((each for each, trial in self.tried.items() if trial.fits), default=None)
        above = [
            each for each, trial in self.tried.items() if not trial.fits and (good is None or each > good)
        ]
        bad = min(above, default=None)
        trial = None if bad is None else self.tried[bad]
        row = None if bad is None or trial is None else self._scaled(bad).rows[trial.failed_at]
        return LargestBatch(
            policy=self.policy.name,
            options=dict(self.policy.options),
            limit=self.limit,
            batch=self.batch,
            largest=good if self.batch else None,
            factor=None if good is None else good / self.unit,
            next_factor=None if bad is None else bad / self.unit,
            fails_at_request=None if trial is None else trial.failed_at,
            fails_at_event=None if row is None or row["event"] < 0 else int(row["event"]),
            failed_size=0 if row is None else int(row["size"]),
            failed_label="" if row is None else self.requests.stream.labels.name(int(row["label"])),
            assumption=self.requests.assumption,
            replays=self.runner.replays,
            seconds=seconds,
            complete=complete,
        )

    def _scaled(self, count: int) -> Any:
        return self.requests.times(count, self.unit)

    def _fits(self, count: int) -> bool:
        if count not in self.tried:
            text = f"batch {count:,}" if self.batch else f"{count / self.unit:.2f} times the batch"
            self.tried[count] = self.runner.run(self._scaled(count), self.policy, self.limit, text)
        return self.tried[count].fits

    def _refusal(self) -> str:
        return (
            f"{self.policy.name} under {format_bytes(self.limit)} cannot serve even the blocks that do not grow "
            f"({self.requests.assumption}); give a larger limit"
        )


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
        failure = trial_failure_text(
            found.fails_at_request, found.fails_at_event, found.failed_size, found.failed_label
        )
        lines.append(f"with {found.next_factor:.4g} times the recorded batch {failure}")
    lines.append(f"assumption: the same requests in the same order; {printable(found.assumption)}")
    lines += uncompared([found.policy])
    lines.append(effort_text(found.replays, found.seconds))
    return lines if found.complete else [*lines, "the search was stopped: a larger batch may fit"]
