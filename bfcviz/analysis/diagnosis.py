"""Diagnosis: the verdict on one request, with the numbers that it follows from. Sizes are bytes."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.heap_settings import Family, HeapSettings, heap_settings_of
from bfcviz.analysis.leaks import Growth
from bfcviz.analysis.pinned_runs import Pin, Run, largest_first
from bfcviz.analysis.short_names import cut, path_end
from bfcviz.answers import Answer, AnswerTable, data_frame
from bfcviz.events.label_table import NO_LABEL
from bfcviz.events.origin import (
    Origin,
    RecordedFailure,
    Status,
    facts_of,
    holds_only_states,
)
from bfcviz.events.trace import Trace
from bfcviz.model.grouping import UNNAMED
from bfcviz.model.holders import holders, largest_holder_rows, other_holders
from bfcviz.model.model import Model
from bfcviz.terminal import wrapped_lines
from bfcviz.units import counted, format_bytes, short_address

if TYPE_CHECKING:
    import pandas as pd

    from bfcviz.analysis.account import DeviceAccount

# ------------------------------------------------------------------------------
# Diagnosis: the verdict on one request, with the numbers that it follows from.

_WIDTH: Final = 110  # characters of a line in a notebook
_FREE_IN_FULL: Final = 0.01  # of a pool that is called full, the share that is free, at most


class Verdict(StrEnum):
    """The verdict of a diagnosis, why a request failed: the first of these that holds."""

    ABOVE_LIMIT = "above_limit"  # larger than the limit itself: it can never fit
    UNKNOWN = "unknown"  # the heap of that moment is not in the file, or a free chunk was large enough
    REFUSED = "refused"  # the limit leaves room for a region that would hold it, but none was granted
    CAPACITY = "capacity"  # less is free than requested, and the limit leaves no room for a region that would hold it
    REGIONS = "regions"  # enough is free, but in regions that are too small; in one region it could fit
    FRAGMENTATION = "fragmentation"  # enough is free, but no chunk is large enough: chunks in use lie between
    NO_FAILURE = "no_failure"  # it would fit


class AdviceKind(StrEnum):
    """What an advice of a diagnosis is about."""

    GROWING_HOLDER = "growing_holder"
    FREE_PINS = "free_pins"
    REGION_RELEASE = "region_release"
    OTHER_ALLOCATOR = "other_allocator"
    EXPANDABLE_SEGMENTS = "expandable_segments"
    GROWTH_OFF = "growth_off"
    SPLIT_SIZE = "split_size"
    COLLECTION_THRESHOLD = "collection_threshold"
    FRAGMENTATION_FRACTION = "fragmentation_fraction"
    LARGER_LIMIT = "larger_limit"
    OTHER_USERS = "other_users"
    SYSTEM_MEMORY = "system_memory"
    BATCH_SIZE = "batch_size"
    LARGEST_HOLDER = "largest_holder"
    FEED_IN_PARTS = "feed_in_parts"
    OPTIMIZER_STATE = "optimizer_state"
    RERUN = "rerun"


@dataclass(frozen=True)
class Advice:
    """One advice of a diagnosis: what would have helped, or what to record next time.

    Attributes:
        kind: what it is about.
        text: the advice as sentences.
        numbers: the numbers in the text, by name.
    """

    kind: AdviceKind
    text: str
    numbers: Mapping[str, float]


@dataclass(frozen=True)
class RegionTotals:
    """The regions of the pool at a diagnosis.

    Attributes:
        count: how many there are.
        largest: bytes of the largest.
        wholly_free: address and size of each region without a chunk in use, by address.
    """

    count: int
    largest: int
    wholly_free: tuple[tuple[int, int], ...]

    @property
    def free_bytes(self) -> int:
        """Bytes of all wholly free regions at a diagnosis."""
        return sum(size for _, size in self.wholly_free)


@dataclass(frozen=True)
class LargestHole:
    """The largest free chunk at a diagnosis, and the chunks beside it, of CHUNK.

    Attributes:
        chunk: of equal ones the lowest; None where nothing is free.
        before, after: its neighbours in its region; None at the region's ends.
    """

    chunk: np.void | None = None
    before: np.void | None = None
    after: np.void | None = None


@dataclass(frozen=True, repr=False)
class Diagnosis(Answer):
    """A request that failed, or a question whether one would fit, with the heap of that moment.

    Attributes:
        pool, pool_name: the heap.
        step: the state that these numbers describe.
        event: index of the OOM event; None for a question.
        verdict: why it failed.
        label: name of the request, "" for none.
        requested, rounded: bytes of the request; the same as the heap rounds it.
        free_bytes, largest_free_chunk, free_chunks: what is free; 0 where the file does not have the heap.
        bytes_in_use, chunks_in_use, pool_bytes: the heap.
        bytes_limit: the most that the pool may become; None: unknown.
        wasted: bytes of chunks in use that were not requested; None: unknown.
        largest_waste: the most that one of them wastes; 0 where that is unknown.
        regions: the regions.
        runs: the neighbouring chunks that hold the request after the fewest frees, best first.
        hole: the largest free chunk.
        recorded: what else the file says of the failure.
        settings: the settings of the heap.
        is_state_only: whether the file holds states, and no history.
        gaps: what the file says is missing of this heap, or contradicts it: what follows from its chunks may be wrong.
        unknown: names of numbers, as in `bfcviz info --json`, that the file cannot give: their values mean nothing.
        held_by: who held most of the bytes in use, then all others together.
        growing: what has more memory after every step of the program; None: nothing has, or it was not searched.
        advice: what would have helped.
        account: who held the memory of the device, where the file says anything of it.
        usable_chunk: of a question, the largest free chunk that the allocator's rules allow; None: any free chunk.
        tail: of a question, the free bytes at the end of an expandable segment, which grows in place; 0: none.
        limit_asked: whether a question gave the limit: the pool of the file may then be above it.
        lead: lines that the report begins with where no request failed.
        among: of several ranks, which one it is, and how many failed; empty: of one file.
    """

    pool: int
    pool_name: str
    step: int
    event: int | None
    verdict: Verdict
    label: str
    requested: int
    rounded: int
    free_bytes: int
    largest_free_chunk: int
    free_chunks: int
    bytes_in_use: int
    chunks_in_use: int
    pool_bytes: int
    bytes_limit: int | None
    wasted: int | None
    largest_waste: int
    regions: RegionTotals
    runs: tuple[Run, ...]
    hole: LargestHole
    recorded: RecordedFailure
    settings: HeapSettings
    is_state_only: bool
    unknown: frozenset[str] = frozenset()
    gaps: tuple[str, ...] = ()
    held_by: "tuple[HeldBy, ...]" = ()
    growing: Growth | None = None
    advice: tuple[Advice, ...] = ()
    account: "DeviceAccount | None" = None
    usable_chunk: int | None = None
    tail: int = 0
    limit_asked: bool = False
    lead: tuple[str, ...] = ()
    among: str = ""

    def knows(self, *names: str) -> bool:
        """Whether the file gives all these numbers of a diagnosis, named as in `bfcviz info --json`."""
        return self.recorded.has_heap and self.unknown.isdisjoint(names)

    @property
    def told_step(self) -> int:
        """The step that texts of a diagnosis name: after the failed request; a question names its own."""
        return self.step + (self.event is not None)

    @property
    def useful_runs(self) -> tuple[Run, ...]:
        """The runs of a diagnosis that need fewer bytes freed than the request has; else freeing anywhere would do."""
        return tuple(run for run in self.runs if self.requested and run.bytes_in_use < self.rounded)

    @property
    def room(self) -> int | None:
        """Of a diagnosis, bytes by which the limit allows the pool to grow; None where limit or pool is unknown."""
        return None if self.spare is None else max(0, self.spare)

    @property
    def spare(self) -> int | None:
        """As `room`; negative where the pool is above a limit that a question gave."""
        if self.recorded.room is not None:
            return self.recorded.room
        if self.bytes_limit is None or "pool_bytes" in self.unknown:
            return None
        left = self.bytes_limit - self.pool_bytes
        return left if self.limit_asked else max(0, left)  # files round their limits

    @property
    def releasable(self) -> int:
        """Bytes that the allocator gives back before a request fails: those of its wholly free regions, if any."""
        return self.regions.free_bytes if self.settings.releases_free_regions else 0

    @property
    def room_after_release(self) -> int | None:
        """As `spare`, after the allocator has given back its empty regions."""
        return None if self.spare is None else self.spare + self.releasable

    @property
    def missing(self) -> int:
        """Bytes that must be freed at least for a diagnosed request: in the pool, or as regions to give back."""
        in_pool, room = self.rounded - self.free_bytes, self.room_after_release
        beside = 0 if room is None or not self.settings.releases_free_regions else self.rounded - max(room, 0)
        return min(in_pool, beside) if beside > 0 else in_pool

    @property
    def releases_first(self) -> bool:
        """Whether the empty regions are gone before the pool is below the limit that a question gave."""
        return self.limit_asked and (self.spare or 0) < 0 < self.releasable

    @property
    def exceeds_limit(self) -> bool:
        """Whether the limit that a question gave is too small for what stays in the pool, or is then in use."""
        if not self.limit_asked or self.bytes_limit is None:
            return False
        in_use = self.bytes_in_use if "bytes_in_use" not in self.unknown else 0
        stays = self.room_after_release is None or self.room_after_release >= 0
        return not stays or in_use + self.rounded > self.bytes_limit

    @property
    def deciding_limit(self) -> int | None:
        """The smallest limit under which a request that finds no free chunk is served; None: the pool does not grow."""
        if self.settings.allow_growth is False or "pool_bytes" in self.unknown:
            return None
        return self.pool_bytes - self.releasable + self.growth

    @property
    def growth(self) -> int:
        """Bytes by which the pool grows, at most, for a request that finds no free chunk."""
        return self.settings.growth(self.rounded, self.tail)

    @property
    def may_unmap(self) -> bool:
        """Whether PyTorch may serve the diagnosed request by unmapping free memory in segments: not told."""
        is_expandable = self.settings.family is Family.TORCH and self.settings.torch.expandable
        return is_expandable and self.free_bytes + (self.spare or 0) >= self.rounded

    @property
    def largest_usable(self) -> int:
        """The largest free chunk that the allocator's rules allow for this request."""
        return self.largest_free_chunk if self.usable_chunk is None else self.usable_chunk

    @property
    def external_fragmentation(self) -> float:
        """Of a diagnosis, 1 - largest_free_chunk / free_bytes; 0 where nothing is free."""
        missing = self.free_bytes - self.largest_free_chunk
        return missing / self.free_bytes if self.free_bytes else 0.0

    @property
    def is_full(self) -> bool:
        """Whether nothing of the diagnosed pool is free, or nearly nothing."""
        return self.knows("free_bytes", "pool_bytes") and self.free_bytes <= _FREE_IN_FULL * self.pool_bytes

    @property
    def device_used(self) -> int | None:
        """Bytes in use on the device as the driver counts them, by everything on it; None: unknown."""
        total, free = self.recorded.device_total, self.recorded.device_free
        return None if total is None or free is None else max(0, total - free)

    @property
    def pinned_by(self) -> tuple[Pin, ...]:
        """The chunks in use of the best run, if enough is free but not in one chunk."""
        splits = self.free_bytes >= self.rounded > self.largest_free_chunk
        return self.runs[0].pins if self.runs and splits else ()

    @property
    def largest_holder(self) -> "HeldBy | None":
        """Who held most at the diagnosed moment; None where that is not known, or has no name."""
        named = (each for each in self.held_by[:1] if each.name != UNNAMED["op"])
        return next(named, None)

    def to_pandas(self) -> "pd.DataFrame":
        """One row a holder, then one a chunk in the way of the best place: what it is, its name, bytes, address."""
        rows: list[tuple[str, str, int, int, int | None]] = [
            ("holder", each.name, each.bytes, each.chunks, None) for each in self.held_by
        ]
        for run in self.useful_runs[:1]:
            rows += [("in the way", pin.name, pin.size, 1, pin.address) for pin in largest_first(run.pins)]
        names = ("is", "name", "bytes", "chunks", "address")
        return data_frame({name: [row[at] for row in rows] for at, name in enumerate(names)})

    @property
    def reason(self) -> str:
        """The reason of a diagnosis: why the request failed, with the numbers."""
        return "" if self.asks_nothing else verdict_sentence(self)

    @property
    def asks_nothing(self) -> bool:
        """Whether a diagnosis is of a state: no request failed, and none was asked about."""
        return not self.requested and self.event is None

    @property
    def tables(self) -> Sequence[AnswerTable]:
        """The tables of a diagnosis: what grows every step, sizes, who held them, what is in the way, advice."""
        pins = [
            (pin.name or NO_LABEL, format_bytes(pin.size), f"{pin.address:#x}")
            for run in self.useful_runs[:1]
            for pin in largest_first(run.pins)
        ]
        sizes = AnswerTable(("memory", ""), _diagnosed_size_rows(self), texts=[""])
        advice = [(each.text,) for each in self.advice]
        held = [(each.name, format_bytes(each.bytes), f"{each.chunks:,}") for each in self.held_by]
        return [
            *([] if self.growing is None else [self.growing.table]),
            sizes,
            *([AnswerTable(("held by", "bytes", "chunks"), held)] if held else []),
            *([AnswerTable(("in the way of the best place", "bytes", "address"), pins)] if pins else []),
            *([AnswerTable((_advice_title(self),), advice)] if advice else []),
        ]

    @property
    def unwrapped(self) -> list[str]:
        """The report of a diagnosis, a line for each statement."""
        return failure_lines(self)

    def __str__(self) -> str:
        return "\n".join(part for line in self.unwrapped for part in wrapped_lines(line, _WIDTH))


