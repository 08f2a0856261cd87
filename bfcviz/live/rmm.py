"""RMM: served from instrumented heaps, or observed by callbacks or by its log.

RMM serves cuDF and, where they are set up for it, CuPy (`rmm.allocators.cupy`) and PyTorch (`rmm.allocators.torch`).
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal
from weakref import ref

from bfcviz import _forks, native
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import Budget, Memory, cuda_sub_allocator
from bfcviz.allocator.cuda_driver import LEGACY, PER_THREAD
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.errors import BfcvizError, DeviceError, InvalidFree, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import RMM_OBSERVED
from bfcviz.events.storage.recording import Recording
from bfcviz.formats.rmm import ALLOCATE, FREE, UNIT, RmmDayCount, RmmLogFormat, RmmRequest
from bfcviz.live.c_callbacks import UninterruptedCall
from bfcviz.live.deferred_frees import DeferredFrees, RelaxedEvent, StreamEvent, event_behind, stream_handle
from bfcviz.live.heap_provider import HeapProvider, log_and_labels, logs_of_heaps
from bfcviz.live.memory_limits import CAPABILITY_MAJOR, Room, Share
from bfcviz.live.observed_heap import ObservedHeap, Polling, devices_in_order
from bfcviz.live.served_heap import OPTIONS, HeapFactory, ServedHeap
from bfcviz.live.stack_capture import Capture, Captured

# ------------------------------------------------------------------------------
# The functions of RMM and of its CUDA bindings that bfcviz uses, checked before anything changes.


HIDDEN: Final = ("rmm", "cudf", "numpy")
"""Modules that recorded stacks leave out."""


class Rmm:
    """RMM on a machine with a GPU.

    Args:
        wish: what to do with RMM, for errors: `served` or `observed`.

    Raises:
        LiveError: RMM is not installed or too old, or CUDA does not start.
    """

    def __init__(self, wish: str) -> None:
        try:
            import_module("rmm")
            self.mr = import_module("rmm.mr")
            self._runtime = import_module("cuda.bindings.runtime")
        except ImportError as error:
            raise LiveError(
                f"RMM cannot be {wish}: its import fails ({error}). pip install rmm-cu12, or rmm-cu13, of 2025 or later"
            ) from error
        gpu = import_module("rmm._cuda.gpu")
        try:
            self.devices = int(gpu.getDeviceCount())
        except Exception as error:
            raise LiveError(
                f"RMM cannot be {wish}: CUDA does not start: {error}. It needs an NVIDIA GPU and its driver. NumPy "
                "needs no GPU: serve_numpy"
            ) from error
        self._gpu = gpu

    def device(self) -> int:
        """Number of the device that RMM uses in this thread."""
        return int(self._gpu.getDevice())

    def total_memory(self, device: int) -> int:
        """Bytes a device has, for RMM's heaps."""
        with self.on(device):
            return int(self.mr.available_device_memory()[1])

    def room(self, device: int) -> Room:
        """The memory of a device now, for RMM's heaps."""
        with self.on(device):
            available, total = self.mr.available_device_memory()
        return Room(int(total), int(available), cuda_driver.load().attribute(CAPABILITY_MAJOR, device))

    def has_context(self, device: int) -> bool:
        """Whether this process uses a device already, for RMM; the query creates no context."""
        try:
            return cuda_driver.load().has_context(device)
        except DeviceError:
            return True  # the query is not possible: assume that it is in use

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make a device current for RMM in this thread within a `with`."""
        before = self._gpu.getDevice()
        if before != device:
            self._gpu.setDevice(device)
        try:
            yield
        finally:
            if before != device:
                self._gpu.setDevice(before)

    # -- streams ------------------------------------------------------------------------------------------------

    def record(self, device: int, stream: int) -> StreamEvent:
        """Record an RMM event behind all work in a stream so far; if a capture forbids it, after the capture."""
        return event_behind(partial(self._try_to_record, device), stream)

    def synchronize(self, device: int) -> None:
        """Wait for all of RMM's work on a device; raises LiveError in a graph capture, which waiting would break."""
        driver = cuda_driver.load()
        with self.on(device), driver.relaxed():
            if driver.is_capturing(LEGACY):
                raise LiveError(
                    f"cannot wait for device {device} while a CUDA graph is captured: end the capture first"
                )
            _checked_rmm_answer(self._runtime.cudaDeviceSynchronize())

    def _try_to_record(self, device: int, handle: int) -> StreamEvent | None:
        driver = cuda_driver.load()
        with self.on(device), driver.relaxed():
            return None if driver.is_capturing(handle) else _RmmEvent(self._runtime, handle)


