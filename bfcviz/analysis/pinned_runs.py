"""Runs of neighbouring chunks that would hold a request, and the chunks in use that pin each."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.short_names import cut
from bfcviz.events.event_source import BLOCK
from bfcviz.events.label_table import NO_LABEL
from bfcviz.events.origin import holds_only_states, unknown_of_chunks
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace, event_times
from bfcviz.model.lifetimes import born_of
from bfcviz.model.model import Model
from bfcviz.stack_frames import place_in_code
from bfcviz.units import counted, duration, format_bytes

# ------------------------------------------------------------------------------
# Runs: neighbouring chunks of one region that would hold a request once the chunks in use among them are freed.
#
# ::
#
#     region    [ free 4 | a 1 | free 3 | b 9 | free 6 ]       a request of 8
#     runs       \_______________/                             frees 1: the best
#                         \______________________/            frees 9
#
# A run is best where it has the fewest bytes in use. For each last chunk the shortest window that is long enough has
# the fewest of them, so a search in prefix sums finds all candidates: O(n log n), without a Python loop over chunks.


_PINS_SHOWN: Final = 8  # of a run in a report


@dataclass(frozen=True)
class Run:
    """A run: neighbouring chunks of one region that would hold a request, with the free chunks on both sides.

    Attributes:
        first, stop: the half-open range of its chunks, as indices of the chunks by address.
        region: slot of its region.
        address, size: its start address; bytes of the free chunk that it becomes.
        bytes_in_use: bytes to free.
        chunks_in_use: number of chunks to free.
        pins: its chunks in use, at most `MOST_PINS`, by address; () before they are looked up.
    """

    first: int
    stop: int
    region: int
    address: int
    size: int
    bytes_in_use: int
    chunks_in_use: int
    pins: "tuple[Pin, ...]" = ()

    def lines(self, number: int) -> list[str]:
        """Place `number` of a report on runs: where it is, and the largest chunks that pin it."""
        where = f"{self.address:#x}, region {self.region}"
        if not self.pins:
            return [
                f"Place {number}: {format_bytes(self.size)} at {where}: free chunks that have not merged."
            ]
        pinned = f"{format_bytes(self.bytes_in_use)} in {counted(self.chunks_in_use, 'chunk')}"
        shown = largest_first(self.pins)[:_PINS_SHOWN]
        left = self.chunks_in_use - len(shown)
        return [
            f"Place {number}: {format_bytes(self.size)} at {where}, pinned by {pinned}",
            *(f"  {pin.line}" for pin in shown),
            *([f"  and {left:,} smaller ones"] if left else []),
        ]


def best_runs(chunks: NDArray[np.void], wanted: int, most: int) -> list[Run]:
    """The runs of at least `wanted` bytes with the fewest bytes in use, at most `most`; they do not overlap.

    Of equal ones the run with fewer chunks in use comes first, then the lower address.

    Args:
        chunks: every chunk by ascending address, of CHUNK; they tile every region.
        wanted: bytes, at least 1.
        most: how many runs.
    """
    if not len(chunks) or most <= 0:
        return []
    in_use, regions = (np.ascontiguousarray(chunks[name]) for name in ("in_use", "region"))
    sizes = chunks["size"].astype(np.int64)
    # Prefix sums of `size`, `bytes_in_use` and `chunks_in_use` of a run; each one longer than the chunks.
    numbers = sizes, np.where(in_use, sizes, 0), in_use.astype(np.int64)
    sums = [np.concatenate([np.zeros(1, np.int64), np.cumsum(each)]) for each in numbers]
    ends = sums[0]
    if wanted > ends[-1]:  # it may also be too large for the columns
        return []
    begins = _run_region_begins(regions)
    starts = np.searchsorted(ends, ends[1:] - wanted, "right") - 1
    stops = np.flatnonzero(starts >= begins[:-1]) + 1
    starts = starts[stops - 1]
    used, count = (each[stops] - each[starts] for each in sums[1:])
    found: list[Run] = []
    while len(stops):
        equal = np.flatnonzero(used == used.min())
        best = equal[int(np.argmin(count[equal]))]
        first, stop = _with_free_sides(in_use, begins, int(starts[best]), int(stops[best]))
        region, address = (int(chunks[name][first]) for name in ("region", "address"))
        size, to_free, chunks_to_free = (int(each[stop] - each[first]) for each in sums)
        found.append(Run(first, stop, region, address, size, to_free, chunks_to_free))
        if len(found) == most:
            break
        left = (stops <= first) | (starts >= stop)
        starts, stops, used, count = starts[left], stops[left], used[left], count[left]
    return found


def _run_region_begins(regions: NDArray[np.uint16]) -> NDArray[np.intp]:
    """For each chunk the index of the first chunk of its region; one more entry: the number of chunks."""
    places = np.arange(len(regions))
    is_first = np.concatenate([[True], regions[1:] != regions[:-1]])
    return np.append(np.maximum.accumulate(np.where(is_first, places, 0)), len(regions))


def _with_free_sides(
    in_use: NDArray[np.bool_], begins: NDArray[np.intp], first: int, stop: int
) -> tuple[int, int]:
    """The run [first, stop) of one region, and the free chunks of the region on both sides of it."""
    begin = int(begins[first])
    end = int(np.searchsorted(begins, begin, "right"))
    before, after = np.flatnonzero(in_use[begin:first]), in_use[stop:end]
    low = begin + int(before[-1]) + 1 if len(before) else begin
    return low, stop + int(np.argmax(after)) if after.any() else end


# ------------------------------------------------------------------------------
# Pins: the chunks in use of a run, with who holds them, since when, and until when.

MOST_PINS: Final = 1000
"""Chunks in use of one run that are named; all of them are counted."""


_LOOK: Final = 8 * BLOCK  # later events that are searched for their FREEs


@dataclass(frozen=True)
class Pin:
    """A pin: a chunk in use between free chunks of a run.

    Attributes:
        address, size: its start address and its bytes.
        requested: bytes that its owner asked for; None where the trace does not have it.
        label: the name of its allocation, "" for none.
        details: what else the label says, such as `stack` and `shape`.
        stream: number of its stream, 0 for none; None where the trace does not have it.
        age: events since it was allocated; None where the trace has no history.
        age_s: the same in seconds; None also where the trace has no times.
        freed: index of the event that frees it later; None where none is known.
    """

    address: int
    size: int
    requested: int | None
    label: str
    details: dict[str, str]
    stream: int | None
    age: int | None
    age_s: float | None
    freed: int | None

    @property
    def name(self) -> str:
        """The name of a pin: its label, else the place in the code that allocated it; "" where neither is known."""
        return self.label or place_in_code(self.details.get("stack", ""))

    @property
    def notes(self) -> list[str]:
        """When a pin was allocated and freed, and the first line of its stack, as far as they are known."""
        found = []
        if self.age is not None:
            seconds = "" if self.age_s is None else f" ({duration(round(self.age_s * 1e9))})"
            found.append(f"allocated {self.age:,} events before{seconds}")
        if self.freed is not None:
            found.append(f"freed at event {self.freed:,}")
        return found + self.details.get("stack", "").strip().splitlines()[:1]

    @property
    def line(self) -> str:
        """Address, size, name and notes of a pin, for a report."""
        name = cut(self.label) if self.label else NO_LABEL
        return ", ".join([f"{self.address:#x}  {format_bytes(self.size):>10}  {name}", *self.notes])


def largest_first(pins: Iterable[Pin]) -> list[Pin]:
    """The pins by size, the largest first; of equal ones the lower address first."""
    return sorted(pins, key=lambda pin: (-pin.size, pin.address))


def pins_of(model: Model, chunks: NDArray[np.void]) -> tuple[Pin, ...]:
    """The pins for some chunks of the model's step; those in use, at most `MOST_PINS`, by address.

    Args:
        model: stands at the step.
        chunks: of CHUNK, by ascending address.
    """
    trace, step = model.trace, model.step
    unknown = unknown_of_chunks(trace.origin.details, model.pool)
    rows = chunks[chunks["in_use"]][:MOST_PINS]
    born = rows["born"]
    ages: list[int | None] = [None] * len(rows)
    seconds: list[float | None] = [None] * len(rows)
    freed: list[int | None] = [None] * len(rows)
    if len(rows) and not holds_only_states(trace.origin.details):
        ages = [step - 1 - seq if seq >= trace.first else None for seq in born.tolist()]
        seconds = _pin_age_seconds(trace, step, born)
        freed = _frees_of_pins(trace, model.pool, step, born)
    return tuple(
        Pin(
            address=int(row["address"]),
            size=int(row["size"]),
            requested=None if "requested" in unknown else int(row["requested"]),
            label=trace.labels[int(row["label"])].name,
            details=dict(trace.labels[int(row["label"])].details),
            stream=None if "stream" in unknown else int(row["stream"]),
            age=age,
            age_s=age_s,
            freed=free,
        )
        for row, age, age_s, free in zip(rows, ages, seconds, freed, strict=True)
    )


def _pin_age_seconds(trace: Trace, step: int, born: NDArray[np.uint64]) -> list[float | None]:
    """Seconds from the ALLOCATE of each pin to the step."""
    now = int(trace.read(step - 1, step)["time"][0])
    times = event_times(trace, born)
    if now == 0 and not times.any():  # the file has no times
        return [None] * len(born)
    known = (born >= trace.first) & (times <= now)
    return [
        (now - time) / 1e9 if is_known else None for time, is_known in zip(times.tolist(), known, strict=True)
    ]


def _frees_of_pins(trace: Trace, pool: int, step: int, born: NDArray[np.uint64]) -> list[int | None]:
    """The FREE of each pin, among the next events."""
    found: dict[int, int] = {}
    wanted = set(born.tolist())
    for block in trace.blocks(step, min(len(trace), step + _LOOK)):
        at = np.flatnonzero((block["kind"] == Kind.FREE) & (block["pool"] == pool))
        begun = born_of(block, at)
        mine = np.isin(begun, born)
        found |= dict(zip(begun[mine].tolist(), block["seq"][at[mine]].tolist(), strict=True))
        if len(found) == len(wanted):
            break
    return [found.get(seq) for seq in born.tolist()]


def runs_with_pins(model: Model, wanted: int, most: int) -> tuple[Run, ...]:
    """The runs of chunks that would make room for the request, with the chunks in use that pin them."""
    chunks = model.chunks()
    return tuple(
        replace(run, pins=pins_of(model, chunks[run.first : run.stop]))
        for run in best_runs(chunks, wanted, most)
    )
