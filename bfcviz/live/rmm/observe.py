"""observe_rmm: RMM keeps its own resources; record the requests to them, by callbacks or by RMM's log."""

import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal
from weakref import ref

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import RMM_OBSERVED
from bfcviz.events.storage.recording import Recording
from bfcviz.formats.rmm import ALLOCATE, FREE, UNIT, RmmDayCount, RmmLogFormat, RmmRequest
from bfcviz.live.heap_provider import HeapProvider, log_and_labels, logs_of_heaps
from bfcviz.live.observed_heap import ObservedHeap, Polling, devices_in_order
from bfcviz.live.rmm.rmm_api import HIDDEN, Rmm, rmm_stream_number
from bfcviz.live.rmm.uninterrupted_call import UninterruptedCall
from bfcviz.live.stacks import Capture, Captured


class LogFile:
    """One device's log, a CSV file that grows; its times have no date.

    Args:
        path: the file that RMM writes.
        offset_ns: the time of day plus this is the heap's time.

    Attributes:
        out_of_memory: the last failure; None: there was none.
        unreadable: number of lines that could not be parsed.
    """

    def __init__(self, path: Path, heap: ObservedHeap, offset_ns: int) -> None:
        self.heap = heap
        self.out_of_memory: OutOfMemory | None = None
        self.unreadable = 0
        self._path = path
        self._offset_ns = offset_ns
        self._lines = RmmLogFormat()
        self._days = RmmDayCount()
        self._place = 0
        self._rest = b""
        self._streams: dict[int, int] = {0: 0}

    def read(self) -> list[tuple[int, RmmRequest]]:
        """The requests written since the last call, except for an incomplete one, and the heap's time of each."""
        with self._path.open("rb") as file:
            file.seek(self._place)
            found = file.read()
        self._place += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        texts = (line.decode("ascii", "replace").strip() for line in lines)
        parsed = [self._parsed(text) for text in texts if text and not self._lines.take_header(text)]
        return [each for each in parsed if each is not None]

    def _parsed(self, line: str) -> tuple[int, RmmRequest] | None:
        try:
            request = self._lines.parse(line)
            return self._days.time(request.time) + self._offset_ns, request
        except ValueError:
            self.unreadable += 1
            return None

    def report(self, when: int, request: RmmRequest) -> None:
        """Carry out one of them."""
        try:
            self._report(when, request)
        except ValueError:
            self.unreadable += 1

    def _report(self, when: int, request: RmmRequest) -> None:
        stream = self._streams.setdefault(request.stream, min(len(self._streams), 0xFFFF))
        if request.action == FREE:
            self.heap.free(request.pointer, when)
        elif request.action == ALLOCATE:
            if request.size:
                self.heap.allocate(request.pointer, request.size, request.size, 0, stream, when)
        else:
            self.heap.oom(request.size, 0, stream, when)
            self.out_of_memory = OutOfMemory.of(request.size, self.heap.stats())