def rmm_stream_number(stream: Any) -> int:
    """The number of RMM's stream: its handle; negative for this thread's default stream, unique to the thread."""
    handle = int(stream.__cuda_stream__()[1])
    return -1 - native.thread_number() if handle == PER_THREAD else handle


class _RmmEvent(RelaxedEvent):
    """A CUDA event behind the work in a stream so far, through the bindings that RMM uses."""

    def __init__(self, runtime: Any, stream: int) -> None:
        event = _checked_rmm_answer(runtime.cudaEventCreateWithFlags(runtime.cudaEventDisableTiming))
        self._destroy = partial(runtime.cudaEventDestroy, event)
        _checked_rmm_answer(runtime.cudaEventRecord(event, runtime.cudaStream_t(stream)))
        super().__init__(
            lambda: int(runtime.cudaEventQuery(event)[0]) == 0,
            lambda: _checked_rmm_answer(runtime.cudaEventSynchronize(event)),
        )

    def __del__(self) -> None:
        if hasattr(self, "_destroy"):
            self._destroy()


def _checked_rmm_answer(answer: tuple[Any, ...]) -> Any:
    """What a function of RMM's CUDA bindings returned; raises LiveError if it failed."""
    status, *values = answer
    if int(status):
        raise LiveError(f"CUDA answered {status.name}")
    return values[0] if values else None


# ------------------------------------------------------------------------------
# serve_rmm: RMM's memory on instrumented heaps, one for each stream of a device (ServedRmmDevice). The heaps hold
# the memory of all that allocates through RMM.


class RmmHeap(ServedHeap):
    """A heap behind RMM's buffers."""

    users = "RMM's buffers"
    advice = "leave serve_rmm's `with` and drop them first"


class _ThreadToken:
    """Lives as long as a thread that is served through RMM."""


