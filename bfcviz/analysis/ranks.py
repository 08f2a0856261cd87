"""Ranks: the files of one job compared, the worst first; what differs between them, and each failure told once.

A `Rank` is the summary of one file: small, so that a hundred ranks need the memory of one trace. `RankSet` compares the
summaries, as data, as text, as JSON values and as HTML.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from bfcviz.analysis.diagnosis import Diagnosis, Verdict, failure_headline
from bfcviz.analysis.failures import all_failures, cause_for_json
from bfcviz.analysis.message_answer import StatedAnswer, StatedFailureAnswer
from bfcviz.analysis.message_verdict import StatedCause
from bfcviz.analysis.short_names import shortened_name
from bfcviz.answers import AnswerTable
from bfcviz.errors import TraceError
from bfcviz.events.origin import Origin, Status, holds_only_states, regions_known, stated_peak
from bfcviz.events.trace import Trace
from bfcviz.formats.message_grammar import LogTime
from bfcviz.model.find_steps import end_of_state, failed_steps, worst_fragmentation
from bfcviz.model.grouping import grouping
from bfcviz.model.model import Model
from bfcviz.model.timelines import measured
from bfcviz.model.trace_index import summary_index_of
from bfcviz.terminal import aligned, printable
from bfcviz.units import bytes_range, counted, format_bytes, listed

# ------------------------------------------------------------------------------
# Rank: what is known of one file.

_DIAGNOSED: Final = 100
"""Failures of a rank that are diagnosed: a program can catch thousands and go on."""

_LEAST_KEPT: Final = 0.001
"""Of the bytes in use: smaller holders are not kept, so there are at most 1,000 of them."""


@dataclass(frozen=True)
class RankPlace:
    """Where a rank of a `RankSet` lies, and what its name says.

    Attributes:
        file: the file, or the folder of a recording; a text: its URL.
        name: in texts, such as `rank 3` or `Process-1`.
        rank: its number; None: not known.
        host: its machine; empty: not known.
        rank_from: where the number comes from: `name` of the file, `recording`, `text` of the log, or `order` of the
            files; empty: no number.
    """

    file: Path | str
    name: str
    rank: int | None = None
    host: str = ""
    rank_from: str = ""


@dataclass(frozen=True)
class RankFailure:
    """Failed requests of a rank that have one cause.

    Attributes:
        verdict: why, in the words of `cause_for_json`.
        what: the label or the operation of the request; empty: it has no name.
        requested: bytes of the first of them; 0: not stated.
        heap: the allocator.
        headline: the first of them in a sentence.
        event: index of the first one's OOM event; None: a text tells of it.
        count: how many.
        time_ns: when the first one happened, in nanoseconds of the calendar; None: not known.
        stated: the first one, where a text tells of it.
    """

    verdict: str
    what: str
    requested: int
    heap: str
    headline: str
    event: int | None
    count: int = 1
    time_ns: int | None = None
    stated: StatedFailureAnswer | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What failures of the same cause have in common: verdict and operation; without one, the size."""
        return self.verdict, self.what, 0 if self.what else self.requested