class ObservedRmmLogs:
    """Observes RMM through one log file for each device, in a temporary folder. The log names no caller.

    It has the same members as `RmmCallbacks`.

    Args:
        every_s: seconds between two readings.

    Attributes:
        description: how it records, as the second half of a sentence about RMM.
        files: the log file of each device.
    """

    description = "a log of every request is read at intervals; it names no caller, mechanism='callback' does"

    def __init__(self, rmm: Rmm, every_s: float) -> None:
        self.files: dict[int, LogFile] = {}
        self._rmm = rmm
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._adaptors: dict[int, Any] = {}
        self._offsets: dict[EventLog, int] = {}  # one for a log, so that the order of its times stays
        self._polling = Polling(self._read, every_s, "bfcviz-rmm")

    @property
    def problem(self) -> str:
        """Why it ended early, and how many lines could not be parsed; empty: nothing is missing."""
        found = []
        if unreadable := sum(file.unreadable for file in self.files.values()):
            found.append(f"Lines of the log that could not be parsed: {unreadable}")
        if self._polling.error is not None:
            found.append(f"It ended early: {self._polling.error}")
        return ". ".join(found)

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""
        return next(
            (file.out_of_memory for file in self.files.values() if file.out_of_memory is not None), None
        )

    def around(self, device: int, upstream: Any, heap: ObservedHeap) -> Any:
        """Make a logging adaptor around a device's resource. It must be made with the device current."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="bfcviz-rmm-")
        with self._rmm.on(device):
            adaptor = self._rmm.mr.LoggingResourceAdaptor(upstream, str(Path(self._folder.name) / "rmm.csv"))
        path = Path(adaptor.get_file_name())
        offset = self._offsets.setdefault(heap.log, _now_of(heap) - _time_of_day_ns())
        self.files[device] = LogFile(path, heap, offset)
        self._adaptors[device] = adaptor
        return adaptor

    def begin(self) -> None:
        """Read the logs at intervals from now on."""
        self._polling.start()

    def settle(self) -> None:
        """Read the logs now."""
        self._polling.now()

    def end(self, error: BaseException | None) -> None:
        """Read the logs to their ends and delete them."""
        self._polling.stop()
        try:
            self._polling.last(error)
        finally:
            self._adaptors.clear()
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def _read(self) -> None:
        found = []
        for device, adaptor in self._adaptors.items():
            adaptor.flush()
            found += [(when, device, request) for when, request in self.files[device].read()]
        found.sort(key=itemgetter(0))  # the heaps of several devices may share a log
        for when, device, request in found:
            self.files[device].report(when, request)


def _now_of(heap: ObservedHeap) -> int:
    """The clock now of a heap that observes RMM, in nanoseconds."""
    heap.mark(RMM_OBSERVED)
    heap.settle()
    return int(heap.log.copy(heap.log.head - 1, heap.log.head)["time"][0])


def _time_of_day_ns() -> int:
    """The time of day now, as in the log that RMM writes, in nanoseconds."""
    now = time.time_ns()
    local = time.localtime(now // 1_000_000_000)
    return ((local.tm_hour * 60 + local.tm_min) * 60 + local.tm_sec) * 1_000_000_000 + now % 1_000_000_000


_kept: Final[list[Any]] = []
"""The callbacks of all resources. C++ has bare pointers to them, and does not say when it drops the last one."""


class RmmDeviceRequests:
    """Records the requests of one device. Nothing is raised: the program must go on, so errors are counted.

    Attributes:
        forwarder: reports the requests; None: nothing is observed now.
        failure: the numbers of the last failed request; None: none failed.
        lost: number of requests that could not be recorded.
        reason: why the first of them could not.
        tells_streams: whether RMM tells the handles of streams, as it does from 25.12 on.
    """

    def __init__(self, heap: ObservedHeap, capture: Capture) -> None:
        self.heap = heap
        self.forwarder: Forwarder | None = None
        self.failure: OutOfMemory | None = None
        self.lost = 0
        self.reason = ""
        self.tells_streams = True
        self._capture = capture
        self._streams = {0: 0}
        self._next_stream = count(1)
        self._freed_outside: list[int] = []

    def open(self, forwarder: "Forwarder") -> None:
        """Record what a forwarder reports, first the frees since the last `with`."""
        while self._freed_outside:
            self.heap.free(self._freed_outside.pop())
        self.forwarder = forwarder

    def close(self) -> None:
        """Record no more."""
        self.forwarder = None
        self.heap.settle()

    def allocated(self, address: int, num_bytes: int, stream: Any) -> bool:
        """Record an allocation; returns whether it could be."""
        try:
            label = self._capture.number()
            self.heap.allocate(address, num_bytes, num_bytes, label, self._number_of(stream))
        except Exception as error:  # noqa: BLE001  for example a full disk
            self.lose(error)
            return False
        return True

    def freed(self, address: int) -> None:
        """Record a free; outside of the `with`, keep it for the next one."""
        if self.forwarder is None:
            self._freed_outside.append(address)
            return
        try:
            self.heap.free(address)
        except Exception as error:  # noqa: BLE001
            self.lose(error)

    def failed(self, num_bytes: int, stream: Any) -> None:
        """Record a request for which there was no memory."""
        try:
            self.heap.oom(num_bytes, self._capture.number(), self._number_of(stream))
            self.failure = OutOfMemory.of(num_bytes, self.heap.stats())
        except Exception as error:  # noqa: BLE001
            self.lose(error)

    def _number_of(self, stream: Any) -> int:
        """A stream's number, in order of first use; 0: the default stream. All others are 1 if RMM tells no handles."""
        self.tells_streams = hasattr(stream, "__cuda_stream__")
        if not self.tells_streams:
            return 0 if stream.is_default() else 1
        handle = rmm_stream_number(stream)
        if handle not in self._streams:
            self._streams[handle] = min(next(self._next_stream), 0xFFFF)
        return self._streams[handle]

    def lose(self, error: Exception) -> None:
        """Count a request that could not be recorded."""
        self.lost += 1
        self.reason = self.reason or f"{type(error).__name__}: {error}"


