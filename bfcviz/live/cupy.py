"""CuPy: served from instrumented heaps of GPU memory, or observed while its own pools work.

::

    with serve_cupy("8GiB", log=recording) as served:     # records every split, merge and extension
        train()

    with observe_cupy() as observed:                      # changes nothing
        train()
"""

import atexit
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from weakref import WeakSet, ref

from bfcviz import _forks
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.cuda import Budget, CudaSubAllocator, Memory, cuda_sub_allocator
from bfcviz.allocator.cuda_driver import LEGACY
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.errors import BfcvizError, DeviceError, LiveError, MissingExtra, OutOfMemory
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.c_callbacks import CupyHook, HookReports
from bfcviz.live.deferred_frees import DeferredFrees, RelaxedEvent, StreamEvent, event_behind, stream_handle
from bfcviz.live.heap_provider import HeapProvider, ThreadStartHook, log_and_labels, logs_of_heaps
from bfcviz.live.memory_limits import CAPABILITY_MAJOR, Room, Share
from bfcviz.live.numpy import capsule_pointer
from bfcviz.live.observed_heap import ObservedHeap, Polling
from bfcviz.live.served_heap import IS_COMPILED, OPTIONS, HeapFactory, ServedHeap, require_compiled
from bfcviz.live.stack_capture import Capture, Captured
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# CupyFunctions: the functions of CuPy that bfcviz uses. Some are C functions, found in tables that its modules export.


HIDDEN: Final = ("cupy", "cupyx", "numpy")
"""Packages whose frames stacks leave out."""

_CAPTURING: Final = range(900, 909)
"""The errors of CUDA calls that a graph capture forbids: cudaErrorStreamCapture..."""

_STREAM_OF: Final = ("cupy_backends.cuda.stream", "get_stream_ptr", b"intptr_t (int)")
_DEVICE_OF: Final = ("cupy.cuda.device", "get_device_id", b"int (int __pyx_skip_dispatch)")