@dataclass(frozen=True)
class Rank:
    """The summary of one rank, from its file. Sizes are bytes of one heap; None: not stated, or cannot be read.

    Attributes:
        place: the file, its rank and its host.
        problem: why the file cannot be read; empty: it can.
        format, status, events: of the trace.
        heap: the allocator that the sizes are of: that of the first failure, else that with the highest peak.
        heaps: how many allocators the file has.
        limit: that of the heap.
        peak: the most bytes in use.
        pool: the most bytes of all regions; of a file without history those of its state.
        free, largest_free: at `step`.
        step: the state before the first failed request, else at the peak; or the step asked for.
        failures: causes of failed requests; the first failed first.
        failed: how many requests failed; a consequence of another rank is none.
        ended: whether the file was written to its end; a killed process leaves a truncated one.
        in_use: bytes in use at `step`.
        holders: name -> bytes in use at `step`, the largest first; those with less than 0.1 % of them are left out.
        has_heap: whether the file opens as a trace; a text with an error message only states numbers.
        last_line: how a log ends that tells of no failure.
    """

    place: RankPlace
    problem: str = ""
    format: str = ""
    status: str = ""
    events: int = 0
    heap: str = ""
    heaps: int = 0
    limit: int | None = None
    peak: int | None = None
    pool: int | None = None
    free: int | None = None
    largest_free: int | None = None
    step: int = 0
    failures: tuple[RankFailure, ...] = ()
    failed: int = 0
    ended: bool = True
    in_use: int = 0
    holders: Mapping[str, int] = field(default_factory=dict)
    has_heap: bool = True
    last_line: str = ""

    @property
    def name(self) -> str:
        """The name of a rank in texts."""
        return self.place.name

    @property
    def verdict(self) -> str | None:
        """The verdict of a rank's first failure, `no_failure`; None where the file cannot be read."""
        if self.problem:
            return None
        return self.failures[0].verdict if self.failures else str(Verdict.NO_FAILURE)

    @property
    def has_failed(self) -> bool:
        """Whether a rank tells of a failure of its own, not only of another rank that was late or gone."""
        return any(each.verdict != StatedCause.CONSEQUENCE for each in self.failures)

    @property
    def lacked_memory(self) -> bool:
        """Whether a rank tells of a failure that may be for lack of memory."""
        others = {StatedCause.CONSEQUENCE, StatedCause.NOT_LACK_OF_MEMORY}
        return any(each.verdict not in others for each in self.failures)

    @property
    def failed_ns(self) -> int | None:
        """When the first request of a rank failed, in nanoseconds of the calendar; None: not known."""
        return min((each.time_ns for each in self.failures if each.time_ns is not None), default=None)

    @property
    def logged(self) -> LogTime | None:
        """When the log of a rank tells of the first failure of its own; None: not known."""
        own = (each for each in self.failures if each.verdict != StatedCause.CONSEQUENCE)
        first = next(own, None)
        return None if first is None or first.stated is None else first.stated.stated.time

    @property
    def badness(self) -> tuple[bool, bool, bool, float, float, bool, int]:
        """Sorts ranks: those with a failure first, the earliest of them first; then the killed, then by their peaks."""
        never = float("inf")
        return (
            bool(self.problem),
            not self.has_failed,
            not self.failures,
            never if self.failed_ns is None else self.failed_ns,
            never if self.logged is None else self.logged.ns,
            self.ended,
            -(self.peak or self.in_use),
        )

    def to_json(self) -> dict[str, Any]:
        """The entry of a rank in `ranks`: sizes in bytes, null for unknown."""
        place = self.place
        found: dict[str, Any] = {
            "rank": place.rank,
            "rank_from": place.rank_from or None,
            "name": place.name,
            "host": place.host or None,
            "file": str(place.file),
            "verdict": self.verdict,
        }
        if self.problem:
            return {**found, "problem": self.problem}
        return {
            **found,
            "format": self.format,
            "status": self.status,
            "ended": self.ended,
            "events": self.events,
            "allocator": self.heap,
            "allocators": self.heaps,
            "bytes_limit": self.limit,
            "peak_bytes_in_use": self.peak,
            "pool_bytes": self.pool,
            "free_bytes": self.free,
            "largest_free_chunk": self.largest_free,
            "step": self.step,
            "failed_requests": self.failed,
            "failure": self.failures[0].headline if self.failures else None,
            "is_consequence": bool(self.failures) and not self.has_failed,
            "log_ends_with": self.last_line or None,
        }


def rank_of(trace: Trace, place: RankPlace, by: str = "op", step: int | str | None = None) -> Rank:
    """The summary of a rank, from its trace.

    Args:
        trace: of the rank.
        place: where it lies.
        by: what its holders are found by.
        step: of the holders: a number, `peak`, `worst` or `last`; None: before the first failed request, else the peak.

    Raises:
        TraceError: events contradict each other, or there is no such step.
        ValueError: `by` is no grouping.
    """
    origin = trace.origin
    summary_index_of(trace)  # failures are then found without reading all events
    found = all_failures(trace, runs=0, most=_DIAGNOSED)
    steps = failed_steps(trace)
    pools = [found[0].pool] if found else range(min(len(origin.pools), _MEASURED))
    heap = max((_measured_rank_heap(trace, pool) for pool in pools), key=lambda each: each.peak or 0)
    if step is None:
        at = found[0].step if found and found[0].recorded.has_heap else heap.peak_step
    else:
        at = _rank_step(trace, heap, step)
    model = Model(trace, heap.pool)
    model.seek(at)
    pool, has_regions = origin.pools[heap.pool], regions_known(origin.details, heap.pool)
    return Rank(
        place=_completed_rank_place(place, origin.details),
        format=str(origin.format),
        status=str(origin.status),
        events=len(trace) - trace.first,
        heap=str(pool.options.get("allocator_name") or pool.name),
        heaps=len(origin.pools),
        limit=pool.limit,
        peak=heap.peak,
        pool=heap.pool_bytes if has_regions else None,
        free=model.table.free_bytes if has_regions else None,
        largest_free=model.table.largest_free_chunk if has_regions else None,
        step=at,
        failures=_rank_failures(trace, found),
        failed=len(steps),
        ended=_is_whole_rank_file(origin),
        in_use=model.table.bytes_in_use,
        holders=_rank_holders(model, by),
    )


def _is_whole_rank_file(origin: Origin) -> bool:
    """Whether a file was written to its end, or is being written."""
    if origin.format == "bfcviz":
        return origin.has_ended_whole or origin.status is Status.RECORDING
    return not origin.lacks_end


