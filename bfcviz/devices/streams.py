"""The work queues of a GPU: CUDA streams on a real GPU, threads on a simulated one."""

import ctypes
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from bfcviz.allocator.cuda_driver import Driver
from bfcviz.errors import DevicesError

P = ParamSpec("P")
T = TypeVar("T")

NAMES: Final = ("compute", "host_to_device", "device_to_host", "device_to_device")
"""Names of a GPU's streams, as in TensorFlow; stream numbers in events count from 1."""

_NON_BLOCKING: Final = 1


class Stream:
    """A work queue of a GPU, which runs in parallel to others: a CUDA stream on a real GPU, a thread otherwise.

    Attributes:
        name: one of NAMES.
        number: stream number in events, 1..4.
        handle: handle of the CUDA stream; 0 for a simulated GPU.
        closed: whether it refuses new work.
    """

    def __init__(self, name: str, number: int, driver: Driver | None = None, device: int = 0) -> None:
        self.name = name
        self.number = number
        self.handle = 0
        self._driver = driver
        self._device = device
        self.closed = False
        self._used = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"bfcviz-{name}")
        if driver is not None:
            created = ctypes.c_void_p()
            with driver.on(device):
                driver.call("cuStreamCreate", ctypes.byref(created), _NON_BLOCKING)
            self.handle = created.value or 0
            self._destroy = weakref.finalize(self, _destroy_cuda_stream, driver, device, self.handle)
            self._destroy.atexit = False  # a process that exits, or a forked one, must not call CUDA

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a host function after all work submitted to the stream before; on CUDA, after the stream's work is done.

        Raises:
            DevicesError: the stream is closed.
        """
        if self.closed:
            raise DevicesError(f"stream {self.name} is closed and takes no work: start another session")
        self._used = True

        def after_cuda() -> T:
            self._wait_for_cuda()
            return function(*args, **kwargs)

        return self._worker.submit(after_cuda)

    def synchronize(self) -> None:
        """Wait until all work submitted to the stream is done."""
        if self._used and not self.closed:
            self._worker.submit(int).result()
        self._wait_for_cuda()

    def close(self) -> None:
        """Finish the submitted work and close the stream."""
        self.closed = True
        self._worker.shutdown()
        if self._driver is not None:
            self._destroy()

    def __cuda_stream__(self) -> tuple[int, int]:
        """CUDA's stream protocol (version, handle), for CuPy's `Stream.from_external` and others.

        Raises:
            DevicesError: the GPU is simulated.
        """
        if self._driver is None:
            raise DevicesError(
                f"stream {self.name} belongs to a simulated GPU: it has no CUDA stream to share"
            )
        return 0, self.handle

    def _wait_for_cuda(self) -> None:
        if self._driver is not None and self._destroy.alive:
            with self._driver.on(self._device):
                self._driver.call("cuStreamSynchronize", ctypes.c_void_p(self.handle))

    def __repr__(self) -> str:
        return f"<Stream {self.number} {self.name}{'' if self._driver else ', simulated'}>"


def _destroy_cuda_stream(driver: Driver, device: int, handle: int) -> None:
    if driver.is_forked:
        return  # the parent owns the stream
    with driver.on(device):
        driver.try_call("cuStreamDestroy_v2", ctypes.c_void_p(handle))
