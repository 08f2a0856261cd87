"""Streams and events that do their work when they are told to, and stream capture by its three modes."""
# ruff: noqa: N802  the driver's names

import threading
from dataclasses import dataclass, field
from itertools import count

from fake_cuda.status import GLOBAL, RELAXED, THREAD_LOCAL, Status

_LEGACY, _PER_THREAD = 1, 2  # and 0 is the legacy default stream, too
_NON_BLOCKING = 1
_ACTIVE, _INVALIDATED = 1, 2


@dataclass
class Capture:
    """A capture that is under way."""

    mode: int
    thread: int
    is_invalid: bool = False


@dataclass
class Stream:
    """`told` counts the work put into it, `done` what is completed."""

    handle: int
    device: int
    flags: int = _NON_BLOCKING
    told: int = 0
    done: int = 0
    capture: Capture | None = None
    waits: list = field(default_factory=list)  # (event's stream, its work) to be done before
    number: int = field(default_factory=count(1).__next__)


@dataclass
class Event:
    """Recorded behind so much work of a stream."""

    device: int
    stream: Stream | None = None
    behind: int = 0
    capture: Capture | None = None

    def is_done(self):
        return self.stream is None or self.stream.done >= self.behind


class Streams:
    """The driver's streams; mixed into FakeCuda.

    Attributes:
        streams: those made and not destroyed, by handle.
        events: likewise.
        synchronized: handles of the streams that were waited for, in order.
    """

    def __init__(self):
        self.streams = {}
        self.events = {}
        self.synchronized = []
        self._numbers = count(0x500, 0x10)
        self._default = {}

    # -- what a test does

    def add_stream(self, handle=None, device=0, flags=_NON_BLOCKING):
        """A stream as a program makes it; returns its handle."""
        handle = next(self._numbers) if handle is None else handle
        self.streams[handle] = Stream(handle, device, flags)
        return handle

    def launch(self, stream):
        """Put work into a stream; it is under way until `finish`."""
        self.stream_of(stream).told += 1

    def finish(self, stream=None, device=None):
        """Complete the work of a stream, or of all streams of a device, or of all there are."""
        which = self._all(device) if stream is None else [self.stream_of(stream)]
        if stream in (0, _LEGACY):  # it waits for all blocking streams
            which += [each for each in self._all(which[0].device) if not each.flags & _NON_BLOCKING]
        for each in which:
            each.done = each.told

    def begin_capture(self, stream, mode=GLOBAL):
        """Let this thread capture what is put into a stream."""
        self.stream_of(stream).capture = Capture(mode, threading.get_ident())

    def end_capture(self, stream):
        """The status with which the capture ends."""
        found = self.stream_of(stream)
        if found.capture is None:
            return Status.ILLEGAL_STATE
        capture, found.capture = found.capture, None
        for other in self._all():  # streams that joined it
            other.capture = None if other.capture is capture else other.capture
        if capture.mode != RELAXED and capture.thread != threading.get_ident():
            return Status.CAPTURE_WRONG_THREAD
        return Status.CAPTURE_INVALIDATED if capture.is_invalid else Status.SUCCESS

    # -- what the other functions need

    def stream_of(self, handle):
        """The stream of a handle in this context; None where there is none."""
        key = (self.current, threading.get_ident() if handle == _PER_THREAD else 0)
        if handle in (None, 0, _LEGACY, _PER_THREAD):
            return self._default.setdefault(key, Stream(handle or 0, self.current, 0))
        return self.streams.get(handle)

    def forget_streams(self, device):
        """A context was destroyed: its streams and events go, and what they had to do is over."""
        for table in (self.streams, self.events):
            for handle in [handle for handle, each in table.items() if each.device == device]:
                del table[handle]

    def refuse_unsafe(self):
        """What a potentially unsafe call answers; refused, it invalidates the captures."""
        forbidding = [each for each in self._captures() if self._forbids(each)]
        for capture in forbidding:
            capture.is_invalid = True
        return Status.CAPTURE_UNSUPPORTED if forbidding else 0

    @property
    def mode(self):
        """This thread's capture mode."""
        return getattr(self._thread, "mode", GLOBAL)

    def _forbids(self, capture):
        if RELAXED in (self.mode, capture.mode):
            return False
        is_own = capture.thread == threading.get_ident()
        return is_own or (self.mode == GLOBAL and capture.mode == GLOBAL)

    def _all(self, device=None):
        found = [*self.streams.values(), *self._default.values()]
        return [each for each in found if device in (None, each.device)]

    def _captures(self):
        return [each.capture for each in self._all() if each.capture is not None]

    # -- streams

    def _cuStreamCreate(self, out, flags):
        out.value = self.add_stream(device=self.current, flags=flags)

    def _cuStreamDestroy_v2(self, handle):
        return 0 if self.streams.pop(handle, None) else Status.INVALID_HANDLE

    def _cuStreamGetId(self, handle, out):
        found = self.stream_of(handle)
        if found is None:
            return Status.INVALID_HANDLE
        out.value = found.number
        return 0

    def _cuStreamQuery(self, handle):
        found = self.stream_of(handle)
        if found is None:
            return Status.INVALID_HANDLE
        if found.capture is not None:
            found.capture.is_invalid = True
            return Status.CAPTURE_UNSUPPORTED
        return 0 if found.done >= found.told else Status.NOT_READY

    def _cuStreamSynchronize(self, handle):
        status = self._cuStreamQuery(handle)
        if status not in (0, Status.NOT_READY):
            return status
        self.synchronized.append(handle)
        self.finish(handle)
        return 0

    def _cuCtxSynchronize(self):
        captures = [each.capture for each in self._all(self.current) if each.capture is not None]
        for capture in captures:  # of any mode: there is nothing that could be waited for
            capture.is_invalid = True
        if captures:
            return Status.CAPTURE_UNSUPPORTED
        self.finish(device=self.current)
        return 0

    def _cuStreamWaitEvent(self, handle, event, flags):
        found, behind = self.stream_of(handle), self.events.get(event)
        if found is None or behind is None:
            return Status.INVALID_HANDLE
        if found.capture is not behind.capture:
            if found.capture is not None:
                found.capture.is_invalid = True
                return Status.CAPTURE_MERGE if behind.capture else Status.CAPTURE_ISOLATION
            found.capture = behind.capture  # it joins
        found.waits.append((behind.stream, behind.behind))
        return 0

    # -- events

    def _cuEventCreate(self, out, flags):
        out.value = next(self._numbers)
        self.events[out.value] = Event(self.current)

    def _cuEventDestroy_v2(self, event):
        return 0 if self.events.pop(event, None) else Status.INVALID_HANDLE

    def _cuEventRecord(self, event, handle):
        made, found = self.events.get(event), self.stream_of(handle)
        if made is None or found is None or found.device != made.device:
            return Status.INVALID_HANDLE
        made.stream, made.behind, made.capture = found, found.told, found.capture
        return 0

    def _cuEventQuery(self, event):
        made = self.events.get(event)
        if made is None:
            return Status.INVALID_HANDLE
        if made.capture is not None:
            return Status.CAPTURED_EVENT
        return 0 if made.is_done() else Status.NOT_READY

    def _cuEventSynchronize(self, event):
        status = self._cuEventQuery(event)
        if status not in (0, Status.NOT_READY):
            return status
        if status:
            self.events[event].stream.done = self.events[event].behind
        return 0

    # -- capture

    def _cuStreamBeginCapture_v2(self, handle, mode):
        found = self.stream_of(handle)
        if found is None or handle in (None, 0, _LEGACY):
            return Status.CAPTURE_UNSUPPORTED
        if found.capture is not None:
            return Status.ILLEGAL_STATE
        self.begin_capture(handle, mode)
        return 0

    def _cuStreamEndCapture(self, handle, out):
        status = self.end_capture(handle)
        out.value = None if status else 0x900
        return status

    def _cuStreamIsCapturing(self, handle, out):
        found = self.stream_of(handle)
        if found is None:
            return Status.INVALID_HANDLE
        others = [each for each in self._all(found.device) if each.capture and not each.flags & _NON_BLOCKING]
        if handle in (None, 0, _LEGACY) and others:
            return Status.CAPTURE_IMPLICIT  # the default stream would wait for a stream that captures
        out.value = 0 if found.capture is None else _INVALIDATED if found.capture.is_invalid else _ACTIVE
        return 0

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        if mode.value not in (GLOBAL, THREAD_LOCAL, RELAXED):
            return Status.INVALID_VALUE
        self._thread.mode, mode.value = mode.value, self.mode
        return 0