class ServedRmmDevice:
    """One device's memory, served to RMM: RMM's CallbackMemoryResource calls `allocate` and `free`.

    Memory belongs to the stream it was allocated for. A free on another stream is deferred until that stream has done
    its work so far; RMM guarantees no more than that.

    Args:
        make: makes the heap of a stream number.
        capture: what is recorded with each allocation.

    Attributes:
        heaps: by the number of their stream.
        failure: numbers of the last request that failed; None: none has.
        lost_frees: number of frees of addresses that no heap knows, or whose readers cannot be awaited.
        is_serving: whether the `with` is open; after it, wholly free regions go back to the device.
    """

    def __init__(self, device: int, rmm: Rmm, make: Callable[[int], RmmHeap], capture: Capture) -> None:
        self.heaps: dict[int, RmmHeap] = {}
        self.failure: OutOfMemory | None = None
        self.lost_frees = 0
        self.is_serving = False
        self._device = device
        self._make = make
        self._capture = capture
        self._owners: dict[int, int] = {}  # stream by address
        self._rmm = rmm
        self._threads: dict[int, ref[_ThreadToken]] = {}  # by the number of their own default stream
        self._thread = threading.local()
        self._lock = _forks.keep(threading.RLock())
        self._deferred = DeferredFrees(self, lambda _: None, rmm)

    def allocate(self, num_bytes: int, stream: Any) -> int:
        """Allocate `num_bytes` for RMM; RMM turns exceptions into MemoryError."""
        if num_bytes == 0:
            return 0
        number = rmm_stream_number(stream)
        self._deferred.free_ready(0, self._device, number)
        heap = self.heap_of(number)
        label = self._capture.number()
        try:
            address = heap.allocate(num_bytes, 256, label)
        except OutOfMemory:
            address = self._try_again(heap, num_bytes, label)
        self._owners[address] = number
        return address

    def free(self, address: int, _num_bytes: int, stream: Any) -> None:
        """Free memory of RMM's. It raises nothing: the calling C++ accepts no exception here."""
        owner = self._owners.pop(address, None)
        if owner is None:
            self.lost_frees += address != 0
            return
        try:
            number = rmm_stream_number(stream)
            is_held = number != owner and self._deferred.defer_until(address, self._device, owner, [number])
        except Exception:  # noqa: BLE001  CUDA failed: it stays in use, because a stream may still read it
            self.lost_frees += 1
            return
        if not is_held:
            self.give_back(address, self._device, owner)
        elif not self.is_serving:  # no further request will come that could carry it out
            with suppress(Exception):  # CUDA failed: it stays in use
                self._deferred.wait(0, self._device, 0)

    def end(self) -> None:
        """The `with` ended: wait for RMM's deferred frees, and return what is wholly free to the device."""
        self.is_serving = False
        self._deferred.wait(0, self._device, 0)
        for heap in list(self.heaps.values()):
            heap.give_back()

    def heap_of(self, number: int) -> RmmHeap:
        """The heap of a stream of RMM's; made if there is none."""
        with self._lock:
            if number not in self.heaps:
                self.heaps[number] = self._inherit() or self._make(number)
            if number < 0 and not hasattr(self._thread, "here"):
                self._thread.here = here = _ThreadToken()
                self._threads[number] = ref(here)
            return self.heaps[number]

    def _inherit(self) -> RmmHeap | None:
        """Take RMM's heap of an ended thread without chunks in use; None: there is none."""
        for number, thread in list(self._threads.items()):
            if thread() is not None or self.heaps[number].stats().chunks_in_use:
                continue
            try:
                self._rmm.synchronize(self._device)  # that thread's own stream may not be done
            except LiveError:  # a graph is being captured: try again later
                return None
            del self._threads[number]
            heap = self.heaps.pop(number)
            heap.trim()
            return heap
        return None

    def settle(self) -> None:
        """Carry out RMM's deferred frees whose streams are done."""
        self._deferred.free_ready(0, self._device, 0)

    def _try_again(self, heap: RmmHeap, num_bytes: int, label: int) -> int:
        """Wait for RMM's deferred frees, release the other heaps' free regions, and retry once."""
        self._deferred.wait(0, self._device, 0)
        for other in list(self.heaps.values()):
            other.trim()
        try:
            return heap.allocate(num_bytes, 256, label)
        except OutOfMemory as error:
            others = [each for each in list(self.heaps.values()) if each is not heap]
            self.failure = error.beside((each.name, each.stats()) for each in others)
        raise self.failure.detached()

    # -- called by `DeferredFrees` ------------------------------------------------------------------------------

    def give_back(self, pointer: int, _device: int, stream: int) -> None:
        """Free memory of RMM's in the heap it came from."""
        try:
            self.heaps[stream].free(pointer)
        except InvalidFree:
            self.lost_frees += 1
            return
        if not self.is_serving:
            with suppress(DeviceError):  # C++ accepts no exception here; a GPU that fails here failed before
                self.heaps[stream].give_back()

    def count(self, noted: int, held: int) -> None:
        """Deferred frees of RMM's need no counts: each request checks."""


_kept: list[Any] = []  # objects that RMM holds bare pointers to while any buffer lives: kept forever


