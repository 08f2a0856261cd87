"""Diagnosis: the verdict on one request, with the numbers that it follows from. Sizes are bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from textwrap import wrap
from typing import Final

import numpy as np

from bfcviz.events.origin_details import RecordedFailure
from bfcviz.model.explain.failure.pins import Pin
from bfcviz.model.explain.failure.runs import Run
from bfcviz.model.explain.failure.settings import HeapSettings

_WIDTH: Final = 110  # characters of a line in a notebook


class Verdict(StrEnum):
    """Why a request failed: the first of these that holds."""

    ABOVE_LIMIT = "above_limit"  # larger than the limit itself: it can never fit
    UNKNOWN = (
        "unknown"  # the heap of that moment is not in the file, or it had a free chunk that is large enough
    )
    REFUSED = (
        "refused"  # the limit leaves room for a region that would hold it, but the sub-allocator granted none
    )
    CAPACITY = "capacity"  # less is free than requested, and the limit leaves no room for a region that would hold it
    REGIONS = "regions"  # enough is free, but in regions that are too small; in one region it could fit
    FRAGMENTATION = "fragmentation"  # enough is free, but no chunk is large enough: chunks in use lie between
    NO_FAILURE = "no_failure"  # it would fit


class AdviceKind(StrEnum):
    """What an advice is about."""

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
    BATCH_SIZE = "batch_size"
    RERUN = "rerun"


@dataclass(frozen=True)
class Advice:
    """What would have helped, or what to record next time.

    Attributes:
        kind: what it is about.
        text: the advice as sentences.
        numbers: the numbers in the text, by name.
    """

    kind: AdviceKind
    text: str
    numbers: Mapping[str, float]


@dataclass(frozen=True)
class RunWithPins(Run):
    """A run, and its chunks in use.

    Attributes:
        pins: at most `pins.MOST`, by address.
    """

    pins: tuple[Pin, ...] = ()


@dataclass(frozen=True)
class RegionTotals:
    """The regions of the pool.

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
        """Bytes of all wholly free regions."""
        return sum(size for _, size in self.wholly_free)


@dataclass(frozen=True)
class LargestHole:
    """The largest free chunk, and the chunks beside it, of CHUNK.

    Attributes:
        chunk: of equal ones the lowest; None where nothing is free.
        before, after: its neighbours in its region; None at the region's ends.
    """

    chunk: np.void | None = None
    before: np.void | None = None
    after: np.void | None = None


@dataclass(frozen=True)
class Diagnosis:
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
        unknown: names of numbers, as in `bfcviz info --json`, that the file cannot give: their values mean nothing.
        advice: what would have helped.
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
    runs: tuple[RunWithPins, ...]
    hole: LargestHole
    recorded: RecordedFailure
    settings: HeapSettings
    is_state_only: bool
    unknown: frozenset[str] = frozenset()
    advice: tuple[Advice, ...] = ()

    def knows(self, *names: str) -> bool:
        """Whether the file gives all these numbers, named as in `bfcviz info --json`."""
        return self.recorded.has_heap and self.unknown.isdisjoint(names)

    @property
    def useful_runs(self) -> tuple[RunWithPins, ...]:
        """The runs that need fewer bytes freed than the request has; elsewhere freeing as much anywhere would do."""
        return tuple(run for run in self.runs if run.bytes_in_use < self.rounded)

    @property
    def room(self) -> int | None:
        """Bytes by which the limit allows the pool to grow; None where no limit or no pool is known."""
        if self.bytes_limit is None or "pool_bytes" in self.unknown:
            return None
        return max(0, self.bytes_limit - self.pool_bytes)

    @property
    def external_fragmentation(self) -> float:
        """1 - largest_free_chunk / free_bytes; 0 where nothing is free."""
        missing = self.free_bytes - self.largest_free_chunk
        return missing / self.free_bytes if self.free_bytes else 0.0

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

    def __str__(self) -> str:
        from bfcviz.model.explain.text.failure import failure_lines  # noqa: PLC0415  it imports this module

        return "\n".join(part for line in failure_lines(self) for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    """A line of a report as lines that a notebook shows without breaking words."""
    start = len(line) - len(line.lstrip(" -"))
    indent = " " * (start if "- " in line[:start] else start + 2)
    return wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