# ------------------------------------------------------------------------------
# Who held the heap when the request failed.

_HOLDERS_SHOWN: Final = 3


class HeldBy(NamedTuple):
    """What one holder, or all others together, had in use at a diagnosis: its name, bytes, and chunks."""

    name: str
    bytes: int
    chunks: int


def held_by(model: Model) -> tuple[HeldBy, ...]:
    """The holders of most bytes at a diagnosis, by their labels, then the others together; () without names."""
    found = holders(model)
    sizes, counts = found.rows["own_bytes"], found.rows["own_chunks"]
    rows = largest_holder_rows(found, _HOLDERS_SHOWN + 1)
    if other_holders(found, rows).holders:  # "1 others" would take the line of its name
        rows = rows[:_HOLDERS_SHOWN]
    named = [HeldBy(found.path(row), int(sizes[row]), int(counts[row])) for row in rows]
    if all(each.name == UNNAMED["op"] for each in named):
        return ()
    rest = other_holders(found, rows)
    others = [HeldBy(f"{rest.holders:,} others", rest.bytes, rest.chunks)] if rest.holders else []
    return (*named, *others)


# ------------------------------------------------------------------------------
# The numbers of a failed request as rows of its report: a name, and what the file says.

_REGIONS_SHOWN: Final = 5
_UNKNOWN: Final = "unknown"
_NAME_WIDTH: Final = 24  # characters of a name in the report