def rank_of_text(answer: StatedAnswer, place: RankPlace) -> Rank:
    """The summary of a rank from a text: the sizes are those that its first failure states."""
    failures = [
        RankFailure(
            str(each.judgement.cause),
            each.stated.op,
            each.stated.fact("requested") or 0,
            each.stated.framework,
            each.headline.removesuffix("."),
            None,
            each.stated.count,
            stated=each,
        )
        for each in answer.failures
    ]
    ranks = {rank for each in answer.failures for rank in each.stated.ranks}
    if place.rank is None and len(ranks) == 1:
        rank = ranks.pop()
        place = replace(place, rank=rank, rank_from="text", name=f"rank {rank}")
    first = answer.failures[0] if answer.failures else None
    pools = () if first is None or first.account is None else first.account.pools
    pool = pools[0] if pools else None
    return Rank(
        place=place,
        format="text",
        heap="" if first is None else first.stated.framework,
        heaps=len(pools),
        limit=None if first is None else first.stated.fact("limit"),
        pool=None if pool is None else pool.total,
        free=None if pool is None else pool.cached,
        failures=_by_cause(failures),
        failed=sum(
            each.stated.count for each in answer.failures if each.judgement.cause != StatedCause.CONSEQUENCE
        ),
        in_use=0 if pool is None else pool.in_use or 0,
        has_heap=False,
    )


_MEASURED: Final = 8
"""Heaps of a file whose peaks are compared."""


class _MeasuredRankHeap(NamedTuple):
    """One heap of a rank: its index, the most bytes in use (None: not known), where, and of its regions."""

    pool: int
    peak: int | None
    peak_step: int
    pool_bytes: int


def _measured_rank_heap(trace: Trace, pool: int) -> _MeasuredRankHeap:
    model = Model(trace, pool)
    if holds_only_states(trace.origin.details):
        step = end_of_state(trace, pool)
        model.seek(step)
        peak, pool_bytes = model.table.bytes_in_use, model.table.pool_bytes
    else:
        model.seek(trace.first)
        step, peak, pool_bytes = trace.first, model.table.bytes_in_use, model.table.pool_bytes
        if len(trace) > trace.first:
            index = summary_index_of(trace, pool)
            rows = measured(model, [len(trace)]) if index is None else index.rolling.series
            row = rows[np.argmax(rows["bytes_in_use_max"])]
            pool_bytes = int(rows["pool_bytes_max"].max())
            if row["bytes_in_use_max"]:
                step, peak = int(row["bytes_in_use_max_step"]), int(row["bytes_in_use_max"])
    return _MeasuredRankHeap(pool, stated_peak(trace.origin.details, pool, peak), step, pool_bytes)


def _rank_step(trace: Trace, heap: _MeasuredRankHeap, step: int | str) -> int:
    if isinstance(step, int):
        return step
    steps = {"peak": heap.peak_step, "last": len(trace)}
    return steps[step] if step in steps else worst_fragmentation(trace, heap.pool)


def _completed_rank_place(place: RankPlace, details: Mapping[str, object]) -> RankPlace:
    """The place with what the recording knows of its rank and its host."""
    rank, host = details.get("rank"), details.get("host")
    if place.rank is None and type(rank) is int and 0 <= rank < 1 << 31:
        place = replace(place, rank=rank, rank_from="recording", name=f"rank {rank}")
    if not place.host and isinstance(host, str):
        place = replace(place, host=host[:_LONGEST_HOST])
    return place


_LONGEST_HOST: Final = 100


def _rank_failures(trace: Trace, found: Sequence[Diagnosis]) -> tuple[RankFailure, ...]:
    failures = [
        RankFailure(
            cause_for_json(each),
            each.label or each.recorded.op,
            each.requested,
            each.pool_name,
            failure_headline(each),
            each.event,
            time_ns=_rank_failure_time(trace, each),
        )
        for each in found
    ]
    return _by_cause(failures)


def _by_cause(failures: Sequence[RankFailure]) -> tuple[RankFailure, ...]:
    """The first failure of each cause in a rank, with the count of all."""
    causes: dict[tuple[str, str, int], RankFailure] = {}
    for each in failures:
        known = causes.get(each.key)
        causes[each.key] = each if known is None else replace(known, count=known.count + each.count)
    return tuple(causes.values())


def _rank_failure_time(trace: Trace, found: Diagnosis) -> int | None:
    """When a failure of a rank happened: our own recordings say when their clock began."""
    started = trace.origin.details.get("started_ns")
    if not isinstance(started, int) or found.event is None:
        return None
    return started + int(np.int64(trace.read(found.event, found.event + 1)["time"][0]))


def _rank_holders(model: Model, by: str) -> dict[str, int]:
    """The holders of a rank at the model's step, the largest first."""
    records = model.in_use()
    how = grouping(model.trace, model.pool, by)
    numbers, paths = how.grouped(records)
    sizes = np.zeros(len(paths), np.uint64)
    np.add.at(sizes, numbers, records["size"])
    names: dict[str, int] = defaultdict(int)
    for path, size in zip(paths, sizes.tolist(), strict=True):
        names[how.text(path)] += size
    least = _LEAST_KEPT * sum(names.values())
    kept = {name: size for name, size in names.items() if size >= least}
    return dict(sorted(kept.items(), key=lambda item: (-item[1], item[0])))


# ------------------------------------------------------------------------------
# RankSet: all ranks of a job.

_DIFFERENT: Final = 0.01
"""Of the median: a smaller difference of a measure between ranks is not told."""

_ALONE: Final = 0.01
"""Of the bytes in use of its rank: a smaller holder that no other rank has is not told."""

