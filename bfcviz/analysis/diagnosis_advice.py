"""Advice that fits a diagnosis: each rule looks at its numbers and settings, and quotes what it used.

A rule gives no advice for what is already on, and none whose numbers say that it would not help. A setting of a heap by
BFC's rules is tried with the requests of the trace, where it has them all, and left out where a request fails again. So
is a larger limit: the smallest one that serves them is searched.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bfcviz.analysis.diagnosis import Advice, AdviceKind, Diagnosis, Verdict, shape_of
from bfcviz.analysis.heap_settings import Family, HeapSettings
from bfcviz.analysis.leaks import growing_text
from bfcviz.analysis.message_advice import StatedAdviceSubject, requested
from bfcviz.analysis.message_verdict import CONTEXT, SMALLEST_DEVICE
from bfcviz.analysis.pinned_runs import Pin
from bfcviz.analysis.short_names import cut
from bfcviz.errors import InvalidRequest
from bfcviz.events.origin import (
    ADDRESS_SPACE,
    CONTAINER,
    MACHINE,
    Status,
    holds_only_states,
    memory_limits,
)
from bfcviz.events.schema import Events, Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.formats import cupy, onnxruntime, rmm, tensorflow, torch, xla
from bfcviz.formats.setting_words import SettingWords
from bfcviz.model.lifetimes import born_of
from bfcviz.units import MiB, counted, format_bytes

if TYPE_CHECKING:
    from bfcviz.allocator.replay import Operations

# ------------------------------------------------------------------------------
# Serve the requests of a heap again under another setting: would it have served the one that failed?
#
# An advice that names a setting is tried before it is given, where the trace has every request from the heap's start.
# The heap that serves them is our own, over simulated memory: its rules are also those of TensorFlow and XLA.


_MOST_SERVED: Final = 1_000_000
"""Events of a trace whose requests are served again: a fraction of a second."""

_LIMIT_EFFORT: Final = 1_200_000
"""Requests and frees that the search for a limit serves, in all its replays together: about 0.3 s."""

_PLAIN_LIMIT_EFFORT: Final = 24_000
"""The same where the heap is not compiled: a few seconds."""

_LEAST_REPLAYS: Final = 8
"""A search with fewer finds a limit only within more than 1 %: it is not made."""

_FIRST_STEP: Final = 64
"""The first step up from the limit is this part of it."""

_MOST_STEPS: Final = 16
"""Steps up, each twice as large as the one before: to a thousand times the limit."""

_BFC: Final = frozenset({Family.OWN, Family.TENSORFLOW, Family.JAX, Family.REACTANT})


@dataclass(frozen=True)
class RequestsUntilFailure:
    """The requests of a heap up to one that failed, to try an advice on them.

    Attributes:
        events: its ALLOCATE and FREE in order, and the OOM.
        options: of the heap, as the trace's origin has them.
        limit: bytes.
        failed_before: how many earlier requests failed, which are not among the events.
    """

    events: Events
    options: Mapping[str, Any]
    limit: int
    failed_before: int = 0

    @property
    def told(self) -> str:
        """How many requests up to a failure are tried, as words."""
        return f"{len(self.events):,} requests and frees of this heap up to the failed one"

    def succeed_with(self, **changed: Any) -> bool | None:
        """Whether the heap serves all requests with these of `AllocatorOptions` changed; None: not known.

        It is known only where the recorded options lead to the recorded failure; not where a driver refused memory
        below the limit, for example.
        """
        try:
            return not self._failed(changed, self.limit) if self._fails_as_recorded else None
        except (InvalidRequest, TypeError, ValueError):  # options or a limit that no heap of ours can have
            return None

    def smallest_limit(self, unit: int) -> int | None:
        """The smallest limit under which the heap serves all requests; None: not known, or the search takes too long.

        Of long traces it is a multiple of more than `unit`, so that the search needs fewer replays.
        """
        replays = _limit_effort() // len(self.events)
        if replays < _LEAST_REPLAYS:
            return None
        while (self.limit // unit).bit_length() > replays:
            unit *= 2
        try:
            return self._searched_limit(unit, replays) if self._fails_as_recorded else None
        except (InvalidRequest, TypeError, ValueError):  # as above
            return None

    def _searched_limit(self, unit: int, replays: int) -> int | None:
        """A limit in `unit` that serves all: the smallest, or the best of so many replays; None: they find none."""
        bad = max(self.limit, int(self.events["requested"][-1]) - 1) // unit
        good, step = bad + 1, max(bad // _FIRST_STEP, 1)
        for _ in range(min(_MOST_STEPS, replays)):
            replays -= 1
            if not self._failed({}, good * unit):
                break
            bad, good, step = good, good + step, 2 * step
        else:
            return None
        while good - bad > 1 and replays > 0:
            replays -= 1
            middle = (bad + good) // 2
            bad, good = (middle, good) if self._failed({}, middle * unit) else (bad, middle)
        return good * unit

    @cached_property
    def _fails_as_recorded(self) -> bool:
        return self._failed({}, self.limit) == [len(self.events) - 1]

    def _failed(self, changed: Mapping[str, Any], limit: int) -> list[int]:
        """Which requests fail, by their index."""
        # A program that only reads files has no heap, and one whose request failed has.
        from bfcviz.allocator.bfc_allocator import BFCAllocator  # noqa: PLC0415
        from bfcviz.allocator.interface import AllocatorOptions  # noqa: PLC0415
        from bfcviz.allocator.sub_allocators import SimulatedSubAllocator  # noqa: PLC0415
        from bfcviz.events.log import EventLog  # noqa: PLC0415

        names = [each.name for each in fields(AllocatorOptions) if each.name in self.options]
        known = {name: self.options[name] for name in names}
        options = AllocatorOptions(**{**known, "retry_s": 0.0, "timestamps": False, **changed})
        with BFCAllocator(SimulatedSubAllocator(), limit, options, log=EventLog(4096)) as heap:
            address = heap.replay(self._operations).address
        failed: list[int] = np.flatnonzero((self.events["kind"] != Kind.FREE) & (address == 0)).tolist()
        return failed

    @cached_property
    def _operations(self) -> "Operations":
        from bfcviz.allocator.replay import ALLOCATE, FREE, Operations  # noqa: PLC0415  as above

        is_free = self.events["kind"] == Kind.FREE
        ids = self.events["seq"].astype(np.int64)
        ids[is_free] = born_of(self.events, np.flatnonzero(is_free))
        return Operations(
            kind=np.where(is_free, FREE, ALLOCATE),
            id=np.unique(ids, return_inverse=True)[1],  # once, and not in each replay
            size=np.where(is_free, 0, self.events["requested"]).astype(np.int64),
        )


def _limit_effort() -> int:
    """Requests and frees that the search for a limit may serve."""
    from bfcviz.allocator import bfc_allocator  # noqa: F401, PLC0415  loads the compiled heap where there is one

    return _LIMIT_EFFORT if "bfcviz._heap" in sys.modules else _PLAIN_LIMIT_EFFORT


def requests_until_failure(trace: Trace, found: Diagnosis) -> RequestsUntilFailure | None:
    """The requests up to a failure; None where the trace does not have them all, has too many, or other rules hold."""
    if found.event is None or found.bytes_limit is None or found.settings.family not in _BFC:
        return None
    is_whole = trace.origin.status in {Status.RECORDING, Status.COMPLETE} and not found.gaps
    if not is_whole or trace.first or found.event >= _MOST_SERVED or holds_only_states(trace.origin.details):
        return None
    events = trace.read(0, found.event + 1)
    asked = (events["pool"] == found.pool) & np.isin(events["kind"], (Kind.ALLOCATE, Kind.FREE))
    if (events["flags"][asked] & Flag.PIECE).any():
        return None
    asked[-1] = True  # of earlier failures nothing stays
    failed = np.count_nonzero((events["pool"] == found.pool) & (events["kind"] == Kind.OOM)) - 1
    options = trace.origin.pools[found.pool].options
    return RequestsUntilFailure(events[asked], options, found.bytes_limit, int(failed))


# ------------------------------------------------------------------------------
# The words of each family's settings.

_VULKAN: Final = SettingWords(
    title="VMA",
    limit="VmaAllocatorCreateInfo::pHeapSizeLimit",
    one_region="VmaPoolCreateInfo::blockSize={size}",
    other="vmaBeginDefragmentation()",
    heap="vmaBuildStatsString(allocator, &text, VK_TRUE)",
    history="bfcviz reads only states of VMA: write vmaBuildStatsString() at several moments",
)

_OWN: Final = SettingWords(
    title="bfcviz",
    limit="limit={size}",
    one_region="AllocatorOptions(allow_growth=False)",
    release="AllocatorOptions(garbage_collection=True)",
    fraction="AllocatorOptions(fragmentation_fraction={fraction})",
    heap="bfcviz record",
    history="bfcviz record, with bfcviz.label(name) around the calls",
)

WORDS: Final[Mapping[Family, SettingWords]] = {
    Family.TENSORFLOW: tensorflow.WORDS,
    Family.JAX: xla.WORDS,
    Family.REACTANT: xla.REACTANT_WORDS,
    Family.TORCH: torch.WORDS,
    Family.RMM: rmm.WORDS,
    Family.CUPY: cupy.WORDS,
    Family.VULKAN: _VULKAN,
    Family.ONNX: onnxruntime.WORDS,
    Family.OWN: _OWN,
}
"""The words of each family, in the newest version."""


def words_of(settings: HeapSettings) -> SettingWords:
    """The words of advice for a heap's framework, in its version."""
    is_old = settings.family is Family.TENSORFLOW and settings.version == "1.x"
    words = tensorflow.WORDS_1 if is_old else WORDS[settings.family]
    if settings.host_limit:
        limit = f"{settings.host_limit}={{mib}}"
        return replace(words, limit=limit, share="", one_region="", release="", other="", fraction="")
    return words


