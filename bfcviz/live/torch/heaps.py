"""The heaps behind PyTorch's memory: made ahead for each device, counted together, trimmed together."""

import ctypes
from typing import ClassVar, Final, Protocol

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.choice import Budget, Memory, cuda_sub_allocator
from bfcviz.errors import OutOfMemory, PoolTotals
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.live.shared.headroom import CAPABILITY_MAJOR, Room, Share
from bfcviz.live.shared.lent_heap import LentHeap
from bfcviz.live.torch.lanes import Lane, Lanes

SPARE: Final = 4
"""Heaps made ahead for each device: a new stream takes one without any Python."""


class DeviceMemory(Protocol):
    """Where the heaps' memory comes from."""

    kind: Memory

    def room(self, device: int) -> Room:
        """What there is on a device now."""

    def source(self, device: int, budget: Budget) -> SubAllocator:
        """Where a heap's regions come from."""


class GpuMemory(DeviceMemory):
    """Memory of the machine's GPUs, queried from the driver: a query through PyTorch would initialize CUDA."""

    def __init__(self, kind: Memory) -> None:
        self.kind = kind

    def room(self, device: int) -> Room:
        """What the device has now: total and free bytes."""
        driver = cuda_driver.load()
        free, total = ctypes.c_size_t(), ctypes.c_size_t(driver.total_memory(device))
        free.value = total.value
        if driver.has_context(device):  # else asking would create one
            with driver.on(device):
                driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return Room(total.value, free.value, driver.attribute(CAPABILITY_MAJOR, device))

    def source(self, device: int, budget: Budget) -> SubAllocator:
        """The source of a heap's regions."""
        return cuda_sub_allocator(self.kind, device, budget=budget)


class TorchHeap(LentHeap):
    """A heap behind tensors."""

    users = "PyTorch"
    advice = "drop the tensors and call torch.cuda.empty_cache() first"

    def contains(self, address: int) -> bool:
        """Whether an address lies in one of its regions."""
        regions = self.regions()
        return bool(
            ((regions["address"] <= address) & (address - regions["address"] < regions["size"])).any()
        )


class Heaps:
    """The heaps of one service, some for each device. Those of a device share one budget.

    Args:
        lanes: where PyTorch's functions find them.
        share: what each device's heaps may take together.
        log: of the first heap; the others write to rings in memory.
        labels: where names are interned.
        options: how the heaps behave.
        memory: where their memory comes from.
    """

    served: ClassVar[list[TorchHeap]] = []
    """The heaps of all services; they stay with the process, as tensors may outlive a service."""

    def __init__(
        self,
        lanes: Lanes,
        share: Share,
        log: EventLog | None,
        labels: Labels,
        options: AllocatorOptions,
        memory: DeviceMemory,
    ) -> None:
        self._lanes = lanes
        self._share = share
        self._log = log
        self._labels = labels
        self._options = options
        self._memory = memory
        self._heaps: list[tuple[int, TorchHeap]] = []  # with their devices, in the order they were made
        self._budgets: dict[int, Budget] = {}

    def budget(self, device: int) -> Budget:
        """What the heaps of a device share.

        Raises:
            LiveError: the device has less than was asked for.
        """
        if device not in self._budgets:
            limit = self._share.of(device, self._memory.room(device), self._memory.kind)
            self._budgets[device] = Budget(limit)
        return self._budgets[device]

    def add(self, device: int) -> None:
        """A spare heap for a device. The first of all writes to the log that was given."""
        budget = self.budget(device)
        source = self._memory.source(device, budget)  # may fail: the log is then the next heap's
        log, self._log = self._log, None
        name = f"torch cuda:{device}"
        heap = TorchHeap(source, budget.limit, self._options, name=name, log=log, labels=self._labels)
        self._heaps.append((device, heap))
        Heaps.served.append(heap)
        self._lanes.add(heap, device)

    def in_use(self) -> list[TorchHeap]:
        """Those that a stream has taken; the first one where none is."""
        used = [lane.allocator for lane in self._lanes.in_use()]
        heaps = [heap for _, heap in self._heaps]
        return [heap for heap in heaps if heap in used] or heaps[:1]

    def of(self, device: int) -> list[TorchHeap]:
        """Those of one device."""
        return [heap for there, heap in self._heaps if there == device]

    def requested_in_use(self) -> int:
        """Bytes that PyTorch asked for and did not give back, on all devices."""
        return sum(heap.stats().requested_bytes_in_use for _, heap in self._heaps)

    def trim(self, device: int) -> bool:
        """Give the wholly free regions of a device's heaps back, for the next request may be another heap's."""
        return sum(heap.trim() for heap in self.of(device)) > 0

    def trim_all(self) -> None:
        """Do so on all devices."""
        for device in self._budgets:
            self.trim(device)

    def errors(self) -> list[BaseException]:
        """What went wrong where their memory comes from."""
        return [error for _, heap in self._heaps if (error := heap.sub_allocator.error) is not None]

    @classmethod
    def contain(cls, address: int) -> bool:
        """Whether an address lies in a region of any service's heaps."""
        return any(heap.contains(address) for heap in cls.served)

    # -- what failed --------------------------------------------------------------------------------------------

    def number_of_failures(self) -> int:
        """A number that grows with every request that fails; 0: none has."""
        lane = self._last_failure()
        return 0 if lane is None else lane.failure[0]

    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers behind the last request that failed; the heap may have changed since."""
        lane = self._last_failure()
        if lane is None:
            return None
        _, requested, pool, in_use, largest = lane.failure
        there = [
            each for each in self._lanes.in_use() if each.device == lane.device and each.stream != lane.stream
        ]
        others = [(f"stream 0x{each.stream:x}", each.allocator.stats()) for each in there]
        totals = PoolTotals(pool, in_use, largest, lane.allocator.limit)
        return OutOfMemory.of(requested, totals, others=others)

    def _last_failure(self) -> Lane | None:
        failed = [lane for lane in self._lanes.in_use() if lane.failure[0]]
        return max(failed, key=lambda lane: lane.failure[0], default=None)