class RmmServed(HeapProvider):
    """What `serve_rmm` returns; serves all devices and threads within a `with`, and can be entered again."""

    way = "serve"
    title = "RMM"

    def __init__(self, rmm: Rmm, make: Callable[[int, int], RmmHeap], capture: Capture) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._rmm = rmm
        self.devices: dict[int, ServedRmmDevice] = {}
        self._resources: dict[int, Any] = {}
        self._before: dict[int, Any] = {}
        current = rmm.device()
        for number in sorted(range(rmm.devices), key=lambda number: number != current):
            device = self.devices[number] = ServedRmmDevice(number, rmm, partial(make, number), capture)
            self._resources[number] = rmm.mr.CallbackMemoryResource(
                UninterruptedCall(device.allocate), UninterruptedCall(device.free)
            )
            _kept.append((device, self._resources[number]))
        self.devices[current].heap_of(0)

    @property
    def description(self) -> str:
        """How RMM is served, and what that means, as a sentence."""
        return (
            "RMM is served: all memory that is allocated through RMM comes from bfcviz's heaps, one per stream; every "
            f"request runs some Python{self._capture.note}"
        )

    @property
    def heaps(self) -> list[RmmHeap]:
        """RMM's heaps, one for each stream used so far; more may come, the default stream's first."""
        return [heap for device in self.devices.values() for heap in list(device.heaps.values())]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of RMM's last failed request, of the first device that had one; None: none failed."""
        return next((each.failure for each in self.devices.values() if each.failure is not None), None)

    def settle(self) -> None:
        """Carry out RMM's deferred frees whose streams are done."""
        for device in self.devices.values():
            device.settle()

    def _start(self) -> None:
        self._capture.use()
        for device, resource in self._resources.items():
            self.devices[device].is_serving = True
            self._before[device] = self._rmm.mr.get_per_device_resource(device)
            self._rmm.mr.set_per_device_resource(device, resource)

    def _stop(self, error: BaseException | None) -> None:
        for device, before in self._before.items():
            if self._rmm.mr.get_per_device_resource(device) is self._resources[device]:
                self._rmm.mr.set_per_device_resource(device, before)
        self._before.clear()
        failures = []
        for each in self.devices.values():
            try:
                each.end()
            except BfcvizError as failure:
                failures.append(failure)
        if failures and error is None:
            raise failures[0]


def serve_rmm(
    limit: int | str | None = None,
    *,
    fraction: float | None = None,
    headroom: int | str | None = None,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    memory: Memory = "device",
    capture: Captured = None,
    options: AllocatorOptions = OPTIONS,
) -> RmmServed:
    """Allocate RMM's memory from instrumented heaps, one per stream, within a `with`.

    RMM calls Python for each request (CallbackMemoryResource), which NVIDIA intends for debugging, not for speed. When
    memory runs out RMM raises MemoryError, with our numbers in its text.

    Args:
        limit: of each device's heaps together, in bytes or as text. Default: what is free when its first heap is made,
            less TensorFlow's reserve for CUDA's libraries and kernels (`memory_limits`).
        fraction: the limit as a share of the device's total memory; give at most one of the three.
        headroom: bytes, or text, of the free memory to leave free.
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns the names of `labels_and_marks.label`.
        memory: `device`, `managed`, `async` or `virtual`; see `allocator.cuda`.
        capture: `nothing`, `label`, `stack` or `Stacks` with options; default: the stack, or the label if uncompiled.
        options: the options of the heaps.

    Raises:
        LiveError: RMM is not installed, sees no GPU or less memory than the limit; on entering: it is served already.
        InvalidRequest: a limit, fraction or headroom is out of range, or several are given.
        ValueError: a text is not a size.
    """
    share = Share.parse(limit, fraction, headroom)
    rmm = Rmm("served")
    first, table = log_and_labels(log, labels)

    def source(device: int, stream: int, budget: Budget) -> SubAllocator:
        return cuda_sub_allocator(memory, device, stream_handle(stream), budget=budget)

    def limit_of(device: int) -> int:
        return share.of(device, rmm.room(device), memory)

    make = HeapFactory(RmmHeap, "rmm", source, limit_of, logs_of_heaps(first), table, options)
    return RmmServed(rmm, make, Capture(table, capture, hide=HIDDEN))