GROWS_IN_PLACE: Final = frozenset({"cupy", "torch", "rmm"})
"""Frameworks that our heap can serve from memory that grows in place: `memory="virtual"`."""


# ------------------------------------------------------------------------------
# What the trace does not say, and what to run again to know it.


def missing_information(found: Diagnosis) -> Iterator[Advice]:
    """One advice to record more for each gap that matters to this diagnosis."""
    words = words_of(found.settings)
    if not found.recorded.has_heap:
        which = f"The chunks of that moment are not in the file. Run again with {words.heap} to record them."
        if found.pool_bytes:
            which = (
                "Only some chunks of that moment are in the file. Give the whole log, up to the statistics after the "
                f"chunks; or run again with {words.heap} to record them."
            )
        yield _rerun_advice(which, heap=0)
        return
    if found.verdict is Verdict.UNKNOWN and not found.knows("largest_free_chunk"):
        yield _rerun_advice(
            f"The file does not say what was free. Run again with {words.heap} to record the chunks of a failure.",
            heap=0,
        )
    elif found.verdict is Verdict.UNKNOWN and not found.requested:
        yield _rerun_advice(
            "What was asked for is not in the file. Give the lines before and after it, too, or run again with "
            f"{words.history} to record it.",
            largest_free_chunk=found.largest_free_chunk,
        )
    elif found.verdict is Verdict.UNKNOWN and found.largest_usable >= found.rounded:
        yield _rerun_advice(
            "The file does not show why a free chunk that is large enough was not taken. Run again with "
            f"{words.history} to record every event before the failure.",
            largest_free_chunk=found.largest_free_chunk,
        )
    if lacking := _missing_of_best_place(found, words):
        yield lacking
    is_failure = found.verdict is not Verdict.NO_FAILURE
    if is_failure and found.bytes_limit is None and found.recorded.device_free is None:
        yield _rerun_advice(
            "The file states neither a limit nor the free memory of the device, so it is not known whether the pool "
            "could grow. Record with bfcviz, or print the device's free memory beside the failure "
            f"({_advised_process_tool(found)}).",
            pool_bytes=found.pool_bytes,
        )