_YEARS_OF_NONE: Final = 10 * 365 * 86_400 * 10**9
"""Nanoseconds of the calendar up to which a time in a log had no year."""

_MOST_ROWS: Final = 24
"""Ranks in the table of the text; the others are one line."""

_MOST_FAILURES: Final = 12
_MOST_HOLDERS: Final = 5
_LONGEST: Final = 60  # characters of a holder's name

_MEASURES: Final = {"peak": "peak in use", "pool": "pool", "free": "free", "limit": "limit"}


@dataclass(frozen=True)
class SharedFailure:
    """One failure, and the ranks that had it.

    Attributes:
        failure: that of the first rank.
        ranks: names of the ranks, the first to fail first.
        requested: the least and the most bytes of its requests.
        count: requests in all ranks.
        rank: the first rank.
    """

    failure: RankFailure
    ranks: tuple[str, ...]
    requested: tuple[int, int]
    count: int
    rank: Rank


class FirstToFail(NamedTuple):
    """Which rank of a job failed first, and the next one.

    Attributes:
        rank: name of the first.
        next: name of the next one.
        seconds: how long before it.
        times_from: of what the times are: `recording`, `log`: each line of a failure has its own; or
            `line_before`: that of the last line before it that has one, in some logs.
    """

    rank: str
    next: str
    seconds: float
    times_from: str


@dataclass(frozen=True)
class RankSpread:
    """A measure over all ranks that state it, in bytes, and the ranks with the least and the most of it."""

    measure: str
    least: int
    median: int
    most: int
    least_rank: str
    most_rank: str


class RankHolder(NamedTuple):
    """A holder over all ranks; `median` and `least` count 0 for a rank without it.

    Attributes:
        name: of the holder.
        least, median, most: bytes.
        rank: the rank with the most.
        ranks: how many ranks have it.
    """

    name: str
    least: int
    median: int
    most: int
    rank: str
    ranks: int


