"""What bfcviz asks of RMM and of the CUDA bindings that come with it, checked before anything is changed."""

from importlib import import_module
from typing import Any, Final

from bfcviz import native
from bfcviz.errors import LiveError
from bfcviz.live.keeper import Event

PER_THREAD: Final = 2
"""cudaStreamPerThread: a handle that means another stream in each thread."""


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

    def on(self, device: int) -> "_On":
        """Let a device be this thread's for the length of a `with`."""
        return _On(self._gpu, device)

    # -- streams ------------------------------------------------------------------------------------------------

    def record(self, device: int, stream: int) -> Event:
        """An event behind all that was put into a stream so far."""
        with self.on(device):
            event = _Event(self._runtime)
            event.record(handle_of(stream))
        return event

    def synchronize(self, device: int) -> None:
        """Wait for everything on a device."""
        with self.on(device):
            _check(self._runtime.cudaDeviceSynchronize())


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
        (status,) = self._runtime.cudaEventQuery(self._event)
        return int(status) == 0

    def synchronize(self) -> None:
        """Wait until it is."""
        _check(self._runtime.cudaEventSynchronize(self._event))

    def __del__(self) -> None:
        if hasattr(self, "_event"):
            self._runtime.cudaEventDestroy(self._event)


def _check(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if int(status):
        raise LiveError(f"CUDA answered {status.name}")
    return values[0] if values else None
