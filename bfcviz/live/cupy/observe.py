"""observe_cupy: record what CuPy's own memory pools do, through CuPy's memory hooks.

::

    with observe_cupy() as observed:                      # changes nothing
        train()
"""

from typing import Any

from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Captured
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import ObservedHeap, log_and_labels
from bfcviz.live.common.thread_start import ThreadStartHook
from bfcviz.live.cupy import cupy_api


class CupyObserved(HeapProvider):
    """What `observe_cupy` returns. As a context manager it observes this thread, and threads that start inside.

    CuPy calls the hooks of the calling thread, so threads that ran before are not recorded. CuPy does not report when a
    pool releases memory to the driver: a new grant of the same addresses implies it. Frees of older arrays, or arrays
    of such a thread, are counted in the heaps' `inconsistencies`.

    Attributes:
        way: `observe`.
    """

    way = "observe"
    title = "CuPy"

    def __init__(self, cuda: cupy_api.Cuda, log: EventLog, capture: Capture) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._cuda = cuda
        self._log: EventLog | None = log
        self._heaps: dict[int, ObservedHeap] = {}
        self._streams: dict[int, int] = {}
        self._failure: OutOfMemory | None = None
        self._is_open = False
        self._hook = _hook_class(cuda.cupy)(self)
        self._thread_start = ThreadStartHook(lambda: self._is_open, self._observe_thread)
        self.heap(cuda.device())

    @property
    def description(self) -> str:
        """The way, and what it means."""
        text = (
            "CuPy is observed: its own pool serves it; the allocations of this thread and of threads started here are "
            "recorded. Threads that ran before are not recorded, nor memory that the pool releases to the driver"
            f"{self._capture.note}"
        )
        if self._cuda.has_pool():
            return text
        return (
            f"{text}. CuPy's allocator is not a memory pool now, and CuPy reports only what memory pools do"
        )

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap for each device used so far; more may come."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failed request; None: none failed."""
        return self._failure

    def settle(self) -> None:
        """Wait until all reports are recorded."""
        for heap in self.heaps:
            heap.settle()

    def _start(self) -> None:
        self._capture.use()
        self._observe_thread()
        self._is_open = True
        self._thread_start.begin()

    def _stop(self, _error: BaseException | None) -> None:
        self._is_open = False  # other threads keep the hook, which then does nothing
        self._thread_start.end()
        self._hook.__exit__()
        self.settle()

    # -- calls of the hooks ------------------------------------------------------------------------------------

    def heap(self, device: int) -> ObservedHeap:
        """The heap of a device; made at its first use."""
        if device not in self._heaps:
            log, self._log = self._log, None
            total = self._cuda.total_memory(device)
            made = ObservedHeap(log, self.labels, name=f"cupy:{device}", limit=total, device_total=total)
            self._heaps.setdefault(device, made)  # another thread may have added one
        return self._heaps[device]

    def device(self) -> int:
        """Number of the device that is current in this thread."""
        return self._cuda.device()

    def granted(self, device: int, address: int, size: int) -> None:
        """A pool got memory from the driver."""
        if self._is_open and address:
            self.heap(device).grant(address, size)

    def allocated(self, device: int, address: int, size: int, requested: int) -> None:
        """A pool served a request; address 0: the request failed."""
        if not self._is_open or requested == 0:
            return
        heap, label = self.heap(device), self._capture.number()
        if address:
            heap.allocate(address, size, requested, label, self._stream(device))
        else:
            available = self._cuda.room(device).available
            heap.oom(requested, label, self._stream(device), device_free=available)
            self._failure = OutOfMemory.of(requested, heap.stats(), rounded=(requested + 511) // 512 * 512)

    def freed(self, device: int, address: int) -> None:
        """Memory was freed to a pool."""
        if self._is_open:
            self.heap(device).free(address)

    def _stream(self, device: int) -> int:
        """The current stream's number, in order of first use; 0: the default stream."""
        handle = int(self._cuda.stream_handle(device))
        return self._streams.setdefault(handle, len(self._streams) + 1) & 0xFFFF if handle else 0

    def _observe_thread(self) -> None:
        try:
            self._hook.__enter__()
        except KeyError as error:
            raise LiveError(
                f"CuPy has a memory hook named {self._hook.name!r} in this thread already"
            ) from error


def _hook_class(cupy: Any) -> Any:
    """A subclass of CuPy's MemoryHook. CuPy calls it at a free before the pool can reuse the memory.

    A pool allocates on the current device, but CuPy 14 passes hooks another one: the device that was current when the
    pools of all devices were made. At a free it passes the device of the memory.
    """

    class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "bfcviz"

        def __init__(self, observed: CupyObserved) -> None:
            self.observed = observed

        def alloc_postprocess(self, *, mem_size: int, mem_ptr: int, **_: Any) -> None:
            self.observed.granted(self.observed.device(), mem_ptr, mem_size)

        def malloc_postprocess(self, *, size: int, mem_size: int, mem_ptr: int, **_: Any) -> None:
            self.observed.allocated(self.observed.device(), mem_ptr, mem_size, size)

        def free_preprocess(self, *, device_id: int, mem_ptr: int, **_: Any) -> None:
            self.observed.freed(device_id, mem_ptr)

    return Hook


def observe_cupy(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    capture: Captured = None,
) -> CupyObserved:
    """Record what CuPy's own memory pools do, within a `with`, without changing anything; see `CupyObserved`.

    Args:
        log: receives the events of the current device; a recording includes its labels. Other devices get rings in
            memory.
        labels: interns the names of `labels.label`.
        capture: what is recorded with each allocation, as for `serve_cupy`.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: it has no GPU, no driver or the wrong build, or `capture` is none of these, or a stack where bfcviz
            is not compiled.
    """
    logs, table = log_and_labels(log, labels)
    return CupyObserved(cupy_api.Cuda("observed"), logs, Capture(table, capture, hide=cupy_api.HIDDEN))