@dataclass(frozen=True, repr=False)
class RankSet:
    """The ranks of one job; `print` it for the text.

    Attributes:
        source: what was opened.
        ranks: the worst first; those that cannot be read last.
        by: what holders are found by.
        read: opens the file of a rank.
        left_out: files that were not read because of an interrupt.
        others: files in the folder that are none of the formats that bfcviz reads.
    """

    source: str
    ranks: tuple[Rank, ...]
    by: str
    read: Callable[[Path | str], Trace]
    left_out: int = 0
    others: int = 0

    @property
    def known(self) -> tuple[Rank, ...]:
        """The ranks of a set that can be read."""
        return tuple(rank for rank in self.ranks if not rank.problem)

    @cached_property
    def is_one_job(self) -> bool:
        """Whether the files of the ranks can be of one job: heaps of different formats are not compared."""
        return len({rank.format for rank in self.known if rank.has_heap}) < 2

    @property
    def _noun(self) -> str:
        """What the members of a rank set are called: files that tell no rank's number may be of anything."""
        has_numbers = any(rank.place.rank_from not in ("", "order") for rank in self.ranks)
        return "rank" if self.is_one_job and has_numbers else "file"

    @property
    def worst(self) -> Rank:
        """The rank to look at first.

        Raises:
            TraceError: no rank can be read.
        """
        if not self.known:
            problem = f"; {self.ranks[0].place.file}: {self.ranks[0].problem}" if self.ranks else ""
            raise TraceError(f"no rank of {self.source} can be read{problem}")
        return self.known[0]

    @property
    def worst_heap(self) -> Rank:
        """The worst of the ranks whose files hold a heap: what pictures and holders show.

        Raises:
            TraceError: no rank can be read, or none has a heap.
        """
        found = next((rank for rank in self.known if rank.has_heap), None)
        if found is None:
            raise TraceError(
                f"{self.worst.place.file} and the other ranks are texts with error messages, without a heap: "
                "`bfcviz why` tells what they say"
            )
        return found

    @property
    def typical(self) -> Rank:
        """The rank whose peak is nearest to the median, other than the worst: what the worst is compared with.

        Raises:
            TraceError: there is no second rank with a heap.
        """
        used = [rank for rank in self._used if rank.has_heap]
        others = [rank for rank in used if rank is not self.worst_heap]
        if not others:
            raise TraceError(
                f"{self.source} has no second rank with memory in use to compare {self.worst_heap.name} with"
            )
        middle = median(rank.peak or rank.in_use for rank in used)
        return min(others, key=lambda rank: (bool(rank.failures), abs((rank.peak or rank.in_use) - middle)))

    @property
    def trace(self) -> Trace:
        """The trace of the worst rank that has a heap; `bfcviz.holders` and others take it from here."""
        return self.open(self.worst_heap)

    def described(self, rank: Rank) -> str:
        """Which rank is shown, and how many failed: `rank 3 of run: 1 of 8 ranks had a failed request`."""
        return f"{rank.name} of {self.headline}"

    def open(self, rank: Rank | str | int) -> Trace:
        """The trace of a rank, given as one of `ranks`, by its name or by its number.

        Raises:
            TraceError: there is no such rank.
        """
        for each in self.ranks:
            if rank is each or rank in (each.name, each.place.rank):
                return self.read(each.place.file)
        names = ", ".join(each.name for each in self.ranks[:_MOST_ROWS])
        raise TraceError(f"there is no rank {rank!r}; there are {names}")

    @cached_property
    def failures(self) -> tuple[SharedFailure, ...]:
        """Each failure of a job once, with its ranks."""
        found: dict[tuple[str, str, int], list[tuple[Rank, RankFailure]]] = defaultdict(list)
        for rank in self.known:
            for failure in rank.failures:
                found[failure.key].append((rank, failure))
        return tuple(
            SharedFailure(
                each[0][1],
                tuple(rank.name for rank, _ in each),
                (min(f.requested for _, f in each), max(f.requested for _, f in each)),
                sum(f.count for _, f in each),
                each[0][0],
            )
            for each in found.values()
        )

    @cached_property
    def spreads(self) -> tuple[RankSpread, ...]:
        """The measures that differ between ranks by more than 1 % of their median."""
        found: list[RankSpread] = []
        for measure in _MEASURES if self.is_one_job else ():
            values = [(getattr(rank, measure), rank.name) for rank in self._used]
            stated = sorted((value, name) for value, name in values if value is not None)
            if len(stated) < 2:
                continue
            middle = int(median(value for value, _ in stated))
            (least, first), (most, last) = stated[0], stated[-1]
            if most - least > _DIFFERENT * middle:
                found.append(RankSpread(measure, least, middle, most, first, last))
        return tuple(found)

    @cached_property
    def holders(self) -> tuple[RankHolder, ...]:
        """The holders of all ranks, by the most that one has."""
        used = [rank for rank in self._used if rank.has_heap]
        names = dict.fromkeys(name for rank in used for name in rank.holders)
        found = []
        for name in names:
            sizes = [(rank.holders.get(name, 0), rank.name) for rank in used]
            most, owner = max(sizes, key=lambda pair: pair[0])
            values = [size for size, _ in sizes]
            having = sum(value > 0 for value in values)
            found.append(RankHolder(name, min(values), int(median(values)), most, owner, having))
        return tuple(sorted(found, key=lambda each: (-each.most, each.name)))

    @cached_property
    def only(self) -> tuple[RankHolder, ...]:
        """The holders with at least 1 % of the memory of one rank that no other rank has."""
        in_use = {rank.name: rank.in_use for rank in self._used if rank.has_heap}
        if len(in_use) < 2 or not self.is_one_job:
            return ()
        return tuple(
            each for each in self.holders if each.ranks == 1 and each.most >= _ALONE * in_use[each.rank]
        )

    @property
    def _used(self) -> list[Rank]:
        """The ranks that have a heap: a process that starts the others allocates nothing, and a cut file tells less."""
        used = [rank for rank in self.known if rank.peak or rank.in_use or rank.failures]
        return [rank for rank in used if rank.ended or rank.format == "bfcviz"] or used

    # -- text ------------------------------------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        """How many ranks there are, and how many of them ran out of memory."""
        known, failed = len(self.known), sum(rank.has_failed for rank in self.known)
        all_of_them, lacked = counted(known, self._noun), sum(rank.lacked_memory for rank in self.known)
        if len(self.ranks) == known == 1:  # a folder with one file, such as that of `record --on-oom`
            only = "the only file that bfcviz reads" if self.others else "its only file"
            what = f"{'a' if lacked else 'no'} request failed in {only}"
        elif lacked:
            others = f", {failed - lacked:,} failed for another reason" if failed > lacked else ""
            what = f"{lacked:,} of {all_of_them} had a failed request{others}"
        elif failed:
            what = f"{failed:,} of {all_of_them} failed, not for lack of memory"
        elif any(rank.has_heap for rank in self.known):
            what = f"no request failed in {all_of_them}"
        else:
            what = f"no log of {all_of_them} tells of a failed request"
        killed = sum(not rank.ended for rank in self.known)
        parts = [what]
        if killed:
            parts.append(f"{killed:,} did not end cleanly")
        if unread := len(self.ranks) - known:
            parts.append(f"{counted(unread, 'file')} cannot be read")
        if self.left_out:
            parts.append(f"interrupted: {counted(self.left_out, 'file')} not read")
        return f"{self.source}: {'; '.join(parts)}"

    @property
    def lines(self) -> list[str]:
        """The report on ranks: each failure once, what differs between them, and a row a rank."""
        table = ["", *self.table_lines] if self.table_lines else []
        return [self.headline, *self.failure_lines, *self.difference_lines, *table]

    @property
    def failure_lines(self) -> list[str]:
        """Each failure once, with the ranks that had it."""
        lines = [_shared_failure_line(each) for each in self.failures[:_MOST_FAILURES]]
        if len(self.failures) > _MOST_FAILURES:
            lines.append(f"{counted(len(self.failures) - _MOST_FAILURES, 'more failure')}")
        if self.first_to_fail is not None:
            lines.append(_first_to_fail_line(self.first_to_fail))
        silent = [rank for rank in self.known if not rank.failures and not rank.has_heap]
        if not silent or any(rank.has_heap for rank in self.known):
            return lines
        if any(rank.has_failed for rank in self.known):
            names = listed([rank.name for rank in silent])
            ends = f"; {_log_end_text(silent[0])}" if len(silent) == 1 else ""
            return [*lines, f"{names}: no message that bfcviz knows{ends}"]
        lines += [
            f"{rank.name}: no message that bfcviz knows; {_log_end_text(rank)}"
            for rank in silent[:_MOST_FAILURES]
        ]
        if len(silent) > _MOST_FAILURES:
            lines.append(
                f"{counted(len(silent) - _MOST_FAILURES, 'more log')} without a message that bfcviz knows"
            )
        lines.append("Look at the end of these logs first, and in dmesg of their machines")
        return lines

    @cached_property
    def first_to_fail(self) -> FirstToFail | None:
        """Which rank failed first: by recordings, else where all logs have a time of one kind; None: not known."""
        times = [(rank.failed_ns, rank.name) for rank in self.known if rank.failed_ns is not None]
        times_from = "recording"
        if not times:
            failed = [rank for rank in self.known if rank.has_failed]
            logged = [(rank.logged, rank.name) for rank in failed if rank.logged is not None]
            times = [(time.ns, name) for time, name in logged]
            if len(logged) < len(failed) or len({ns < _YEARS_OF_NONE for ns, _ in times}) > 1:
                return None
            times_from = "log" if all(time.is_own for time, _ in logged) else "line_before"
        times.sort()
        if len(times) < 2 or times[0][0] == times[1][0]:
            return None
        (first, name), (second, later) = times[:2]
        return FirstToFail(name, later, (second - first) / 1e9, times_from)

    @property
    def difference_lines(self) -> list[str]:
        """What differs between the ranks that have a heap."""
        used = self._used
        if len(used) < 2:
            return []
        if not self.is_one_job:
            return ["files of different formats: not compared with each other as the ranks of one job"]
        found = [_rank_spread_line(each) for each in self.spreads]
        heaps = [rank for rank in used if rank.has_heap]
        if len(heaps) > 1 and not any(each.measure == "peak" for each in self.spreads):
            size = format_bytes(max(rank.peak or rank.in_use for rank in heaps))
            found = [f"the {self._noun}s have the same peak within 1 %: {size}", *found]
        for each in self.only[:_MOST_HOLDERS]:
            found.append(
                f"only {each.rank} holds {format_bytes(each.most)} in {shortened_name(each.name, _LONGEST)}"
            )
        if len(self.only) > _MOST_HOLDERS:
            found.append(
                f"{counted(len(self.only) - _MOST_HOLDERS, 'more holder')} that only one {self._noun} has"
            )
        for each in self._larger()[:_MOST_HOLDERS]:
            found.append(
                f"{each.rank} holds {format_bytes(each.most)} in {shortened_name(each.name, _LONGEST)}; the median is "
                f"{format_bytes(each.median)}"
            )
        return found

    def _larger(self) -> list[RankHolder]:
        """Holders of several ranks of which one rank has much more than the median, in the order of the difference."""
        peaks = {rank.name: rank.in_use for rank in self._used}
        found = [
            each
            for each in self.holders
            if each.ranks > 1 and each.most - each.median > max(_ALONE, 2 * _DIFFERENT) * peaks[each.rank]
        ]
        return sorted(found, key=lambda each: each.median - each.most)

    @property
    def _told(self) -> list[Rank]:
        """The ranks that the table shows: not those of which only a log is known, without their own failure."""
        return [rank for rank in self.known if rank.has_heap or rank.has_failed]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The table of ranks: the names of the columns, then the cells of each that can be read.

        Without a column that tells nothing: one host, or a size that no rank knows.
        """
        ranks = [_rank_table_cells(rank, self.source) for rank in self._told]

        def tells(column: int) -> bool:
            found = {cells[column] for cells in ranks}
            return (
                len(found) > 1 if _HEAD[column] == "host" else not (column in _SIZES and found == {_UNKNOWN})
            )

        told = [column for column in range(len(_HEAD)) if tells(column)]
        return [tuple(cells[column] for column in told) for cells in (_HEAD, *ranks)]

    @property
    def table_lines(self) -> list[str]:
        """The table of ranks: a row each, the worst first, then a line for each file that cannot be read."""
        rows = self.rows[: _MOST_ROWS + 1]
        sizes = [column for column, head in enumerate(rows[0]) if _HEAD.index(head) in _SIZES]
        found = aligned(rows, sizes) if len(rows) > 1 else []
        rest = self._told[_MOST_ROWS:]
        if rest and not any(rank.peak for rank in rest):
            found.append(counted(len(rest), f"more {self._noun}"))
        elif rest:
            peaks = [rank.peak or 0 for rank in rest]
            found.append(
                f"{counted(len(rest), f'more {self._noun}')} with peaks from {format_bytes(min(peaks))} to "
                f"{format_bytes(max(peaks))}"
            )
        return [*found, *self.problem_lines]

    @property
    def problem_lines(self) -> list[str]:
        """A line for each file of a rank that cannot be read, and one for the others in the folder."""
        found = [f"{rank.name}: {rank.place.file}: {rank.problem}" for rank in self.ranks if rank.problem]
        if self.others:
            found.append(f"{counted(self.others, 'other file')} of no format that bfcviz reads")
        return found

    @property
    def holder_lines(self) -> list[str]:
        """The largest holders of ranks: the least, the median and the most that one has, and which one."""
        what = f"the holders of {counted(len(self._used), self._noun)}, by {self.by.replace('_', ' ')}"
        found = [what, f"{'least':>11} {'median':>11} {'most':>11}  in"]
        for each in self.holders[:_MOST_ROWS]:
            sizes = " ".join(f"{format_bytes(size):>11}" for size in (each.least, each.median, each.most))
            name = shortened_name(each.name, _LONGEST)
            found.append(f"{sizes}  {each.rank}{' only' * (each.ranks == 1)}: {name}")
        if len(self.holders) > _MOST_ROWS:
            found.append(f"{counted(len(self.holders) - _MOST_ROWS, 'more holder')}")
        return [*found, *self.problem_lines]

    def __str__(self) -> str:
        return "\n".join(map(printable, self.lines))

    def __repr__(self) -> str:
        return f"<RankSet {self.headline}>"

    # -- JSON and HTML ---------------------------------------------------------------------------------------------

    def to_json(self, *, holders: bool = False) -> dict[str, Any]:
        """A set of ranks as JSON values; with `holders` those of each rank and of all."""
        ranks = [
            rank.to_json() | ({"holders": dict(rank.holders), "bytes_in_use": rank.in_use} if holders else {})
            for rank in self.ranks
        ]
        first = self.first_to_fail
        return {
            "source": self.source,
            "ranks_that_failed": sum(rank.has_failed for rank in self.known),
            "ranks_that_lacked_memory": sum(rank.lacked_memory for rank in self.known),
            "first_to_fail": None if first is None else first._asdict(),
            "ranks": ranks,
            **({"holders": [each._asdict() for each in self.holders]} if holders else {}),
            "shared_failures": [
                {
                    "verdict": each.failure.verdict,
                    "is_consequence": each.failure.verdict == StatedCause.CONSEQUENCE,
                    "label": each.failure.what,
                    "requested_bytes": list(each.requested),
                    "headline": each.failure.headline,
                    "allocator": each.failure.heap,
                    "count": each.count,
                    "ranks": list(each.ranks),
                    "file": str(each.rank.place.file),
                    "event": each.failure.event,
                }
                for each in self.failures
            ],
            "differences": {
                each.measure: {name: value for name, value in vars(each).items() if name != "measure"}
                for each in self.spreads
            },
            "only_one_rank": [
                {"holder": each.name, "bytes": each.most, "rank": each.rank} for each in self.only
            ],
            "by": self.by,
            "files_not_read": self.left_out,
            "other_files": self.others,
        }

    def _repr_html_(self) -> str:
        return self.html

    @property
    def html(self) -> str:
        """The report on ranks as HTML, in the colours of the page around it."""
        head, *rows = self.rows
        texts = [*self.failure_lines, *self.difference_lines]
        return (
            f'<div class="bfcviz-ranks" style="line-height:1.35"><b>{_rank_html_text(self.headline)}</b>'
            f"{_rank_html_lines(texts)}"
            f"{AnswerTable(head, rows, texts=_TEXTS).html}"
            f"{_rank_html_lines(self.problem_lines)}</div>"
        )


def _shared_failure_line(found: SharedFailure) -> str:
    low, high = found.requested
    details = [counted(found.count, "request")] if found.count > 1 else []
    details += [bytes_range(low, high)] if high > low else []
    several = f" ({', '.join(details)})" if details else ""
    if found.failure.verdict == StatedCause.CONSEQUENCE:
        return f"{listed(found.ranks)}: waited too long for another rank, or lost the connection to it: a consequence"
    name = f", in {shortened_name(found.failure.what, _LONGEST)}" if found.failure.what else ""
    return f"{listed(found.ranks)}{several}: {found.failure.headline}{name}"


def _first_to_fail_line(found: FirstToFail) -> str:
    # 1e+04 is no number of seconds for people.
    seconds = f"{found.seconds:.3g}" if found.seconds < 1000 else f"{found.seconds:,.0f}"
    how = ", by the last time before it in each log" if found.times_from == "line_before" else ""
    return f"{found.rank} failed first, {seconds} s before {found.next}{how}"


def _log_end_text(rank: Rank) -> str:
    if not rank.last_line:
        return "its log is empty"
    return f"its log ends with: {shortened_name(rank.last_line, 2 * _LONGEST)}"


def _rank_spread_line(found: RankSpread) -> str:
    return (
        f"{_MEASURES[found.measure]}: {format_bytes(found.least)} ({found.least_rank}) to "
        f"{format_bytes(found.most)} ({found.most_rank}), median {format_bytes(found.median)}"
    )


_HEAD: Final = ("name", "host", "verdict", "peak", "pool", "limit", "free", "largest free", "file")
_SIZES: Final = range(3, 8)  # columns
_TEXTS: Final = ("host", "verdict", "file")
_UNKNOWN: Final = "unknown"
_LONGEST_FILE: Final = 48


def _rank_table_cells(rank: Rank, source: str) -> tuple[str, ...]:
    """The cells of a rank; its file as it is called in the folder that was opened."""
    verdict = (rank.verdict or "").replace("_", " ") + ("" if rank.ended else ", did not end cleanly")
    sizes = (rank.peak, rank.pool, rank.limit, rank.free, rank.largest_free)
    texts = (_UNKNOWN if size is None else format_bytes(size) for size in sizes)
    file = str(rank.place.file).removeprefix(f"{source.rstrip('/')}/")
    return rank.name, rank.place.host, verdict, *texts, shortened_name(file, _LONGEST_FILE)


def _rank_html_text(text: str) -> str:
    """A text in the HTML of a `RankSet`, escaped."""
    return escape(printable(text))


def _rank_html_lines(texts: Sequence[str]) -> str:
    """Lines in the HTML of a `RankSet`."""
    return "".join(f"<div>{_rank_html_text(text)}</div>" for text in texts)


def rank_set(
    ranks: Sequence[Rank], source: str, read: Callable[[Path | str], Trace], by: str = "op"
) -> RankSet:
    """A set of these ranks, the worst first; without a number in any name or recording, they count in order."""
    failed = {_process_of_rank(rank.place) for rank in ranks if rank.failures} - {None}
    # Of a rank with several logs, those that tell of nothing are left out.
    ranks = [
        rank
        for rank in ranks
        if rank.failures or rank.has_heap or rank.problem or _process_of_rank(rank.place) not in failed
    ]
    if ranks and all(rank.place.rank is None for rank in ranks):
        ranks = [
            replace(rank, place=replace(rank.place, rank=number, rank_from="order"))
            for number, rank in enumerate(ranks)
        ]
    ordered = sorted(_ranks_with_own_names(ranks), key=lambda rank: rank.badness)
    return RankSet(source, tuple(ordered), by, read)


def _process_of_rank(place: RankPlace) -> tuple[str, str] | None:
    """What the logs of one rank have in common; None where its number is not known."""
    return None if place.rank is None else (place.name, place.host)


def _ranks_with_own_names(ranks: Sequence[Rank]) -> list[Rank]:
    """The ranks with a name of its own each: their hosts, else their files, tell equal names apart."""
    names: tuple[Callable[[RankPlace], str], ...] = (
        lambda place: f"{place.name} on {place.host}" if place.host else place.name,
        lambda place: f"{place.name} ({Path(place.file).name})",
        lambda place: str(place.file),
    )
    found = list(ranks)
    for name in names:
        counts = Counter(rank.name for rank in found)
        found = [
            replace(rank, place=replace(rank.place, name=name(rank.place))) if counts[rank.name] > 1 else rank
            for rank in found
        ]
    return found


# ------------------------------------------------------------------------------
# Two sets of ranks: which rank of one belongs to which of the other.


def paired_ranks(a: RankSet, b: RankSet) -> list[tuple[Rank, Rank]]:
    """The ranks of both sets with the same number, else with the same name; the largest change of the peak first.

    Raises:
        TraceError: they have no rank in common.
    """
    found = [
        (before, after)
        for after in b.known
        if after.has_heap
        and (before := next((rank for rank in a.known if rank.has_heap and _is_same_rank(rank, after)), None))
    ]
    if not found:
        raise TraceError(f"{a.source} and {b.source} have no rank in common: neither a number nor a name")
    return sorted(found, key=lambda pair: -abs(_rank_peak_change(*pair)))


def _is_same_rank(a: Rank, b: Rank) -> bool:
    numbers = a.place.rank, b.place.rank
    return a.name == b.name if None in numbers else numbers[0] == numbers[1]


def _rank_peak_change(a: Rank, b: Rank) -> int:
    return (b.peak or b.in_use) - (a.peak or a.in_use)


def pair_lines(pairs: Sequence[tuple[Rank, Rank]]) -> list[str]:
    """The ranks of two sets in pairs, a line each: the peaks of both, and their verdicts where they differ."""
    found = [f"{counted(len(pairs), 'rank')} in both, the largest change of the peak first"]
    for before, after in pairs[:_MOST_ROWS]:
        change = _rank_peak_change(before, after)
        peaks = " -> ".join(format_bytes(rank.peak or rank.in_use) for rank in (before, after))
        verdicts = "" if before.verdict == after.verdict else f", {before.verdict} -> {after.verdict}"
        sign = "+" if change > 0 else ""
        found.append(f"{sign + format_bytes(change):>12}  {after.name} ({peaks}{verdicts.replace('_', ' ')})")
    if len(pairs) > _MOST_ROWS:
        found.append(f"{counted(len(pairs) - _MOST_ROWS, 'more rank')}")
    return found


def pairs_json(pairs: Sequence[tuple[Rank, Rank]]) -> dict[str, Any]:
    """The ranks of two sets in pairs as JSON values."""
    return {"pairs": [{"a": before.to_json(), "b": after.to_json()} for before, after in pairs]}