# ------------------------------------------------------------------------------
# observe_rmm: RMM keeps its own resources; record the requests to them, by callbacks or by RMM's log.


class PolledRmmLog:
    """RMM's log of one device while RMM writes it, a CSV file; its times have no date.

    Args:
        path: the file that RMM writes.
        offset_ns: the time of day plus this is the heap's time.
    """

    def __init__(self, path: Path, heap: ObservedHeap, offset_ns: int) -> None:
        self.heap = heap
        self.out_of_memory: OutOfMemory | None = None  # the last failure; None: there was none
        self.unreadable = 0  # number of lines that could not be parsed
        self._path = path
        self._offset_ns = offset_ns
        self._lines = RmmLogFormat()
        self._days = RmmDayCount()
        self._place = 0
        self._rest = b""
        self._streams: dict[int, int] = {0: 0}

    def read(self) -> list[tuple[int, RmmRequest]]:
        """The requests in RMM's log since the last call, except for an incomplete one, and the heap's time of each."""
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
        """Carry out a request of RMM's log in the observed heap."""
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
        self.files: dict[int, PolledRmmLog] = {}
        self._rmm = rmm
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._adaptors: dict[int, Any] = {}
        self._offsets: dict[EventLog, int] = {}  # one for a log, so that the order of its times stays
        self._polling = Polling(self._read, every_s, "bfcviz-rmm")

    @property
    def problem(self) -> str:
        """Why the reading of RMM's logs ended early, and how many lines were not parsed; empty: nothing is missing."""
        found = []
        if unreadable := sum(file.unreadable for file in self.files.values()):
            found.append(f"Lines of the log that could not be parsed: {unreadable}")
        if self._polling.error is not None:
            found.append(f"It ended early: {self._polling.error}")
        return ". ".join(found)

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of RMM's last failure, of the first device that had one; None: no failure."""
        return next(
            (file.out_of_memory for file in self.files.values() if file.out_of_memory is not None), None
        )

    def around(self, device: int, upstream: Any, heap: ObservedHeap) -> Any:
        """Make RMM's logging adaptor around a device's resource. It must be made with the device current."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="bfcviz-rmm-")
        with self._rmm.on(device):
            adaptor = self._rmm.mr.LoggingResourceAdaptor(upstream, str(Path(self._folder.name) / "rmm.csv"))
        path = Path(adaptor.get_file_name())
        offset = self._offsets.setdefault(heap.log, _now_of(heap) - _time_of_day_ns())
        self.files[device] = PolledRmmLog(path, heap, offset)
        self._adaptors[device] = adaptor
        return adaptor

    def begin(self) -> None:
        """Read RMM's logs at intervals from now on."""
        self._polling.start()

    def settle(self) -> None:
        """Read RMM's logs now."""
        self._polling.now()

    def end(self, error: BaseException | None) -> None:
        """Read RMM's logs to their ends and delete them."""
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


_kept_callbacks: Final[list[Any]] = []
"""The callbacks of all resources. C++ has bare pointers to them, and does not say when it drops the last one."""


