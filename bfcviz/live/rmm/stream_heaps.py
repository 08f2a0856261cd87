"""RmmDevice: one device's memory as RMM requests it, from a heap per stream."""

import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

from bfcviz import _forks
from bfcviz.errors import InvalidFree, LiveError, OutOfMemory
from bfcviz.live.capture.stacks import Capture
from bfcviz.live.rmm.api import Rmm, number_of
from bfcviz.live.shared.deferred_frees import Keeper
from bfcviz.live.shared.lent_heap import LentHeap


class RmmHeap(LentHeap):
    """A heap behind buffers."""

    users = "RMM's buffers"
    advice = "leave serve_rmm's `with` and drop them first"


class _ThreadToken:
    """Goes with its thread."""


class RmmDevice:
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
        self._threads: dict[int, ref[_ThreadToken]] = {}  # by the number of their own default stream
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
                self._thread.here = here = _ThreadToken()
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
