"""DeviceHistory: PyTorch's memory history of one device, transferred into an ObservedHeap.

::

    history, a ring    [ ... old | read before | new ..... S . later ]      of this reading
    segments                                               ^ the whole state, asked for just before

The state leaves a `snapshot` entry S in the history, which is read next. New entries are carried out one by one. At S
the state shows whether entries were missed, and differences are corrected: the heap is what PyTorch says.

If entries were overwritten unread, the heap is set to the state before the oldest entry, which follows from the state
at S and the entries up to it; then all entries are carried out. Only what was overwritten is missing.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from bfcviz.code_places import CodePlace
from bfcviz.errors import OutOfMemory, PoolTotals
from bfcviz.formats.torch import Rules, line_number
from bfcviz.live.common.observed_heap import ObservedHeap
from bfcviz.live.torch.segments_and_blocks import Segments, bytes_in_use, rewound
from bfcviz.live.torch.stack_names import StreamNumbers, stack_words

Entry = Mapping[str, Any]

_TAIL: Final = 8
"""Entries to compare, to find where the last reading ended."""

_CLOCKS_US: Final = 5000
"""Difference between the clocks of PyTorch and Python, at most."""


class Asked(NamedTuple):
    """When a state was asked for, and when it was there, by PyTorch's clock in microseconds."""

    begin_us: int
    end_us: int

    def may_be_of(self, entry: Entry) -> bool:
        """Whether an entry was recorded meanwhile, as far as the clocks tell."""
        time = entry.get("time_us")
        return time is None or self.begin_us - _CLOCKS_US <= time <= self.end_us + _CLOCKS_US


class Reading(NamedTuple):
    """What one reading found of a device.

    Attributes:
        trace: the history, the oldest entry first.
        segments: all segments of the device, a little earlier than the end of the trace.
        settings: the allocator's settings.
        asked: when the segments were asked for.
        is_still: nothing was recorded after the segments were told, which therefore are the state at the end.
        is_whole: nothing was overwritten since the history was cleared.
        is_cleared: the history was cleared just after this trace.
    """

    trace: Sequence[Entry]
    segments: Sequence[Entry]
    settings: Mapping[str, Any]
    asked: Asked
    is_still: bool = False
    is_whole: bool = True
    is_cleared: bool = False


