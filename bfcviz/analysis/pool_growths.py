"""Growths: each time a pool grew while enough was free, with what was in the way, as data, as text and as JSON.

::

    segment 1   [ free 6 | a 2 | free 6 | b 6 ]
    segment 2   [ free 8 | c 12 ]                    a request of 10: 20 are free, none of them holds it
    segment 3   [ request 10 | free 10 ]             so the pool grows; a, b and c are in the way

Only free memory that the allocator could have used for the request counts. PyTorch and CuPy keep free memory per
stream, PyTorch also per private pool and apart for small requests. The free bytes are counted in one pass over the
events; the chunks in the way are looked up for the growths with the most free bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.heap_settings import Family, heap_settings_of
from bfcviz.analysis.would_fit import blocker_name
from bfcviz.answers import Answer
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Status, facts_of, holds_only_states, regions_known
from bfcviz.events.schema import EVENT, Events, Flag, Kind
from bfcviz.events.trace import Trace, event_times
from bfcviz.formats.torch import SMALL
from bfcviz.model.find_steps import end_of_state, events_of, history_begins, peak
from bfcviz.model.model import Model
from bfcviz.units import counted, format_bytes

# ------------------------------------------------------------------------------
# Growths: what is found of one pool.

SMALL_REQUESTS: Final = "small"
LARGE_REQUESTS: Final = "large"
ALL_REQUESTS: Final = "all"
"""The size class of a heap that keeps requests of all sizes together."""


class GrowthPart(NamedTuple):
    """The part of a pool whose free memory a request could use when the pool grew.

    Attributes:
        stream: number of the stream; 0: the default stream, or a heap that does not keep streams apart.
        size_class: `small`, `large`, or `all`.
        private_pool: id of a private pool, "" for none.
    """

    stream: int
    size_class: str
    private_pool: str

    @property
    def words(self) -> str:
        """What of the pool could serve a request when it grew: `the part of the pool for requests of stream 0`."""
        pool = f"private pool {self.private_pool}" if self.private_pool else "the pool"
        if self.size_class == ALL_REQUESTS:
            return pool if not self.stream else f"the part of {pool} for stream {self.stream}"
        return f"the part of {pool} for {self.size_class} requests of stream {self.stream}"


WHOLE: Final = GrowthPart(0, ALL_REQUESTS, "")


@dataclass(frozen=True)
class GrowthPin:
    """A line of code in the way when a pool grew: its chunks lie in regions with free memory.

    Attributes:
        line: its name: `model.py:12 forward`, or that of an operation.
        bytes, chunks: its chunks in these regions.
        stranded: free bytes of these regions that it holds: those of a region are divided evenly by its chunks in use.
        byte_time: `stranded` times the time until the next growth of the same share; the unit is that of `Growths`.
    """

    line: str
    bytes: int
    chunks: int
    stranded: int
    byte_time: int = 0


@dataclass(frozen=True)
class PoolGrowth:
    """One growth of a pool while enough was free; sizes in bytes.

    Attributes:
        step: the step before it: the heap in which the request found no place.
        share: whose free memory the request could use.
        label: name or line of the request.
        requested, rounded: the request; as the allocator rounds it.
        granted: bytes by which the pool grew.
        pool_bytes: of the pool, after it.
        free: free bytes of the share.
        free_elsewhere: further free bytes of the pool: the allocator's rules exclude them.
        largest: the largest free chunk of the share; None: not looked up.
        chunks: free chunks of the share; None: not looked up.
        empty: of `free`, bytes in regions without a chunk in use: each of these is too small.
        pins: the lines of code in the way, those that strand most first; empty also where not looked up.
        lasts: time until the next growth of the same share, or the end.
    """

    step: int
    share: GrowthPart
    label: str
    requested: int
    rounded: int
    granted: int
    pool_bytes: int
    free: int
    free_elsewhere: int
    largest: int | None = None
    chunks: int | None = None
    empty: int | None = None
    pins: tuple[GrowthPin, ...] = ()
    lasts: int = 0


@dataclass(frozen=True, repr=False)
class Growths(Answer):
    """The growths of one pool.

    Attributes:
        pool, pool_name: the heap.
        found: the growths while enough was free, by step.
        times: how often it grew at all after its history begins.
        granted: bytes that it grew by, in all.
        peak_step: the first step at which the pool had the most bytes, with the request served; without growths in
            `found`, the first step with the most bytes in use.
        peak_pool, free_at_peak: bytes of the pool then, and free bytes of it.
        empty_at_peak: of these, bytes in regions without a chunk in use; None: not counted.
        lines: the lines of code by `byte_time`, over all growths that were looked up.
        unit: of `lasts` and `byte_time`: `ns`, or `steps` where the trace has no times.
        unseen: growths whose pins were not looked up, because others have more free bytes.
        has_history: whether the trace tells how the pool grew.
        knows_free: whether it tells what is free.
        is_whole: whether the history begins with an empty pool.
        cut: what the file lacks, as its reasons say; empty where it is complete.
    """

    pool: int
    pool_name: str
    found: tuple[PoolGrowth, ...] = ()
    times: int = 0
    granted: int = 0
    peak_step: int = 0
    peak_pool: int = 0
    free_at_peak: int = 0
    empty_at_peak: int | None = None
    lines: tuple[GrowthPin, ...] = ()
    unit: str = "steps"
    unseen: int = 0
    has_history: bool = True
    knows_free: bool = True
    is_whole: bool = True
    cut: tuple[str, ...] = ()

    @property
    def worst(self) -> PoolGrowth | None:
        """The growth of a pool that cost most: with the most free bytes; then the largest, then the first."""
        return max(self.found, key=lambda each: (each.free, each.granted, -each.step), default=None)

    def __str__(self) -> str:
        return "\n".join(growths_report(self))


# ------------------------------------------------------------------------------
# Find them. A region is one instance from its EXTEND to its RELEASE: slots are used again.

_SLOT: Final = 48  # bits of a `seq`
_AHEAD: Final = 64  # events after an EXTEND among which its ALLOCATE is
_MOST_LOOKED_UP: Final = 1000
_MOST_CHUNKS: Final = 20_000_000
"""Chunks that are looked at for pins, in all: some seconds."""
_PINS: Final = 10
"""Lines of a growth."""
_UNKNOWN_SHARE: Final = -1
_SIGNS: Final = {Kind.EXTEND: 1, Kind.ALLOCATE: -1, Kind.FREE: 1, Kind.RELEASE: -1}


def growths(trace: Trace, pool: int = 0) -> Growths:
    """The growths of one pool while enough was free; reads all events twice at most.

    Raises:
        TraceError: the trace has no such pool, or its events contradict each other.
    """
    name = Model(trace, pool).trace.origin.pools[pool].name
    details = trace.origin.details
    if holds_only_states(details) or not regions_known(details, pool):
        return _growths_of_state(trace, pool, name)
    search = _GrowthSearch(trace, pool)
    found = search.all()
    origin = trace.origin
    cut = tuple(origin.reasons) if origin.status in {Status.TRUNCATED, Status.DEGRADED} else ()
    return replace(_with_pins(trace, search, found), pool_name=name, cut=cut)


def _growths_of_state(trace: Trace, pool: int, name: str) -> Growths:
    model = Model(trace, pool)
    model.seek(end_of_state(trace, pool))
    table, chunks = model.table, model.chunks()
    pins = _growth_pins(chunks, trace.labels, {}) if regions_known(trace.origin.details, pool) else []
    stranded = sum(pin.stranded for pin in pins)
    return Growths(
        pool,
        name,
        peak_pool=table.pool_bytes,
        peak_step=model.step,
        free_at_peak=table.free_bytes,
        empty_at_peak=table.free_bytes - stranded,
        lines=tuple(pins),
        has_history=False,
        knows_free=facts_of(trace.origin.details, pool).get("free_bytes", 0) is not None,
    )


class _GrowthSearch:
    """Counts the free bytes of each share of one pool at each growth."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self.trace, self.pool = trace, pool
        self.settings = heap_settings_of(trace.origin, pool)
        self.extends = events_of(trace, [Kind.EXTEND], pool)
        self.shares: list[GrowthPart] = []
        self._share_numbers: dict[GrowthPart, int] = {}
        self._start = Model(trace, pool)
        self._start.seek(trace.first)
        regions = self._start.regions() if trace.first else self._start.regions()[:0]
        fresh = self.extends[(self.extends["flags"] & Flag.GREW) == 0]
        keys = np.concatenate(
            [
                _growth_birth_keys(regions["slot"], np.zeros(len(regions))),
                _growth_birth_keys(fresh["region"], fresh["seq"]),
            ]
        )
        order = np.argsort(keys)
        self._keys = keys[order]
        sizes = np.concatenate([regions["size"], fresh["size"]]).astype(np.int64)
        self._sizes = sizes[order]
        self.share_of = np.full(len(keys), _UNKNOWN_SHARE, np.intp)

    def instance(self, slots: NDArray[Any], seqs: NDArray[Any]) -> NDArray[np.intp]:
        """The region instance of each event in the search for growths, an index of `share_of`."""
        found = np.searchsorted(self._keys, _growth_birth_keys(slots, seqs), side="right") - 1
        return np.clip(found, 0, max(len(self._keys) - 1, 0))

    def number(self, share: GrowthPart) -> int:
        """The number of a share of the pool in the search for growths."""
        known = self._share_numbers.get(share)
        if known is None:
            known = self._share_numbers[share] = len(self.shares)
            self.shares.append(share)
        return known

    def share(self, row: np.void) -> GrowthPart:
        """The share of a pool that a request belongs to, from its ALLOCATE or its chunk."""
        family = self.settings.family
        if family is Family.CUPY:
            return GrowthPart(int(row["stream"]), ALL_REQUESTS, "")
        if family is not Family.TORCH:
            return WHOLE
        is_small = self.settings.rounded(int(row["requested"])) <= SMALL
        private = self.trace.labels[int(row["label"])].details.get("private_pool", "")
        return GrowthPart(int(row["stream"]), SMALL_REQUESTS if is_small else LARGE_REQUESTS, private)

    def all(self) -> Growths:
        """The growths of the pool, without their pins."""
        self._find_shares()
        begins = history_begins(self.trace, self.pool)
        later = self.extends[self.extends["seq"] >= begins]
        served = _allocation_of_each_growth(self.trace, self.pool, later)
        asked = [None if row is None else self.number(self.share(row)) for row in served]
        free, total, pool_bytes = self._free_at(later, asked)
        found: list[tuple[PoolGrowth, int]] = []
        times, last = 0, -1
        for at, extend in enumerate(later):
            row = served[at]
            if row is not None and int(row["seq"]) == last:  # a further region for the same request
                if found and found[-1][1] == last:
                    growth = found[-1][0]
                    found[-1] = replace(growth, granted=growth.granted + int(extend["size"])), last
                continue
            times += 1
            if row is None:
                continue
            last = int(row["seq"])
            rounded = self._rounded(row, extend)
            if int(free[at]) >= rounded:
                growth = PoolGrowth(
                    step=int(extend["seq"]),
                    share=self.shares[asked[at] or 0],
                    label=blocker_name(row, self.trace.labels),
                    requested=int(row["requested"]),
                    rounded=rounded,
                    granted=int(extend["size"]),
                    pool_bytes=int(pool_bytes[at]) + int(extend["size"]),
                    free=int(free[at]),
                    free_elsewhere=int(total[at] - free[at]),
                )
                found.append((growth, last))
        granted = int(later["size"].astype(np.int64).sum())
        result = Growths(self.pool, "", tuple(each for each, _ in found), times, granted)
        return self._with_peak(_with_times(self.trace, result), pool_bytes, later, served)

    def _rounded(self, row: np.void, extend: np.void) -> int:
        rounded = self.settings.rounded(int(row["requested"]))
        if self.settings.family is Family.TORCH or extend["requested"] >= extend["size"]:
            return rounded
        return max(int(extend["requested"]), rounded)

    def _find_shares(self) -> None:
        """The share of each region in the search for growths: that of the first request in it."""
        if self.settings.family not in (Family.TORCH, Family.CUPY):
            self.share_of[:] = self.number(WHOLE)
            return
        chunks = self._start.in_use()
        self._learn(chunks, self.instance(chunks["region"], np.zeros(len(chunks))))
        for block in self.trace.blocks():
            made = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == self.pool)
            made &= (block["flags"] & Flag.PIECE) == 0
            at = np.flatnonzero(made)
            self._learn(block[at], self.instance(block["region"][at], block["seq"][at]))

    def _learn(self, rows: NDArray[np.void], instances: NDArray[np.intp]) -> None:
        if not len(rows):
            return
        new = np.flatnonzero(self.share_of[instances] == _UNKNOWN_SHARE)
        which, first = np.unique(instances[new], return_index=True)
        for number, at in zip(which.tolist(), first.tolist(), strict=True):
            self.share_of[number] = self.number(self.share(rows[new[at]]))

    def _free_at(self, extends: Events, asked: Sequence[int | None]) -> tuple[NDArray[np.int64], ...]:
        """At each growth: free bytes of the share, of the pool, and bytes of the pool."""
        free = np.zeros((len(extends), 3), np.int64)
        sums, pool_bytes = self._sums_at_start()
        wanted = np.array([-1 if share is None else share for share in asked], np.intp)
        rows = extends["seq"].astype(np.int64)
        done = 0
        for block in self.trace.blocks():
            at = np.flatnonzero((_sign_of[block["kind"]] != 0) & (block["pool"] == self.pool))
            if not len(at):
                continue
            kinds, seqs = block["kind"][at], block["seq"][at].astype(np.int64)
            change = block["size"][at].astype(np.int64) * _sign_of[kinds]
            shares = self.share_of[self.instance(block["region"][at], seqs)]
            stop = int(np.searchsorted(rows, seqs[-1], side="right"))
            here = np.searchsorted(seqs, rows[done:stop])  # the events of this block that are these growths
            grown = np.cumsum(np.where((kinds == Kind.EXTEND) | (kinds == Kind.RELEASE), change, 0))
            running = np.cumsum(change)
            free[done:stop, 1] = int(sums.sum()) + running[here] - change[here]
            free[done:stop, 2] = pool_bytes + grown[here] - change[here]
            for share in np.unique(wanted[done:stop]).tolist():
                mine = np.flatnonzero(wanted[done:stop] == share)
                own = np.where(shares == share, change, 0)
                free[done + mine, 0] = sums[share] + (np.cumsum(own) - own)[here[mine]]
            np.add.at(sums, shares, change)
            pool_bytes += int(grown[-1])
            done = stop
        free[wanted == _UNKNOWN_SHARE, 0] = 0
        return free[:, 0], free[:, 1], free[:, 2]

    def _sums_at_start(self) -> tuple[NDArray[np.int64], int]:
        """Where the trace begins: free bytes by share, those of no known share last, and bytes of the pool."""
        sums = np.zeros(len(self.shares) + 1, np.int64)
        chunks = self._start.chunks()
        if len(chunks):
            shares = self.share_of[self.instance(chunks["region"], np.zeros(len(chunks)))]
            np.add.at(sums, shares, np.where(chunks["in_use"], 0, chunks["size"].astype(np.int64)))
        return sums, int(self._start.table.pool_bytes)

    def _with_peak(
        self, found: Growths, pool_bytes: NDArray[np.int64], extends: Events, served: Sequence[np.void | None]
    ) -> Growths:
        """The growths with the step at which the pool, or what is in use, is at its largest."""
        model = Model(self.trace, self.pool)
        model.seek(max(history_begins(self.trace, self.pool), self.trace.first))
        is_whole = model.table.pool_bytes == 0
        if not found.found:
            model.seek(peak(self.trace, self.pool))
        else:
            at = int((pool_bytes + extends["size"].astype(np.int64)).argmax())
            row = served[at]
            model.seek(int((extends[at] if row is None else row)["seq"]) + 1)
        table = model.table
        return replace(
            found,
            is_whole=is_whole,
            peak_pool=table.pool_bytes,
            peak_step=model.step,
            free_at_peak=table.free_bytes,
        )