class CupyFunctions:
    """CuPy on a machine with a GPU.

    Args:
        wish: what to do with CuPy, for errors: `served` or `observed`.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: CuPy cannot be imported, is not built for CUDA, or finds no matching device and driver.
    """

    def __init__(self, wish: str) -> None:
        self.cupy = _import_cupy(wish)
        self.runtime = self.cupy.cuda.runtime
        if self.runtime.is_hip:
            raise LiveError(
                f"CuPy cannot be {wish}: this is a build for ROCm, and bfcviz supports CUDA. Install cupy-cuda12x or "
                "cupy-cuda13x"
            )
        try:
            self.runtime.getDeviceCount()
        except self.runtime.CUDARuntimeError as error:
            raise LiveError(
                f"CuPy {self.cupy.__version__} cannot be {wish}: CUDA does not start: {error}. It needs an NVIDIA "
                f"GPU and a driver for CUDA {self.runtime.runtimeGetVersion() // 1000} (in a container: --gpus all). "
                "NumPy needs no GPU: serve_numpy"
            ) from error

    # -- devices and streams ------------------------------------------------------------------------------------

    def device(self) -> int:
        """Number of the device that CuPy uses in this thread."""
        return int(self.runtime.getDevice())

    def total_memory(self, device: int) -> int:
        """Bytes a device has, as CuPy says."""
        return int(self.cupy.cuda.Device(device).mem_info[1])

    def room(self, device: int) -> Room:
        """The memory of a device now, as CuPy says."""
        available, total = self.cupy.cuda.Device(device).mem_info
        return Room(int(total), int(available), cuda_driver.load().attribute(CAPABILITY_MAJOR, device))

    def stream_of(self) -> int:
        """Address of a C function `intptr_t (int device)`: CuPy's stream here. It needs the GIL and may raise."""
        return _exported_cupy_function(*_STREAM_OF) or _address_of(
            lambda device: self.cupy.cuda.get_current_stream(device).ptr, ctypes.c_ssize_t
        )

    def device_of(self) -> int:
        """Address of a C function `int (int)`: CuPy's device of this thread. It needs the GIL and may raise; give it 0.

        0: there is one device; asking for the current one would cost each allocation a call of the driver.
        """
        if self.runtime.getDeviceCount() == 1:
            return 0
        return _exported_cupy_function(*_DEVICE_OF) or _address_of(lambda _: self.device(), ctypes.c_int)

    def stream_handle(self, device: int) -> int:
        """The handle of CuPy's stream in this thread."""
        return int(self.cupy.cuda.get_current_stream(device).ptr)

    def stream_object(self, device: int) -> object:
        """CuPy's own object of this thread's stream; a reference keeps the stream, and so its handle, alive."""
        return self.cupy.cuda.get_current_stream(device)

    def record(self, device: int, stream: int) -> StreamEvent:
        """Record a CuPy event behind all work in a stream so far; `stream` is this thread's current one.

        While this or another stream is captured and the event is forbidden, it is recorded after the capture.
        """
        record = partial(self._try_to_record, device)
        return event_behind(record, stream, lambda: self.stream_object(device))

    def _try_to_record(self, device: int, handle: int) -> StreamEvent | None:
        with self._on(device) as driver:
            if driver.is_capturing(handle):
                return None
            event = self.cupy.cuda.Event(disable_timing=True)
            try:
                self.runtime.eventRecord(event.ptr, handle)
            except self.runtime.CUDARuntimeError as error:
                if getattr(error, "status", 0) not in _CAPTURING:
                    raise
                return None
        return RelaxedEvent(lambda: event.done, event.synchronize)

    def synchronize(self, device: int) -> None:
        """Wait for all of CuPy's work on a device.

        Raises:
            LiveError: a stream of this thread is being captured; waiting would break the capture.
        """
        with self._on(device) as driver:
            if driver.is_capturing(LEGACY) or driver.is_capturing(self.stream_handle(device)):
                raise LiveError(
                    f"cannot wait for device {device} while a CUDA graph is captured: end the capture first"
                )
            self.runtime.deviceSynchronize()

    @contextmanager
    def _on(self, device: int) -> Iterator[cuda_driver.Driver]:
        """Make a device current for CuPy, in the mode whose calls break no capture."""
        driver = cuda_driver.load()
        with self.cupy.cuda.Device(device), driver.relaxed():
            yield driver

    # -- memory -------------------------------------------------------------------------------------------------

    def sub_allocator(self, memory: Memory, device: int, stream: int, budget: Budget) -> SubAllocator:
        """The sub-allocator of a heap that CuPy is served from."""
        return cuda_sub_allocator(memory, device, stream_handle(stream), budget=budget)

    def redirect(self, source: SubAllocator, stream: int) -> None:
        """Let CuPy's sub-allocator without any grant serve another stream."""
        if isinstance(source, CudaSubAllocator):
            source.stream = stream_handle(stream)

    def allocator_of(self, functions: tuple[Any, ...]) -> Callable[[int], Any]:
        """CuPy's own allocator around `CupyHook.functions`."""
        malloc: Callable[[int], Any] = self.cupy.cuda.memory.CFunctionAllocator(*functions, None).malloc
        return malloc

    def empty_cache(self, device: int) -> int:
        """Let CuPy's own pools return their idle memory of a device; returns how many bytes they had.

        Not by what is free then: other processes allocate and free meanwhile.
        """
        memory = self.cupy.cuda.memory
        own = getattr(self.get_allocator(), "__self__", None)
        pools = [self.cupy.get_default_memory_pool()]
        if isinstance(own, memory.MemoryPool | memory.MemoryAsyncPool) and own is not pools[0]:
            pools.append(own)
        with self._on(device):
            before = sum(int(pool.total_bytes()) for pool in pools)
            for pool in pools:
                pool.free_all_blocks()
            return max(before - sum(int(pool.total_bytes()) for pool in pools), 0)

    def get_allocator(self) -> Any:
        """CuPy's allocator of this thread, which `cupy.empty` calls."""
        return self.cupy.cuda.get_allocator()

    def pool_of(self, pooled: int) -> Any:
        """A weak reference to CuPy's pool of one device that a hook's `pmem_id` belongs to; None: it cannot be told."""
        return getattr(ctypes.cast(pooled, ctypes.py_object).value, "pool", None) if pooled else None

    def is_grant(self, device: int, address: int, size: int) -> bool:
        """Whether the driver has an allocation for CuPy, of at least `size` bytes, at an address; True if it fails."""
        base, length = ctypes.c_uint64(), ctypes.c_size_t()
        arguments = (ctypes.byref(base), ctypes.byref(length), ctypes.c_uint64(address))
        try:
            driver = cuda_driver.load()
            with driver.on(device):
                status = driver.try_call("cuMemGetAddressRange_v2", *arguments)
        except DeviceError:  # the context is lost: the program finds out by itself
            return True
        return status == 0 and base.value == address and length.value >= size

    def has_pool(self) -> bool:
        """Whether CuPy's allocator in this thread is a memory pool."""
        return isinstance(getattr(self.get_allocator(), "__self__", None), self.cupy.cuda.MemoryPool)

    def set_allocator(self, allocator: Any) -> None:
        """Set CuPy's allocator of all threads.

        Raises:
            LiveError: within `cupy.cuda.using_allocator`.
        """
        try:
            self.cupy.cuda.set_allocator(allocator)
        except ValueError as error:
            raise LiveError(
                "CuPy's allocator cannot change within cupy.cuda.using_allocator, which sets this thread's own: leave "
                "that `with` first"
            ) from error


