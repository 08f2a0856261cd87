"""The heaps behind PyTorch's memory (Heaps); the pool by which PyTorch's own allocator uses them (TorchPool)."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import RLock, Thread
from typing import Any, ClassVar, Protocol
from weakref import ref

from bfcviz import _forks
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Budget, Memory, cuda_sub_allocator
from bfcviz.errors import BfcvizError, LiveError, OutOfMemory, PoolTotals
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.live.common.headroom import CAPABILITY_MAJOR, Room, Share
from bfcviz.live.common.served_heap import ServedHeap
from bfcviz.live.torch import torch_api
from bfcviz.live.torch.stream_table import StreamHeap, StreamTable


class DeviceMemory(Protocol):
    """The source of the heaps' memory."""

    kind: Memory

    def total(self, device: int) -> int:
        """Bytes of a device. Unlike `room` this creates no context."""

    def room(self, device: int) -> Room:
        """The memory of a device now."""

    def source(self, device: int, budget: Budget, stream: Callable[[], int]) -> SubAllocator:
        """The sub-allocator of a heap; `stream` returns the handle of the stream that uses it."""


class GpuMemory(DeviceMemory):
    """Memory of the machine's GPUs, queried from the driver: a query through PyTorch would initialize CUDA."""

    def __init__(self, kind: Memory) -> None:
        self.kind = kind

    def total(self, device: int) -> int:
        """Bytes of a device."""
        return cuda_driver.load().total_memory(device)

    def room(self, device: int) -> Room:
        """The memory of a device now. Only in a context the driver says what other processes left free."""
        driver = cuda_driver.load()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with driver.on(device):
            driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return Room(total.value, free.value, driver.attribute(CAPABILITY_MAJOR, device))

    def source(self, device: int, budget: Budget, stream: Callable[[], int]) -> SubAllocator:
        """The sub-allocator of a heap."""
        return cuda_sub_allocator(self.kind, device, stream, budget=budget)


class TorchHeap(ServedHeap):
    """A heap behind PyTorch's tensors."""

    users = "PyTorch"
    advice = "drop the tensors and call torch.cuda.empty_cache() first"

    def contains(self, address: int) -> bool:
        """Whether an address lies in one of its regions."""
        regions = self.regions()
        start = regions["address"]
        is_inside = (start <= address) & (address - start < regions["size"])
        return bool(is_inside.any())


