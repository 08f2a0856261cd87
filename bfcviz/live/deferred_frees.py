"""Deferred frees: memory that other streams still read is freed when their work is done, which CUDA events tell."""

from collections import deque
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, NamedTuple, Protocol

from bfcviz import _forks
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda_driver import LEGACY, PER_THREAD


class StreamEvent(Protocol):
    """What a deferred free waits for: the work of a stream so far; CUDA events of every framework fit."""

    def query(self) -> bool:
        """Whether all of the stream's work is done."""

    def synchronize(self) -> None:
        """Wait until the stream's work is done."""


class RelaxedEvent:
    """A CUDA event that deferred frees wait for, queried in relaxed mode: else that breaks a capture in any stream."""

    def __init__(self, query: Callable[[], bool], synchronize: Callable[[], object]) -> None:
        self._query = query
        self._synchronize = synchronize

    def query(self) -> bool:
        """Whether all of the stream's work is done."""
        with cuda_driver.load().relaxed():
            return bool(self._query())

    def synchronize(self) -> None:
        """Wait until the stream's work is done."""
        with cuda_driver.load().relaxed():
            self._synchronize()


class DelayedEvent:
    """An event, for deferred frees, that a graph capture forbids to record: it is recorded once the capture is over.

    That is later than needed, never too early. Until then it counts as not done, and waiting for it does nothing.

    Args:
        record: records an event; returns None while a capture forbids it.
    """

    def __init__(self, record: Callable[[], StreamEvent | None]) -> None:
        self._record = record
        self._event: StreamEvent | None = None

    def query(self) -> bool:
        """Whether the delayed event is recorded and all of its work is done."""
        self._event = self._event or self._record()
        return self._event is not None and self._event.query()

    def synchronize(self) -> None:
        """Wait until the delayed event is done; does nothing while it cannot be recorded."""
        self._event = self._event or self._record()
        if self._event is not None:
            self._event.synchronize()


def stream_handle(number: int) -> int:
    """CUDA's handle of a stream's number; a thread's default stream (negative) has one in that thread only."""
    return PER_THREAD if number < 0 else number


def event_behind(
    record: Callable[[int], StreamEvent | None], stream: int, keep: Callable[[], object] = lambda: None
) -> StreamEvent:
    """An event behind all work in a stream so far; `record` makes it of a handle, or None while a capture forbids it.

    It is then recorded after the capture; `keep` returns what keeps the stream alive until then.
    """
    if (event := record(stream_handle(stream))) is not None:
        return event
    handle, kept = LEGACY if stream < 0 else stream, keep()

    def record_later(_alive: object = kept) -> StreamEvent | None:
        return record(handle)

    return DelayedEvent(record_later)


class Streams(Protocol):
    """The framework's streams, which deferred frees wait for."""

    def record(self, device: int, stream: int) -> StreamEvent:
        """Record an event, for deferred frees, behind all work in a stream so far."""

    def synchronize(self, device: int) -> None:
        """Wait for all of the framework's work on a device."""


class Owner(Protocol):
    """The owner of memory whose frees are deferred."""

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        """Free memory whose free was deferred."""

    def count(self, noted: int, held: int) -> None:
        """Receive how many addresses other streams read, and how many frees wait."""


class _DeferredFree(NamedTuple):
    readers: tuple[int, ...]
    pointer: int
    device: int
    stream: int
    events: tuple[StreamEvent, ...]