_sign_of: Final = np.zeros(256, np.int64)
_sign_of[list(_SIGNS)] = list(_SIGNS.values())


def _growth_birth_keys(slots: NDArray[Any], seqs: NDArray[Any]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = (slots.astype(np.int64) << _SLOT) | seqs.astype(np.int64)
    return found


def _allocation_of_each_growth(trace: Trace, pool: int, extends: Events) -> list[np.void | None]:
    """The ALLOCATE that each growth was made for, which takes memory of it; None where none follows soon."""
    found: list[np.void | None] = []
    first = stop = 0
    rows = np.zeros(0, EVENT)
    for extend in extends:
        seq = int(extend["seq"])
        if min(seq + _AHEAD, len(trace)) > stop:
            first, stop = seq, min(seq + 64 * _AHEAD, len(trace))
            rows = trace.read(first, stop)
            rows = rows[(rows["pool"] == pool) & (rows["kind"] == Kind.ALLOCATE)]
        low, high = np.searchsorted(rows["seq"], [seq, seq + _AHEAD]).tolist()
        near = rows[low:high]
        start, end = int(extend["address"]), int(extend["address"]) + int(extend["size"])
        takes = np.flatnonzero((near["address"] < end) & (near["address"] + near["size"] > start))
        # A further chunk of an allocation follows its first one.
        found.append(_growth_allocation_with_pieces(rows, low + int(takes[0])) if len(takes) else None)
    return found


def _growth_allocation_with_pieces(rows: NDArray[np.void], at: int) -> np.void:
    """The allocation that a chunk belongs to, with the bytes of all its chunks."""
    is_piece = (rows["flags"] & Flag.PIECE) != 0
    while at > 0 and is_piece[at]:
        at -= 1
    row: np.void = rows[at].copy()
    for piece in range(at + 1, len(rows)):
        if not is_piece[piece]:
            break
        row["requested"] += rows["requested"][piece]
    return row


def _with_times(trace: Trace, found: Growths) -> Growths:
    """The growths with the time from each to the next one of its share."""
    if not found.found:
        return found
    steps = np.array([each.step for each in found.found], np.int64)
    moments, end, unit = steps, len(trace), "steps"
    times = event_times(trace, np.append(steps, len(trace) - 1).astype(np.uint64))
    if times[-1] > times[0]:
        moments, end, unit = times[:-1], int(times[-1]), "ns"
    nexts: dict[GrowthPart, int] = {}
    made = []
    for growth, moment in zip(reversed(found.found), moments[::-1].tolist(), strict=True):
        made.append(replace(growth, lasts=max(0, nexts.get(growth.share, end) - moment)))
        nexts[growth.share] = moment
    return replace(found, found=tuple(reversed(made)), unit=unit)


# ------------------------------------------------------------------------------
# The chunks in the way: those in use in regions that have free memory of the share.


def _with_pins(trace: Trace, search: _GrowthSearch, found: Growths) -> Growths:
    """The growths with pins: those that have the most free bytes."""
    model = Model(trace, found.pool)
    order = sorted(range(len(found.found)), key=lambda at: -found.found[at].free)[:_MOST_LOOKED_UP]
    made = list(found.found)
    lines: dict[str, GrowthPin] = {}
    names: dict[int, str] = {}
    looked_at = seen = 0
    for at in [*order[:1], *sorted(order[1:])]:  # the first one in any case; the others by step: short moves
        if looked_at > _MOST_CHUNKS:
            break
        model.seek(made[at].step)
        chunks = model.chunks()
        looked_at += len(chunks)
        seen += 1
        shares = search.share_of[search.instance(chunks["region"], np.full(len(chunks), model.step))]
        mine = chunks[shares == search.number(made[at].share)]
        every = _growth_pins(mine, trace.labels, names)
        free = mine["size"][~mine["in_use"]]
        held = sum(pin.stranded for pin in every)
        made[at] = replace(
            made[at],
            largest=int(free.max(initial=0)),
            chunks=len(free),
            empty=max(0, int(free.sum()) - held),
            pins=tuple(replace(pin, byte_time=pin.stranded * made[at].lasts) for pin in every[:_PINS]),
        )
        for pin in every:
            known = lines.get(pin.line, GrowthPin(pin.line, 0, 0, 0))
            lines[pin.line] = GrowthPin(
                pin.line,
                max(known.bytes, pin.bytes),
                max(known.chunks, pin.chunks),
                max(known.stranded, pin.stranded),
                known.byte_time + pin.stranded * made[at].lasts,
            )
    ranked = sorted(lines.values(), key=lambda line: (-line.byte_time, -line.stranded, line.line))
    return replace(found, found=tuple(made), lines=tuple(ranked), unseen=len(made) - seen)


def _growth_pins(chunks: NDArray[np.void], labels: Labels, names: dict[int, str]) -> list[GrowthPin]:
    """The lines of code whose chunks lie in regions with free chunks, those that strand most first.

    `chunks` are those of one share; `names` are the lines by label that are known, and gets the others.
    """
    slots, regions = np.unique(chunks["region"], return_inverse=True)
    sizes = chunks["size"].astype(np.int64)
    free = np.zeros(len(slots), np.int64)
    np.add.at(free, regions, np.where(chunks["in_use"], 0, sizes))
    used = np.bincount(regions[chunks["in_use"]], minlength=len(slots))
    pins = np.flatnonzero(chunks["in_use"] & (free[regions] > 0))
    stranded = np.floor_divide(free, np.maximum(used, 1))
    rest = free - stranded * used  # of the first chunk of the region
    held = stranded[regions[pins]]
    _, first = np.unique(regions[pins], return_index=True)
    held[first] += rest[regions[pins[first]]]
    sums: dict[str, list[int]] = {}
    numbers, which = np.unique(chunks["label"][pins], return_inverse=True)
    totals = np.zeros((3, len(numbers)), np.int64)
    for row, values in enumerate((sizes[pins], np.ones(len(pins), np.int64), held)):
        np.add.at(totals[row], which, values)
    for place, number in enumerate(numbers.tolist()):
        name = names.get(number)
        if name is None:
            name = names[number] = blocker_name(chunks[pins[which == place][0]], labels)
        known = sums.setdefault(name, [0, 0, 0])
        for row in range(3):
            known[row] += int(totals[row, place])
    found = [GrowthPin(name, *values) for name, values in sums.items()]
    return sorted(found, key=lambda pin: (-pin.stranded, pin.line))


# ------------------------------------------------------------------------------
# Growths in words: one line, and a report.

_LINES_SHOWN: Final = 5
_REASONS_SHOWN: Final = 2


def growth_line(found: Growths) -> str:
    """The verdict on the growths of a pool in one line."""
    worst = found.worst
    if worst is None:
        return _nothing_wrong_growths(found)
    where = f"at step {worst.step:,}"
    if worst.pool_bytes >= found.peak_pool:
        where = f"at the peak of the pool, {format_bytes(found.peak_pool)}"
    times = f"{len(found.found):,} of {counted(found.times, 'time')}"
    because = _growth_because_clause(worst)
    return (
        f"{format_bytes(worst.free)} stranded {where}: the pool grew {times} while enough was free{because}"
    )


def growth_explanation(found: Growths) -> str:
    """The verdict on the growths of a pool, and the one that cost most, where there is one."""
    worst = found.worst
    more = "" if worst is None else f" At step {worst.step:,}, {growth_sentence(worst)}"
    return f"{growth_line(found)}.{more}"


def _growth_because_clause(growth: PoolGrowth) -> str:
    """What most of the free memory lies beside when a pool grew."""
    if growth.empty is None or not growth.free:
        return ""
    if 2 * growth.empty >= growth.free:
        return f", because {format_bytes(growth.empty)} lie in empty regions that are each too small"
    if not growth.pins:
        return ""
    return f", because chunks in use lie between it: most of it is held by {growth.pins[0].line}"


def growths_report(found: Growths) -> list[str]:
    """The report on the growths of a pool: the verdict, the one that cost most with its cause, and the pins."""
    worst = found.worst
    lines = [f"{found.pool_name}: {growth_line(found)}."]
    lines += [
        f"  The file is incomplete, growths may be missing: {reason}."
        for reason in found.cut[:_REASONS_SHOWN]
    ]
    if worst is None:
        return [*lines, *_state_lines(found)]
    lines.append(f"  The growth that cost most, at step {worst.step:,}: {growth_sentence(worst)}")
    if worst.pins:
        lines.append("  In the way, with the free memory that each line of code strands:")
        lines += [f"    {_growth_pin_text(pin)}" for pin in worst.pins[:_LINES_SHOWN]]
    if worst.empty:
        lines.append(
            f"    {format_bytes(worst.empty):>10}  regions without a chunk in use: each is too small"
        )
    over_time = [line for line in found.lines[:_LINES_SHOWN] if line.byte_time]
    if over_time and len(found.found) > 1:
        lines.append("  Over all these growths, by bytes x time:")
        lines += [
            f"    {_growth_byte_time(line.byte_time, found.unit):>16}  {line.line}" for line in over_time
        ]
    if found.unseen:
        lines.append(f"  Not looked up: what was in the way of {counted(found.unseen, 'further growth')}.")
    return lines


def _state_lines(found: Growths) -> list[str]:
    """The report of a state without history: what lies beside the free memory that a growth would pass over."""
    if found.empty_at_peak is None or not found.free_at_peak:
        return []
    lines = [f"  {format_bytes(found.empty_at_peak)} of it lie in regions without a chunk in use."]
    if found.lines:
        held = format_bytes(found.free_at_peak - found.empty_at_peak)
        lines.append(f"  {held} lie in regions with chunks in use:")
        lines += [f"    {_growth_pin_text(pin)}" for pin in found.lines[:_LINES_SHOWN]]
    return lines


def growth_sentence(growth: PoolGrowth) -> str:
    """One growth of a pool as a sentence: what was requested, what was free, and why that did not help."""
    where = f"{format_bytes(growth.free)} were free in {growth.share.words}"
    if growth.chunks is not None and growth.largest is not None:
        chunks = f", in {counted(growth.chunks, 'chunk')}, the largest {format_bytes(growth.largest)}"
        where += chunks if growth.chunks > 1 else ", in one chunk"
    grew = f"The pool grew by {format_bytes(growth.granted)} to {format_bytes(growth.pool_bytes)}."
    return (
        f"{growth.label} requested {format_bytes(growth.requested)}; {where}. {_growth_reason(growth)}{grew}"
    )


def _growth_reason(growth: PoolGrowth) -> str:
    if growth.largest is None or growth.empty is None:
        return ""
    if growth.largest >= growth.rounded:
        return (
            "A free chunk was large enough: a rule of the allocator excluded it, such as a largest size to split, a "
            "timestamp or an alignment. "
        )
    if growth.empty == growth.free:
        return "All of it lies in empty regions that are too small. "
    return ""


def _nothing_wrong_growths(found: Growths) -> str:
    free = f"{format_bytes(found.free_at_peak)} of {format_bytes(found.peak_pool)}"
    if not found.peak_pool:
        return "the file shows no memory of this pool"
    if not found.has_history:
        known = f"; {free} are free" if found.knows_free else ", nor what is free"
        return f"the file holds one state and no history, so it does not tell how the pool grew{known}"
    grew = "it did not grow"
    if found.times:
        grew = f"it grew {counted(found.times, 'time')}, by {format_bytes(found.granted)}"
    known = "" if found.is_whole else " in the recorded history, which begins later than the pool"
    sure = "as far as the file goes, " if found.cut else ""
    return f"{sure}the pool never grew while enough was free{known}; {grew}; {free} were free at the peak"


def _growth_pin_text(pin: GrowthPin) -> str:
    chunks = f"{counted(pin.chunks, 'chunk')}, {format_bytes(pin.bytes)}"
    return f"{format_bytes(pin.stranded):>10}  {pin.line} ({chunks})"


def _growth_byte_time(amount: int, unit: str) -> str:
    """What a growth of a pool cost, in bytes and time: `3.1 GiB s`, or `12.0 GiB steps`."""
    return f"{format_bytes(amount / 1e9)} s" if unit == "ns" else f"{format_bytes(amount)} steps"


# ------------------------------------------------------------------------------
# Growths as JSON values: sizes in bytes, null for unknown.


def growths_json(every: Sequence[Growths]) -> dict[str, Any]:
    """The growths of all pools as JSON values; `growths`: those of a pool by step."""
    return {
        "growths": [_pool_growth_json(pool, growth) for pool in every for growth in pool.found],
        "growths_by_pool": [_pool_growths_json(pool) for pool in every],
    }


def _pool_growths_json(found: Growths) -> dict[str, Any]:
    worst = found.worst
    return {
        "pool": found.pool,
        "allocator": found.pool_name,
        "verdict": growth_verdict(found),
        "sentence": growth_line(found),
        "has_history": found.has_history,
        "history_is_whole": found.has_history and found.is_whole and not found.cut,
        "times_grown": found.times if found.has_history else None,
        "granted_bytes": found.granted if found.has_history else None,
        "grown_while_enough_was_free": len(found.found) if found.has_history else None,
        "worst_step": None if worst is None else worst.step,
        "peak_step": found.peak_step,
        "peak_pool_bytes": found.peak_pool,
        "free_bytes_at_peak": found.free_at_peak if found.knows_free else None,
        "in_empty_regions_at_peak": found.empty_at_peak if found.knows_free else None,
        "stranded_by": [_growth_pin_json(line, found.unit) for line in found.lines],
        "growths_without_pins": found.unseen,
    }


def growth_verdict(found: Growths) -> str:
    """The verdict on growths of a pool: `growth`, `nothing_wrong` or `unknown`."""
    if found.found:
        return "growth"
    return "nothing_wrong" if found.has_history and found.peak_pool else "unknown"


def _pool_growth_json(pool: Growths, growth: PoolGrowth) -> dict[str, Any]:
    return {
        "step": growth.step,
        "pool": pool.pool,
        "allocator": pool.pool_name,
        "private_pool": growth.share.private_pool or None,
        "stream": growth.share.stream,
        "size_class": growth.share.size_class,
        "label": growth.label,
        "requested": growth.requested,
        "rounded": growth.rounded,
        "granted": growth.granted,
        "pool_bytes": growth.pool_bytes,
        "free": growth.free,
        "free_elsewhere": growth.free_elsewhere,
        "largest_free_chunk": growth.largest,
        "free_chunks": growth.chunks,
        "stranded_bytes": growth.free,
        "in_empty_regions": growth.empty,
        "lasts": growth.lasts,
        "unit": pool.unit,
        "pins": [_growth_pin_json(pin, pool.unit) for pin in growth.pins],
        "sentence": growth_sentence(growth),
    }


def _growth_pin_json(line: GrowthPin, unit: str) -> dict[str, Any]:
    return {
        "line": line.line,
        "bytes": line.bytes,
        "chunks": line.chunks,
        "stranded_bytes": line.stranded,
        "byte_time": line.byte_time,
        "unit": f"byte {unit}",
    }
