"""RmmServed: what RMM gives to cuDF, CuPy and PyTorch comes from instrumented heaps."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import ref

from bfcviz import _forks
from bfcviz.errors import BfcvizError, InvalidFree, LiveError, OutOfMemory
from bfcviz.live.capture.stacks import Capture
from bfcviz.live.rmm.api import Rmm, number_of
from bfcviz.live.shared.deferred_frees import Keeper
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.live.shared.lent_heap import LentHeap

_kept: list[Any] = []
"""What RMM holds bare pointers to, for as long as any buffer lives: for good."""


class RmmHeap(LentHeap):
    """A heap behind buffers."""

    users = "RMM's buffers"
    advice = "leave serve_rmm's `with` and drop them first"


class _Thread:
    """Goes with its thread."""


class Device:
    """One device's memory, as RMM asks for it: `allocate` and `free` are what its CallbackMemoryResource calls.

    Memory belongs to the stream it was allocated for. Freed on another one, it is held back until that has done what it
    was told so far: RMM promises no more than that.

    Args:
        device: its number.
        rmm: RMM.
        make: makes the heap of a stream, by its number.
        capture: what is recorded with each allocation.
    """

    def __init__(self, device: int, rmm: Rmm, make: Callable[[int], RmmHeap], capture: Capture) -> None:
        self.heaps: dict[int, RmmHeap] = {}
        self.failure: OutOfMemory | None = None
        self.lost_frees = 0  # of addresses that no heap knows, or whose readers cannot be waited for
        self._device = device
        self._make = make
        self._capture = capture
        self._owners: dict[int, int] = {}  # stream by address
        self._rmm = rmm
        self._threads: dict[int, ref[_Thread]] = {}  # by the number of their own default stream
        self._thread = threading.local()
        self._lock = _forks.keep(threading.RLock())
        self._keeper = Keeper(self, lambda _: None, rmm)

    def allocate(self, num_bytes: int, stream: Any) -> int:
        """Memory for `num_bytes`; RMM makes a MemoryError of what this raises."""
        if num_bytes == 0:
            return 0
        number = number_of(stream)
        self._keeper.let_go(0, self._device, number)
        heap = self.heap_of(number)
        label = self._capture.number()
        try:
            address = heap.allocate(num_bytes, 256, label)
        except OutOfMemory:
            address = self._try_again(heap, num_bytes, label)
        self._owners[address] = number
        return address

    def free(self, address: int, _num_bytes: int, stream: Any) -> None:
        """Memory comes back. Raises nothing: there is C++ above that takes no exception here."""
        owner = self._owners.pop(address, None)
        if owner is None:
            self.lost_frees += address != 0
            return
        try:
            number = number_of(stream)
            is_held = number != owner and self._keeper.hold_for(address, self._device, owner, [number])
        except Exception:  # noqa: BLE001  CUDA fails: it stays in use, for somebody may still read it
            self.lost_frees += 1
            return
        if not is_held:
            self.give_back(address, self._device, owner)

    def heap_of(self, number: int) -> RmmHeap:
        """The heap of a stream, made where there is none."""
        with self._lock:
            if number not in self.heaps:
                self.heaps[number] = self._inherit() or self._make(number)
            if number < 0 and not hasattr(self._thread, "here"):
                self._thread.here = here = _Thread()
                self._threads[number] = ref(here)
            return self.heaps[number]

    def _inherit(self) -> RmmHeap | None:
        """The heap of a thread that ended, with nothing in it; None where there is none."""
        for number, thread in list(self._threads.items()):
            if thread() is not None or self.heaps[number].stats().chunks_in_use:
                continue
            try:
                self._rmm.synchronize(self._device)  # what that thread's own stream was told may not be done
            except LiveError:  # a graph is captured: another time
                return None
            del self._threads[number]
            heap = self.heaps.pop(number)
            heap.trim()
            return heap
        return None

    def settle(self) -> None:
        """Carry out the frees that need not wait any more."""
        self._keeper.let_go(0, self._device, 0)

    def _try_again(self, heap: RmmHeap, num_bytes: int, label: int) -> int:
        """Wait for what is held back, take the other streams' free regions, and ask once more."""
        self._keeper.wait(0, self._device, 0)
        for other in list(self.heaps.values()):
            other.trim()
        try:
            return heap.allocate(num_bytes, 256, label)
        except OutOfMemory as error:
            others = [each for each in list(self.heaps.values()) if each is not heap]
            self.failure = error.beside((each.name, each.stats()) for each in others)
        raise self.failure.detached()

    # -- for the keeper -----------------------------------------------------------------------------------------

    def give_back(self, pointer: int, _device: int, stream: int) -> None:
        """To the heap it came from."""
        try:
            self.heaps[stream].free(pointer)
        except InvalidFree:
            self.lost_frees += 1

    def count(self, noted: int, held: int) -> None:
        """All of this is Python: it asks each time."""


class RmmServed(HeapProvider):
    """What `serve_rmm` returns; serves all devices and threads for the length of a `with`, and can be entered again.

    Attributes:
        way: `serve`.
        labels: where names are interned.
    """

    way = "serve"
    title = "RMM"
    says: Final = (
        "RMM is served: its buffers, and those of whatever allocates through RMM, have their memory from "
        "bfcviz's heaps, one "
        "a stream; every request runs some Python"
    )

    def __init__(self, rmm: Rmm, make: Callable[[int, int], RmmHeap], capture: Capture) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._rmm = rmm
        self._devices: dict[int, Device] = {}
        self._resources: dict[int, Any] = {}
        self._before: dict[int, Any] = {}
        current = rmm.device()
        for number in sorted(range(rmm.devices), key=lambda number: number != current):
            device = self._devices[number] = Device(number, rmm, partial(make, number), capture)
            self._resources[number] = rmm.mr.CallbackMemoryResource(device.allocate, device.free)
            _kept.append((device, self._resources[number]))
        self._devices[current].heap_of(0)

    @property
    def heaps(self) -> list[RmmHeap]:
        """A heap for each stream that came; more may come. The log that was given is the default stream's."""
        return [heap for device in self._devices.values() for heap in list(device.heaps.values())]

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last request that failed, on the first device where one has; None if none has."""
        return next((each.failure for each in self._devices.values() if each.failure is not None), None)

    def settle(self) -> None:
        """Carry out the frees that need not wait for other streams any more."""
        for device in self._devices.values():
            device.settle()

    def _start(self) -> None:
        self._capture.use()
        for device, resource in self._resources.items():
            self._before[device] = self._rmm.mr.get_per_device_resource(device)
            self._rmm.mr.set_per_device_resource(device, resource)

    def _stop(self, error: BaseException | None) -> None:
        for device, before in self._before.items():
            if self._rmm.mr.get_per_device_resource(device) is self._resources[device]:
                self._rmm.mr.set_per_device_resource(device, before)
        self._before.clear()
        try:
            self.settle()
        except BfcvizError:
            if error is None:
                raise