class DeferredFrees:
    """Delays frees of memory that a second stream still reads: its own stream would reuse it at once.

    Methods that C functions call take `(pointer, device, stream)`. All methods are safe for several threads, and for a
    finalizer that interrupts another call in the same thread.

    Args:
        more: makes spare heaps for a device.
        streams: the streams of the framework.
        make_room: returns unused memory to a device where possible; says whether there was any.
    """

    def __init__(
        self,
        owner: Owner,
        more: Callable[[int], Any],
        streams: Streams,
        make_room: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._owner = owner
        self._more = more
        self._streams = streams
        self._make_room = make_room
        self._noted: dict[int, set[int]] = {}
        # By the streams to wait for. A stream works in order, so only the first event of a queue is queried.
        # An empty queue is dropped: programs create and destroy streams by the thousand.
        self._waiting: dict[tuple[int, ...], deque[_DeferredFree]] = {}
        # In no queue yet: a finalizer may add some while the queues are iterated.
        self._new: deque[_DeferredFree] = deque()
        self._is_sorting = False
        self._lock = _forks.keep(RLock())

    def add_heap(self, _pointer: int, device: int, _stream: int) -> bool:
        """Add a heap for a new stream, from the spare ones."""
        self._more(device)
        return True

    def note(self, pointer: int, _device: int, stream: int) -> bool:
        """Note that a stream reads memory of another stream (`record_stream`)."""
        with self._lock:
            self._noted.setdefault(pointer, set()).add(stream)
            self._count()
        return True

    def defer(self, pointer: int, device: int, stream: int) -> bool:
        """Defer a free if other streams read the memory; returns whether it is deferred."""
        with self._lock:
            readers = self._noted.pop(pointer, set()) - {stream}
            self._count()
        return self.defer_until(pointer, device, stream, readers)

    def defer_until(self, pointer: int, device: int, stream: int, readers: Iterable[int]) -> bool:
        """Defer a free until these streams have done their work so far; False: there is no such stream."""
        order = sorted(readers)
        try:
            events = tuple(self._streams.record(device, reader) for reader in order)
        except Exception:  # noqa: BLE001  for example a destroyed stream: wait rather than corrupt
            self._streams.synchronize(device)
            return False
        if not events:
            return False
        with self._lock:
            self._new.append(_DeferredFree((device, *order), pointer, device, stream, events))
            self._count()
        return True

    def free_ready(self, _pointer: int, _device: int, _stream: int) -> bool:
        """Carry out the deferred frees whose events are done; returns whether there were any."""
        done: list[_DeferredFree] = []
        try:
            with self._lock:
                try:
                    self._take_done(done)
                finally:  # also if one event cannot be queried: the others were
                    self._count()
        finally:
            for held in done:
                self._owner.give_back(held.pointer, held.device, held.stream)
        return bool(done)

    def wait(self, pointer: int, device: int, stream: int) -> bool:
        """Out of memory: wait for all deferred frees of the device; returns whether there were any."""
        with self._lock:
            queues = [*map(list, list(self._waiting.values())), list(self._new)]
            waiting = [
                event for queue in queues for held in queue if held.device == device for event in held.events
            ]
        for event in waiting:
            event.synchronize()
        return self.free_ready(pointer, device, stream)

    def recover(self, pointer: int, device: int, stream: int) -> bool:
        """Out of memory: make room by deferred frees; returns whether there may be memory now."""
        waited = self.wait(pointer, device, stream)
        return self._make_room(device) or waited

    def _count(self) -> None:
        waiting = sum(map(len, list(self._waiting.values()))) + len(self._new)
        self._owner.count(len(self._noted), waiting)

    def _take_done(self, done: list[_DeferredFree]) -> None:
        """Move the frees whose events are done, and drop empty queues.

        Does nothing if a finalizer calls it while it runs in the same thread.
        """
        if self._is_sorting:
            return
        self._is_sorting = True
        try:
            while self._new:
                held = self._new.popleft()
                self._waiting.setdefault(held.readers, deque()).append(held)
            for key, queue in list(self._waiting.items()):
                _take_done(queue, done)
                if not queue:
                    del self._waiting[key]
        finally:
            self._is_sorting = False


def _take_done(queue: deque[_DeferredFree], done: list[_DeferredFree]) -> None:
    """Move the frees whose events are done; if an event cannot be queried its memory stays in the queue."""
    is_done = True
    while queue and is_done:
        held = queue.popleft()
        is_done = False
        try:
            is_done = all(event.query() for event in held.events)
        finally:
            (done.append if is_done else queue.appendleft)(held)