def _missing_of_best_place(found: Diagnosis, words: SettingWords) -> Advice | None:
    """Advice to record what the file does not say of the chunks in the way of the best place."""
    runs = found.useful_runs or found.runs
    if not runs or not runs[0].pins:
        return None
    chunks, pins = runs[0].chunks_in_use, runs[0].pins
    unnamed = sum(not pin.label for pin in pins)
    them, are = ("it", "it is") if chunks == 1 else ("them", "they are")
    some = them if unnamed == len(pins) else f"{unnamed:,} of them"
    lacking = [*([f"how old {are}"] * found.is_state_only), *([f"who holds {some}"] if unnamed else [])]
    if not lacking:
        return None
    what = "chunk" if chunks == 1 else f"{chunks:,} chunks"
    return _rerun_advice(
        f"The file does not say of the {what} in the way of the best place {' and '.join(lacking)}. Run again with "
        f"{words.history}.",
        chunks=chunks,
        unnamed=unnamed,
    )


def _rerun_advice(text: str, **numbers: float) -> Advice:
    return Advice(AdviceKind.RERUN, text, numbers)


# ------------------------------------------------------------------------------
# An estimate of the batch size that would fit, from the bytes in use and the request.


def _op_of_request(found: Diagnosis) -> str:
    return found.recorded.op or found.label


def _subject_of_request(found: Diagnosis) -> StatedAdviceSubject:
    return requested(_op_of_request(found), shape_of(found))


def batch_advice(found: Diagnosis) -> Advice | None:
    """Advice on the batch size: the shares of it that bound what fits, as an estimate.

    Only for a tensor whose shape shows a batch: not for variables, slots of an optimizer, constants, and a batch of 1.

    The upper bound takes all memory in use as proportional to the batch size, the lower one only this request. The true
    share lies between, because weights do not grow with the batch. If the free memory is not in one chunk, a request
    must fit the largest free chunk; so it must if all memory in use would fit the capacity, for then only its places
    are in the way.
    """
    if found.verdict in {Verdict.UNKNOWN, Verdict.NO_FAILURE, Verdict.REFUSED} or found.event is None:
        return None
    if found.gaps or _subject_of_request(found) is not StatedAdviceSubject.BATCH:
        return None
    capacity = found.pool_bytes if found.bytes_limit is None else found.bytes_limit
    total = found.bytes_in_use + found.rounded
    fits = max(found.largest_free_chunk, found.room or 0)
    if capacity <= 0 or fits <= 0:
        return None
    low = fits / found.rounded
    is_scattered = found.verdict is Verdict.FRAGMENTATION or capacity >= total
    high = low if is_scattered else max(low, capacity / total)
    return Advice(
        AdviceKind.BATCH_SIZE,
        _batch_advice_text(found, low, high, fits, capacity),
        {"least": low, "most": high, "fits": fits},
    )