class DeviceHistory:
    """The history of one device.

    Args:
        heap: receives the events.
        number: number of the device.
        offset_ns: PyTorch's clock plus this is the heap's clock.
        named: whether allocations get labels.
        limit: the bytes that PyTorch may take of the device now; None: unknown.

    Attributes:
        lost: readings before which entries were overwritten unread, or were passed over.
        mended: blocks in which the state differed from the entries, except at the first reading.
        out_of_memory: the last failure; None: there was none.
    """

    def __init__(
        self,
        heap: ObservedHeap,
        number: int,
        offset_ns: int,
        *,
        named: bool = True,
        limit: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.heap = heap
        self.number = number
        self.lost = 0
        self.mended = 0
        self.out_of_memory: OutOfMemory | None = None
        self._offset_ns = offset_ns
        self._named = named
        self._limit = limit
        self._rules = Rules()
        self._segments = Segments(heap)
        self._is_new = True
        self._tail: list[tuple[Any, ...]] | None = None  # of the last reading; empty: it was cleared
        self._passed: tuple[int, Asked] | None = None  # the state taken instead: bytes in use, and when
        self._seen = 0
        self._latest_us = 0  # of what the heap contains
        self._labels: dict[tuple[Any, ...], int] = {}
        self._by_frames: dict[tuple[Any, ...], int] = {}  # by the identity of frames, within a reading
        self._streams = StreamNumbers()

    @property
    def unmapped(self) -> int:
        """Bytes that PyTorch unmapped in parts of expandable segments; they are still drawn, as free."""
        return self._segments.unmapped

    def read(self, reading: Reading) -> int:
        """Transfer the new entries of a reading; returns how many."""
        trace, segments = reading.trace, reading.segments
        self._rules = Rules.of(reading.settings)
        self._by_frames.clear()
        start = None if self._is_new else self._find_new(reading)
        at = len(trace) if reading.is_still else self._find_state(reading, start or 0)
        if at is None and start is None:
            self.pass_over(segments, reading.asked)
            return 0
        if start is None:
            start = self._begin(segments, trace[:at])
        for entry in trace[start:at]:
            self._carry_out(entry)
        if at is not None:
            self.mended += self._mend(segments, self._when(trace[min(at, len(trace) - 1)]) if trace else None)
            for entry in trace[at:]:
                self._carry_out(entry)
        self._passed = None
        self._tail = [] if reading.is_cleared else [_key(entry) for entry in trace[-_TAIL:]]
        self._seen = len(trace)
        self._latest_us = trace[-1].get("time_us", 0) if trace else self._latest_us
        return len(trace) - start

    def _begin(self, segments: Sequence[Entry], trace: Sequence[Entry]) -> int:
        """Set the heap to the state before some entries that ended in `segments`; returns the first one to carry out.

        The first reading begins with the state itself.
        """
        if self._is_new:
            self._is_new = False
            self._mend(segments, None)
            return len(trace)
        self.lost += 1
        start = self._first_after(trace)
        when = self._when(trace[start]) if start < len(trace) else None
        before = rewound(segments, trace[start:], self._rules)
        self.mended += self._mend(before, when, relabel=True)
        return start

    def pass_over(self, segments: Sequence[Entry], asked: Asked) -> None:
        """Set the heap to a state, without the entries before it."""
        self._by_frames.clear()
        differences = self._mend(segments, None, relabel=True)
        self.lost += not self._is_new
        self.mended += 0 if self._is_new else differences
        self._is_new = False
        self._tail = None
        self._passed = bytes_in_use(segments), asked
        self._latest_us = asked.end_us

    def begin_anew(self, *, is_complete: bool) -> None:
        """The history was cleared; `is_complete`: nothing is missing before its next entry."""
        self._tail = [] if is_complete and self._tail is not None else None
        self._passed = None

    def _mend(self, segments: Sequence[Entry], when: int | None, *, relabel: bool = False) -> int:
        return self._segments.mend(segments, self._label_of, self._streams.of, time=when, relabel=relabel)

    def _find_state(self, reading: Reading, start: int) -> int | None:
        """The index of the `snapshot` entry of the state, not before `start`; None: it was overwritten.

        There may be those of other code, too: they mostly tell other bytes in use, or another time.
        """
        return _state_in(reading.trace, start, bytes_in_use(reading.segments), reading.asked)

    def _first_after(self, trace: Sequence[Entry]) -> int:
        """The index of the first entry that the heap does not contain, where others may be missing before it."""
        return next(
            (at for at, entry in enumerate(trace) if entry.get("time_us", 0) > self._latest_us), len(trace)
        )

    def _find_new(self, reading: Reading) -> int | None:
        """The index of the first unread entry; None: some were overwritten."""
        trace, tail = reading.trace, self._tail
        if tail is None:
            passed = None if self._passed is None else _state_in(trace, 0, *self._passed)
            return None if passed is None else passed + 1
        if not tail:
            return 0 if reading.is_whole else None
        # In a ring that is not full yet, it is at the same place.
        for at in chain((self._seen,), range(len(trace), 0, -1)):
            if 0 < at <= len(trace) and _key(trace[at - 1]) == tail[-1]:
                begin = max(at - len(tail), 0)
                if [_key(entry) for entry in trace[begin:at]] == tail[len(tail) - (at - begin) :]:
                    return at
        return None

    # -- one entry at a time ------------------------------------------------------------------------------------

    def _carry_out(self, entry: Entry) -> None:
        action, address, size = entry["action"], entry.get("addr", 0), entry["size"]
        when = self._when(entry)
        if action == "alloc":
            block = self._rules.block(size, self.heap.free_at(address))
            label, stream = self._label_of(entry), self._streams.of(entry["stream"])
            self._segments.allocate(address, block, size, label, stream, when)
        elif action == "free_completed":
            self._segments.free(address, when)
        elif action in ("segment_alloc", "segment_map"):
            self._segments.grant(address, size, grows=action == "segment_map", time=when)
        elif action in ("segment_free", "segment_unmap"):
            self._segments.release(address, size, when)
        elif action == "oom":
            self._fail(entry, when)

    def _when(self, entry: Entry) -> int | None:
        """The time of an entry by the heap's clock, in nanoseconds; None: it has none."""
        return max(entry["time_us"] * 1000 + self._offset_ns, 0) if "time_us" in entry else None

    def _fail(self, entry: Entry, when: int | None) -> None:
        requested = entry["size"]
        device_free = entry.get("device_free", entry.get("addr", 0))  # its name until 2.0
        label, stream = self._label_of(entry), self._streams.of(entry["stream"])
        self.heap.oom(requested, label, stream, when, device_free)
        totals = self.heap.stats()
        free, pool = max(totals.free_bytes - self.unmapped, 0), totals.pool_bytes - self.unmapped
        limits = (pool + device_free, self._limit())
        limit = min(limit for limit in limits if limit is not None)
        mapped = PoolTotals(pool, pool - free, min(totals.largest_free_chunk, free), limit)
        self.out_of_memory = OutOfMemory.of(requested, mapped, rounded=self._rules.round_up(requested))

    def _label_of(self, entry: Entry) -> int:
        """The label of an allocation: its metadata, or the innermost frame outside of libraries."""
        frames = entry.get("frames") or []
        metadata = entry.get("user_metadata") or ""
        same = (metadata, *map(id, frames))  # a reading has one object for each frame
        label = self._by_frames.get(same)
        if label is None:
            key = (metadata, *((frame["filename"], frame["line"], frame["name"]) for frame in frames))
            label = self._labels.get(key)
            if label is None:
                label = self._labels[key] = self._intern(metadata, frames)
            self._by_frames[same] = label
        return label

    def _intern(self, metadata: str, frames: Sequence[Entry]) -> int:
        if not self._named or not (frames or metadata):
            return 0
        lines = [CodePlace(frame["name"], frame["filename"], line_number(frame["line"])) for frame in frames]
        name, stack = stack_words(metadata, lines)
        return self.heap.labels.intern(name, stack=stack) if stack else self.heap.labels.intern(name)


def _state_in(trace: Sequence[Entry], start: int, in_use: int, asked: Asked) -> int | None:
    """The index of the last entry of a state with so many bytes in use, which was asked for then; None: no such one."""
    found = (
        at
        for at in range(len(trace) - 1, start - 1, -1)
        if trace[at]["action"] == "snapshot" and trace[at]["size"] == in_use and asked.may_be_of(trace[at])
    )
    return next(found, None)


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry.get(field) for field in ("action", "addr", "size", "stream", "time_us"))
