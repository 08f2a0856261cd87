"""The heaps behind PyTorch's memory (Heaps); the pool by which PyTorch's own allocator uses them (TorchPool)."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Budget, Memory, cuda_sub_allocator
from bfcviz.errors import LiveError, OutOfMemory, PoolTotals
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.live.common.headroom import CAPABILITY_MAJOR, Room, Share
from bfcviz.live.common.served_heap import ServedHeap
from bfcviz.live.torch.stream_table import StreamHeap, StreamTable

SPARE: Final = 4
"""Heaps made in advance for each device: a new stream takes one without running Python."""


class DeviceMemory(Protocol):
    """The source of the heaps' memory."""

    kind: Memory

    def room(self, device: int) -> Room:
        """The memory of a device now."""

    def source(self, device: int, budget: Budget) -> SubAllocator:
        """The sub-allocator of a heap."""


class GpuMemory(DeviceMemory):
    """Memory of the machine's GPUs, queried from the driver: a query through PyTorch would initialize CUDA."""

    def __init__(self, kind: Memory) -> None:
        self.kind = kind

    def room(self, device: int) -> Room:
        """The memory of a device now."""
        driver = cuda_driver.load()
        free, total = ctypes.c_size_t(), ctypes.c_size_t(driver.total_memory(device))
        free.value = total.value
        if driver.has_context(device):  # otherwise the query would create one
            with driver.on(device):
                driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return Room(total.value, free.value, driver.attribute(CAPABILITY_MAJOR, device))

    def source(self, device: int, budget: Budget) -> SubAllocator:
        """The sub-allocator of a heap."""
        return cuda_sub_allocator(self.kind, device, budget=budget)


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

    Args:
        table: receives the heaps; PyTorch's functions find them there.
        share: what each device's heaps may take together.
        log: the log of the first heap; the others write to rings in memory.
        labels: the table of names.
        options: the options of the heaps.
        memory: the source of their memory.
    """

    served: ClassVar[list[TorchHeap]] = []
    """The heaps of all services; they live as long as the process, because tensors may outlive a service."""

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

    def budget(self, device: int) -> Budget:
        """The budget that the heaps of a device share.

        Raises:
            LiveError: the device has less than requested.
        """
        if device not in self._budgets:
            limit = self._share.of(device, self._memory.room(device), self._memory.kind)
            self._budgets[device] = Budget(limit)
        return self._budgets[device]

    def add(self, device: int) -> None:
        """Add a spare heap for a device. The first of all writes to the log that was given."""
        budget = self.budget(device)
        source = self._memory.source(device, budget)  # may fail: then the next heap gets the log
        log, self._log = self._log, None
        name = f"torch cuda:{device}"
        heap = TorchHeap(source, budget.limit, self._options, name=name, log=log, labels=self._labels)
        self._heaps.append((device, heap))
        Heaps.served.append(heap)
        self._table.add(heap, device)

    def in_use(self) -> list[TorchHeap]:
        """The heaps that a stream uses; the first one if none is used."""
        used = [taken.allocator for taken in self._table.in_use()]
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
        for device in self._budgets:
            self.trim(device)

    def errors(self) -> list[BaseException]:
        """The errors of the heaps' sub-allocators."""
        return [error for _, heap in self._heaps if (error := heap.sub_allocator.error) is not None]

    @classmethod
    def contain(cls, address: int) -> bool:
        """Whether an address lies in a region of any service's heaps."""
        return any(heap.contains(address) for heap in cls.served)

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
        _, requested, pool, in_use, largest = taken.failure
        there = [
            each
            for each in self._table.in_use()
            if each.device == taken.device and each.stream != taken.stream
        ]
        others = [(f"stream 0x{each.stream:x}", each.allocator.stats()) for each in there]
        totals = PoolTotals(pool, in_use, largest, taken.allocator.limit)
        return OutOfMemory.of(requested, totals, others=others)

    def _last_failure(self) -> StreamHeap | None:
        failed = [taken for taken in self._table.in_use() if taken.failure[0]]
        return max(failed, key=lambda taken: taken.failure[0], default=None)


class TorchPool:
    """A MemPool of all devices and threads; PyTorch's own caching allocator gets its segments from our heaps.

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
        self._make: Callable[[], Any] = partial(make, allocator)
        self._pool: Any = self._make()
        self._devices = range(torch.cuda.device_count())
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
        self._pool = new
        try:
            self._torch.cuda.empty_cache()
        finally:
            self._open()

    def _open(self) -> None:
        for device in self._devices:
            self._api._cuda_beginAllocateToPool(device, self._pool.id)  # noqa: SLF001

    def _close(self) -> None:
        for device in self._devices:
            self._end(device, self._pool.id)
            self._api._cuda_releasePool(device, self._pool.id)  # noqa: SLF001


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