def _recorded_rows(found: Diagnosis) -> list[tuple[str, str]]:
    """Rows of a diagnosis on what else the file says: the operation, the tensor, the message."""
    recorded = found.recorded
    rows = [("operation", recorded.op), ("tensor", recorded.tensor), ("message", recorded.message)]
    return [(name, cut(" ".join(text.split()))) for name, text in rows if text]


def _diagnosed_size_rows(found: Diagnosis) -> list[tuple[str, str]]:
    """Rows of a diagnosis: sizes of the heap and the device, and the waste; `unknown` for what is not given."""
    wasted = [] if found.asks_nothing else [("wasted", _waste_text(found))]
    rank = [("rank", found.among)] if found.among else []
    if not found.recorded.has_heap:
        return [*rank, ("limit", _pool_limit_text(found)), *wasted]
    largest = _size_beside_request(found, found.largest_free_chunk)
    if not found.knows("largest_free_chunk"):
        largest = _UNKNOWN
    share = f", external fragmentation {found.external_fragmentation:.3f}"
    shows_share = found.knows("largest_free_chunk", "external_fragmentation")
    pool = _size_and_count_text(
        found, ("pool_bytes", found.pool_bytes), ("regions", found.regions.count), "region"
    )
    used = _size_and_count_text(
        found, ("bytes_in_use", found.bytes_in_use), ("chunks_in_use", found.chunks_in_use), "chunk"
    )
    free = _size_and_count_text(
        found, ("free_bytes", found.free_bytes), ("chunks_free", found.free_chunks), "chunk"
    )
    return [
        *rank,
        ("limit", _pool_limit_text(found)),
        ("pool", pool),
        ("in use", used),
        ("device, by its driver", _device_use_text(found)),
        ("free in the pool", free),
        ("largest free chunk", largest + share * shows_share),
        *wasted,
    ]


