"""What bfcviz asks of RMM and of the CUDA bindings that come with it, checked before anything is changed."""

from importlib import import_module
from typing import Any, Final

from bfcviz import native
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.errors import DeviceError, LiveError
from bfcviz.live.shared.deferred_frees import Event, LateEvent
from bfcviz.live.shared.headroom import CAPABILITY_MAJOR, Room

PER_THREAD: Final = 2
"""cudaStreamPerThread: a handle that means another stream in each thread."""

LEGACY: Final = 1
"""cudaStreamLegacy: it waits for all streams but non-blocking ones, so for the default streams of threads, too."""


class Rmm:
    """RMM on a machine with a GPU.

    Args:
        wish: what RMM was to be: `served` or `observed`.

    Raises:
        LiveError: it is not installed, too old, or CUDA does not start.
    """

    def __init__(self, wish: str) -> None:
        try:
            import_module("rmm")
            self.mr = import_module("rmm.mr")
            self._runtime = import_module("cuda.bindings.runtime")
        except ImportError as error:
            raise LiveError(
                f"RMM was to be {wish}, but cannot be imported ({error}): pip install rmm-cu12, or "
                "rmm-cu13, of 2025 or later"
            ) from error
        gpu = import_module("rmm._cuda.gpu")
        try:
            self.devices = int(gpu.getDeviceCount())
        except Exception as error:
            raise LiveError(
                f"RMM was to be {wish}, but CUDA does not start: {error}. It needs an NVIDIA GPU and its "
                "driver. NumPy can "
                "be served without: serve_numpy"
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
        """What there is on a device now."""
        with self.on(device):
            available, total = self.mr.available_device_memory()
        return Room(int(total), int(available), cuda_driver.load().attribute(CAPABILITY_MAJOR, device))

    def has_context(self, device: int) -> bool:
        """Whether this process uses a device already; asking creates no context on it, as making it current does."""
        try:
            return cuda_driver.load().has_context(device)
        except DeviceError:
            return True  # there is nothing to ask: as if it were in use

    def on(self, device: int) -> "_On":
        """Let a device be this thread's for the length of a `with`."""
        return _On(self._gpu, device)

    # -- streams ------------------------------------------------------------------------------------------------

    def record(self, device: int, stream: int) -> Event:
        """An event behind all that was put into a stream so far; while a capture forbids it, one recorded after it."""
        event = self._try_to_record(device, handle_of(stream))
        if event is not None:
            return event
        handle = LEGACY if stream < 0 else stream  # a thread's own stream has no name for others
        return LateEvent(lambda: self._try_to_record(device, handle))

    def synchronize(self, device: int) -> None:
        """Wait for everything on a device; raises LiveError while a graph is captured, which that would break."""
        driver = cuda_driver.load()
        with self.on(device), driver.relaxed():
            if driver.is_capturing(LEGACY):
                raise LiveError(
                    f"device {device} cannot be waited for while a CUDA graph is captured: end the capture first"
                )
            _check(self._runtime.cudaDeviceSynchronize())

    def _try_to_record(self, device: int, handle: int) -> Event | None:
        driver = cuda_driver.load()
        with self.on(device), driver.relaxed():
            if driver.is_capturing(handle):
                return None
            event = _Event(self._runtime)
            event.record(handle)
        return event


def number_of(stream: Any) -> int:
    """A number for a stream: its handle, and for the default stream of this thread one below 0 of the thread's own."""
    handle = int(stream.__cuda_stream__()[1])
    return -1 - native.thread_number() if handle == PER_THREAD else handle


def handle_of(number: int) -> int:
    """The handle of a stream, in the thread it belongs to."""
    return PER_THREAD if number < 0 else number


class _On:
    def __init__(self, gpu: Any, device: int) -> None:
        self._gpu = gpu
        self._device = device
        self._before = device

    def __enter__(self) -> None:
        self._before = self._gpu.getDevice()
        if self._before != self._device:
            self._gpu.setDevice(self._device)

    def __exit__(self, *_: object) -> None:
        if self._before != self._device:
            self._gpu.setDevice(self._before)


class _Event:
    """A CUDA event."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._event = _check(runtime.cudaEventCreateWithFlags(runtime.cudaEventDisableTiming))

    def record(self, stream: int) -> None:
        _check(self._runtime.cudaEventRecord(self._event, self._runtime.cudaStream_t(stream)))

    def query(self) -> bool:
        """Whether what came before it is known to be done."""
        with cuda_driver.load().relaxed():
            (status,) = self._runtime.cudaEventQuery(self._event)
        return int(status) == 0

    def synchronize(self) -> None:
        """Wait until it is."""
        with cuda_driver.load().relaxed():
            _check(self._runtime.cudaEventSynchronize(self._event))

    def __del__(self) -> None:
        if hasattr(self, "_event"):
            self._runtime.cudaEventDestroy(self._event)


def _check(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status):
        raise LiveError(f"CUDA answered {status.name}")
    return values[0] if values else None