class Forwarder:
    """The callbacks of one resource: passes requests to RMM's own resource, and reports them.

    Args:
        requests: receives the reports while this is its forwarder. It is not kept alive, nor the heap with its log.
    """

    def __init__(self, rmm: Rmm, device: int, requests: RmmDeviceRequests) -> None:
        self._rmm = rmm
        self._device = device
        self._requests = ref(requests)
        self._resource: ref[Any] | None = None
        # By address: the resource and the one below, which so live as long as the memory; whether it was recorded.
        self._out: dict[int, tuple[Any, Any, bool]] = {}

    def resource(self, kind: Any, upstream: Any) -> Any:
        """Make the resource, of class `kind`, around `upstream`; call it once."""
        callbacks = (UninterruptedCall(self.allocate), UninterruptedCall(self.free))
        _kept.append(callbacks)
        made = kind(*callbacks)
        made.upstream = upstream
        self._resource = ref(made)
        return made

    def allocate(self, num_bytes: int, stream: Any) -> int:
        """Allocate from RMM's own resource; what it raises is raised."""
        resource, upstream = self._in_use()
        requests = self._open_requests()
        try:
            address = int(upstream.allocate(num_bytes, stream))
        except MemoryError:
            if requests is not None:
                requests.failed(num_bytes, stream)
            raise
        if address and num_bytes:
            is_recorded = requests is not None and requests.allocated(address, num_bytes, stream)
            self._out[address] = (resource, upstream, is_recorded)
        return address

    def free(self, address: int, num_bytes: int, stream: Any) -> None:
        """Free to RMM's own resource. It raises nothing: the calling C++ accepts no exception here."""
        try:
            found = self._out.pop(address, None)
            _, upstream, is_recorded = (*self._in_use(), False) if found is None else found
            # The heap counts an address that it does not know.
            requests = self._requests() if is_recorded else self._open_requests() if found is None else None
            if requests is not None:  # before it is free: another thread may get the address
                requests.freed(address)
            upstream.deallocate(address, num_bytes, stream)
        except Exception as error:  # noqa: BLE001
            if (requests := self._requests()) is not None:
                requests.lose(error)

    def _open_requests(self) -> RmmDeviceRequests | None:
        """Where to report an allocation; None: nowhere."""
        requests = self._requests()
        return requests if requests is not None and requests.forwarder is self else None

    def _in_use(self) -> tuple[Any, Any]:
        """The resource and the one below. If RMM has dropped both, C++ still has a copy: then the device's own one."""
        resource = None if self._resource is None else self._resource()
        if resource is None:
            return None, self._rmm.mr.get_per_device_resource(self._device)
        return resource, resource.upstream


