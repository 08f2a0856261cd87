"""serve_rmm: RMM's memory on instrumented heaps, one for each stream of a device (RmmDevice).

RMM serves cuDF and, where they are set up for it, CuPy (`rmm.allocators.cupy`) and PyTorch (`rmm.allocators.torch`).
The heaps hold the memory of all of them.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

from bfcviz import _forks
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import Budget, Memory, cuda_sub_allocator
from bfcviz.errors import BfcvizError, DeviceError, InvalidFree, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.deferred_frees import DeferredFrees
from bfcviz.live.heap_provider import HeapProvider, log_and_labels, logs_of_heaps
from bfcviz.live.memory_limits import Share
from bfcviz.live.rmm.rmm_api import HIDDEN, Rmm, rmm_stream_handle, rmm_stream_number
from bfcviz.live.rmm.uninterrupted_call import UninterruptedCall
from bfcviz.live.served_heap import OPTIONS, HeapFactory, ServedHeap
from bfcviz.live.stacks import Capture, Captured


class RmmHeap(ServedHeap):
    """A heap behind RMM's buffers."""

    users = "RMM's buffers"
    advice = "leave serve_rmm's `with` and drop them first"


class _ThreadToken:
    """Lives as long as a thread that is served through RMM."""


class ServedRmmDevice:
    """One device's memory: RMM's CallbackMemoryResource calls `allocate` and `free`.

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
        """Allocate `num_bytes`; RMM turns exceptions into MemoryError."""
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
        """Free memory. It raises nothing: the calling C++ accepts no exception here."""
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
        """The `with` ended: wait for the deferred frees, and return what is wholly free to the device."""
        self.is_serving = False
        self._deferred.wait(0, self._device, 0)
        for heap in list(self.heaps.values()):
            heap.give_back()

    def heap_of(self, number: int) -> RmmHeap:
        """The heap of a stream; made if there is none."""
        with self._lock:
            if number not in self.heaps:
                self.heaps[number] = self._inherit() or self._make(number)
            if number < 0 and not hasattr(self._thread, "here"):
                self._thread.here = here = _ThreadToken()
                self._threads[number] = ref(here)
            return self.heaps[number]

    def _inherit(self) -> RmmHeap | None:
        """Take the heap of an ended thread without chunks in use; None: there is none."""
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
        """Carry out the deferred frees whose streams are done."""
        self._deferred.free_ready(0, self._device, 0)

    def _try_again(self, heap: RmmHeap, num_bytes: int, label: int) -> int:
        """Wait for the deferred frees, release the other heaps' free regions, and retry once."""
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
        """Free memory in the heap it came from."""
        try:
            self.heaps[stream].free(pointer)
        except InvalidFree:
            self.lost_frees += 1
            return
        if not self.is_serving:
            with suppress(DeviceError):  # C++ accepts no exception here; a GPU that fails here failed before
                self.heaps[stream].give_back()

    def count(self, noted: int, held: int) -> None:
        """Needs no counts: each request checks."""


_kept: list[Any] = []
"""Objects that RMM holds bare pointers to while any buffer lives: kept forever."""


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
        """The way, and what it means."""
        return (
            "RMM is served: all memory that is allocated through RMM comes from bfcviz's heaps, one per stream; every "
            f"request runs some Python{self._capture.note}"
        )

    @property
    def heaps(self) -> list[RmmHeap]:
        """A heap for each stream used so far; more may come, the default stream's first."""
        return [heap for device in self.devices.values() for heap in list(device.heaps.values())]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failed request, of the first device that had one; None: none failed."""
        return next((each.failure for each in self.devices.values() if each.failure is not None), None)

    def settle(self) -> None:
        """Carry out the deferred frees whose streams are done."""
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
        labels: interns the names of `labels.label`.
        memory: `device`, `managed`, `async` or `virtual`; see `sub_allocators.cuda`.
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
        return cuda_sub_allocator(memory, device, rmm_stream_handle(stream), budget=budget)

    def limit_of(device: int) -> int:
        return share.of(device, rmm.room(device), memory)

    make = HeapFactory(RmmHeap, "rmm", source, limit_of, logs_of_heaps(first), table, options)
    return RmmServed(rmm, make, Capture(table, capture, hide=HIDDEN))