def _pool_limit_text(found: Diagnosis) -> str:
    total = found.recorded.device_total
    if found.settings.family is Family.TORCH and found.bytes_limit is None and total is not None:
        return f"that of the device, {format_bytes(total)}, unless the program set a fraction of it"
    return _diagnosed_size_text(found.bytes_limit)


def _device_use_text(found: Diagnosis) -> str:
    recorded, total = found.recorded, format_bytes(found.recorded.device_total or 0)
    if found.device_used is not None:
        return f"{format_bytes(found.device_used)} in use of {total}"
    if recorded.device_total is not None:
        start = recorded.device_free_at_start
        return total if start is None else f"{total}, {format_bytes(start)} free when the program started"
    free = recorded.device_free
    return "not in the file" if free is None else f"{format_bytes(free)} free; its size is not in the file"


def _size_and_count_text(found: Diagnosis, size: tuple[str, int], count: tuple[str, int], what: str) -> str:
    """A size in a diagnosis: bytes and the number of things that they are in, as far as given."""
    if not found.knows(size[0]):
        return _UNKNOWN
    number = f" in {counted(count[1], what)}" if found.knows(count[0]) else ""
    is_free = size[0] == "free_bytes"
    return f"{_size_beside_request(found, size[1]) if is_free else format_bytes(size[1])}{number}"


def _size_beside_request(found: Diagnosis, size: int) -> str:
    """A size of a diagnosis as text; with the difference where the request differs only in digits not printed."""
    text, more = format_bytes(size), size - found.rounded
    return f"{text} ({more:+,} B)" if more and text == format_bytes(found.requested) else text


def _waste_text(found: Diagnosis) -> str:
    """The waste in a diagnosis: bytes in use that were not requested."""
    if found.wasted is None:
        return "unknown: the file does not say what was requested"
    helps = found.verdict is not Verdict.NO_FAILURE and found.wasted >= found.rounded
    enough = ", which alone would have been enough" if helps else ""
    return f"{format_bytes(found.wasted)} in use that were not requested{enough}"


def _holder_rows(found: Diagnosis) -> list[tuple[str, str]]:
    """Rows of a diagnosis on who held most bytes; the first row has the name of all."""
    return [
        (
            "" if number else "held by",
            f"{format_bytes(each.bytes):>10}  {cut(each.name)} ({counted(each.chunks, 'chunk')})",
        )
        for number, each in enumerate(found.held_by)
    ]


def _free_region_rows(found: Diagnosis) -> list[tuple[str, str]]:
    """Rows of a diagnosis on the wholly free regions; none where there are none."""
    free = found.regions.wholly_free
    if not free or found.regions.count < 2:
        return []
    shown = ", ".join(f"{format_bytes(size)} at {address:#x}" for address, size in free[:_REGIONS_SHOWN])
    more = f", and {len(free) - _REGIONS_SHOWN:,} more" if len(free) > _REGIONS_SHOWN else ""
    return [("wholly free regions", f"{shown}{more}")]


def _diagnosed_size_text(number: int | None) -> str:
    return _UNKNOWN if number is None else format_bytes(number)


