"""The largest batch: how far it can grow before a request fails under a limit, by bisection over the factor.

As for the smallest limit, a policy need not be monotone: the factor found fits, the next larger one fails, and every
larger factor that was tried fails, too.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.answers import Answer
from bfcviz.errors import InvalidRequest
from bfcviz.events.marks import BEGINS, ENDS, STEP_WORDS
from bfcviz.events.origin import HISTORY_BEGINS
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_replay import replay_limit
from bfcviz.whatif.policy_table import policy_of, policy_text, uncompared
from bfcviz.whatif.requests import ALLOCATE, FREE, MARK, RequestStream, stream_of
from bfcviz.whatif.search import (
    SearchControl,
    SearchStopped,
    Trial,
    TrialCache,
    TrialRunner,
    bisect_trials,
    effort_text,
    expected_steps,
    searchable,
    trial_cache,
    trial_failure_text,
)

_OPTIMIZER: Final = "optim"
"""In the name of a mark: it is of the optimizer's work, which comes last in a step and does not depend on the batch."""


_CARRIED: Final = 0.01
"""A share of the peak; if more from before the history is freed in the first step, the step lacks its beginning."""


@dataclass(frozen=True)
class ScaledRequests:
    """The requests of a larger batch: a stream, and which of its blocks grow with the batch; the others stay.

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
        """The requests of another batch: blocks that grow are `numerator / denominator` as large, rounded up.

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
        """The most requested bytes in use of blocks that grow with the batch."""
        return int(_batch_allocations_only(self.stream, self.grows).live_bytes.max(initial=0))


def scaled_requests(stream: RequestStream, labels: str | Sequence[str] | None = None) -> ScaledRequests:
    """Choose the blocks that grow with the batch.

    Args:
        stream: the requests.
        labels: one or more names, or patterns such as `*/activation*`, of the blocks that grow. None: all but those
            allocated before the first step, and those allocated before the last step and never freed: weights and the
            state of an optimizer. Where the marks are those of an optimizer's steps: all but what the optimizer
            allocates, and the gradients: what it finds in use with the size of an earlier block. Without marks of
            steps: all that are freed.

    Raises:
        InvalidRequest: no block has such a label, none would grow, or the marks do not say which would.
    """
    made = stream.rows["kind"] == ALLOCATE
    if labels is not None:
        return _batch_requests_by_label(stream, made, _named_labels(labels))
    steps = _step_marks(stream)
    freed_at = _freed_at(stream)
    at = np.arange(len(stream))
    if not len(steps):
        grows = made & (freed_at < len(stream))
        why = "the trace has no marks of steps, so blocks that are never freed stay as they are"
    else:
        name = stream.labels.name(int(stream.rows["label"][steps[0]]))
        if _OPTIMIZER in name.casefold():
            grows = made & _outside_optimizer(stream, steps, freed_at, name)
            why = (
                f"an optimizer's step begins at {name!r}: blocks that it requests, those from before the first step, "
                "and gradients, which it finds in use with the size of an earlier block, stay as they are"
            )
        else:
            grows = made & (at > steps[0]) & ~((freed_at == len(stream)) & (at < steps[-1]))
            why = (
                f"blocks from before the first mark {name!r}, or before the last one and never freed, stay as they "
                "are"
            )
    stay, grow = (_batch_allocations_text(stream, chosen) for chosen in (made & ~grows, grows))
    assumption = f"{why}: {stay}; all others, {grow}, grow in proportion"
    if not grows.any():
        raise InvalidRequest(f"no block grows with the batch: {assumption}; name the labels that do")
    return ScaledRequests(stream, grows, assumption)


def _named_labels(labels: str | Sequence[str]) -> list[str]:
    """The names or patterns of the blocks that grow.

    Raises:
        InvalidRequest: there is none, or one is no text.
    """
    found = list(labels) if isinstance(labels, Iterable) and not isinstance(labels, str) else [labels]
    if not found or not all(isinstance(each, str) for each in found):
        raise InvalidRequest(
            f"labels={labels!r} names no block that grows; give names or patterns such as '*conv*', or leave it out"
        )
    return found


def _freed_at(stream: RequestStream) -> NDArray[np.intp]:
    """For each request: the index of the free of its block; the length of the stream if it is never freed."""
    found = np.full(stream.blocks, len(stream))
    frees = np.flatnonzero(stream.rows["kind"] == FREE)
    freed: NDArray[np.int64] = stream.rows["block"][frees]
    found[freed] = frees
    blocks: NDArray[np.int64] = stream.rows["block"]
    at: NDArray[np.intp] = found[blocks]
    return at


