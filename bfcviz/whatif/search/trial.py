"""Trial: the numbers of one replay, without its arrays; and the runner that makes and counts them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.requests import RequestStream
from bfcviz.whatif.search.control import SearchControl
from bfcviz.whatif.search.result_cache import CacheKey, ResultCache, table_options

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

    def __init__(self, cache: ResultCache, control: SearchControl) -> None:
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
        options = table_options(policy)
        key = None if options is None else CacheKey(stream.digest, policy.name, options, limit)
        made = None if key is None else _kept(self._cache.get(key))
        if made is None:
            begun = time.perf_counter()
            outcome = policy.serve(stream, limit, stop_at_failure=True)
            made = Trial.of(outcome, time.perf_counter() - begun)
            self.replays += 1
            if key is not None:
                self._cache.put(key, {**vars(made)})
        self.done += 1
        return made


def _kept(result: Mapping[str, Any] | None) -> Trial | None:
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


def failure_text(request: int | None, event: int | None, size: int, label: str) -> str:
    """Which request failed: its number, its event in the trace, its bytes and its label."""
    name = printable(label) or "an allocation without label"
    name = name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
    at = "" if event is None else f" (event {event:,})"
    return f"request {request or 0:,}{at} fails: {format_bytes(size)} for {name}"


def effort_text(replays: int, seconds: float) -> str:
    """How much work a search was."""
    return f"{replays:,} replays in {seconds:.2f} s"
