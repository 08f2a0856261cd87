"""RmmDevice: one device's memory as RMM requests it, from a heap per stream."""

import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

from bfcviz import _forks
from bfcviz.errors import InvalidFree, LiveError, OutOfMemory
from bfcviz.live.capture.stacks import Capture
from bfcviz.live.common.deferred_frees import DeferredFrees
from bfcviz.live.common.served_heap import ServedHeap
from bfcviz.live.rmm.rmm_api import Rmm, number_of


class RmmHeap(ServedHeap):
    """A heap behind RMM's buffers."""

    users = "RMM's buffers"
    advice = "leave serve_rmm's `with` and drop them first"


class _ThreadToken:
    """Lives as long as its thread."""


class RmmDevice:
    """One device's memory: RMM's CallbackMemoryResource calls `allocate` and `free`.

    Memory belongs to the stream it was allocated for. A free on another stream is deferred until that stream has done
    its work so far; RMM guarantees no more than that.

    Args:
        device: number of the device.
        rmm: RMM.
        make: makes the heap of a stream number.
        capture: what is recorded with each allocation.

    Attributes:
        heaps: by the number of their stream.
        failure: numbers of the last request that failed; None: none has.
        lost_frees: number of frees of addresses that no heap knows, or whose readers cannot be awaited.
    """

    def __init__(self, device: int, rmm: Rmm, make: Callable[[int], RmmHeap], capture: Capture) -> None:
        self.heaps: dict[int, RmmHeap] = {}
        self.failure: OutOfMemory | None = None
        self.lost_frees = 0
        self._device = device
        self._make = make
        self._capture = capture
        self._owners: dict[int, int] = {}  # stream by address
        self._rmm = rmm
        self._threads: dict[int, ref[_ThreadToken]] = {}  # by the number of their own default stream
        self._thread = threading.local()
        self._lock = _forks.keep(threading.RLock())
        self._deferred = DeferredFrees(self, lambda _: None, rmm)

    def allocate(self, num_bytes: int, stream: Any) -> int:
        """Allocate `num_bytes`; RMM turns exceptions into MemoryError."""
        if num_bytes == 0:
            return 0
        number = number_of(stream)
        self._deferred.free_ready(0, self._device, number)
        heap = self.heap_of(number)
        label = self._capture.number()
        try:
            address = heap.allocate(num_bytes, 256, label)
        except OutOfMemory:
            address = self._try_again(heap, num_bytes, label)
        self._owners[address] = number
        return address

    def free(self, address: int, _num_bytes: int, stream: Any) -> None:
        """Free memory. It raises nothing: the calling C++ accepts no exception here."""
        owner = self._owners.pop(address, None)
        if owner is None:
            self.lost_frees += address != 0
            return
        try:
            number = number_of(stream)
            is_held = number != owner and self._deferred.defer_until(address, self._device, owner, [number])
        except Exception:  # noqa: BLE001  CUDA failed: it stays in use, because a stream may still read it
            self.lost_frees += 1
            return
        if not is_held:
            self.give_back(address, self._device, owner)

    def heap_of(self, number: int) -> RmmHeap:
        """The heap of a stream; made if there is none."""
        with self._lock:
            if number not in self.heaps:
                self.heaps[number] = self._inherit() or self._make(number)
            if number < 0 and not hasattr(self._thread, "here"):
                self._thread.here = here = _ThreadToken()
                self._threads[number] = ref(here)
            return self.heaps[number]

    def _inherit(self) -> RmmHeap | None:
        """Take the heap of an ended thread without chunks in use; None: there is none."""
        for number, thread in list(self._threads.items()):
            if thread() is not None or self.heaps[number].stats().chunks_in_use:
                continue
            try:
                self._rmm.synchronize(self._device)  # that thread's own stream may not be done
            except LiveError:  # a graph is being captured: try again later
                return None
            del self._threads[number]
            heap = self.heaps.pop(number)
            heap.trim()
            return heap
        return None

    def settle(self) -> None:
        """Carry out the deferred frees whose streams are done."""
        self._deferred.free_ready(0, self._device, 0)

    def _try_again(self, heap: RmmHeap, num_bytes: int, label: int) -> int:
        """Wait for the deferred frees, release the other heaps' free regions, and retry once."""
        self._deferred.wait(0, self._device, 0)
        for other in list(self.heaps.values()):
            other.trim()
        try:
            return heap.allocate(num_bytes, 256, label)
        except OutOfMemory as error:
            others = [each for each in list(self.heaps.values()) if each is not heap]
            self.failure = error.beside((each.name, each.stats()) for each in others)
        raise self.failure.detached()

    # -- called by `DeferredFrees` ------------------------------------------------------------------------------

    def give_back(self, pointer: int, _device: int, stream: int) -> None:
        """Free memory in the heap it came from."""
        try:
            self.heaps[stream].free(pointer)
        except InvalidFree:
            self.lost_frees += 1

    def count(self, noted: int, held: int) -> None:
        """Needs no counts: each request checks."""