def _outside_optimizer(
    stream: RequestStream, steps: NDArray[np.intp], freed_at: NDArray[np.intp], name: str
) -> NDArray[np.bool_]:
    """Whether each request lies in a forward or backward pass, and its block is no gradient.

    A gradient is in use when the optimizer's step begins, and has the size of its parameter; the outputs of the model
    that a variable keeps have other sizes.

    Args:
        stream: the requests.
        steps: indices of the marks where an optimizer's step begins.
        freed_at: what `_freed_at` finds.
        name: of these marks.

    Raises:
        InvalidRequest: the marks do not say when the optimizer's step ends, or the only step lacks its beginning.
    """
    depth = np.zeros(len(stream), np.int64)
    for mark in np.flatnonzero(stream.rows["kind"] == MARK):
        label = stream.labels[int(stream.rows["label"][mark])]
        if _OPTIMIZER in label.name.casefold():
            depth[mark] = (BEGINS in label.details) - (ENDS in label.details)
    total = np.cumsum(depth)
    if not depth[steps].all() or len(set(total[steps].tolist())) > 1:  # else an end is missing
        raise InvalidRequest(
            f"the only marks of steps, {name!r}, are of the optimizer and do not say when its work ends, so it is not "
            "known which blocks grow with the batch; name their labels, or mark the beginning of each step"
        )
    works = total > min(int(total.min()), 0)  # below 0: the trace begins within a step of the optimizer
    at = np.arange(len(stream))
    begin = steps[0] if len(steps) > 1 else _one_whole_step(stream, int(steps[0]), works, freed_at, name)
    following = np.append(steps, len(stream))[np.searchsorted(steps, at)]
    before = (stream.rows["kind"] == ALLOCATE) & (at < (steps[0] if begin < 0 else begin))
    sizes: NDArray[np.int64] = stream.rows["size"]
    parameters = sizes[before & (freed_at == len(stream))]
    gradients = (freed_at > following) & np.isin(sizes, parameters)
    return ~works & (at > begin) & ~gradients


def _one_whole_step(
    stream: RequestStream, step: int, works: NDArray[np.bool_], freed_at: NDArray[np.intp], name: str
) -> int:
    """The index of the mark where the history begins, -1 if the trace has none; the step before `step` must be whole.

    Raises:
        InvalidRequest: blocks from before the history are freed in it: they are of its forward pass.
    """
    named = [number for number, each in stream.label_names.items() if each == HISTORY_BEGINS]
    marks = np.flatnonzero((stream.rows["kind"] == MARK) & np.isin(stream.rows["label"], named))
    begin = int(marks[0]) if len(marks) else -1
    before = stream.rows[: begin + 1]
    freed = freed_at[: begin + 1]
    lost = (before["kind"] == ALLOCATE) & (freed < step)
    lost[lost] = ~works[freed[lost]]
    num_bytes, most = int(before["size"][lost].sum()), int(stream.live_bytes.max(initial=0))
    if num_bytes > _CARRIED * most:
        raise InvalidRequest(
            f"the trace has one step, which ends at {name!r}, and it does not have its beginning: "
            f"{format_bytes(num_bytes)} from before it are freed in it, so it is not known which blocks grow with the "
            "batch; name their labels, or record two steps"
        )
    return begin


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
    """How many allocations grow with the batch, or stay, and the most of their bytes in use."""
    most = int(_batch_allocations_only(stream, chosen).live_bytes.max(initial=0))
    return f"{np.count_nonzero(chosen):,} allocations with at most {format_bytes(most)} in use"


def _batch_allocations_only(stream: RequestStream, chosen: NDArray[np.bool_]) -> RequestStream:
    """The stream with the blocks that grow with the batch; all other allocations are empty."""
    rows = stream.rows.copy()
    rows["size"][(rows["kind"] == ALLOCATE) & ~chosen] = 0
    return replace(stream, rows=rows)


def _step_marks(stream: RequestStream) -> NDArray[np.intp]:
    """For a batch: indices of the marks that separate steps, those of an optimizer last; empty if no marks do."""
    marks = np.flatnonzero(stream.rows["kind"] == MARK)
    labels = stream.rows["label"][marks]
    known = {int(number): stream.labels[int(number)] for number in np.unique(labels)}
    for of_optimizer in (False, True):
        for word in STEP_WORDS:
            chosen = [
                number
                for number, label in known.items()
                if word in label.name.casefold()
                and (_OPTIMIZER in label.name.casefold()) == of_optimizer
                and not (of_optimizer and ENDS in label.details)
            ]
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
    with_failed: bool = True,
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
        with_failed: whether requests that failed in the trace are served, too; see `RequestStream.without_failed`.
        control: progress and stop.
        cache: of results; or a folder for one on disk. None: the shared one in memory.

    Raises:
        InvalidRequest: there is no such policy, heap, label or limit; nothing grows; or even the blocks that do not
            grow fail.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    chosen, stream = policy_of(policy), searchable(stream_of(source, pool, with_failed=with_failed))
    num_bytes = stream.limit if limit is None else replay_limit(limit)
    if num_bytes is None:
        raise InvalidRequest(
            "the trace does not say which memory limit it had; give one, such as limit='12GiB'"
        )
    if batch is not None and (
        not isinstance(batch, int | np.integer) or isinstance(batch, bool) or batch < 1
    ):
        raise InvalidRequest(
            f"batch={batch!r} is no size of a batch; give the number of samples that the trace was recorded with"
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
    """One search for the largest batch; factors are counted in samples of the batch, or in hundredths."""

    def __init__(
        self, requests: ScaledRequests, policy: Policy, limit: int, batch: int | None, runner: TrialRunner
    ) -> None:
        self.requests, self.policy, self.limit = requests, policy, limit
        self.batch, self.runner = batch, runner
        self.unit = batch or HUNDREDTHS
        self.tried: dict[int, Trial] = {}

    def run(self) -> None:
        """Find two neighbouring batches of which the smaller one fits.

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
        """What is known so far of the largest batch."""
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
        next_batch = f"{found.next_factor:.2f} times the recorded batch"
        if found.batch is not None:
            next_batch = f"a batch of {round(found.next_factor * found.batch):,}"
        lines.append(f"with {next_batch} {failure}")
    lines.append(f"assumption: the same requests in the same order; {printable(found.assumption)}")
    lines += uncompared([found.policy])
    lines.append(effort_text(found.replays, found.seconds))
    return lines if found.complete else [*lines, "the search was stopped: a larger batch may fit"]