def _import_cupy(wish: str) -> Any:
    if find_spec("cupy") is None:
        raise MissingExtra(f"CuPy was to be {wish}, which", "cupy", "cuda12")
    try:
        return import_module("cupy")
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise LiveError(
            f"CuPy cannot be {wish}: its import fails ({type(error).__name__}: {text}). Install one build that fits "
            "the driver, cupy-cuda12x or cupy-cuda13x, and no other cupy"
        ) from error


def _exported_cupy_function(module: str, name: str, signature: bytes) -> int:
    """The address of a C function that a module of CuPy's exports; 0: this version has none of this signature."""
    capsule = getattr(import_module(module), "__pyx_capi__", {}).get(name)
    if capsule is None or _cupy_capsule_signature(capsule) != signature:
        return 0
    return capsule_pointer(capsule, signature)


def _cupy_capsule_signature(capsule: object) -> bytes:
    get = ctypes.pythonapi.PyCapsule_GetName
    get.restype, get.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return bytes(get(capsule) or b"")


_kept: list[Any] = []


def _address_of(function: Callable[[int], int], returned: Any) -> int:
    """The address of a Python function in place of one of CuPy's C functions, kept forever. An error returns 0."""
    made = ctypes.PYFUNCTYPE(returned, ctypes.c_int)(function)
    _kept.append(made)
    return ctypes.cast(made, ctypes.c_void_p).value or 0


# ------------------------------------------------------------------------------
# serve_cupy: CuPy's arrays on instrumented heaps of GPU memory.


def cupy_out_of_memory(theirs: type, numbers: OutOfMemory) -> OutOfMemory:
    """The error that a served CuPy raises, with these numbers; programs catch it as CuPy's, `theirs`, too."""
    return _class_of_both(theirs)(**numbers.numbers())


@cache
def _class_of_both(theirs: type) -> type[OutOfMemory]:
    """The class of the error that a served CuPy raises: a subclass of bfcviz's and of CuPy's."""
    return type("OutOfMemory", (OutOfMemory, theirs), {"__module__": OutOfMemory.__module__})


def _cupy_stream_references(table: dict[Any, Any], key: object) -> int:
    """Python's reference count of a CuPy stream in a table; includes references of this function itself."""
    return sys.getrefcount(table[key])


_ALONE = _cupy_stream_references({0: object()}, 0)
"""The reference count of an entry that only the table references."""


class _HookReference:
    """The owner of deferred frees while CuPy is served: a weak reference to the hook."""

    def __init__(self, hook: "CupyHook") -> None:
        self._hook = ref(hook)

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        hook = self._hook()
        if hook is not None:
            hook.give_back(pointer, device, stream)

    def count(self, noted: int, held: int) -> None:
        hook = self._hook()
        if hook is not None:
            hook.count(noted, held)


class _ThreadStream:
    """A thread's own default stream of CuPy's. Other threads can only wait for the whole device."""

    def __init__(self, cuda: CupyFunctions, device: int) -> None:
        self._cuda = cuda
        self._device = device

    def synchronize(self) -> None:
        """Wait for all of CuPy's work on the device."""
        self._cuda.synchronize(self._device)