def _row_lines(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {name:<{_NAME_WIDTH}}{text}" for name, text in rows]


# ------------------------------------------------------------------------------
# A failed request in words: a headline, one paragraph for an event, and a report.

LONGEST_IN_HEADLINE: Final = 48  # characters of a name in a headline
_GAPS_SHOWN: Final = 3


def failure_headline(found: Diagnosis) -> str:
    """The headline of a diagnosis: `OOM: needed 24.0 MiB, ...: fragmented by layer_4/Softmax`."""
    if not found.requested:
        return "OOM: a request failed, and the file does not say how many bytes it needed"
    about = "" if found.recorded.is_exact else "about "
    needed = f"OOM: needed {about}{format_bytes(found.requested)}"
    reason = _WORDS[found.verdict].reason(found)
    if found.growing is not None:
        grows, pace = path_end(found.growing.names[0], LONGEST_IN_HEADLINE), found.growing.pace(0)
        reason += f", which grows {pace}" if reason.endswith(f" {grows}") else f"; {grows} grows {pace}"
    return f"{needed}{_failure_headline_numbers(found)}: {reason}"


def _failure_headline_numbers(found: Diagnosis) -> str:
    if not found.knows("free_bytes", "largest_free_chunk") or found.verdict is Verdict.ABOVE_LIMIT:
        return ""
    if found.verdict is Verdict.CAPACITY:
        return f", {_size_beside_request(found, found.free_bytes)} free"
    largest = _size_beside_request(found, found.largest_free_chunk)
    return f", largest free chunk {largest} of {format_bytes(found.free_bytes)} free"


def failure_sentences(found: Diagnosis, name: Callable[[int], str]) -> str:
    """A diagnosis as a paragraph: what was requested, what was free, and why that was not enough.

    Args:
        found: the diagnosis.
        name: gives the text of a label.
    """
    limit = "" if found.bytes_limit is None else f" of a limit of {format_bytes(found.bytes_limit)}"
    known = found.knows("free_bytes", "largest_free_chunk", "pool_bytes")
    numbers = f": {free_words(found)}, pool {format_bytes(found.pool_bytes)}{limit}" if known else ""
    beside = _largest_hole_sentence(found, name) if found.verdict is Verdict.FRAGMENTATION else ""
    return f"{request_words(found)}{numbers}. {verdict_sentence(found)}{beside}"


def free_words(found: Diagnosis) -> str:
    """What was free at a diagnosis, where the file says it: `44.0 MiB free, largest free chunk 24.0 MiB`."""
    return (
        f"{_size_beside_request(found, found.free_bytes)} free, "
        f"largest free chunk {_size_beside_request(found, found.largest_free_chunk)}"
    )


def verdict_title(verdict: Verdict) -> str:
    """The verdict of a diagnosis in a few words."""
    return _WORDS[verdict].title


def verdict_sentence(found: Diagnosis) -> str:
    """The verdict of a diagnosis with its numbers; it says so where it depends on what the file lacks."""
    sentence = _WORDS[found.verdict].sentence(found)
    is_sure = not found.gaps or found.verdict is Verdict.ABOVE_LIMIT or not found.recorded.has_heap
    return sentence if is_sure else f"{_ONLY_SO_FAR} {sentence}"


_ONLY_SO_FAR: Final = "As far as the file, which is incomplete, tells:"


def failure_lines(found: Diagnosis) -> list[str]:
    """The report of a diagnosis: the verdict, the sizes, the best runs with what pins them, and advice."""
    verdict = found.verdict.replace("_", " ")
    if found.asks_nothing:
        nothing = (
            "the file does not say whether a request failed" if found.is_state_only else "no request failed"
        )
        return [
            *found.lead,
            f"{found.pool_name} at step {found.step:,}: {nothing}.",
            *_row_lines(_diagnosed_size_rows(found)),
        ]
    rows = [
        *(("incomplete", gap) for gap in found.gaps[:_GAPS_SHOWN]),
        *_recorded_rows(found),
        *_diagnosed_size_rows(found),
        *_holder_rows(found),
        *_free_region_rows(found),
    ]
    return [
        f"{request_words(found)} in {found.pool_name} at step {found.told_step:,}: {verdict}.",
        f"  {verdict_sentence(found)}",
        *_row_lines(rows),
        *([] if found.account is None else found.account.lines()),
        *(line for number, run in enumerate(found.useful_runs, 1) for line in run.lines(number)),
        *([_advice_title(found)] if found.advice else []),
        *(f"  - {advice.text}" for advice in found.advice),
    ]


def _advice_title(found: Diagnosis) -> str:
    return "What would help" if found.event is not None else "To know more"


_QUESTIONS: Final = {Verdict.NO_FAILURE: "would fit", Verdict.UNKNOWN: "may fit or not"}


def request_words(found: Diagnosis) -> str:
    """The diagnosed request, who asked and for how much: `layer_4/Softmax failed to allocate 24.0 MiB`."""
    size, who = format_bytes(found.requested), cut(found.label) if found.label else "An unnamed request"
    if found.event is None:
        of = f"{who} of " if found.label else ""
        return f"{of}{size} {_QUESTIONS.get(found.verdict, 'would not fit')}"
    if not found.requested:
        return f"{who} failed to allocate; the file does not say how many bytes"
    return f"{who} failed to allocate {'' if found.recorded.is_exact else 'about '}{size}"


# -- verdicts: a title, the reason in a headline, and a sentence with the numbers ----------------------------


def _above_limit_reason(found: Diagnosis) -> str:
    return f"more than the limit of {format_bytes(found.bytes_limit or 0)}"


def _unknown_reason(found: Diagnosis) -> str:
    if not found.knows("largest_free_chunk"):
        return "the file does not show the heap of that moment"
    return "the events do not show why no free chunk was taken"


def _refused_reason(found: Diagnosis) -> str:
    return f"no region granted, although the limit left {format_bytes(found.room or 0)}"


def _capacity_reason(found: Diagnosis) -> str:
    pool = f"the pool of {format_bytes(found.pool_bytes)}" if found.knows("pool_bytes") else "the pool"
    why, most = f"{pool} is full" if found.is_full else f"too little is free in {pool}", found.largest_holder
    if most is None:
        return why
    name = path_end(most.name, LONGEST_IN_HEADLINE)
    return f"{why}, {most.bytes / found.bytes_in_use:.0%} of the bytes in use held by {name}"


def _regions_reason(found: Diagnosis) -> str:
    return f"split into {counted(found.regions.count, 'region')}, the largest {format_bytes(found.regions.largest)}"


def _fragmentation_reason(found: Diagnosis) -> str:
    if not found.pinned_by:
        return "fragmented"
    names = list(dict.fromkeys(filter(None, (pin.name for pin in largest_first(found.pinned_by)))))
    if not names:
        size, count = format_bytes(found.runs[0].bytes_in_use), found.runs[0].chunks_in_use
        several = f"{size} in {count:,} unnamed chunks"
        return f"fragmented by {several if count > 1 else f'an unnamed chunk of {size}'}"
    others = f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else ""
    return f"fragmented by {path_end(names[0], LONGEST_IN_HEADLINE)}{others}"


def _no_failure_reason(_: Diagnosis) -> str:
    return "it would fit"


def _above_limit_sentence(found: Diagnosis) -> str:
    return f"The request (rounded up to {found.rounded} bytes) is larger than the limit: it can never fit."


def _unknown_sentence(found: Diagnosis) -> str:
    if found.event is None and found.bytes_limit is None and found.knows("largest_free_chunk", "pool_bytes"):
        return (
            f"{_no_chunk_fits(found)}, so the pool must grow{_in_place(found)}{_diagnosed_release_words(found)}. "
            f"The request fits if the pool may have {format_bytes(found.deciding_limit or 0)} "
            f"({found.deciding_limit:,} B) or more. The file does not tell its limit: give it, such as 80GiB."
        )
    if found.event is None and found.may_unmap:
        return (
            f"{_no_chunk_fits(found)}, and the limit leaves {format_bytes(found.room or 0)}. PyTorch may unmap "
            "free memory inside its expandable segments, in whole granules, and map it where it is needed; "
            "whether that gives enough is not in the file."
        )
    if not found.recorded.has_heap:
        which = "all chunks" if found.pool_bytes else "the chunks"
        return f"The file has the request, but not {which} of that moment."
    if not found.knows("largest_free_chunk"):
        return "The file does not say what was free at that moment."
    if not found.requested:
        return (
            f"It needed more than the largest free chunk, {format_bytes(found.largest_free_chunk)}, unless an "
            "alignment, a stream or a separate pool excluded that one."
        )
    return (
        "The largest free chunk is large enough. The events do not show why it was not taken: a timestamp, an "
        "alignment, a stream or a separate pool for small requests can exclude a free chunk."
    )


def _refused_sentence(found: Diagnosis) -> str:
    room = format_bytes(found.room or 0)
    free = found.recorded.device_free
    driver = "" if free is None else f"; the driver had {format_bytes(free)} free"
    inside = (
        f"{format_bytes(found.rounded - found.free_bytes)} more must be free in the pool"
        if found.free_bytes < found.rounded
        else "enough is free in the pool, but not in one chunk"
    )
    who = "operating system" if found.settings.is_on_host else "sub-allocator"
    return f"The limit leaves {room} for a new region, but the {who} granted none{driver}; {inside}."


def _capacity_sentence(found: Diagnosis) -> str:
    if found.exceeds_limit:
        return _exceeds_limit_sentence(found)
    missing = format_bytes(found.missing)
    why = "The pool is full" if found.is_full else "Less is free than was asked for"
    return f"{why}: {missing} more must be free; {_why_pool_did_not_grow(found)}."


def _exceeds_limit_sentence(found: Diagnosis) -> str:
    limit, needed = found.bytes_limit or 0, found.bytes_in_use + found.rounded
    if found.knows("bytes_in_use") and needed > limit:
        return (
            f"{format_bytes(found.bytes_in_use)} is in use, {format_bytes(needed)} with the request: "
            f"{format_bytes(needed - limit)} more than the limit."
        )
    kept = found.pool_bytes - found.releasable
    more = format_bytes(kept - limit)
    return f"The pool has {format_bytes(kept)}{_diagnosed_release_words(found)}: {more} more than the limit."


def _regions_sentence(found: Diagnosis) -> str:
    regions = found.regions
    if regions.largest < found.rounded:
        why = f"even the largest, of {format_bytes(regions.largest)}, is too small when it is empty"
    else:
        why = "the wholly free ones together could hold it as one region"
    return (
        f"Growth split the pool into {regions.count:,} regions: {why}. {len(regions.wholly_free):,} of them are wholly "
        f"free, {format_bytes(regions.free_bytes)} in all; {_why_pool_did_not_grow(found)}."
    )


def _fragmentation_sentence(found: Diagnosis) -> str:
    missing = format_bytes(found.rounded - found.largest_usable)
    pieces = f" in {found.free_chunks:,} chunks" if found.free_chunks > 1 else ""
    if found.largest_free_chunk >= found.rounded:
        return (
            f"{_no_chunk_fits(found)}; the largest one that it may take is {missing} too small; "
            f"{_why_pool_did_not_grow(found)}."
        )
    return (
        f"The free memory is fragmented: enough is free{pieces}, but the largest chunk is {missing} too small; "
        f"{_why_pool_did_not_grow(found)}."
    )


def _no_failure_sentence(found: Diagnosis) -> str:
    largest = found.largest_usable
    if largest >= found.rounded:
        kept = "" if largest == found.largest_free_chunk else " that the allocator keeps for such requests"
        return f"The largest free chunk{kept}, {format_bytes(largest)}, is large enough."
    room, after = found.room or 0, ""
    if room < found.growth:
        room, after = found.room_after_release or 0, _diagnosed_release_words(found)
    return (
        f"{_no_chunk_fits(found)}, but the limit leaves {format_bytes(room)} for a new region{_in_place(found)}"
        f"{after}, if the sub-allocator grants it."
    )


def _no_chunk_fits(found: Diagnosis) -> str:
    """Words of a diagnosis: that no free chunk fits."""
    if found.largest_usable < found.rounded <= found.largest_free_chunk:
        if found.releases_first:
            return "No free chunk that it may take is large enough once the empty regions are given back"
        return "The free chunks that are large enough belong to another stream, a private pool or another size class"
    return "No free chunk is large enough"


def _in_place(found: Diagnosis) -> str:
    """Words of a diagnosis: that a segment grows behind its free end."""
    return (
        f" (a segment with {format_bytes(found.tail)} free at its end grows in place)" if found.tail else ""
    )


def _diagnosed_release_words(found: Diagnosis) -> str:
    """Words of a diagnosis: that wholly free regions are given back first."""
    if not found.releasable:
        return ""
    return f", after the allocator gives back its empty regions, {format_bytes(found.releasable)}"


class _DiagnosisWords(NamedTuple):
    """A verdict in words: a title, the reason in a headline, and a sentence with the numbers."""

    title: str
    reason: Callable[[Diagnosis], str]
    sentence: Callable[[Diagnosis], str]


_WORDS: Final[Mapping[Verdict, _DiagnosisWords]] = {
    Verdict.ABOVE_LIMIT: _DiagnosisWords(
        "Above the limit: the request can never fit", _above_limit_reason, _above_limit_sentence
    ),
    Verdict.UNKNOWN: _DiagnosisWords(
        "Unknown: the file does not show why", _unknown_reason, _unknown_sentence
    ),
    Verdict.REFUSED: _DiagnosisWords(
        "Refused: the sub-allocator granted no region, below the limit", _refused_reason, _refused_sentence
    ),
    Verdict.CAPACITY: _DiagnosisWords(
        "Capacity: less is free than was asked for", _capacity_reason, _capacity_sentence
    ),
    Verdict.REGIONS: _DiagnosisWords(
        "Regions: growth split the pool into regions that are too small", _regions_reason, _regions_sentence
    ),
    Verdict.FRAGMENTATION: _DiagnosisWords(
        "Fragmentation: enough is free, but in no single chunk",
        _fragmentation_reason,
        _fragmentation_sentence,
    ),
    Verdict.NO_FAILURE: _DiagnosisWords("No request failed", _no_failure_reason, _no_failure_sentence),
}


def _why_pool_did_not_grow(found: Diagnosis) -> str:
    """Words of a diagnosis: why the pool did not grow."""
    free = found.recorded.device_free
    if found.room is None and free is not None:
        return f"the driver had {format_bytes(free)} free for a new region"
    if found.room is None:
        return "its limit is not known" if found.event is None else "the sub-allocator granted no new region"
    if found.room == 0 and not found.releasable:
        return "the limit leaves no room for a new region"
    after = _diagnosed_release_words(found)
    room = max(0, found.room_after_release or 0) if after else found.room
    return f"the limit leaves only {format_bytes(room)} for a new region{after}"


# -- the chunks in the way -----------------------------------------------------------------------------------


def _largest_hole_sentence(found: Diagnosis, name: Callable[[int], str]) -> str:
    """Sentence of a diagnosis on the chunks on both sides of the largest free chunk."""
    hole = found.hole
    if hole.before is None and hole.after is None:
        return " The largest free chunk fills its region."
    before = _diagnosed_hole_neighbour_words(hole.before, name, "start")
    after = _diagnosed_hole_neighbour_words(hole.after, name, "end")
    return f" The largest free chunk lies between {before} and {after}."


def _diagnosed_hole_neighbour_words(chunk: np.void | None, name: Callable[[int], str], edge: str) -> str:
    if chunk is None:
        return f"the region's {edge}"
    owner = name(int(chunk["label"])) if chunk["in_use"] else "free, not merged yet"
    return f"chunk {short_address(int(chunk['address']))} ({format_bytes(int(chunk['size']))}, {owner})"


# ------------------------------------------------------------------------------
# The diagnosis of one request: what the heap and the file say of it, and the verdict that follows.

_SHAPE_OF_REQUEST: Final = re.compile(r"\[([\d,\s]{1,200})\]")
"""A printed shape, such as `shape[128,64,32,32]`."""


def shape_of(found: Diagnosis) -> tuple[int, ...]:
    """The dimensions of the diagnosed request's tensor; empty where the file does not say them."""
    text = _SHAPE_OF_REQUEST.search(found.recorded.tensor) or _SHAPE_OF_REQUEST.search(found.label)
    return tuple(int(part[:18]) for part in text[1].replace(",", " ").split()) if text else ()


def without_failure(trace: Trace, pool: int = 0, model: Model | None = None) -> Diagnosis:
    """A diagnosis of the heap at the model's step as if nothing was requested: `requested` is 0."""
    step = len(trace) if model is None else model.step
    with model_to_diagnose(trace, pool, model).visiting(step) as there:
        return replace(
            undecided_diagnosis(there, 0, RecordedFailure(0)), rounded=0, verdict=Verdict.NO_FAILURE
        )


def model_to_diagnose(trace: Trace, pool: int, model: Model | None) -> Model:
    """The given model if it is of the heap to diagnose, else a new one."""
    usable = model is not None and model.trace is trace and model.pool == pool
    return model if usable else Model(trace, pool)  # type: ignore[return-value]


def undecided_diagnosis(model: Model, requested: int, recorded: RecordedFailure) -> Diagnosis:
    """The numbers of a diagnosis from the heap at the model's step; the verdict is not decided."""
    origin, table = model.trace.origin, model.table
    pool = origin.pools[model.pool]
    settings = heap_settings_of(origin, model.pool)
    chunks = model.chunks()
    return Diagnosis(
        pool=model.pool,
        pool_name=pool.name,
        step=model.step,
        event=None,
        verdict=Verdict.UNKNOWN,
        label="",
        requested=requested,
        rounded=recorded.rounded or settings.rounded(requested),
        free_bytes=table.free_bytes,
        largest_free_chunk=table.largest_free_chunk,
        free_chunks=table.chunks_free,
        bytes_in_use=table.bytes_in_use,
        chunks_in_use=table.chunks_in_use,
        pool_bytes=table.pool_bytes,
        bytes_limit=_diagnosed_pool_limit(pool.limit, settings, recorded),
        wasted=_wasted_bytes_in_use(model, recorded),
        largest_waste=int(np.where(chunks["in_use"], chunks["size"] - chunks["requested"], 0).max(initial=0)),
        regions=_region_totals(model, chunks),
        runs=(),
        hole=_largest_hole(model, chunks),
        recorded=recorded,
        settings=settings,
        is_state_only=holds_only_states(origin.details),
        gaps=_diagnosed_gaps(origin, pool.name),
        unknown=frozenset(
            name for name, value in facts_of(origin.details, model.pool).items() if value is None
        ),
    )


def diagnosed_verdict(found: Diagnosis) -> Verdict:
    """The verdict of a diagnosis: why the request failed, or whether it would fit."""
    is_question, rounded = found.event is None, found.rounded
    if found.bytes_limit is not None and rounded > found.bytes_limit:
        return Verdict.ABOVE_LIMIT
    has_chunks = found.knows("largest_free_chunk")
    if has_chunks and not found.exceeds_limit and found.largest_usable >= rounded:
        return Verdict.NO_FAILURE if is_question else Verdict.UNKNOWN
    if found.knows("pool_bytes") and _may_diagnosed_pool_grow(found):
        return Verdict.NO_FAILURE if is_question else Verdict.REFUSED
    is_open = found.room is None and found.deciding_limit is not None
    if has_chunks and is_question and (is_open or found.may_unmap):
        return Verdict.UNKNOWN
    if found.exceeds_limit or (found.knows("free_bytes") and found.free_bytes < rounded):
        return Verdict.CAPACITY
    return _scattered_memory_verdict(found) if has_chunks else Verdict.UNKNOWN


def _may_diagnosed_pool_grow(found: Diagnosis) -> bool:
    """Whether the limit leaves the diagnosed pool room; for a question, after what is given back first."""
    if found.room is None or found.room_after_release is None:
        return False
    if found.event is not None:
        return found.room >= found.rounded
    return found.room_after_release >= found.growth


def _scattered_memory_verdict(found: Diagnosis) -> Verdict:
    """Why enough free memory does not hold the request: regions that are too small, or chunks in use between it."""
    regions = found.regions
    together = regions.free_bytes + (found.spare or 0) >= found.rounded
    return Verdict.REGIONS if regions.largest < found.rounded or together else Verdict.FRAGMENTATION


def _diagnosed_gaps(origin: Origin, name: str) -> tuple[str, ...]:
    """What a diagnosis misses of a heap, as the file's own reasons say."""
    if origin.status in {Status.COMPLETE, Status.RECORDING}:
        return ()
    start = f"{name}: "
    return tuple(reason.removeprefix(start) for reason in origin.reasons if reason.startswith(start))


def _diagnosed_pool_limit(limit: int | None, settings: HeapSettings, recorded: RecordedFailure) -> int | None:
    """The limit of the diagnosed pool. PyTorch has none unless a part of the device was set."""
    total = recorded.device_total
    if settings.family is Family.TORCH and limit is not None and total is not None and limit >= total:
        return None
    return limit


def _wasted_bytes_in_use(model: Model, recorded: RecordedFailure) -> int | None:
    """For a diagnosis, bytes of chunks in use that were not requested, from the best source that knows them."""
    in_use = model.table.bytes_in_use
    if recorded.in_use_requested is not None:
        return max(0, in_use - recorded.in_use_requested)
    details, of_step = model.trace.origin.details, model.table.requested_bytes_in_use
    own: Mapping[str, Any] = facts_of(details, model.pool)
    stated = own.get("requested_bytes_in_use", of_step)
    if stated is None:
        return None
    # Where there is a history, the fact is of its last event.
    return max(0, int(in_use - (stated if holds_only_states(details) else of_step)))


def _region_totals(model: Model, chunks: NDArray[np.void]) -> RegionTotals:
    """The totals of the regions at the model's step, for a diagnosis."""
    regions = model.regions()
    free = chunks[~chunks["in_use"]]
    # A wholly free region is one free chunk, or several that wait to merge.
    sums = np.zeros(len(regions), np.uint64)
    np.add.at(sums, np.searchsorted(regions["address"], free["address"], "right") - 1, free["size"])
    whole = regions[sums == regions["size"]]
    return RegionTotals(
        count=len(regions),
        largest=int(regions["size"].max(initial=0)),
        wholly_free=tuple(zip(whole["address"].tolist(), whole["size"].tolist(), strict=True)),
    )


def _largest_hole(model: Model, chunks: NDArray[np.void]) -> LargestHole:
    """The largest free chunk at the model's step and its neighbours, for a diagnosis."""
    if model.table.chunks_free == 0:
        return LargestHole()
    at = int(np.argmax(np.where(chunks["in_use"], 0, chunks["size"])))
    hole = chunks[at]
    before, after = (
        chunks[i] if 0 <= i < len(chunks) and chunks[i]["region"] == hole["region"] else None
        for i in (at - 1, at + 1)
    )
    return LargestHole(hole, before, after)
