"""The smallest memory limit under which a policy serves all requests of a trace, by bisection.

A policy need not be monotone: it may fail under a limit and serve the same requests under a smaller one, because
another limit moves blocks to other places. So the result says only what was tried: the limit found fits, the next
smaller one fails, and so do all smaller limits that were tried on the way.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bfcviz.answers import Answer
from bfcviz.errors import InvalidRequest
from bfcviz.formats.tensorflow import UNIT
from bfcviz.terminal import printable
from bfcviz.units import bytes_range, format_bytes
from bfcviz.whatif.own_rules import own_or_bfc_rules
from bfcviz.whatif.policy import NO_LIMIT, Policy
from bfcviz.whatif.policy_replay import replay_limit
from bfcviz.whatif.policy_table import policy_of, policy_text, uncompared
from bfcviz.whatif.requests import RequestStream, stream_of
from bfcviz.whatif.search import (
    SearchControl,
    SearchStopped,
    Trial,
    TrialCache,
    TrialRunner,
    bisect_trials,
    effort_text,
    expected_steps,
    frees_nothing,
    searchable,
    trial_cache,
    trial_failure_text,
)
from bfcviz.whatif.tie_breaking import InOrder, Orders, in_orders

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
        """Bytes of the smallest limit above the lower bound, for rounding and fragmentation."""
        return None if self.limit_bytes is None else self.limit_bytes - self.lower_bound


def smallest_limit(  # noqa: PLR0913  the question, and how to search
    source: Any,
    policy: str | Policy | None = None,
    *,
    pool: int | str | None = None,
    with_failed: bool = True,
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
        with_failed: whether requests that failed in the trace are served, too; see `RequestStream.without_failed`.
        granule: only multiples of this are tried: bytes, or text such as `2MiB`.
        at_most: the largest limit to try; None: 64 TiB.
        control: progress and stop.
        cache: of results; or a folder for one on disk. None: the shared one in memory.

    Raises:
        InvalidRequest: there is no such policy, heap or limit; the trace allocates nothing; or the policy
            cannot serve it under `at_most`.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    given = None if policy is None else policy_of(policy)  # before the file is read, which may take long
    stream = searchable(stream_of(source, pool, with_failed=with_failed), needs_frees=False)
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
    """One search for the smallest limit; limits are counted in granules.

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
        """Find two neighbouring limits of which the larger one fits.

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
        """The smallest limit that fits so far, of those tried; the largest one tried if none does."""
        fitting = [number for number, trial in self.tried.items() if trial.fits]
        return InOrder(bool(fitting), self.granule * min(fitting, default=max(self.tried, default=0)))

    def result(self, seconds: float, *, complete: bool) -> SmallestLimit:
        """What is known so far of the smallest limit."""
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
            notes=(*self.stream.notes, *_only_allocations_notes(self.stream)),
            granule=self.granule,
        )

    def _bracket(self) -> tuple[int, int]:
        """Two limits, in granules: one that is too small, and one that fits; the steps up double.

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


def _only_allocations_notes(stream: RequestStream) -> list[str]:
    """What a limit means for a stream that frees nothing."""
    if not frees_nothing(stream):
        return []
    count = f"{stream.allocations:,} allocations"
    return [
        f"no chunk is freed before the trace ends: a job that goes on needs at least as much as its {count}"
    ]


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
    """The range of smallest limits, where ties decide it."""
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