class Heaps:
    """The heaps of one service, several for each device. The heaps of a device share one budget.

    A device's limit is determined with its first heap: when the service begins for the current device, and for others
    when PyTorch first requests memory there. Before that, a device has no context, and what is free is not known.

    Args:
        table: receives the heaps; PyTorch's functions find them there.
        share: what each device's heaps may take together.
        log: the log of the first heap; the others write to rings in memory.
        labels: the table of names.
        options: the options of the heaps.
        memory: the source of their memory.
    """

    served: ClassVar[dict[TorchHeap, "Heaps"]] = {}
    """The heaps that PyTorch may have memory of, of all services: tensors may outlive theirs."""
    _tidying_lock: ClassVar[Any] = _forks.keep(RLock())
    _tidying: ClassVar[Thread | None] = None
    """Returns what such tensors leave; it ends with the last of them."""

    def __init__(
        self,
        table: StreamTable,
        share: Share,
        log: EventLog | None,
        labels: Labels,
        options: AllocatorOptions,
        memory: DeviceMemory,
    ) -> None:
        self._table = table
        self._share = share
        self._log = log
        self._labels = labels
        self._options = options
        self._memory = memory
        self._heaps: list[tuple[int, TorchHeap]] = []  # with their devices, in order of creation
        self._budgets: dict[int, Budget] = {}
        self._past: list[StreamHeap] = []  # what the table said of heaps when they were removed from it
        self._told: tuple[int, OutOfMemory] | None = None  # the last failure, as it was when first read
        self._lock = _forks.keep(RLock())

    def check(self, device: int) -> None:
        """Raise LiveError if a device has less than the given limit."""
        self._share.fixed(device, self._memory.total(device), self._memory.kind)

    def budget(self, device: int) -> Budget:
        """The budget that the heaps of a device share.

        Raises:
            LiveError: the device has less than requested.
        """
        if device not in self._budgets:
            limit = self._share.of(device, self._memory.room(device), self._memory.kind)
            self._budgets[device] = Budget(limit)
        return self._budgets[device]

    def begin(self, device: int) -> None:
        """Let the heaps serve, and make one for a device that has none."""
        Heaps.tidy()
        for owner, heap in self._heaps:
            if heap not in Heaps.served and not heap.heap.closed:
                self._put(heap, owner)
            heap.is_serving = True
        if not any(heap in Heaps.served for heap in self.of(device)):
            self.add(device)

    def end(self) -> None:
        """The service ended: return what is free. Heaps without tensors are forgotten."""
        self.out_of_memory()
        for _, heap in self._heaps:
            heap.is_serving = False
        Heaps.tidy()
        with Heaps._tidying_lock:
            if self._has_late() and (Heaps._tidying is None or not Heaps._tidying.is_alive()):
                Heaps._tidying = Thread(target=Heaps._tidy_late, args=(self._table,), daemon=True)
                Heaps._tidying.name = "bfcviz: return PyTorch's memory"
                Heaps._tidying.start()

    @staticmethod
    def _has_late() -> bool:
        return not all(heap.is_serving for heap in list(Heaps.served))

    @staticmethod
    def _tidy_late(table: StreamTable) -> None:
        for _ in table.late_frees():
            with suppress(BfcvizError):  # a GPU that fails here has failed before
                Heaps.tidy()
            with Heaps._tidying_lock:
                if not Heaps._has_late():
                    Heaps._tidying = None
                    return

    @staticmethod
    def tidy() -> None:
        """Return what heaps of services that ended have free, and forget those that PyTorch has no memory of."""
        errors: list[BaseException] = []
        for heap, owner in list(Heaps.served.items()):
            if heap.is_serving:
                continue
            try:
                heap.give_back()
            except BfcvizError as error:
                errors.append(error)
            owner._forget(heap)  # noqa: SLF001  another object of this class
        if errors:
            raise errors[0]

    def _forget(self, heap: TorchHeap) -> None:
        rows = [taken for taken in self._table.in_use() if taken.allocator is heap]
        if not heap.holds_memory and self._table.remove(heap):
            self._past += rows
            del Heaps.served[heap]

    def add(self, device: int) -> None:
        """Add a spare heap for a device. The first of all writes to the log that was given."""
        with self._lock:
            budget = self.budget(device)
            made: list[ref[TorchHeap]] = []

            def stream() -> int:
                heap = made[0]() if made else None
                return next((each.stream for each in self._table.in_use() if each.allocator is heap), 0)

            source = self._memory.source(device, budget, stream)  # may fail: then the next heap gets the log
            log, self._log = self._log, None
            name = f"torch cuda:{device}"
            heap = TorchHeap(source, budget.limit, self._options, name=name, log=log, labels=self._labels)
            heap.is_serving = True
            made.append(ref(heap))
            self._heaps.append((device, heap))
            self._put(heap, device)

    def _put(self, heap: TorchHeap, device: int) -> None:
        Heaps.served[heap] = self
        self._table.add(heap, device)

    def in_use(self) -> list[TorchHeap]:
        """The heaps that a stream uses or used; the first one if none is used."""
        used = [taken.allocator for taken in self._rows()]
        heaps = [heap for _, heap in self._heaps]
        return [heap for heap in heaps if heap in used] or heaps[:1]

    def of(self, device: int) -> list[TorchHeap]:
        """The heaps of one device."""
        return [heap for owner, heap in self._heaps if owner == device]

    def requested_in_use(self) -> int:
        """Bytes that PyTorch requested and has not freed, on all devices."""
        return sum(heap.stats().requested_bytes_in_use for _, heap in self._heaps)

    def trim(self, device: int) -> bool:
        """Release the wholly free regions of a device's heaps, so that other heaps of the device can grow."""
        return sum(heap.trim() for heap in self.of(device)) > 0

    def trim_all(self) -> None:
        """Release them on all devices."""
        for device in list(self._budgets):
            self.trim(device)

    def errors(self) -> list[BaseException]:
        """The errors of the heaps' sub-allocators."""
        return [error for _, heap in self._heaps if (error := heap.sub_allocator.error) is not None]

    @classmethod
    def contain(cls, address: int) -> bool:
        """Whether an address lies in a region of any service's heaps."""
        return any(heap.contains(address) for heap in list(cls.served))

    # -- failures -----------------------------------------------------------------------------------------------

    def number_of_failures(self) -> int:
        """The number of the last failed request; grows with each failure; 0: none."""
        taken = self._last_failure()
        return 0 if taken is None else taken.failure[0]

    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failed request; the heap may have changed since."""
        taken = self._last_failure()
        if taken is None:
            return None
        number, requested, pool, in_use, largest = taken.failure
        if self._told is not None and self._told[0] == number:
            return self._told[1]
        there = [
            each
            for each in self._table.in_use()
            if each.device == taken.device and each.stream != taken.stream
        ]
        others = [(f"stream 0x{each.stream:x}", each.allocator.stats()) for each in there]
        totals = PoolTotals(pool, in_use, largest, taken.allocator.limit)
        self._told = number, OutOfMemory.of(requested, totals, others=others)
        return self._told[1]

    def _last_failure(self) -> StreamHeap | None:
        failed = [taken for taken in self._rows() if taken.failure[0]]
        return max(failed, key=lambda taken: taken.failure[0], default=None)

    def _rows(self) -> list[StreamHeap]:
        return [*self._past, *self._table.in_use()]


class TorchPool:
    """A MemPool of each device, for all threads; PyTorch's own caching allocator gets its segments from our heaps.

    PyTorch knows the allocator of a MemPool only on the device that it was made on; on others it calls cudaMalloc.
    `torch.cuda.use_mem_pool` would route only the calling thread, and not the threads of autograd.
    """

    def __init__(self, torch: Any, allocator: Any) -> None:
        make = getattr(torch.cuda, "MemPool", None)
        self._api = torch._C  # noqa: SLF001
        # Before 2.8 it has another name, and a pool serves one thread only.
        self._end: Any = getattr(self._api, "_cuda_endAllocateToPool", None)
        if make is None or self._end is None or not hasattr(self._api, "_cuda_beginAllocateToPool"):
            raise LiveError(
                f"PyTorch {torch.__version__} has no memory pools for this (since 2.8 it does): give "
                "mechanism='replace' before the first use of CUDA, or observe it: observe_torch"
            )
        self._torch = torch
        self._make_one: Callable[[], Any] = partial(make, allocator)
        self._pools = self._make()
        self._unlocked = _Unlocked(torch)

    def begin(self) -> None:
        """Allocate everything from the pool from now on."""
        self._unlocked.begin()
        self._open()

    def end(self) -> None:
        """Allocate nothing more from the pool. torch.cuda.empty_cache() frees its cached segments without tensors."""
        self._close()
        self._unlocked.end()

    def renew(self) -> None:
        """Let PyTorch free all segments without tensors, and continue with a new pool.

        PyTorch frees no segment of a pool in use, and defers frees of memory that `record_stream` was called on. No
        other thread may allocate meanwhile: PyTorch deletes an empty pool even if another thread is allocating a
        segment for it, because its lock is released there, and would crash.
        """
        new = self._make()
        self._close()
        self._pools = new
        try:
            self._torch.cuda.empty_cache()
        finally:
            self._open()

    def _make(self) -> list[Any]:
        """A pool for each device."""
        pools = []
        for device in range(self._torch.cuda.device_count()):
            with torch_api.device_named(self._torch, device):
                pools.append(self._make_one())
        return pools

    def _open(self) -> None:
        for device, pool in enumerate(self._pools):
            self._api._cuda_beginAllocateToPool(device, pool.id)  # noqa: SLF001

    def _close(self) -> None:
        for device, pool in enumerate(self._pools):
            self._end(device, pool.id)
            self._api._cuda_releasePool(device, pool.id)  # noqa: SLF001


class _Unlocked:
    """Lets PyTorch allocate segments without holding its own lock, by its setting for that.

    A heap that grows may have to wait for the GIL, and the thread that holds the GIL may wait for PyTorch's lock.
    """

    _SETTING = "release_lock_on_cudamalloc"

    def __init__(self, torch: Any) -> None:
        old = getattr(torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None)  # noqa: SLF001
        self._set: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", old)  # noqa: SLF001
        self._settings = torch.cuda.memory._snapshot().get("allocator_settings", {})  # noqa: SLF001
        self._is_wanted = self._set is not None and self._settings.get(self._SETTING) is False

    def begin(self) -> None:
        self._apply("True")

    def end(self) -> None:
        self._apply("False")

    def _apply(self, value: str) -> None:
        if self._is_wanted:  # settings that are not repeated fall back to their defaults
            named = self._settings.get("PYTORCH_CUDA_ALLOC_CONF", "")
            self._set(",".join(filter(None, (named, f"{self._SETTING}:{value}"))))
