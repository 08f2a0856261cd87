"""observe_torch: PyTorch's own caching allocator, observed through the history that it keeps."""

import functools
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from heapq import merge
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple, cast

from bfcviz import _forks, _interrupts
from bfcviz.allocator.bfc_allocator import whole
from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory, OutOfMemoryTotals
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog, number_of_thread
from bfcviz.events.origin import TORCH_OBSERVED
from bfcviz.events.storage.recording import Recording
from bfcviz.formats.torch import UNIT, Rules, TorchStreamNumbers, line_number, metadata_text
from bfcviz.formats.torch_segments import Segments, bytes_in_use, rewound_segments
from bfcviz.live.heap_provider import HeapProvider, log_and_labels, logs_of_heaps
from bfcviz.live.observed_heap import ObservedHeap, Polling, devices_in_order
from bfcviz.live.stack_capture import Chosen
from bfcviz.live.torch import torch_api
from bfcviz.stack_frames import CodePlace, stack_words

Entry = Mapping[str, Any]

_TAIL: Final = 8  # entries to compare, to find where the last reading ended

_CLOCKS_US: Final = 5000  # difference between the clocks of PyTorch and Python, at most


class Asked(NamedTuple):
    """When a state of PyTorch's memory was asked for, and when it was there, by PyTorch's clock in microseconds."""

    begin_us: int
    end_us: int

    def may_be_of(self, entry: Entry) -> bool:
        """Whether an entry of PyTorch's history was recorded meanwhile, as far as the clocks tell."""
        time = entry.get("time_us")
        return time is None or self.begin_us - _CLOCKS_US <= time <= self.end_us + _CLOCKS_US


class Reading(NamedTuple):
    """What one reading of PyTorch's history, while it is observed, found of a device."""

    trace: Sequence[Entry]  # the history, the oldest entry first
    segments: Sequence[Entry]  # all segments of the device, a little earlier than the end of the trace
    settings: Mapping[str, Any]  # the allocator's settings
    asked: Asked  # when the segments were asked for
    # nothing was recorded after the segments were told, which therefore are the state at the end
    is_still: bool = False
    is_whole: bool = True  # nothing was overwritten since the history was cleared, or turned on
    is_cleared: bool = False  # the history was cleared just after this trace


_MOST_MARKS: Final = 100_000
"""Marks that wait for a reading. Of more, the oldest are dropped, as PyTorch drops the entries beside them."""


class MarkedHeap(ObservedHeap):
    """PyTorch's observed heap, which learns late what happened: a mark waits until what came before is in the log."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._waiting: deque[tuple[int, int, int, int]] = deque(maxlen=_MOST_MARKS)

    def mark(self, label: str | int, value: int = 0) -> None:
        """Keep a mark for PyTorch's observed heap, its time and its thread, for `write_marks`."""
        number = self._label_id(label)
        self._waiting.append((time.time_ns(), number_of_thread(), number, whole(value, "a mark's value")))

    def write_marks(self, until_ns: int, offset_ns: int) -> None:
        """Write PyTorch's marks that were set before a time by Python's clock; `offset_ns` leads to the log's."""
        while self._waiting and self._waiting[0][0] < until_ns:
            when, thread, label, value = self._waiting.popleft()
            self._report(when + offset_ns, partial(self._put_mark_of, thread, when + offset_ns, label, value))

    def _put_mark_of(self, thread: int, when: int, label: int, value: int) -> None:
        self.log.begin_operation(when, thread)
        self._put_mark(label, value)


