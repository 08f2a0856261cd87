"""The functions of RMM and of its CUDA bindings that bfcviz uses, checked before anything changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from bfcviz import native
from bfcviz.allocator.sub_allocators import cuda_driver
from bfcviz.allocator.sub_allocators.cuda_driver import LEGACY, PER_THREAD
from bfcviz.errors import DeviceError, LiveError
from bfcviz.live.deferred_frees import DelayedEvent, StreamEvent
from bfcviz.live.memory_limits import CAPABILITY_MAJOR, Room

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
        """Number of this thread's device."""
        return int(self._gpu.getDevice())

    def total_memory(self, device: int) -> int:
        """Bytes a device has."""
        with self.on(device):
            return int(self.mr.available_device_memory()[1])

    def room(self, device: int) -> Room:
        """The memory of a device now."""
        with self.on(device):
            available, total = self.mr.available_device_memory()
        return Room(int(total), int(available), cuda_driver.load().attribute(CAPABILITY_MAJOR, device))

    def has_context(self, device: int) -> bool:
        """Whether this process uses a device already; the query creates no context, unlike making it current."""
        try:
            return cuda_driver.load().has_context(device)
        except DeviceError:
            return True  # the query is not possible: assume that it is in use

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make a device current in this thread within a `with`."""
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
        """Record an event behind all work in a stream so far; if a capture forbids it, after the capture."""
        event = self._try_to_record(device, rmm_stream_handle(stream))
        if event is not None:
            return event
        handle = LEGACY if stream < 0 else stream  # other threads have no handle of a thread's own stream
        return DelayedEvent(lambda: self._try_to_record(device, handle))

    def synchronize(self, device: int) -> None:
        """Wait for all work on a device; raises LiveError during a graph capture, which waiting would break."""
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
            if driver.is_capturing(handle):
                return None
            event = _RmmEvent(self._runtime)
            event.record(handle)
        return event


def rmm_stream_number(stream: Any) -> int:
    """The number of RMM's stream: its handle; negative for this thread's default stream, unique to the thread."""
    handle = int(stream.__cuda_stream__()[1])
    return -1 - native.thread_number() if handle == PER_THREAD else handle


def rmm_stream_handle(number: int) -> int:
    """The handle of the number of RMM's stream, valid in the thread of the stream."""
    return PER_THREAD if number < 0 else number


class _RmmEvent:
    """A CUDA event, through the bindings that RMM uses."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._event = _checked_rmm_answer(runtime.cudaEventCreateWithFlags(runtime.cudaEventDisableTiming))

    def record(self, stream: int) -> None:
        _checked_rmm_answer(self._runtime.cudaEventRecord(self._event, self._runtime.cudaStream_t(stream)))

    def query(self) -> bool:
        """Whether all work before it is done."""
        with cuda_driver.load().relaxed():
            (status,) = self._runtime.cudaEventQuery(self._event)
        return int(status) == 0

    def synchronize(self) -> None:
        """Wait until that work is done."""
        with cuda_driver.load().relaxed():
            _checked_rmm_answer(self._runtime.cudaEventSynchronize(self._event))

    def __del__(self) -> None:
        if hasattr(self, "_event"):
            self._runtime.cudaEventDestroy(self._event)


def _checked_rmm_answer(answer: tuple[Any, ...]) -> Any:
    """What a function of RMM's CUDA bindings returned; raises LiveError if it failed."""
    status, *values = answer
    if int(status):
        raise LiveError(f"CUDA answered {status.name}")
    return values[0] if values else None
