"""How far a batch can grow before a request fails, by bisection over the factor.

As for the smallest limit, a policy need not be monotone: the factor found fits, the next larger one fails, and every
larger factor that was tried fails, too.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bfcviz.errors import InvalidRequest
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import policy_of, policy_text
from bfcviz.whatif.replay import bytes_of, searchable, stream_of
from bfcviz.whatif.search.bisection import bisect, expected_steps
from bfcviz.whatif.search.control import SearchControl, SearchStopped
from bfcviz.whatif.search.result_cache import ResultCache, cache_of
from bfcviz.whatif.search.scaled_requests import ScaledRequests, scaled_requests
from bfcviz.whatif.search.trial import Trial, TrialRunner, effort_text, failure_text

HUNDREDTHS: Final = 100
"""Without the size of the batch, factors are multiples of 1/100."""


@dataclass(frozen=True)
class LargestBatch:
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
    cache: ResultCache | str | os.PathLike[str] | None = None,
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
    num_bytes = stream.limit if limit is None else bytes_of(limit)
    if num_bytes is None:
        raise InvalidRequest(
            "the trace does not say which memory limit it had; give one, such as limit='12GiB'"
        )
    if batch is not None and batch < 1:
        raise InvalidRequest(
            f"the batch is {batch}; give the number of samples that the trace was recorded with"
        )
    runner = TrialRunner(cache_of(cache), control or SearchControl())
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
        self.requests, self.policy, self.limit, self.batch, self.runner = (
            requests,
            policy,
            limit,
            batch,
            runner,
        )
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
        bad, good = bisect(bad, good, self._fits)
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
        failure = failure_text(
            found.fails_at_request, found.fails_at_event, found.failed_size, found.failed_label
        )
        lines.append(f"with {found.next_factor:.4g} times the recorded batch {failure}")
    lines.append(f"assumption: the same requests in the same order; {printable(found.assumption)}")
    lines.append(effort_text(found.replays, found.seconds))
    return lines if found.complete else [*lines, "the search was stopped: a larger batch may fit"]