class DeviceHistory:
    """PyTorch's memory history of one device, transferred into an ObservedHeap.

    ::

        history, a ring    [ ... old | read before | new ..... S . later ]      of this reading
        segments                                               ^ the whole state, asked for just before

    The state leaves a `snapshot` entry S in the history, which is read next. New entries are carried out one by one.
    At S the state shows whether entries were missed, and differences are corrected: the heap is what PyTorch says.

    If entries were overwritten unread, the heap is set to the state before the oldest entry, which follows from the
    state at S and the entries up to it; then all entries are carried out. Only what was overwritten is missing.

    Args:
        heap: receives the events, and the marks between them.
        offset_ns: PyTorch's clock plus this is the heap's clock.
        named: whether allocations get labels.
        limit: the bytes that PyTorch may take of the device now; None: unknown.
    """

    def __init__(
        self,
        heap: MarkedHeap,
        number: int,
        offset_ns: int,
        *,
        named: bool = True,
        limit: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.heap = heap
        self.number = number
        self.lost = 0  # readings before which entries were overwritten unread, or were passed over
        self.mended = 0  # blocks in which the state differed from the entries, except at the first reading
        self.taken = 0  # entries that the last reading transferred
        self.out_of_memory: OutOfMemory | None = None  # the last failure; None: there was none
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
        self._streams = TorchStreamNumbers()

    @property
    def unmapped(self) -> int:
        """Bytes that PyTorch unmapped in parts of expandable segments; they are still drawn, as free."""
        return self._segments.unmapped

    def read(self, reading: Reading) -> Iterator[int]:
        """Transfer the new entries of PyTorch's history, as an iterator: the time of each, in us, just before it."""
        self.taken = 0
        trace, segments = reading.trace, reading.segments
        self._rules = Rules.of(reading.settings)
        self._by_frames.clear()
        start = None if self._is_new else self._find_new(reading)
        at = len(trace) if reading.is_still else self._find_state(reading, start or 0)
        if at is None and start is None:
            self.pass_over(segments, reading.asked)
            return
        if start is None:
            start = self._begin(segments, trace[:at])
        for entry in trace[start:at]:
            yield entry.get("time_us", 0)
            self._carry_out(entry)
        if at is not None:
            here = trace[min(at, len(trace) - 1)] if trace else {}
            yield here.get("time_us", 0)
            self.mended += self._mend(segments, self._when(here))
            for entry in trace[at:]:
                yield entry.get("time_us", 0)
                self._carry_out(entry)
        self.write_marks(reading.asked.begin_us)
        self._passed = None
        self._tail = [] if reading.is_cleared else [_history_entry_key(entry) for entry in trace[-_TAIL:]]
        self._seen = len(trace)
        self._latest_us = trace[-1].get("time_us", 0) if trace else self._latest_us
        self.taken = len(trace) - start

    def _begin(self, segments: Sequence[Entry], trace: Sequence[Entry]) -> int:
        """Set PyTorch's observed heap to the state before entries that end in `segments`; the first one to carry out.

        The first reading begins with the state itself.
        """
        if self._is_new:
            self._is_new = False
            self._mend(segments, None)
            return len(trace)
        self.lost += 1
        start = self._first_after(trace)
        if start < len(trace):
            self.write_marks(trace[start].get("time_us", 0))
        when = self._when(trace[start]) if start < len(trace) else None
        before = rewound_segments(segments, trace[start:], self._rules)
        self.mended += self._mend(before, when, relabel=True)
        return start

    def pass_over(self, segments: Sequence[Entry], asked: Asked) -> None:
        """Set PyTorch's observed heap to a state, without the entries before it."""
        self._by_frames.clear()
        self.write_marks(asked.begin_us)
        differences = self._mend(segments, None, relabel=True)
        self.lost += not self._is_new
        self.mended += 0 if self._is_new else differences
        self._is_new = False
        self._tail = None
        self._passed = bytes_in_use(segments), asked
        self._latest_us = asked.end_us

    def write_marks(self, until_us: int) -> None:
        """Write the marks that the program set before this time by PyTorch's clock, in microseconds."""
        self.heap.write_marks(until_us * 1000, self._offset_ns)

    def begin_anew(self, *, is_complete: bool) -> None:
        """PyTorch's history was cleared; `is_complete`: nothing is missing before its next entry."""
        self._tail = [] if is_complete and self._tail is not None else None
        self._passed = None

    def _mend(self, segments: Sequence[Entry], when: int | None, *, relabel: bool = False) -> int:
        return self._segments.mend(segments, self._label_of, self._streams.of, time=when, relabel=relabel)

    def _find_state(self, reading: Reading, start: int) -> int | None:
        """In PyTorch's history: index of the state's `snapshot` entry, not before `start`; None: it was overwritten.

        There may be those of other code, too: they mostly tell other bytes in use, or another time.
        """
        return _state_in(reading.trace, start, bytes_in_use(reading.segments), reading.asked)

    def _first_after(self, trace: Sequence[Entry]) -> int:
        """In PyTorch's history: the first entry that the heap does not contain; others may be missing before it."""
        return next(
            (at for at, entry in enumerate(trace) if entry.get("time_us", 0) > self._latest_us), len(trace)
        )

    def _find_new(self, reading: Reading) -> int | None:
        """The index of the first unread entry of PyTorch's history; None: some were overwritten."""
        trace, tail = reading.trace, self._tail
        if tail is None:
            passed = None if self._passed is None else _state_in(trace, 0, *self._passed)
            return None if passed is None else passed + 1
        if not tail:
            return 0 if reading.is_whole else None
        # In a ring that is not full yet, it is at the same place.
        for at in chain((self._seen,), range(len(trace), 0, -1)):
            if 0 < at <= len(trace) and _history_entry_key(trace[at - 1]) == tail[-1]:
                begin = max(at - len(tail), 0)
                if [_history_entry_key(entry) for entry in trace[begin:at]] == tail[
                    len(tail) - (at - begin) :
                ]:
                    return at
        return None

    # -- one entry at a time ------------------------------------------------------------------------------------

    def _carry_out(self, entry: Entry) -> None:
        action, address, size = entry["action"], entry.get("addr", 0), entry["size"]
        when = self._when(entry)
        self.write_marks(entry.get("time_us", 0))
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
        """The time of an entry of PyTorch's history by the heap's clock, in nanoseconds; None: it has none."""
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
        mapped = OutOfMemoryTotals(pool, pool - free, min(totals.largest_free_chunk, free), limit)
        self.out_of_memory = OutOfMemory.of(requested, mapped, rounded=self._rules.round_up(requested))

    def _label_of(self, entry: Entry) -> int:
        """The label of PyTorch's observed allocation: its metadata, or the innermost frame outside of libraries."""
        frames = entry.get("frames") or []
        metadata = metadata_text(entry.get("user_metadata"))
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


def carry_out(readings: Sequence[Iterator[int]]) -> None:
    """Transfer PyTorch's history of several devices in the order of its times: their heaps may share a log.

    A reading yields the time of an entry just before it transfers it, when it is asked for the next.
    """
    for _ in merge(*readings):
        pass


def _state_in(trace: Sequence[Entry], start: int, in_use: int, asked: Asked) -> int | None:
    """In a reading of PyTorch's history: the last entry of a state with so many bytes in use, asked for then."""
    found = (
        at
        for at in range(len(trace) - 1, start - 1, -1)
        if trace[at]["action"] == "snapshot" and trace[at]["size"] == in_use and asked.may_be_of(trace[at])
    )
    return next(found, None)


def _history_entry_key(entry: Entry) -> tuple[Any, ...]:
    """What tells an entry of an observed PyTorch's history in the next reading again."""
    return tuple(entry.get(field) for field in ("action", "addr", "size", "stream", "time_us"))


_WAIT_S: Final = 1.0  # readings wait so long for a moment at which the program allocates nothing
_STALE_S: Final = 3.0
"""After so long without a reading the state is read, and the history before it is passed over."""
_STILL_S: Final = 0.001
_TELLING: Final = 200  # so many entries tell what one costs
_BLOCK_ACTIONS: Final = ("alloc", "free_completed")
_SWITCHES: Final = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")


class _Counters(NamedTuple):
    """PyTorch's counters of a device."""

    entries: int  # of the history so far
    failures: int  # of them, failed requests
    blocks: int  # of them, blocks that came and went
    bytes: int  # that came and went


class Recorder:
    """PyTorch's memory history of this process, which all observers share: turned on, read, and cleared.

    ::

        program    a f a a f . . . . . . . . . a f ...       a: allocates, f: frees, C++ threads without Python's lock
        a reading       counters, state, history, counters   did anything happen meanwhile?
                                                  clear, counters     only if nothing did

    A reading copies the whole history, so it is cleared once it was read. PyTorch has no call that reads and clears:
    what is recorded in between would be lost. Its counters show whether that was so; then the history stays, and the
    next reading copies it again. If they move between the last look and the clearing, the next reading begins anew.

    Readings cost the program time: they hold Python's lock. So one is made only if, by the counters and by what
    readings cost so far, it costs at most a share of the time since the last one. If that is not so for long, the
    history is passed over: it is cleared, and the state alone is read, which is small.

    A history that other code turned on is never changed, cleared or ended; it is read as it is. If it turns one on
    while an observer is there, it gets an empty one of its own; when it turns it off, that of bfcviz goes on.
    """

    _shared: ClassVar["Recorder | None"] = None

    def __init__(self, torch: Any) -> None:
        self.is_ours = False  # bfcviz turned it on
        self.torch = torch
        self._lock = _forks.keep(threading.RLock())
        self._observers: list[TorchObserved] = []
        self._keeps = 0  # entries of a device, at most, if it is ours; of other code's: unknown
        self._length = 0  # of the longest trace at the end of the last reading
        self._counted: dict[int, _Counters] | None = None  # at the last reading
        self._acts = False
        self._is_told = False  # of failures
        self._ended = time.monotonic()
        self._took_s = 0.0  # what the last reading cost, if it was due; all costs are a processor's time
        self._copy_s = 5e-6  # for an entry
        self._carry_s = 20e-6
        self._state_s = 1e-3
        self._wrapped: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}

    @classmethod
    def of(cls, torch: Any) -> "Recorder":
        """The recorder of PyTorch's history that this process has."""
        if cls._shared is None or cls._shared.torch is not torch:
            cls._shared = cls(torch)
        return cls._shared

    # -- on and off --------------------------------------------------------------------------------------------

    def join(self, observer: "TorchObserved") -> None:
        """Read PyTorch's history for this observer too; the first one turns the history on, unless other code did."""
        with self._lock:
            if not self._observers:
                self.is_ours = not torch_api.keeps_history(self.torch)
                self._keeps = 0 if self.is_ours else sys.maxsize  # of other code: unknown
                self._wrap()
            if not self._is_told:
                torch_api.observe_failures(self.torch, self._failed)
                self._is_told = True
            self._observers.append(observer)
            try:
                if self.is_ours:
                    self._record()
                self.read()
            except BaseException:
                self.leave(observer)
                raise

    def leave(self, observer: "TorchObserved") -> None:
        """The last observer turns PyTorch's history off, unless other code turned it on."""
        with self._lock:
            self._observers = [each for each in self._observers if each is not observer]
            if self._observers:
                return
            if self.is_ours:
                self.is_ours = False
                with self._acting():
                    torch_api.end_history(self.torch)
            self._unwrap()

    def _failed(self, *_: object) -> None:
        """A request failed, in this thread: PyTorch has freed its cache, and raises its error after this."""
        told = [each.on_failure for each in self._observers if each.on_failure is not None]
        with suppress(Exception):  # an error here would replace PyTorch's
            if told:
                self.read()
            for call in told:
                call()

    def _record(self) -> None:
        """Turn PyTorch's history on as all observers want it, after what it has so far."""
        keeps = max([self._keeps, *(each.max_entries for each in self._observers)])
        if self._keeps:
            self.read()
        self._keeps = keeps
        self._clear()
        self._begin_anew()

    def _clear(self) -> None:
        """Turn it on, empty: PyTorch cannot change the length of a history that has entries."""
        stacks = any(each.wants_stacks for each in self._observers)
        with self._acting():
            torch_api.begin_history(self.torch, stacks=stacks, max_entries=self._keeps)
        self._length = 0

    def _begin_anew(self) -> None:
        """PyTorch's history was cleared: nothing is missing if nothing was recorded since the last reading began."""
        is_complete = self._counted is not None and self._count() == self._counted
        for device in self._devices():
            device.begin_anew(is_complete=is_complete)

    def _devices(self) -> list[DeviceHistory]:
        return [device for observer in self._observers for device in observer.devices]

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """PyTorch's history is turned on or off by bfcviz, or for other code that asked for it."""
        before, self._acts = self._acts, True
        try:
            yield
        finally:
            self._acts = before

    # -- readings ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read PyTorch's history now, whatever it costs, and give it to all observers."""
        with self._lock:
            _interrupts.block()  # what was cleared and not carried out would be lost
            try:
                self._read()
            finally:
                _interrupts.unblock()
            self._took_s = 0.0  # it was asked for

    def _read(self) -> None:
        devices = self._devices()
        if not devices:
            return
        began = time.thread_time()
        before = self._count()
        state, asked = self._state()
        found = torch_api.snapshot(self.torch)
        is_still = before is not None and self._count() == before
        copied = max((len(trace) for trace in found["device_traces"]), default=0)
        self._length = copied
        is_cleared = is_still and self.is_ours
        if is_cleared:
            self._clear()
        has_gap = is_cleared and self._count() != before
        read_s = time.thread_time() - began
        readings = []
        for device in devices:
            traces = found["device_traces"]
            trace = traces[device.number] if device.number < len(traces) else []
            settings = found.get("allocator_settings") or {}
            is_whole = self._is_whole(device.number, trace, before)
            reading = Reading(trace, state[device.number], settings, asked, is_still, is_whole, is_cleared)
            readings.append(device.read(reading))
        carry_out(readings)
        new = max(device.taken for device in devices)
        if has_gap:
            for device in devices:
                device.begin_anew(is_complete=False)
        took_s = time.thread_time() - began
        self._learn(copied, read_s, new, took_s - read_s)
        self._end_reading(before, took_s)

    def _is_whole(self, device: int, trace: Sequence[Entry], counted: Mapping[int, _Counters] | None) -> bool:
        """Whether PyTorch's history has all entries since it was cleared.

        How many entries a history of other code keeps is unknown: the counters say what was recorded.
        """
        if self.is_ours:
            return len(trace) < self._keeps
        if counted is None or self._counted is None or device not in self._counted:
            return False
        told = sum(entry["action"] in _BLOCK_ACTIONS for entry in trace)
        return told >= counted[device].blocks - self._counted[device].blocks

    def read_if_due(self, most_time: float) -> None:
        """Read PyTorch's history if something was recorded, and if that is cheap: `most_time` of the time since."""
        with self._lock:
            began_us = time.time_ns() // 1000
            counted, last = self._count(), self._counted
            since = time.monotonic() - self._ended
            may_cost = most_time * since
            if counted == last and counted is not None:
                for device in self._devices():
                    device.write_marks(began_us)
                return
            if self._took_s > may_cost:
                return
            if counted is None or last is None or counted.keys() != last.keys():
                self._read()  # this PyTorch has no counters, or there is a new observer
            elif any(counted[device].failures > last[device].failures for device in counted):
                self._read()  # the entry of a failure is worth it
            elif self._cost(counted, last) <= may_cost and (since >= _WAIT_S or self._is_still(counted)):
                self._read()
            elif since >= _STALE_S and self._state_s <= may_cost:
                self._pass_over()

    def _cost(self, counted: Mapping[int, _Counters], last: Mapping[int, _Counters]) -> float:
        """What a reading of PyTorch's history would cost, in seconds."""
        new = sum(counted[device].entries - last[device].entries for device in counted)
        if new < 0:
            new = self._keeps  # the program has reset them
        length = self._length + new
        if self.is_ours:
            new, length = min(new, self._keeps), min(length, self._keeps)
        return self._state_s + length * self._copy_s + new * self._carry_s

    def _is_still(self, counted: Mapping[int, _Counters]) -> bool:
        """Whether the program allocates nothing for a moment, so that PyTorch's history can be cleared."""
        time.sleep(_STILL_S)
        return self._count() == counted

    def _pass_over(self) -> None:
        """Set PyTorch's observed heaps to the state, without the entries before it."""
        began = time.thread_time()
        if self.is_ours:
            self._clear()
        counted = self._count()
        state, asked = self._state()
        for device in self._devices():
            device.pass_over(state[device.number], asked)
        self._state_s = time.thread_time() - began
        self._end_reading(counted, self._state_s)

    def _end_reading(self, counted: dict[int, _Counters] | None, took_s: float) -> None:
        self._counted, self._took_s, self._ended = counted, took_s, time.monotonic()

    def _state(self) -> tuple[dict[int, list[Mapping[str, Any]]], Asked]:
        """PyTorch's segments by device, and when they were asked for."""
        began = time.time_ns()
        segments: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for segment in torch_api.segments(self.torch):
            segments[segment["device"]].append(segment)
        return segments, Asked(began // 1000, time.time_ns() // 1000)

    def _learn(self, copied: int, copied_s: float, carried: int, carried_s: float) -> None:
        """Keep what a reading of PyTorch's history cost; one of few entries tells what the state costs."""
        if copied >= _TELLING:
            self._copy_s = copied_s / copied
        else:
            self._state_s = copied_s + (0 if carried >= _TELLING else carried_s)
        if carried >= _TELLING:
            self._carry_s = carried_s / carried

    def _count(self) -> dict[int, _Counters] | None:
        """The counters of the observed devices; None: this PyTorch does not tell them."""
        try:
            return {device.number: self._counters(device.number) for device in self._devices()}
        except (AttributeError, KeyError, RuntimeError):
            return None

    def _counters(self, device: int) -> _Counters:
        stats = torch_api.counters(self.torch, device)
        blocks, active, segments, size = (
            stats[key]["all"] for key in ("allocation", "active", "segment", "reserved_bytes")
        )
        in_and_out = blocks["allocated"] + active["freed"]
        entries = in_and_out + segments["allocated"] + segments["freed"] + stats["num_ooms"]
        moved = blocks["freed"] + size["allocated"] + size["freed"]
        return _Counters(entries, stats["num_ooms"], in_and_out, moved)

    # -- other code that turns the history on or off -----------------------------------------------------------

    def _wrap(self) -> None:
        """Be told when other code turns PyTorch's history on or off."""
        for name in _SWITCHES:
            switch = getattr(self.torch._C, name, None)  # noqa: SLF001
            if switch is not None:
                told = functools.partial(self._switched, switch)
                self._wrapped[name] = switch, told
                setattr(self.torch._C, name, told)  # noqa: SLF001

    def _unwrap(self) -> None:
        for name, (switch, told) in self._wrapped.items():
            if getattr(self.torch._C, name) is told:  # noqa: SLF001
                setattr(self.torch._C, name, switch)  # noqa: SLF001
        self._wrapped.clear()

    def _switched(self, switch: Callable[..., Any], enabled: Any, *rest: Any, **options: Any) -> Any:
        with self._lock:
            if self._acts or not self._observers:
                return switch(enabled, *rest, **options)
            with suppress(Exception):  # the polling says it
                self.read()
            with self._acting():
                if self.is_ours and enabled:
                    torch_api.end_history(self.torch)  # other code gets an empty one, as without bfcviz
                try:
                    result = switch(enabled, *rest, **options)
                except BaseException:
                    if self.is_ours:
                        self._clear()
                        self._begin_anew()
                    raise
            if not enabled:
                self.is_ours, self._keeps = True, 0
                self._record()
            elif self.is_ours:
                self.is_ours, self._keeps = False, sys.maxsize
                self._begin_anew()
            return result


MOST_TIME: Final = 0.02  # of the program's time, for readings

_LOST: Final = (
    "entries of PyTorch's history were missed: they were overwritten, or to read them would have cost the program too "
    "much of its time (most_time, max_entries); the state after them was used instead, so what came and went meanwhile "
    "is not recorded"
)


class TorchObserved(HeapProvider):
    """What `observe_torch` returns; observes devices within a `with`.

    All of a process read one history. A history of other code is read as it is: never changed, cleared or ended.
    """

    way = "observe"
    title = "PyTorch"
    is_shared = True

    def __init__(
        self,
        log: EventLog,
        labels: Labels,
        every_s: float,
        max_entries: int,
        capture: Chosen,
        devices: Iterable[int] | None = None,
        most_time: float = MOST_TIME,
        lost: Callable[[str], object] | None = None,
    ) -> None:
        self.devices: list[DeviceHistory] = []  # the history of each device
        self.max_entries = max_entries  # of each device, that PyTorch should keep
        self.wants_stacks = capture == "stack"  # whether it should keep Python's stacks
        self._logs = logs_of_heaps(log)
        self._labels = labels
        self._capture = capture
        self._named = None if devices is None else list(devices)
        self._most_time = most_time
        self._recorder: Recorder | None = None
        self._is_theirs = False
        self._lost = lost
        self._polling = Polling(self._read_if_due, every_s, "bfcviz-torch")

    @property
    def description(self) -> str:
        """How PyTorch's allocator is observed, and what that means, as a sentence."""
        text = (
            "PyTorch is observed: it keeps its own allocator, whose history is read at intervals; splits and merges "
            "are derived from its blocks"
        )
        if self._is_theirs or (self._recorder is not None and self.is_active and not self._recorder.is_ours):
            text += (
                ". The history was turned on by other code: bfcviz reads it and does not change, clear or end it, so "
                "its length, its stacks and the cost of a reading are those of that code"
            )
        if lost := sum(device.lost for device in self.devices):
            text += (
                f". {lost} times entries were missed: they were overwritten, or to read them would have cost the "
                f"program more than {100 * self._most_time:.3g} % of its time; the state after them was used "
                "instead: give a larger most_time, or more max_entries"
            )
        if unmapped := sum(device.unmapped for device in self.devices):
            text += f". {unmapped} bytes that expandable segments released are still drawn, as free"
        if self._polling.error is not None:
            text += f". It ended early: {self._polling.error}"
        return text

    @property
    def heaps(self) -> list[ObservedHeap]:
        """The observed heap of PyTorch on each device, the current one first."""
        return [device.heap for device in self.devices]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of PyTorch's last failure, of the last device that had one; None: no failure."""
        found = [device.out_of_memory for device in self.devices if device.out_of_memory is not None]
        return found[-1] if found else None

    def settle(self) -> None:
        """Read PyTorch's history now, whatever it costs."""
        if self._recorder is not None and self.is_active:
            self._recorder.read()
            self._tell_losses()

    def _start(self) -> None:
        torch = torch_api.torch_with_cuda("observed")
        torch_api.refuse_async(torch, "observed", "")
        torch_api.refuse_uncached("observed", "")
        torch.cuda.init()  # without it, PyTorch reads a history that does not exist yet
        if not hasattr(torch.cuda.memory, "_snapshot") or torch_api.backend(torch) == "pluggable":
            raise LiveError(
                f"PyTorch {torch.__version__} cannot be observed: its allocator has no history, because it was "
                "replaced or is older than 2.1"
            )
        if not self.devices:
            self._begin(torch)
        self._recorder = Recorder.of(torch)
        self._recorder.join(self)
        self._polling.start()

    def _stop(self, error: BaseException | None) -> None:
        recorder = cast("Recorder", self._recorder)
        self._polling.stop()
        try:
            self._polling.last(error, recorder.read)
        finally:
            self._is_theirs = not recorder.is_ours
            recorder.leave(self)
            self._tell_losses()

    def _read_if_due(self) -> None:
        cast("Recorder", self._recorder).read_if_due(self._most_time)
        self._tell_losses()

    def _tell_losses(self) -> None:
        """Say once, in the recording, that events of PyTorch are missing."""
        if self._lost is not None and any(device.lost for device in self.devices):
            self._lost(_LOST)
            self._lost = None

    def _begin(self, torch: Any) -> None:
        """Make a heap for each device, the current one first, and measure the offset of PyTorch's clock."""
        chosen = devices_in_order(self._named, torch.cuda.device_count(), torch.cuda.current_device())
        offsets: dict[EventLog, int] = {}  # one for a log, so that the order of its times stays
        for device in chosen:
            log = next(self._logs)
            limit, total = torch_api.allowed_memory(torch, device), torch_api.total_memory(torch, device)
            name = f"torch cuda:{device}"
            heap = MarkedHeap(log, self._labels, name=name, limit=limit, unit=UNIT, device_total=total)
            now = time.time_ns()
            ObservedHeap.mark(heap, TORCH_OBSERVED)
            heap.settle()
            marked = int(heap.log.copy(heap.log.head - 1, heap.log.head)["time"][0])
            named = self._capture != "nothing"
            allowed = partial(torch_api.allowed_memory, torch, device)
            offset = offsets.setdefault(heap.log, marked - now)
            self.devices.append(DeviceHistory(heap, device, offset, named=named, limit=allowed))


def observe_torch(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.2,
    max_entries: int = 100_000,
    capture: Chosen = "stack",
    devices: Iterable[int] | None = None,
    most_time: float = MOST_TIME,
) -> TorchObserved:
    """Record PyTorch's own caching allocator within a `with`, through the history that it keeps; changes nothing.

    A thread reads the new entries of the history every `every_s` seconds, if that costs the program at most `most_time`
    of its time: an entry costs some 10 us, so 2 % are 1,000 allocations a second. For a busier program the state of all
    blocks is read every few seconds, and the entries before it are missed, but for those of a failed request and for
    the newest `max_entries` at the end; `description` says so.

    Args:
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns operation names and stacks.
        every_s: seconds between two readings.
        max_entries: events of each device that PyTorch keeps between two readings.
        capture: `stack`: PyTorch keeps Python's stack with every allocation, which also names it; `label`: the names
            are the metadata of torch.cuda.memory, if the program sets it; `nothing`: no names.
        devices: numbers of the devices to observe, such as `[rank]` with DistributedDataParallel. Default: all. No CUDA
            context is created on them.
        most_time: the most of the program's time that readings may take, above 0, up to 1: to miss nothing of a busy
            program give more.

    Raises:
        InvalidRequest: times or numbers that cannot be; on entering: a device that is not there.
        LiveError: `capture` is none of these; on entering: PyTorch is not there, sees no GPU, or tells no history.
    """
    if not 0 < every_s < 1 << 31 or max_entries < 1:
        raise InvalidRequest(
            f"every_s={every_s} and max_entries={max_entries} were given; give a time and a number above 0"
        )
    if not 0 < most_time <= 1:
        raise InvalidRequest(
            f"most_time={most_time} was given; give a share of the program's time, such as 0.02"
        )
    lost = log.add_reason if isinstance(log, Recording) else None
    log, labels = log_and_labels(log, labels)
    if capture not in ("nothing", "label", "stack"):
        raise LiveError(f"capture={capture!r} was given; choose nothing, label or stack")
    return TorchObserved(log, labels, every_s, max_entries, capture, devices, most_time, lost)