class RmmCallbacks:
    """Observes RMM through a callback for each request, with the line of code or label.

    ::

        rmm.DeviceBuffer -> CallbackMemoryResource (C++) -> Forwarder.allocate -> RMM's own resource
                                                                     `-> RmmDeviceRequests.allocated -> ObservedHeap

    Buffers outlive the `with`, and so do the callbacks. The resource of RMM lives only as long as RMM or a buffer needs
    it: it may be a pool, which holds the memory of a GPU.
    """

    def __init__(self, rmm: Rmm, capture: Capture) -> None:
        self.devices: dict[int, RmmDeviceRequests] = {}
        self._rmm = rmm
        self._capture = capture
        # A subclass of its own: the resource below it is an attribute.
        self._resource = type("Resource", (rmm.mr.CallbackMemoryResource,), {"upstream": None})
        self._forwarders: dict[int, Forwarder] = {}

    @property
    def description(self) -> str:
        """How it records, as the second half of a sentence about RMM."""
        return (
            "Python records every request, which takes some microseconds; mechanism='log' takes less"
            f"{self._capture.note}"
        )

    @property
    def problem(self) -> str:
        """How many requests could not be recorded, and why; whether streams are unknown; empty: nothing is missing."""
        found, devices = [], self.devices.values()
        if reasons := [each.reason for each in devices if each.lost]:
            lost = sum(each.lost for each in devices)
            found.append(f"Requests that could not be recorded: {lost}, the first because of {reasons[0]}")
        if not all(each.tells_streams for each in devices):
            found.append("RMM tells streams apart from 25.12 on: all but the default stream are stream 1")
        return ". ".join(found)

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""
        return next((each.failure for each in self.devices.values() if each.failure is not None), None)

    def around(self, device: int, upstream: Any, heap: ObservedHeap) -> Any:
        """Make a resource that calls Python and then `upstream`."""
        requests = self.devices.get(device) or self.devices.setdefault(
            device, RmmDeviceRequests(heap, self._capture)
        )
        forwarder = self._forwarders[device] = Forwarder(self._rmm, device, requests)
        return forwarder.resource(self._resource, upstream)

    def begin(self) -> None:
        """Record from now on."""
        self._capture.use()
        for device, forwarder in self._forwarders.items():
            self.devices[device].open(forwarder)

    def settle(self) -> None:
        """Wait until all reports are in the logs."""
        for requests in self.devices.values():
            requests.heap.settle()

    def end(self, _error: BaseException | None) -> None:
        """Record no more; requests are still passed."""
        self._forwarders.clear()
        for requests in self.devices.values():
            requests.close()


