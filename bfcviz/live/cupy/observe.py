"""observe_cupy: record what CuPy's own memory pools do, through CuPy's memory hooks.

::

    with observe_cupy() as observed:                      # changes nothing
        train()
"""

import threading
from typing import Any, Final
from weakref import ref

from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.cupy import cupy_api
from bfcviz.live.cupy.hook import HookReports
from bfcviz.live.heap_provider import HeapProvider, ThreadStartHook, log_and_labels, logs_of_heaps
from bfcviz.live.observed_heap import ObservedHeap, Polling
from bfcviz.live.served_heap import IS_COMPILED
from bfcviz.live.stacks import Capture, Captured

_LOOK_S: Final = 0.2
"""Seconds from one look at the pools to the next, while the program allocates nothing."""


class CupyObserved(HeapProvider):
    """What `observe_cupy` returns. As a context manager it observes this thread, and threads that start inside.

    CuPy calls the hooks of the calling thread, so threads that ran before are not recorded. Frees of older arrays, or
    arrays of such a thread, are counted in the heaps' `inconsistencies`. CuPy does not report when a pool releases
    memory to the driver; see `PoolReleases`.
    """

    way = "observe"
    title = "CuPy"

    def __init__(self, cuda: cupy_api.Cuda, log: EventLog, capture: Capture) -> None:
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
        """The way, and what it means."""
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
        """A heap for each device used so far; more may come."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failed request; None: none failed."""
        return self._failure

    def settle(self) -> None:
        """Wait until all reports are recorded, and record what the pools have released."""
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
        """The heap of a device; made at its first use."""
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
        """Number of the device that is current in this thread."""
        return self._cuda.device()

    def granted(self, address: int, size: int) -> None:
        """A pool got memory from the driver for the allocation that this thread is making."""
        if self._is_open and address:
            if threading.get_ident() not in self._granted:
                self._count_grants(1)
            self._granted[threading.get_ident()] = address, size

    def allocated(self, device: int, address: int, size: int, requested: int, pooled: int) -> None:
        """A pool served a request; address 0: the request failed. `size` is rounded up, `pooled` CuPy's `pmem_id`."""
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
        """Memory was freed to a pool."""
        if self._is_open:
            self.heap(device).free(address)

    def settle_heaps(self) -> None:
        """Record the reports that wait."""
        for heap in self.heaps:
            heap.settle()

    def look(self) -> None:
        """Record what the pools have released since the last look."""
        for releases in list(self._releases.values()):
            releases.look()

    def _count_grants(self, by: int) -> None:
        if self._reports is not None:
            self._reports.grants(by)

    def _stream(self, device: int) -> int:
        """The current stream's number, in order of first use; 0: the default stream."""
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

    def __init__(self, cuda: cupy_api.Cuda, device: int, heap: ObservedHeap) -> None:
        self._cuda = cuda
        self._device = device
        self._heap = heap
        self._pools: dict[int, ref[Any]] = {}
        self._expected = 0
        self._foreign: set[int] = set()
        self._lock = threading.RLock()

    def grant(self, address: int, size: int, pool: "ref[Any] | None") -> None:
        """Record that a pool got [address, address + size); None: which one is unknown."""
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
        """Record the releases since the last look.

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
        labels: interns the names of `labels.label`.
        capture: what is recorded with each allocation, as for `serve_cupy`.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: it has no GPU, no driver or the wrong build, or `capture` is none of these, or a stack where bfcviz
            is not compiled.
    """
    logs, table = log_and_labels(log, labels)
    return CupyObserved(cupy_api.Cuda("observed"), logs, Capture(table, capture, hide=cupy_api.HIDDEN))