def _batch_advice_text(found: Diagnosis, low: float, high: float, fits: int, capacity: int) -> str:
    shares = _advised_batch_bounds(floor(100 * low), floor(100 * high))
    first = shape_of(found)[0]
    batches = ""
    if floor(first * high) > 0:
        numbers = _advised_batch_bounds(floor(first * low), floor(first * high))
        batches = f" If the first dimension of the tensor, {first:,}, is the batch: {numbers}."
    how = f"a request of at most {format_bytes(fits)} fits, {format_bytes(found.requested)} were requested"
    if high > low:
        how += (
            f"; if all {format_bytes(found.bytes_in_use)} in use shrink with the batch, "
            f"{format_bytes(capacity)} are enough for the upper share"
        )
    return f"Reduce the batch size to {shares} %, an estimate: {how}.{batches}"


def _advised_batch_bounds(low: int, high: int) -> str:
    """Two bounds of an advised batch as words; a lower one that is far off is left out."""
    if low == high:
        return f"about {low:,}"
    return f"{low:,} to {high:,}" if 10 * low > high else f"at most {high:,}"


# ------------------------------------------------------------------------------
# The rules.

_LEAST_SPLIT: Final = 1 << torch.LEAST_MAX_SPLIT.bit_length()  # the next power of two: every version takes it
_SHAPE: Final = frozenset({"pool_bytes", "regions", "free_bytes", "largest_free_chunk"})
"""Numbers that most rules use, as in `Diagnosis.unknown`."""

_SPLIT: Final = frozenset({Verdict.FRAGMENTATION, Verdict.REGIONS, Verdict.REFUSED})


def advice_for(
    found: Diagnosis, trace: Trace, *, tries: bool = True, searches: bool = True
) -> Iterator[Advice]:
    """Every advice that fits, the one that changes least first.

    `tries`: settings are tried on the requests of the trace; `searches`: so is a larger limit.
    """
    if found.verdict is not Verdict.NO_FAILURE:
        given = []
        for rule in _RULES:
            if found.settings.host_limit and rule in _OF_DEVICE:
                continue
            needed = {"pool_bytes"} if rule in _OF_POOL else _SHAPE
            advice = rule(found) if found.unknown.isdisjoint(needed) else None
            if advice is not None:
                given.append(advice)
        asked = requests_until_failure(trace, found) if tries or searches else None
        yield from _tried_advice(given, asked if tries else None)
        yield from _system_memory_advice(found, trace)
        if found.unknown.isdisjoint({"pool_bytes"}):
            yield from _larger_limit_advice(found, asked if searches else None)
    yield from missing_information(found)


def _tried_advice(given: list[Advice], asked: RequestsUntilFailure | None) -> Iterator[Advice]:
    """The advice without the settings under which a request still fails; those that serve all say so."""
    for each in given:
        changed = _advised_options(each)
        helps = asked.succeed_with(**changed) if asked is not None and changed else None
        if asked is not None and helps:
            text = f"{each.text} Tried: with it, all {asked.told} succeed."
            yield replace(each, text=text, numbers={**each.numbers, "tried": len(asked.events)})
        elif helps is None:
            yield each


def _is_refused_by_system(found: Diagnosis) -> bool:
    return found.verdict is Verdict.REFUSED and found.settings.is_on_host


_MEMORY_LIMITS: Final = {
    ADDRESS_SPACE: "{} of addresses (ulimit -v)",
    CONTAINER: "{} of the container",
    MACHINE: "{} of the machine, which other processes use too",
}
"""What limits the memory of a process on the host, in words with a place for the size."""


def _system_memory_advice(found: Diagnosis, trace: Trace) -> Iterator[Advice]:
    """Advice where the operating system refused memory below the heap's own limit."""
    if not _is_refused_by_system(found):
        return
    limits = memory_limits(trace.origin.details)
    if limits:
        known = "; ".join(_MEMORY_LIMITS[name].format(format_bytes(size)) for name, size in limits.items())
        what = f"The process may have: {known}. Raise the one that is reached"
    else:
        what = (
            "Look at ulimit -v, at the limit of the container, and at what other processes leave of the machine's "
            "memory (free -h), and raise the one that is reached"
        )
    yield Advice(
        AdviceKind.SYSTEM_MEMORY,
        "The operating system granted no more memory. The limit of the heap is not the reason, and a larger one does "
        f"not help: it leaves {format_bytes(found.room or 0)}. {what}, or let the program hold less.",
        {"room": found.room or 0, "pool": found.pool_bytes, **limits},
    )


