"""A search for a limit, a batch or options: its trials, one replay each; their cache, progress and stop; bisection.

A search replays one request stream many times. It takes a stream, a policy and a `SearchControl` for progress and stop;
each result of a replay is kept in a `TrialCache`.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from bfcviz.errors import FileError, InvalidRequest
from bfcviz.events.storage.files import parse_file_json, read_small, replacing
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import POLICIES, is_of_table
from bfcviz.whatif.requests import FREE, RequestStream, are_failed

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
        """Whether the search was stopped by `stop`."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Stop the search before its next replay."""
        self._stopped.set()

    def report(self, done: int, total: int, text: str) -> None:
        """Report the progress of a search.

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
        """The cached result of a trial, by its key; None: not known."""
        found = self._known.get(key)
        if found is None and self._folder is not None:
            found = self._read(key)
            if found is not None:
                self._known[key] = found
        return found

    def put(self, key: TrialKey, result: Mapping[str, Any]) -> None:
        """Keep a trial's result of numbers and texts.

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
    """The cache of trials: the given one, that of a folder, or the shared one."""
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
    """One replay of a search, which ends at the first request that fails; sizes in bytes.

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
        """The trial of a search that had this outcome."""
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
    """Replays streams for a search, or takes the trial from the cache.

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
    """How much work a search was, as text: replays and seconds."""
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


def searchable(stream: RequestStream, *, needs_frees: bool = True) -> RequestStream:
    """The same stream, if the trials of a search can find anything about it.

    Raises:
        InvalidRequest: no search can say anything about it: it allocates nothing; or it frees nothing where that is
            needed, or because it has no history.
    """
    if not stream.allocations:
        raise InvalidRequest(f"{stream.source or 'the trace'} has no allocation: there is nothing to serve")
    if (needs_frees or not stream.has_history) and frees_nothing(stream):
        total = format_bytes(int(stream.live_bytes.max()))
        raise InvalidRequest(
            f"none of the {stream.allocations:,} allocations of {stream.source or 'the trace'} is freed: under any "
            f"rules they need {total}, and what rounding adds, so that there is nothing to compare; record a "
            "trace with frees (`bfcviz record`). `bfcviz why` says why a request failed, and what would have helped"
        )
    return stream


def frees_nothing(stream: RequestStream) -> bool:
    """Whether a stream frees no block but those of requests that failed in the trace."""
    return not ((stream.rows["kind"] == FREE) & ~are_failed(stream.rows)).any()