class RmmDeviceRequests:
    """Records RMM's requests of one device. Nothing is raised: the program must go on, so errors are counted."""

    def __init__(self, heap: ObservedHeap, capture: Capture) -> None:
        self.heap = heap
        self.forwarder: Forwarder | None = None  # reports the requests; None: nothing is observed now
        self.failure: OutOfMemory | None = None  # the numbers of the last failed request; None: none failed
        self.lost = 0  # number of requests that could not be recorded
        self.reason = ""  # why the first of them could not
        self.tells_streams = True  # whether RMM tells the handles of streams, as it does from 25.12 on
        self._capture = capture
        self._streams = {0: 0}
        self._next_stream = count(1)
        self._freed_outside: list[int] = []

    def open(self, forwarder: "Forwarder") -> None:
        """Record what an RMM forwarder reports, first the frees since the last `with`."""
        while self._freed_outside:
            self.heap.free(self._freed_outside.pop())
        self.forwarder = forwarder

    def close(self) -> None:
        """Record no more of RMM's requests on this device."""
        self.forwarder = None
        self.heap.settle()

    def allocated(self, address: int, num_bytes: int, stream: Any) -> bool:
        """Record an allocation of RMM's; returns whether it could be."""
        try:
            label = self._capture.number()
            self.heap.allocate(address, num_bytes, num_bytes, label, self._number_of(stream))
        except Exception as error:  # noqa: BLE001  for example a full disk
            self.lose(error)
            return False
        return True

    def freed(self, address: int) -> None:
        """Record a free of RMM's; outside of the `with`, keep it for the next one."""
        if self.forwarder is None:
            self._freed_outside.append(address)
            return
        try:
            self.heap.free(address)
        except Exception as error:  # noqa: BLE001
            self.lose(error)

    def failed(self, num_bytes: int, stream: Any) -> None:
        """Record a request of RMM's for which there was no memory."""
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
        """Count a request of RMM's that could not be recorded."""
        self.lost += 1
        self.reason = self.reason or f"{type(error).__name__}: {error}"


class Forwarder:
    """The callbacks of one resource of RMM's: passes requests to RMM's own resource, and reports them.

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
        """Make RMM's resource, of class `kind`, around `upstream`; call it once."""
        callbacks = (UninterruptedCall(self.allocate), UninterruptedCall(self.free))
        _kept_callbacks.append(callbacks)
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
        """Where to report an allocation of RMM's; None: nowhere."""
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
        """How many of RMM's requests were not recorded, and why; whether streams are unknown; empty: all is there."""
        found, devices = [], self.devices.values()
        if reasons := [each.reason for each in devices if each.lost]:
            lost = sum(each.lost for each in devices)
            found.append(f"Requests that could not be recorded: {lost}, the first because of {reasons[0]}")
        if not all(each.tells_streams for each in devices):
            found.append("RMM tells streams apart from 25.12 on: all but the default stream are stream 1")
        return ". ".join(found)

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of RMM's last failure, of the first device that had one; None: no failure."""
        return next((each.failure for each in self.devices.values() if each.failure is not None), None)

    def around(self, device: int, upstream: Any, heap: ObservedHeap) -> Any:
        """Make an RMM resource that calls Python and then `upstream`."""
        requests = self.devices.get(device) or self.devices.setdefault(
            device, RmmDeviceRequests(heap, self._capture)
        )
        forwarder = self._forwarders[device] = Forwarder(self._rmm, device, requests)
        return forwarder.resource(self._resource, upstream)

    def begin(self) -> None:
        """Record RMM's requests from now on."""
        self._capture.use()
        for device, forwarder in self._forwarders.items():
            self.devices[device].open(forwarder)

    def settle(self) -> None:
        """Wait until all reports of RMM's requests are in the logs."""
        for requests in self.devices.values():
            requests.heap.settle()

    def end(self, _error: BaseException | None) -> None:
        """Record no more of RMM's requests; requests are still passed."""
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
        """How RMM is observed, and what that means, as a sentence."""
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
        """The observed heap of RMM on each device, the current one first."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of RMM's last failure, of the first device that had one; None: no failure."""
        return self.mechanism.out_of_memory

    def settle(self) -> None:
        """Record what is deferred of RMM's requests: the log is read now."""
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
        """Devices to observe RMM on, the current one first."""
        current = self._rmm.device()
        found = devices_in_order(self._devices, self._rmm.devices, current)
        if self._devices is None:
            self._unused = [each for each in found if each != current and not self._rmm.has_context(each)]
        return [each for each in found if each not in self._unused]

    def _put_back(self) -> None:
        """Restore RMM's resource of each device, unless other code has changed it since."""
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
        labels: interns the names of `labels_and_marks.label`.
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