def _advised_options(advice: Advice) -> dict[str, Any]:
    """The options of a BFC heap that an advice changes, of those that can be tried."""
    options: dict[AdviceKind, dict[str, Any]] = {
        AdviceKind.GROWTH_OFF: {"allow_growth": False},
        AdviceKind.REGION_RELEASE: {"garbage_collection": True},
        AdviceKind.FRAGMENTATION_FRACTION: {"fragmentation_fraction": advice.numbers.get("fraction")},
    }
    return options.get(advice.kind, {})


def others_hold_it(found: Diagnosis) -> bool:
    """Whether other users of the device hold so much of it that advice on them is worth a line."""
    if found.verdict is Verdict.NO_FAILURE or not found.unknown.isdisjoint({"pool_bytes"}):
        return False
    return any(rule(found) is not None for rule in (_taken_at_start_advice, _other_users_advice))


def _is_split_for_advice(found: Diagnosis) -> bool:
    """Whether enough is free, but not in one chunk."""
    return found.verdict in _SPLIT and found.free_bytes >= found.rounded > found.largest_free_chunk


def _growing_holder_advice(found: Diagnosis) -> Advice | None:
    """Advice to free what has more memory after every step."""
    grown = found.growing
    if grown is None:
        return None
    return Advice(
        AdviceKind.GROWING_HOLDER,
        f"Free what {cut(grown.names[0])} keeps, if it is not meant to stay: {growing_text(grown)}. "
        f"While it goes on, {'more memory' if found.verdict is Verdict.REFUSED else 'a larger limit'} only delays the "
        "failure.",
        {
            "holders": grown.growing,
            "bytes": grown.grown_bytes,
            "bytes_a_step": grown.a_step(0)[1],
            "steps": len(grown.steps.ends),
        },
    )


def _free_pins_advice(found: Diagnosis) -> Advice | None:
    if not found.runs or not 0 < found.runs[0].bytes_in_use < found.rounded:
        return None  # to free as much as is asked is no advice
    run = found.runs[0]
    if found.event is not None and all(_is_of_same_call(pin, found.label, found.event) for pin in run.pins):
        return None
    is_one = run.chunks_in_use == 1
    what = "the chunk in use" if is_one else f"the {run.chunks_in_use:,} chunks in use"
    names = sorted({pin.label for pin in run.pins if pin.label})
    named = f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
    return Advice(
        AdviceKind.FREE_PINS,
        f"Free {what}{named} in the place at {run.address:#x}, {format_bytes(run.bytes_in_use)} in all, before this "
        f"request: one free chunk of {format_bytes(run.size)} results. No other place needs fewer bytes freed. If "
        f"{'it lives long, allocate it' if is_one else 'they live long, allocate them'} before the large chunks that "
        "come and go.",
        {
            "address": run.address,
            "chunks": run.chunks_in_use,
            "bytes": run.bytes_in_use,
            "free_chunk": run.size,
        },
    )


def _is_of_same_call(pin: Pin, label: str, event: int) -> bool:
    """Whether a pin is a temporary of the call that failed, as in `x + 1`: its program cannot free it before."""
    is_new = pin.age is not None and pin.age <= _EVENTS_OF_CALL
    is_freed = pin.freed is not None and pin.freed <= event + _EVENTS_OF_CALL
    return pin.label == label and is_new and is_freed


_EVENTS_OF_CALL: Final = 4
"""Events between two allocations of one call, with the split of a chunk, a new region, and a merge."""


def _region_release_advice(found: Diagnosis) -> Advice | None:
    words, free, room = words_of(found.settings), found.regions.free_bytes, found.room
    helps = found.verdict in {Verdict.REGIONS, Verdict.CAPACITY} and free > 0
    if not helps or found.settings.garbage_collection or not words.release:
        return None
    if free + (room or 0) < found.rounded:
        return None
    count = len(found.regions.wholly_free)
    what = "the wholly free region" if count == 1 else f"the {count:,} wholly free regions"
    left = "" if not room else f", and the limit leaves {format_bytes(room)}"
    return Advice(
        AdviceKind.REGION_RELEASE,
        f"Release {what}: {format_bytes(free)}{left}, enough for one region of "
        f"{format_bytes(found.rounded)}: {words.release}.",
        {"regions": count, "bytes": free, "room": room or 0, "needed": found.rounded},
    )


