"""Cuda: the CuPy functions that bfcviz uses. Some are C functions, found in the table that CuPy's modules export."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from bfcviz.allocator.sub_allocators import cuda_driver
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import Budget, CudaSubAllocator, Memory, cuda_sub_allocator
from bfcviz.allocator.sub_allocators.cuda_driver import LEGACY, PER_THREAD
from bfcviz.errors import DeviceError, LiveError, MissingExtra
from bfcviz.live.deferred_frees import DelayedEvent, RelaxedEvent, StreamEvent
from bfcviz.live.memory_limits import CAPABILITY_MAJOR, Room
from bfcviz.live.numpy.serve import capsule_pointer

HIDDEN: Final = ("cupy", "cupyx", "numpy")
"""Packages whose frames stacks leave out."""

_CAPTURING: Final = range(900, 909)
"""The errors of CUDA calls that a graph capture forbids: cudaErrorStreamCapture..."""

_STREAM_OF: Final = ("cupy_backends.cuda.stream", "get_stream_ptr", b"intptr_t (int)")
_DEVICE_OF: Final = ("cupy.cuda.device", "get_device_id", b"int (int __pyx_skip_dispatch)")


class Cuda:
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
        """Number of this thread's device."""
        return int(self.runtime.getDevice())

    def total_memory(self, device: int) -> int:
        """Bytes a device has."""
        return int(self.cupy.cuda.Device(device).mem_info[1])

    def room(self, device: int) -> Room:
        """The memory of a device now."""
        available, total = self.cupy.cuda.Device(device).mem_info
        return Room(int(total), int(available), cuda_driver.load().attribute(CAPABILITY_MAJOR, device))

    def stream_of(self) -> int:
        """Address of a C function `intptr_t (int device)`: this thread's stream. It needs the GIL and may raise."""
        return _exported_cupy_function(*_STREAM_OF) or _address_of(
            lambda device: self.cupy.cuda.get_current_stream(device).ptr, ctypes.c_ssize_t
        )

    def device_of(self) -> int:
        """Address of a C function `int (int)`: this thread's device. It needs the GIL and may raise; give it 0.

        0: there is one device; asking for the current one would cost each allocation a call of the driver.
        """
        if self.runtime.getDeviceCount() == 1:
            return 0
        return _exported_cupy_function(*_DEVICE_OF) or _address_of(lambda _: self.device(), ctypes.c_int)

    def stream_handle(self, device: int) -> int:
        """This thread's stream."""
        return int(self.cupy.cuda.get_current_stream(device).ptr)

    def stream_object(self, device: int) -> object:
        """CuPy's own object of this thread's stream; a reference keeps the stream, and so its handle, alive."""
        return self.cupy.cuda.get_current_stream(device)

    def record(self, device: int, stream: int) -> StreamEvent:
        """Record an event behind all work in a stream so far; `stream` is this thread's current one.

        While this or another stream is captured and the event is forbidden, it is recorded after the capture.
        """
        event = self._try_to_record(device, handle_of(stream))
        if event is not None:
            return event
        handle = LEGACY if stream < 0 else stream

        def record(_alive: object = self.stream_object(device)) -> StreamEvent | None:
            return self._try_to_record(device, handle)

        return DelayedEvent(record)

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
        """Wait for all work on a device.

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
        """Make a device current, in the mode whose calls break no capture."""
        driver = cuda_driver.load()
        with self.cupy.cuda.Device(device), driver.relaxed():
            yield driver

    # -- memory -------------------------------------------------------------------------------------------------

    def sub_allocator(self, memory: Memory, device: int, stream: int, budget: Budget) -> SubAllocator:
        """The sub-allocator of a heap."""
        return cuda_sub_allocator(memory, device, handle_of(stream), budget=budget)

    def redirect(self, source: SubAllocator, stream: int) -> None:
        """Let a sub-allocator without any grant serve another stream."""
        if isinstance(source, CudaSubAllocator):
            source.stream = handle_of(stream)

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
        """The allocator of this thread, which `cupy.empty` calls."""
        return self.cupy.cuda.get_allocator()

    def pool_of(self, pooled: int) -> Any:
        """A weak reference to the pool of one device that a hook's `pmem_id` belongs to; None: it cannot be told."""
        return getattr(ctypes.cast(pooled, ctypes.py_object).value, "pool", None) if pooled else None

    def is_grant(self, device: int, address: int, size: int) -> bool:
        """Whether an allocation of the driver, of at least `size` bytes, begins at an address now; True if it fails."""
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
        """Whether this thread's allocator is a memory pool."""
        return isinstance(getattr(self.get_allocator(), "__self__", None), self.cupy.cuda.MemoryPool)

    def set_allocator(self, allocator: Any) -> None:
        """Set the allocator of all threads.

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


def handle_of(stream: int) -> int:
    """CUDA's handle of a stream number (`CupyHook.stream`); a thread's default stream only has one in that thread."""
    return PER_THREAD if stream < 0 else stream


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