class RmmObserved(HeapProvider):
    """What `observe_rmm` returns; observes devices within a `with`.

    The memory of a device is asked for with the device current, which creates a context there (some 400 MiB). So it
    observes only the devices that were given, or else those that the process uses already.
    """

    way = "observe"
    title = "RMM"

    def __init__(
        self,
        rmm: Rmm,
        mechanism: ObservedRmmLogs | RmmCallbacks,
        make: Callable[[int], ObservedHeap],
        devices: Iterable[int] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._rmm = rmm
        self._make = make
        self._devices = None if devices is None else list(devices)
        self._unused: list[int] = []
        self._heaps: dict[int, ObservedHeap] = {}
        self._before: dict[int, Any] = {}
        self._placed: dict[int, Any] = {}

    @property
    def description(self) -> str:
        """The way, and what it means."""
        text = (
            f"RMM is observed: its resources stay, and {self.mechanism.description}. What RMM's pools allocate from "
            "CUDA is not recorded, so regions are the addresses seen in use"
        )
        if self._unused:
            text += (
                f". Device {', '.join(map(str, self._unused))} was not in use and is not observed: give devices to "
                "observe it from the start"
            )
        if words := "; ".join(filter(None, (heap.inconsistencies.words() for heap in self.heaps))):
            text += f". {words}"
        if problem := self.mechanism.problem:
            text += f". {problem}"
        return text

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap for each device, the current one first."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failure, of the first device that had one; None: no failure."""
        return self.mechanism.out_of_memory

    def settle(self) -> None:
        """Record what is deferred: the log is read now."""
        self.mechanism.settle()

    def _start(self) -> None:
        try:
            for device in self._choose():
                self._before[device] = before = self._rmm.mr.get_per_device_resource(device)
                heap = self._heaps.get(device) or self._heaps.setdefault(device, self._make(device))
                self._placed[device] = self.mechanism.around(device, before, heap)
            for device, placed in self._placed.items():
                self._rmm.mr.set_per_device_resource(device, placed)
            self.mechanism.begin()
        except BaseException as error:
            self._put_back()
            self.mechanism.end(error)
            raise

    def _stop(self, error: BaseException | None) -> None:
        self._put_back()
        self.mechanism.end(error)

    def _choose(self) -> list[int]:
        """Devices to observe, the current one first."""
        current = self._rmm.device()
        found = devices_in_order(self._devices, self._rmm.devices, current)
        if self._devices is None:
            self._unused = [each for each in found if each != current and not self._rmm.has_context(each)]
        return [each for each in found if each not in self._unused]

    def _put_back(self) -> None:
        """Restore each device's resource, unless other code has changed it since."""
        for device, placed in self._placed.items():
            if self._rmm.mr.get_per_device_resource(device) is placed:
                self._rmm.mr.set_per_device_resource(device, self._before[device])
        self._before.clear()
        self._placed.clear()


def observe_rmm(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    mechanism: Literal["callback", "log"] = "callback",
    capture: Captured = None,
    every_s: float | None = None,
    devices: Iterable[int] | None = None,
) -> RmmObserved:
    """Record the requests to RMM's own resources within a `with`, by a resource around them.

    `callback`: RMM calls Python for each request (CallbackMemoryResource), which records it at once, with its line of
    code; that takes Python's lock, and about 15 us for an allocation and its free. `log`: RMM writes a log
    (LoggingResourceAdaptor), which a thread reads; that costs about 2 us, and nothing has a name. Memory allocated
    before is unknown; if it is freed, that is counted, and `description` says so.

    Args:
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns the names of `labels.label`.
        mechanism: `callback` or `log`; see above.
        capture: `nothing`, `label`, `stack` or `Stacks` with options; default: the stack, or the label if uncompiled.
            A log has none.
        every_s: seconds between two readings of the log; default: 0.1.
        devices: numbers of the devices to observe, such as `[rank]`; a context is created on each of them. Default: the
            devices in use when the `with` begins.

    Raises:
        LiveError: RMM is not installed or sees no GPU, `capture` is none of these, or a stack where bfcviz is not
            compiled; on entering: it is observed already.
        InvalidRequest: the mechanism is unknown, the time is out of range, or an option of the other mechanism is
            given; on entering: there is no such device.
    """
    _check_rmm_observation(mechanism, capture, every_s)
    rmm = Rmm("observed")
    first, table = log_and_labels(log, labels)
    logs = logs_of_heaps(first)

    def make(device: int) -> ObservedHeap:
        return ObservedHeap(
            next(logs), table, name=f"rmm:{device}", limit=rmm.total_memory(device), unit=UNIT
        )

    if mechanism == "log":
        return RmmObserved(rmm, ObservedRmmLogs(rmm, 0.1 if every_s is None else every_s), make, devices)
    return RmmObserved(rmm, RmmCallbacks(rmm, Capture(table, capture, hide=HIDDEN)), make, devices)


def _check_rmm_observation(mechanism: str, capture: Captured, every_s: float | None) -> None:
    if mechanism not in ("callback", "log"):
        raise InvalidRequest(f"mechanism={mechanism!r} was given to observe RMM; give 'callback' or 'log'")
    if mechanism == "callback" and every_s is not None:
        raise InvalidRequest(
            f"every_s={every_s} was given, and callbacks record each request at once: remove it, or give "
            "mechanism='log', which is read at intervals"
        )
    if mechanism == "log" and capture not in (None, "nothing"):
        raise LiveError(
            f"capture={capture!r} was given, and RMM's log names no caller: remove it, or give mechanism='callback'"
        )
    if every_s is not None and not 0 < every_s < 1 << 31:
        raise InvalidRequest(f"every_s={every_s} was given; give a time above 0, in seconds")
