"""Keeper: what the lanes ask Python for: more lanes, and frees that must wait until other streams are done."""

from collections import deque
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any, NamedTuple, Protocol

from bfcviz import _forks


class Event(Protocol):
    """What a stream had to do when it was recorded; CUDA events of any framework are such."""

    def query(self) -> bool:
        """Whether all of it is done."""

    def synchronize(self) -> None:
        """Wait until it is."""


class LateEvent:
    """An event that cannot be recorded while a graph is captured: it is recorded once the capture is over.

    That is later than needed, never too early. Until then it has not passed, and waiting for it does nothing.

    Args:
        record: records an event; None while a capture forbids that.
    """

    def __init__(self, record: Callable[[], Event | None]) -> None:
        self._record = record
        self._event: Event | None = None

    def query(self) -> bool:
        """Whether it is recorded and all of it is done."""
        self._event = self._event or self._record()
        return self._event is not None and self._event.query()

    def synchronize(self) -> None:
        """Wait until it is done; does nothing while it cannot be recorded."""
        self._event = self._event or self._record()
        if self._event is not None:
            self._event.synchronize()


class Streams(Protocol):
    """The framework's streams."""

    def record(self, device: int, stream: int) -> Event:
        """An event behind all that was put into a stream so far."""

    def synchronize(self, device: int) -> None:
        """Wait for everything on a device."""


class Owner(Protocol):
    """Whose the memory is."""

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        """Free it now."""

    def count(self, noted: int, held: int) -> None:
        """How many addresses further streams read, and how many frees wait."""


class _Held(NamedTuple):
    line: tuple[int, ...]
    pointer: int
    device: int
    stream: int
    events: tuple[Event, ...]


class Keeper:
    """Holds memory back that a second stream still reads: its own stream would use it again at once.

    Methods that lanes call take `(pointer, device, stream)`; several threads may be here, and a finalizer in the midst.

    Args:
        owner: whose memory it is.
        more: makes spare lanes for a device.
        streams: of the framework.
        make_room: gives a device's unused memory back to it, where that can be; whether there was any.
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
        # By the streams that are waited for: what one stream was told later it does later, so only the first is asked.
        # A line is dropped once it is empty: programs make and drop streams by the thousand.
        self._held: dict[tuple[int, ...], deque[_Held]] = {}
        self._new: deque[_Held] = (
            deque()
        )  # in no line yet: a finalizer may add some while the lines are gone through
        self._is_sorting = False
        self._lock = _forks.keep(RLock())

    def more(self, _pointer: int, device: int, _stream: int) -> bool:
        """A stream came for which there is no lane."""
        self._more(device)
        return True

    def note(self, pointer: int, _device: int, stream: int) -> bool:
        """A stream reads memory that another one allocated (`record_stream`)."""
        with self._lock:
            self._noted.setdefault(pointer, set()).add(stream)
            self._count()
        return True

    def hold(self, pointer: int, device: int, stream: int) -> bool:
        """Memory is freed: whether it is held back."""
        with self._lock:
            readers = self._noted.pop(pointer, set()) - {stream}
            self._count()
        return self.hold_for(pointer, device, stream, readers)

    def hold_for(self, pointer: int, device: int, stream: int, readers: Iterable[int]) -> bool:
        """Hold memory back until these streams have done what they were told so far; False where there are none."""
        order = sorted(readers)
        try:
            events = tuple(self._streams.record(device, reader) for reader in order)
        except Exception:  # noqa: BLE001  a stream that is gone, say: whatever it is, wait rather than corrupt
            self._streams.synchronize(device)
            return False
        if not events:
            return False
        with self._lock:
            self._new.append(_Held((device, *order), pointer, device, stream, events))
            self._count()
        return True

    def let_go(self, _pointer: int, _device: int, _stream: int) -> bool:
        """Carry out the frees that need not wait any more; whether there were any."""
        done: list[_Held] = []
        try:
            with self._lock:
                try:
                    self._take_done(done)
                finally:  # also where an event cannot be asked: of the others it is known
                    self._count()
        finally:
            for held in done:
                self._owner.give_back(held.pointer, held.device, held.stream)
        return bool(done)

    def wait(self, pointer: int, device: int, stream: int) -> bool:
        """Memory ran out: wait for all that is held back on the device; whether that was anything."""
        with self._lock:
            lines = [*map(list, list(self._held.values())), list(self._new)]
            waiting = [
                event for line in lines for held in line if held.device == device for event in held.events
            ]
        for event in waiting:
            event.synchronize()
        return self.let_go(pointer, device, stream)

    def recover(self, pointer: int, device: int, stream: int) -> bool:
        """Memory ran out: whether there may be some now."""
        waited = self.wait(pointer, device, stream)
        return self._make_room(device) or waited

    def _count(self) -> None:
        waiting = sum(map(len, list(self._held.values()))) + len(self._new)
        self._owner.count(len(self._noted), waiting)

    def _take_done(self, done: list[_Held]) -> None:
        """Move the frees that need not wait any more, and drop the lines that are empty then.

        Nothing is done where a finalizer comes here while this is under way in the same thread.
        """
        if self._is_sorting:
            return
        self._is_sorting = True
        try:
            while self._new:
                held = self._new.popleft()
                self._held.setdefault(held.line, deque()).append(held)
            for key, line in list(self._held.items()):
                _take_done(line, done)
                if not line:
                    del self._held[key]
        finally:
            self._is_sorting = False


def _take_done(line: deque[_Held], done: list[_Held]) -> None:
    """Move those that need not wait any more; where an event cannot be asked its memory stays in the line."""
    is_done = True
    while line and is_done:
        held = line.popleft()
        is_done = False
        try:
            is_done = all(event.query() for event in held.events)
        finally:
            (done.append if is_done else line.appendleft)(held)