class CupyStreamHeaps:
    """CuPy's heaps by stream; the methods that `CupyHook` calls take `(pointer, device, stream, current stream)`.

    Each stream has its own heap, and freed memory returns to the heap it came from. A stream works in order, so its
    own memory can be reused at once. Three cases need more:

    - Memory is freed while another stream is current. That stream may still use the memory. An event is recorded in
      it, and the chunk stays in use until the event is done (`DeferredFrees`). CuPy's own pool does not wait. As with
      that pool, the program itself must take care of streams that are not current at the free.
    - A stream is destroyed, and a new stream gets its handle. So each heap keeps CuPy's object of its stream alive;
      only a foreign stream (`ExternalStream`) can be destroyed before its heap, and must not be before its work is
      done. A thread's own default stream ends with the thread: an object that only the thread owns stands for it.
      When only the heap still references the object and no chunk is in use, the heap is reused: at the next new
      stream it waits for the old stream, releases its regions and serves the new one.
    - A heap is out of memory while others have free regions. They release these, which for plain memory waits for the
      device, and the request is retried once.

    Attributes:
        heaps: by device and stream, in order of creation.
        failure: numbers of the last request that failed after the retry; None: none has.
    """

    def __init__(self, cuda: CupyFunctions, make: Callable[[int, int], "CupyHeap"]) -> None:
        self.heaps: dict[tuple[int, int], CupyHeap] = {}
        self.failure: OutOfMemory | None = None
        self._cuda = cuda
        self._make = make
        self._streams: dict[tuple[int, int], Any] = {}
        self._process = os.getpid()
        self._lock = _forks.keep(threading.RLock())
        self._thread = threading.local()
        self._hook: Callable[[], CupyHook | None] = lambda: None
        self._deferred: DeferredFrees | None = None

    def open(self, hook: "CupyHook") -> None:
        """Serve the requests of this hook of CuPy's."""
        self._hook = ref(hook)
        owner: Any = _HookReference(hook)
        self._deferred = DeferredFrees(owner, lambda _: None, self._cuda)

    def require(self, device: int) -> None:
        """Make the heap of CuPy's stream in this thread if there is none; raises the error if that fails."""
        hook = self._hook()
        if hook is not None and not self.add_heap(0, device, hook.stream(device), 0):
            self.raise_error()

    def add_heap(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Make the heap of a new stream of CuPy's; False: it failed, `recover` raises the error."""
        hook = self._hook()
        with self._lock:
            if hook is None or (device, stream) in self.heaps:
                return hook is not None
            try:
                kept = self._stream_object(device, stream)
                if self._inherit(hook, device, stream, kept):
                    return True
                heap = self._make(device, stream)
            except Exception as error:  # noqa: BLE001  called from C: `recover` raises it
                self._thread.error = error
                return False
            self.heaps[device, stream], self._streams[device, stream] = heap, kept
            hook.add(heap, device, stream)
        return True

    def _inherit(self, hook: "CupyHook", device: int, stream: int, kept: object) -> bool:
        """Reuse the heap of a destroyed stream of CuPy's, and empty all such heaps; False: there is none."""
        free = [key for key in list(self._streams) if key[0] == device and self._release(key)]
        for old in free[:1]:
            heap = self.heaps[old]
            self._cuda.redirect(heap.sub_allocator, stream)
            self.heaps[device, stream] = self.heaps.pop(old)
            self._streams[device, stream] = kept
            del self._streams[old]
            hook.move(device, old[1], stream)
        return bool(free)

    def _release(self, key: tuple[int, int]) -> bool:
        """Release the regions of a heap whose CuPy stream is destroyed and done, without chunks in use; else False."""
        heap = self.heaps[key]
        if _cupy_stream_references(self._streams, key) > _ALONE or heap.stats().chunks_in_use:
            return False
        if heap.stats().pool_bytes == 0:
            return True
        try:
            self._streams[key].synchronize()
        except Exception:  # noqa: BLE001  a foreign stream, destroyed already
            try:
                self._cuda.synchronize(key[0])
            except LiveError:  # a graph is being captured: try again later
                return False
        heap.trim()  # stream-ordered memory must be released in the old stream
        return True

    def _stream_object(self, device: int, stream: int) -> Any:
        """An object that lives as long as a stream: CuPy's own; for a thread's default stream one of the thread."""
        if stream >= 0:
            return self._cuda.stream_object(device)
        streams: dict[int, _ThreadStream] = self._thread.__dict__.setdefault("streams", {})
        return streams.setdefault(device, _ThreadStream(self._cuda, device))

    def defer(self, pointer: int, device: int, stream: int, now: int) -> bool:
        """Defer CuPy's free under another stream until that stream is done; returns whether it is deferred."""
        hook = self._hook()
        if self._deferred is None or hook is None or now == ~stream:
            self._cuda.synchronize(device)  # the stream is unknown
            return False
        is_held = self._deferred.defer_until(pointer, device, stream, [now])
        if is_held and not hook.is_open:  # no later request would carry it out
            self._deferred.wait(0, device, stream)
        return is_held

    def free_ready(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Carry out CuPy's deferred frees whose events are done."""
        return self._deferred is not None and self._deferred.free_ready(0, device, stream)

    def wait(self) -> None:
        """Wait for all of CuPy's deferred frees and carry them out."""
        for device in {device for device, _ in list(self.heaps)}:
            if self._deferred is not None:
                self._deferred.wait(0, device, 0)

    def give_back(self) -> None:
        """Return the wholly free regions of CuPy's heaps of all devices."""
        for heap in list(self.heaps.values()):
            heap.give_back()

    def tidy(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Return the wholly free regions of a heap of CuPy's. A GPU that fails here has failed before."""
        with suppress(BfcvizError):
            self.heaps[device, stream].give_back()
        return True

    def heaps_of(self, device: int) -> "list[CupyHeap]":
        """CuPy's heaps of a device."""
        return [heap for (place, _), heap in list(self.heaps.items()) if place == device]

    def trim(self, device: int) -> int:
        """Release the wholly free regions of CuPy's heaps of a device; returns how many bytes."""
        self.free_ready(0, device, 0, 0)
        return sum(heap.trim() for heap in self.heaps_of(device))

    def recover(self, hook: "CupyHook", size: int) -> Any:
        """A request of CuPy's got no memory: make room and retry once, as CuPy's pool does.

        Raises:
            OutOfMemory: the retry failed, too.
            LiveError: this is a forked process.
        """
        if os.getpid() != self._process:
            raise LiveError(
                "CuPy was asked for memory in a forked process, where CUDA does not work: start the process with "
                "multiprocessing's 'spawn'"
            )
        self.raise_error()
        device = self._cuda.device()
        stream = hook.stream(device)
        gc.collect()
        self.wait()
        self.trim(device)
        pointer = hook.malloc(size)
        if pointer.ptr:
            return pointer
        self.raise_error()
        self.failure = self._numbers(device, stream, size)
        raise cupy_out_of_memory(self._cuda.cupy.cuda.memory.OutOfMemoryError, self.failure)

    def raise_error(self) -> None:
        """Raise CuPy's error of this thread's last `add_heap`, or of a heap's sub-allocator; none: do nothing."""
        error, self._thread.error = getattr(self._thread, "error", None), None
        for heap in list(self.heaps.values()):
            kept = heap.sub_allocator.error
            if error is None and kept is not None:
                error, heap.sub_allocator.error = kept, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it references this frame and its callers: they would live until a garbage collection

    def _numbers(self, device: int, stream: int, size: int) -> OutOfMemory:
        """The totals after a request of CuPy's stream failed."""
        heap = self.heaps[device, stream]
        others = [(other.name, other.stats()) for other in self.heaps_of(device) if other is not heap]
        return OutOfMemory.of(size, heap.stats(), others=others)


_MEMORY: Final = {
    "device": "memory of the device",
    "managed": "memory shared by device and host",
    "async": "the driver's own pool",
    "virtual": "virtual memory, in regions that grow in place",
}


class CupyHeap(ServedHeap):
    """The heap behind CuPy's arrays."""

    is_serving = True
    users = "CuPy arrays"
    advice = "leave serve_cupy's `with` and drop them first; without arrays the heap closes automatically"


class CupyServed(HeapProvider):
    """What `serve_cupy` returns. As a context manager it serves all threads; it can be entered again."""

    way = "serve"
    title = "CuPy"

    def __init__(
        self,
        cuda: CupyFunctions,
        make: Callable[[int, int], CupyHeap],
        capture: Capture,
        description: str,
        emptied: list[int],
    ) -> None:
        self.labels = capture.labels
        self._description = description
        self._emptied = emptied  # bytes of CuPy's own pools
        self._capture = capture
        self._cuda = cuda
        self.stream_heaps = CupyStreamHeaps(cuda, make)
        self._hook = CupyHook(self.stream_heaps, cuda.stream_of(), capture.use(), capture.walker)
        self._hook.malloc = cuda.allocator_of(self._hook.functions())
        self._hook.plain = cuda.get_allocator()  # a thread may request memory during `__enter__`
        self.stream_heaps.open(self._hook)
        self._before: Any = None
        self.stream_heaps.require(cuda.device())
        self._serving(on=False)
        _hooks.add(self._hook)

    @property
    def description(self) -> str:
        """How CuPy is served, and what that means, as a sentence."""
        emptied = sum(self._emptied)
        if not emptied:
            return self._description
        return (
            f"{self._description}. CuPy's own pool was emptied first: {format_bytes(emptied)} without arrays went back "
            "to the device"
        )

    @property
    def heaps(self) -> list[BFCAllocator]:
        """CuPy's heaps, one for each stream used so far; more may come."""
        return list(self.stream_heaps.heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of CuPy's last failed request; None: none failed."""
        return self.stream_heaps.failure

    def settle(self) -> None:
        """Carry out CuPy's deferred frees whose streams are done."""
        self.stream_heaps.free_ready(0, 0, 0, 0)

    # -- the methods of CuPy's MemoryPool, for the current device -------------------------------------------------

    def free_all_blocks(self) -> int:
        """Release the wholly free regions of CuPy's heaps on this device; returns how many bytes.

        CuPy's own `free_all_blocks` empties CuPy's pool, which is not in use here.
        """
        return self.stream_heaps.trim(self._cuda.device())

    def used_bytes(self) -> int:
        """Bytes of CuPy's chunks in use: arrays, padding, and deferred frees."""
        return sum(heap.stats().bytes_in_use for heap in self.stream_heaps.heaps_of(self._cuda.device()))

    def free_bytes(self) -> int:
        """Free bytes of the heaps that CuPy is served from."""
        return sum(heap.stats().free_bytes for heap in self.stream_heaps.heaps_of(self._cuda.device()))

    def total_bytes(self) -> int:
        """Bytes that CuPy's heaps allocated from the device."""
        return sum(heap.stats().pool_bytes for heap in self.stream_heaps.heaps_of(self._cuda.device()))

    # -- begin and end of the `with` ----------------------------------------------------------------------------

    def _start(self) -> None:
        self._capture.use()
        for device in {device for device, _ in list(self.stream_heaps.heaps)}:
            self._emptied.append(self._cuda.empty_cache(device))
        self._hook.return_regions(late=False)
        before = self._cuda.get_allocator()
        self._cuda.set_allocator(self._hook.serve)
        if before != self._hook.serve:  # equal if it could not be restored before
            self._before = self._hook.plain = before
        self._hook.is_open = True
        self._serving(on=True)

    def _stop(self, error: BaseException | None) -> None:
        self._hook.is_open = False  # remaining callers get the previous allocator
        self._serving(on=False)
        if self._cuda.get_allocator() == self._hook.serve:
            self._cuda.set_allocator(self._before)
        self._hook.return_regions(late=True)
        try:
            self.stream_heaps.wait()
            self.stream_heaps.give_back()
        except Exception:
            if error is None:  # otherwise the GPU repeats the first error
                raise

    def _serving(self, *, on: bool) -> None:
        for heap in list(self.stream_heaps.heaps.values()):
            heap.is_serving = on


def serve_cupy(
    limit: int | str | None = None,
    *,
    fraction: float | None = None,
    headroom: int | str | None = None,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    memory: Memory = "device",
    capture: Captured = None,
    options: AllocatorOptions = OPTIONS,
) -> CupyServed:
    """Allocate CuPy's new arrays from instrumented heaps, within a `with`, in all threads.

    Each stream of a device has its own heap. Arrays may outlive the `with`, and keep their heaps alive; what no array
    needs goes back to the device at the end of the `with`, the rest with the arrays. Arrays that a captured graph uses
    must live as long as the graph.

    Args:
        limit: of the heaps of one device together, in bytes or as text. Default: what is free once CuPy's own pool is
            emptied, less a headroom (`memory_limits`).
        fraction: the limit as a share of the device's total memory; give at most one of the three.
        headroom: bytes, or text, of the free memory to leave free.
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns the names of `labels_and_marks.label`.
        memory: `device`, `managed`, `async` or `virtual`; see `allocator.cuda`.
        capture: `nothing`, `label`, `stack` or `Stacks` with options; default: the stack, or the label if uncompiled.
        options: of the heaps.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: bfcviz is not compiled; CuPy has no GPU, no driver or the wrong build; the limit exceeds the device;
            `capture` is none of these; on entering: it is served already.
        DeviceError: the driver reports an error.
        InvalidRequest: a limit, fraction or headroom is out of range, or several are given.
        ValueError: a text is not a size.
    """
    require_compiled("Serving CuPy")
    if memory not in _MEMORY:
        raise LiveError(f"memory={memory!r} was given; choose one of {', '.join(_MEMORY)}")
    cuda = CupyFunctions("served")
    share = Share.parse(limit, fraction, headroom)
    first, table = log_and_labels(log, labels)

    emptied: list[int] = []

    @cache
    def limit_of(device: int) -> int:
        emptied.append(cuda.empty_cache(device))
        return share.of(device, cuda.room(device), memory)

    def source(device: int, stream: int, budget: Budget) -> SubAllocator:
        return cuda.sub_allocator(memory, device, stream, budget)

    make = HeapFactory(CupyHeap, "cupy", source, limit_of, logs_of_heaps(first), table, options)
    recorded = Capture(table, capture, hide=HIDDEN)
    description = (
        "CuPy is served: new arrays come from bfcviz's heaps, one per stream, of at most "
        f"{format_bytes(limit_of(cuda.device()))} per device together ({_MEMORY[memory]}); every split, merge and "
        "extension is recorded"
    )
    return CupyServed(cuda, make, recorded, description, emptied)


_hooks: WeakSet[CupyHook] = WeakSet()
_EXIT_WAIT_S: Final = 5.0  # seconds to wait for running calls when Python exits


@atexit.register
def _end_cupy_hooks_at_exit() -> None:
    """Python exits while CuPy is served: it may free its last arrays when Python cannot run any more.

    A daemon thread that requests the GIL later is killed. Within a call of CuPy, which is C++, that would abort the
    process: so this waits until the running calls return.
    """
    hooks = list(_hooks)
    for hook in hooks:
        hook.end()
    deadline = time.monotonic() + _EXIT_WAIT_S
    while any(hook.inside for hook in hooks) and time.monotonic() < deadline:
        time.sleep(0.001)


# ------------------------------------------------------------------------------
# observe_cupy: what CuPy's own memory pools do, through CuPy's memory hooks.


_LOOK_S: Final = 0.2  # seconds from one look at the pools to the next, while the program allocates nothing


class CupyObserved(HeapProvider):
    """What `observe_cupy` returns. As a context manager it observes this thread, and threads that start inside.

    CuPy calls the hooks of the calling thread, so threads that ran before are not recorded. Frees of older arrays, or
    arrays of such a thread, are counted in the heaps' `inconsistencies`. CuPy does not report when a pool releases
    memory to the driver; see `PoolReleases`.
    """

    way = "observe"
    title = "CuPy"

    def __init__(self, cuda: CupyFunctions, log: EventLog, capture: Capture) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._cuda = cuda
        self._logs = logs_of_heaps(log)
        self._heaps: dict[int, ObservedHeap] = {}
        self._releases: dict[int, PoolReleases] = {}
        self._granted: dict[int, tuple[int, int]] = {}
        self._streams: dict[int, int] = {}
        self._failure: OutOfMemory | None = None
        self._is_open = False
        self._reports: HookReports | None = None
        if IS_COMPILED:
            self._reports = HookReports(cuda.stream_of(), cuda.device_of(), capture.use(), capture.walker)
        self._hook = _hook_class(cuda.cupy, self._reports)(self)
        self._thread_start = ThreadStartHook(lambda: self._is_open, self._observe_thread)
        self._polling = Polling(self.look, _LOOK_S, "bfcviz-cupy", share=0.02)
        self.heap(cuda.device())

    @property
    def description(self) -> str:
        """How CuPy's pools are observed, and what that means, as a sentence."""
        text = (
            "CuPy is observed: its own pool serves it; the allocations of this thread and of threads started here are "
            "recorded. Threads that ran before are not recorded. Memory that the pool releases to the driver is "
            f"recorded some {_LOOK_S} s later, at the latest at the end{self._capture.note}"
        )
        if self._cuda.has_pool():
            return text
        return (
            f"{text}. CuPy's allocator is not a memory pool now, and CuPy reports only what memory pools do"
        )

    @property
    def heaps(self) -> list[ObservedHeap]:
        """The observed heap of each device that CuPy used so far; more may come."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of CuPy's last failed request; None: none failed."""
        return self._failure

    def settle(self) -> None:
        """Wait until all reports of CuPy's hooks are recorded, and record what the pools have released."""
        self.settle_heaps()
        for releases in list(self._releases.values()):
            releases.look(thorough=True)

    def _start(self) -> None:
        self._capture.use()
        self._polling.start()
        try:
            self._observe_thread()
        except BaseException:
            self._polling.stop()
            raise
        self._is_open = True
        if self._reports is not None:
            self._reports.open(self)
        self._thread_start.begin()

    def _stop(self, error: BaseException | None) -> None:
        self._polling.stop()
        self._is_open = False  # other threads keep the hook, which then does nothing
        if self._reports is not None:
            self._reports.open(None)
        self._count_grants(-len(self._granted))  # of threads that allocate now
        self._granted.clear()
        self._thread_start.end()
        self._hook.__exit__()
        self._polling.last(error)
        self.settle()

    # -- calls of the hooks ------------------------------------------------------------------------------------

    def heap(self, device: int) -> ObservedHeap:
        """The observed heap of CuPy's pools on a device; made at its first use."""
        if device not in self._heaps:
            log = next(self._logs)
            total = self._cuda.total_memory(device)
            made = ObservedHeap(log, self.labels, name=f"cupy:{device}", limit=total, device_total=total)
            made = self._heaps.setdefault(device, made)  # another thread may have added one
            self._releases.setdefault(device, PoolReleases(self._cuda, device, made))
            if self._reports is not None:
                self._reports.add(device, made.reports())
        return self._heaps[device]

    def device(self) -> int:
        """Number of the device that is current for CuPy in this thread."""
        return self._cuda.device()

    def granted(self, address: int, size: int) -> None:
        """A pool of CuPy's got memory from the driver for the allocation that this thread is making."""
        if self._is_open and address:
            if threading.get_ident() not in self._granted:
                self._count_grants(1)
            self._granted[threading.get_ident()] = address, size

    def allocated(self, device: int, address: int, size: int, requested: int, pooled: int) -> None:
        """CuPy's pool served a request; address 0: the request failed. `size` is rounded up, `pooled` the `pmem_id`."""
        if not self._is_open or requested == 0:
            return
        heap, label = self.heap(device), self._capture.number()
        granted = self._granted.pop(threading.get_ident(), None)
        if granted is not None:
            self._count_grants(-1)
        if address:
            if granted is not None:
                self._releases[device].grant(*granted, self._cuda.pool_of(pooled))
            heap.allocate(address, size, requested, label, self._stream(device))
        else:
            self._releases[device].look(thorough=True)  # the pool has released all it can, and tried again
            available = self._cuda.room(device).available
            heap.oom(requested, label, self._stream(device), device_free=available)
            self._failure = OutOfMemory.of(requested, heap.stats(), rounded=size)

    def freed(self, device: int, address: int) -> None:
        """Memory was freed to a pool of CuPy's."""
        if self._is_open:
            self.heap(device).free(address)

    def settle_heaps(self) -> None:
        """Record the reports of CuPy's hooks that wait."""
        for heap in self.heaps:
            heap.settle()

    def look(self) -> None:
        """Record what CuPy's pools have released since the last look."""
        for releases in list(self._releases.values()):
            releases.look()

    def _count_grants(self, by: int) -> None:
        if self._reports is not None:
            self._reports.grants(by)

    def _stream(self, device: int) -> int:
        """The number of CuPy's current stream, in order of first use; 0: the default stream."""
        handle = int(self._cuda.stream_handle(device))
        if not handle:
            return 0
        number = self._streams.setdefault(handle, len(self._streams) + 1)
        if self._reports is not None:
            self._reports.number(handle, number)
        return number & 0xFFFF

    def _observe_thread(self) -> None:
        try:
            self._hook.__enter__()
        except KeyError as error:
            raise LiveError(
                f"CuPy has a memory hook named {self._hook.name!r} in this thread already"
            ) from error


class PoolReleases:
    """Finds what CuPy's pools of a device have released to the driver: no hook tells it.

    A pool's `total_bytes` then differs from what it was granted. The driver says which grants are gone; where memory is
    not the driver's own allocation (a pool over other functions), all wholly free grants that fit the difference are.
    """

    def __init__(self, cuda: CupyFunctions, device: int, heap: ObservedHeap) -> None:
        self._cuda = cuda
        self._device = device
        self._heap = heap
        self._pools: dict[int, ref[Any]] = {}
        self._expected = 0
        self._foreign: set[int] = set()
        self._lock = threading.RLock()

    def grant(self, address: int, size: int, pool: "ref[Any] | None") -> None:
        """Record that a pool of CuPy's got [address, address + size); None: which one is unknown."""
        with self._lock:
            if pool is not None:
                self._expected += size if id(pool) in self._pools else _bytes_of_cupy_pool(pool)
                self._pools[id(pool)] = pool
            self.look()  # what made room for it
            if self._cuda.is_grant(self._device, address, size):
                self._foreign.discard(address)
            else:
                self._foreign.add(address)
            self._heap.grant(address, size)

    def look(self, *, thorough: bool = False) -> None:
        """Record what CuPy's pools have released since the last look.

        Args:
            thorough: also look for grants that are gone while chunks in them seem to be in use, because frees were not
                reported: those of threads that ran before, and of a pool that the program dropped.
        """
        with self._lock:
            total = sum(map(_bytes_of_cupy_pool, self._pools.values()))
            if total == self._expected and not thorough:
                return
            missing = self._expected - total
            self._expected = total
            foreign = []
            for address, size, is_free in self._heap.grants():
                if address in self._foreign:
                    foreign += [(address, size)] * is_free
                elif (is_free or thorough) and not self._cuda.is_grant(self._device, address, size):
                    missing -= size
                    self._heap.release(address) if is_free else self._heap.lose(address)
            if foreign and sum(size for _, size in foreign) <= missing:
                for address, _ in foreign:
                    self._heap.release(address)


def _bytes_of_cupy_pool(pool: "ref[Any]") -> int:
    alive = pool()
    return 0 if alive is None else int(alive.total_bytes())


def _hook_class(cupy: Any, reports: HookReports | None) -> Any:
    """What observe_cupy hooks in: a subclass of CuPy's MemoryHook, called at a free before the pool reuses the memory.

    A pool allocates on the current device, but CuPy 14 passes hooks another one: the device that was current when the
    pools of all devices were made. At a free it passes the device of the memory.
    """

    class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "bfcviz"

        def __init__(self, observed: CupyObserved) -> None:
            self.observed = observed
            self.thread = threading.local()

        def malloc_preprocess(self, **_: Any) -> None:
            self.thread.depth = getattr(self.thread, "depth", 0) + 1

        def alloc_postprocess(self, *, mem_size: int, mem_ptr: int, **_: Any) -> None:
            self.observed.granted(mem_ptr, mem_size)

        def malloc_postprocess(
            self, *, size: int, mem_size: int, mem_ptr: int, pmem_id: int, **_: Any
        ) -> None:
            self.thread.depth -= 1
            if not self.thread.depth:  # else another pool gets this memory: see bfc_cu_depth
                self.observed.allocated(self.observed.device(), mem_ptr, mem_size, size, pmem_id)

        def free_preprocess(self, *, device_id: int, mem_ptr: int, **_: Any) -> None:
            self.observed.freed(device_id, mem_ptr)

    for name, method in (reports.methods() if reports is not None else {}).items():
        setattr(Hook, name, method)
    return Hook


def observe_cupy(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    capture: Captured = None,
) -> CupyObserved:
    """Record what CuPy's own memory pools do, within a `with`, without changing anything; see `CupyObserved`.

    Args:
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns the names of `labels_and_marks.label`.
        capture: what is recorded with each allocation, as for `serve_cupy`.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: it has no GPU, no driver or the wrong build, or `capture` is none of these, or a stack where bfcviz
            is not compiled.
    """
    logs, table = log_and_labels(log, labels)
    return CupyObserved(CupyFunctions("observed"), logs, Capture(table, capture, hide=HIDDEN))