def _expandable_segments_advice(found: Diagnosis) -> Advice | None:
    settings = found.settings
    if settings.family is not Family.TORCH or settings.torch.expandable or not _is_split_for_advice(found):
        return None
    return Advice(
        AdviceKind.EXPANDABLE_SEGMENTS,
        "Let segments grow in place, so that free memory is mapped to where it is needed: "
        f"{torch.setting('expandable_segments', 'True')}. Now {format_bytes(found.free_bytes)} are free in all "
        f"(segments: {found.regions.count:,}), at most {format_bytes(found.largest_free_chunk)} in one chunk.",
        {
            "regions": found.regions.count,
            "free_bytes": found.free_bytes,
            "largest_free_chunk": found.largest_free_chunk,
        },
    )


def _other_allocator_advice(found: Diagnosis) -> Advice | None:
    settings = found.settings
    other = words_of(settings).other
    if settings.family is Family.OWN and settings.framework in GROWS_IN_PLACE and found.regions.count > 1:
        other = f'bfcviz.serve_{settings.framework}(memory="virtual")'
    if not other or settings.torch.expandable or not _is_split_for_advice(found):
        return None
    return Advice(
        AdviceKind.OTHER_ALLOCATOR,
        f"Use an allocator that maps pages to where they are needed: {other}. "
        f"{format_bytes(found.free_bytes - found.rounded)} more than the request are free.",
        {"spare": found.free_bytes - found.rounded},
    )


def _growth_off_advice(found: Diagnosis) -> Advice | None:
    settings, limit = found.settings, found.bytes_limit
    how = words_of(settings).one_region
    grows = settings.allow_growth if settings.allow_growth is not None else found.regions.count > 1
    if not how or not grows or limit is None or found.regions.count < 2 or not _is_split_for_advice(found):
        return None
    if _is_refused_by_system(found):  # it grants no larger region, either
        return None
    free = limit - found.bytes_in_use
    return Advice(
        AdviceKind.GROWTH_OFF,
        f"Take the pool as one region at the start: {how.format(size=limit)}. It grew to {found.regions.count:,} "
        f"regions, the largest of {format_bytes(found.regions.largest)}; one region of {format_bytes(limit)} would "
        f"have {format_bytes(free)} beside the {format_bytes(found.bytes_in_use)} in use.",
        {"regions": found.regions.count, "largest": found.regions.largest, "limit": limit, "free": free},
    )


def _split_size_advice(found: Diagnosis) -> Advice | None:
    """Advice on PyTorch's rule that keeps small chunks out of large segments."""
    settings = found.settings
    is_open = settings.family is Family.TORCH and settings.torch.max_split is None
    if not is_open or not _is_split_for_advice(found) or not found.pinned_by:
        return None
    largest = max(pin.size for pin in found.pinned_by)
    size = max(_LEAST_SPLIT, 1 << (largest - 1).bit_length())
    if size >= found.rounded:
        return None
    return Advice(
        AdviceKind.SPLIT_SIZE,
        f"Keep small chunks out of large segments: {torch.setting('max_split_size_mb', size // MiB)}. The largest "
        f"chunk that pins the best place has {format_bytes(largest)}; the request needs {format_bytes(found.rounded)}.",
        {"max_split_size_mb": size // MiB, "largest_pin": largest},
    )


def _collection_threshold_advice(found: Diagnosis) -> Advice | None:
    settings, free = found.settings, found.regions.free_bytes
    if settings.family is not Family.TORCH or settings.torch.collection_threshold or not free:
        return None
    if found.limit_asked:  # the answer counts them as given back
        return None
    if found.verdict not in {Verdict.REGIONS, Verdict.REFUSED, Verdict.CAPACITY}:
        return None
    threshold = ceil(100 * (found.pool_bytes - free) / found.pool_bytes) / 100
    if not 0 < threshold < 1:
        return None
    return Advice(
        AdviceKind.COLLECTION_THRESHOLD,
        f"Return cached segments earlier: {torch.setting('garbage_collection_threshold', f'{threshold:.2f}')}. "
        f"{format_bytes(free)} of {format_bytes(found.pool_bytes)} are in wholly free segments.",
        {"threshold": threshold, "bytes": free, "pool": found.pool_bytes},
    )


def _split_fraction_advice(found: Diagnosis) -> Advice | None:
    """Advice to split more, where the waste of one chunk would have been enough."""
    limit, wasted, largest, settings = found.bytes_limit, found.wasted, found.largest_waste, found.settings
    how = words_of(settings).fraction
    if not how or limit is None or wasted is None or largest < found.rounded:
        return None
    now = tensorflow.max_waste(limit, settings.fragmentation_fraction or 0)
    scale = 10 ** -floor(log10(largest / limit))
    fraction = floor(largest / limit * scale) / scale  # rounded down: then that chunk is split
    if fraction * limit >= now:
        return None
    return Advice(
        AdviceKind.FRAGMENTATION_FRACTION,
        f"Split chunks sooner: {how.format(fraction=f'{fraction:g}')}. One chunk in use wastes "
        f"{format_bytes(largest)}, all together {format_bytes(wasted)}; the request needs "
        f"{format_bytes(found.rounded)}. Now waste below {format_bytes(now)} is kept.",
        {"fraction": fraction, "wasted": wasted, "largest_waste": largest, "kept_below": now},
    )


def _larger_limit_advice(found: Diagnosis, asked: RequestsUntilFailure | None) -> Iterator[Advice]:
    """Advice on the smallest limit that a replay finds to serve all requests; else an estimate of it."""
    limit, words, total = found.bytes_limit, words_of(found.settings), found.recorded.device_total
    if limit is None or found.verdict in {Verdict.REFUSED, Verdict.UNKNOWN}:
        return
    if found.gaps or not words.limit + words.share:
        return
    is_in_mib = "{mib}" in words.limit
    tried = None if asked is None else asked.smallest_limit(MiB if is_in_mib else tensorflow.UNIT)
    needed, gain = _estimated_limit(found, limit) if tried is None else (tried, "")
    most = total
    if total is None and found.settings.family in _XLA:  # if the present limit is the default of JAX
        most = int(limit / xla.DEFAULT_FRACTION)
    if most is not None and needed > most:
        return
    how = words.limit.format(size=needed, mib=ceil(needed / MiB))
    if words.share and not total:
        how = f"{words.share.format(share='...')}, {ceil(100 * needed / limit) / 100:.2f} times as large"
    elif words.share and total:
        how = words.share.format(share=f"{min(1, ceil(100 * needed / total) / 100):.2f}")
    numbers = {"needed": needed, "limit": limit, "more": needed - limit}
    more = f"{_rounded_up(needed - limit)} more than now"
    how = f": {how}" if how else ""
    if asked is None or tried is None:
        about = "" if found.limit_asked else "about "
        text = f"With a limit of {about}{_rounded_up(needed)}, {more}, {gain}{how}. {_estimate_words(found, asked)}"
    else:
        numbers["tried"] = len(asked.events)
        text = (
            f"With a limit of {_rounded_up(needed)}, {more}, a replay serves all {asked.told}{how}. A later request "
            f"may need more.{_earlier_failures_words(asked)}"
        )
    yield Advice(AdviceKind.LARGER_LIMIT, text, numbers)


def _earlier_failures_words(asked: RequestsUntilFailure) -> str:
    """That requests which failed earlier are not served in a replay, and what that may change."""
    if not asked.failed_before:
        return ""
    return (
        f" Left out: {counted(asked.failed_before, 'request')} that failed before. Under that limit some may succeed; "
        "then the program may go on otherwise and need more. `bfcviz fit FILE` serves them, too."
    )


_XLA: Final = frozenset({Family.JAX, Family.REACTANT})


def _estimated_limit(found: Diagnosis, limit: int) -> tuple[int, str]:
    """A limit that would have left room for the request at its moment; and for what, as words."""
    # XLA took the pool as one region at the start: it never grows by another.
    if found.settings.family in _XLA and found.regions.count == 1 and found.pool_bytes == limit:
        at_end = found.largest_free_chunk if found.hole.after is None else 0
        gain = "the region that the pool took at the start would have been large enough for this request"
        return found.pool_bytes + found.rounded - at_end, gain
    gain = "the pool could have grown by one region that holds this request"
    if found.limit_asked and found.deciding_limit is not None:
        return found.deciding_limit, gain
    released = max(found.pool_bytes - found.releasable, found.bytes_in_use) + found.rounded
    return (found.pool_bytes + found.rounded, gain) if released <= limit else (released, gain)


def _estimate_words(found: Diagnosis, asked: RequestsUntilFailure | None) -> str:
    """That an advised limit is an estimate, and how to know it better, where the file has the requests."""
    if found.limit_asked:
        return "A later request may need more."
    text = (
        "That is an estimate from this moment: under another limit the requests before it may lie elsewhere and need "
        "more, or less."
    )
    if found.is_state_only:
        return text
    why = "" if asked is None else f" The {asked.told} are too many to try here, or do not fail in a replay."
    return (
        f"{text}{why} `bfcviz fit FILE` serves the requests of the file again and finds the smallest limit."
    )


def _rounded_up(num_bytes: int) -> str:
    """A number of bytes as text for an advice; it says no less than is needed."""
    unit = 1024 ** max(0, (num_bytes.bit_length() - 1) // 10)
    return format_bytes(ceil(10 * num_bytes / unit) * unit / 10) if unit > 1 else format_bytes(num_bytes)


def _taken_at_start_advice(found: Diagnosis) -> Advice | None:
    """Advice where others held the device before the program began: the limit is only what they left."""
    total, start = found.recorded.device_total, found.recorded.device_free_at_start
    limit = found.bytes_limit
    is_theirs = found.settings.family in {Family.TENSORFLOW, Family.JAX, Family.REACTANT}
    if total is None and limit is not None and limit < SMALLEST_DEVICE and is_theirs:
        return Advice(
            AdviceKind.OTHER_USERS,
            f"The pool may have only {format_bytes(limit)}: the program found no more free when it started, unless it "
            f"set this limit. Look with {_advised_process_tool(found)} for another process on the device.",
            {"limit": limit},
        )
    if total is None or start is None or total - start < CONTEXT * total:
        return None
    return Advice(
        AdviceKind.OTHER_USERS,
        f"Other processes held {format_bytes(total - start)} of the device when the program started, which left "
        f"{format_bytes(start)} of {format_bytes(total)}. {_advised_process_tool(found)} names them.",
        {"others": total - start, "device_free_at_start": start, "device_total": total},
    )


def _advised_process_tool(found: Diagnosis) -> str:
    """The command that lists the processes on the device, as the message of the failure names its kind."""
    tools = {"HIP": "rocm-smi", "XPU": "xpu-smi"}
    return next((tool for word, tool in tools.items() if word in found.recorded.message), "nvidia-smi")


def _other_users_advice(found: Diagnosis) -> Advice | None:
    used, free = found.device_used, found.recorded.device_free
    if used is None or free is None or found.verdict in {Verdict.ABOVE_LIMIT, Verdict.UNKNOWN}:
        return None
    others = used - found.pool_bytes
    if free >= found.rounded or others < found.rounded - free:
        return None
    return Advice(
        AdviceKind.OTHER_USERS,
        f"Other pools and processes, and the driver itself, hold {format_bytes(others)} of the device; "
        f"{format_bytes(free)} of it were free, {format_bytes(found.rounded - free)} less than needed. "
        f"{_advised_process_tool(found)} names the processes.",
        {"others": others, "device_free": free, "missing": found.rounded - free},
    )


def _largest_holder_advice(found: Diagnosis) -> Advice | None:
    """Advice where to begin if too little is free: at the holder that alone has more than what is missing."""
    missing, most = found.missing, found.largest_holder
    if found.event is None or found.verdict is not Verdict.CAPACITY or most is None or most.bytes < missing:
        return None
    recompute = words_of(found.settings).recompute
    again = f"; in training, {recompute} computes values again instead of keeping them" if recompute else ""
    return Advice(
        AdviceKind.LARGEST_HOLDER,
        f"Begin where most memory is: {cut(most.name)} holds {format_bytes(most.bytes)} in "
        f"{counted(most.chunks, 'chunk')}, {format_bytes(missing)} are missing. Let it allocate less, such as by a "
        f"smaller batch, or free what is not used any more{again}.",
        {"bytes": most.bytes, "chunks": most.chunks, "missing": missing},
    )


def _whole_array_advice(found: Diagnosis) -> Advice | None:
    """Advice on a constant: it is a whole array on the device, which no smaller batch makes smaller."""
    if found.event is None or _subject_of_request(found) is not StatedAdviceSubject.CONSTANT:
        return None
    return Advice(
        AdviceKind.FEED_IN_PARTS,
        f"{_op_of_request(found)} copies a whole array of {format_bytes(found.requested)} to the device: feed it in "
        "parts instead (tf.data, a generator).",
        {"requested": found.requested},
    )


def _model_variable_advice(found: Diagnosis) -> Advice | None:
    """Advice on a variable or a slot of the optimizer: its size is that of the model."""
    if found.event is None or _subject_of_request(found) is not StatedAdviceSubject.VARIABLE:
        return None
    return Advice(
        AdviceKind.OPTIMIZER_STATE,
        f"{_op_of_request(found)} is a variable or a slot of the optimizer: its {format_bytes(found.requested)} do not "
        "shrink with the batch. Use an optimizer with fewer slots, weights of fewer bits, or shard or offload its "
        "state.",
        {"requested": found.requested},
    )


_RULES: Final[tuple[Callable[[Diagnosis], Advice | None], ...]] = (
    _growing_holder_advice,
    _taken_at_start_advice,
    _region_release_advice,
    _expandable_segments_advice,
    _other_allocator_advice,
    _growth_off_advice,
    _free_pins_advice,
    _split_size_advice,
    _collection_threshold_advice,
    _split_fraction_advice,
    _other_users_advice,
    _whole_array_advice,
    _model_variable_advice,
    batch_advice,
    _largest_holder_advice,
)
_OF_DEVICE: Final = frozenset({_taken_at_start_advice, _other_users_advice})
"""Rules that tell who else holds the device."""

_OF_POOL: Final = _OF_DEVICE | {
    _growing_holder_advice,
    _whole_array_advice,
    _model_variable_advice,
}
"""Rules that use the bytes of the pool, and not its chunks."""
