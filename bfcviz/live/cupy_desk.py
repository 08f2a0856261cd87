"""Desk: the rare cases of serving CuPy, in Python: a stream that is new, a free under another stream, no memory.

A stream has a heap of its own, and memory that is freed goes back to the heap it came from: what the stream is told
later comes after what it was told before, so its memory can be used again at once. Three things remain:

- Memory is freed while another stream is current. That stream may have been told to use it, and may not be done. An
  event is recorded in it, and the chunk stays in use until the event has passed (`keeper`). CuPy's own pool does not
  wait. Streams that are not current at the free are, as with that pool, the program's own care.
- A stream is destroyed, and its handle given to a new one. So each heap keeps CuPy's object of its stream; only a
  foreign one (`ExternalStream`) can go while its heap is there, and must not before its work is done. Where nobody else
  has the object any more, and nothing of the heap is in use, the heap serves the next stream that comes, once the old
  one is done.
- A heap is out of memory, and others have free regions. They give them back, which for plain memory waits for the
  device, and the request is tried once more.
"""

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import ref

from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.live.cupy_api import Cuda
from bfcviz.live.keeper import Keeper

if TYPE_CHECKING:
    from bfcviz.live.cupy import CupyHeap
    from bfcviz.live.cupy_hook import CupyHook


def _references(table: dict[Any, Any], key: object) -> int:
    """To an entry, by the count of Python; some of them are this function's own."""
    return sys.getrefcount(table[key])


_ALONE = _references({0: object()}, 0)
"""What it is where only the table has it."""


class _Back:
    """The hook, for the keeper: not kept alive by it."""

    def __init__(self, hook: "CupyHook") -> None:
        self._where = ref(hook)

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        hook = self._where()
        if hook is not None:
            hook.give_back(pointer, device, stream)

    def count(self, noted: int, held: int) -> None:
        hook = self._where()
        if hook is not None:
            hook.count(noted, held)


class Desk:
    """Answers what the hook asks; methods it calls take `(pointer, device, stream, current stream)`.

    Args:
        cuda: CuPy.
        make: makes the heap of a stream of a device.

    Attributes:
        heaps: by device and stream, in the order they came.
        failure: numbers of the last request that failed for good, None if none has.
    """

    def __init__(self, cuda: Cuda, make: Callable[[int, int], "CupyHeap"]) -> None:
        self.heaps: dict[tuple[int, int], CupyHeap] = {}
        self.failure: OutOfMemory | None = None
        self._cuda = cuda
        self._make = make
        self._streams: dict[tuple[int, int], Any] = {}
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._thread = threading.local()
        self._hook: Callable[[], CupyHook | None] = lambda: None
        self._keeper: Keeper | None = None

    def open(self, hook: "CupyHook") -> None:
        """Work for this hook."""
        self._hook = ref(hook)
        back: Any = _Back(hook)
        self._keeper = Keeper(back, lambda _: None, self._cuda)

    def require(self, device: int) -> None:
        """Make the heap of this thread's stream, where there is none; raises why it cannot."""
        hook = self._hook()
        if hook is not None and not self.more(0, device, hook.stream(device), 0):
            self._raise_error()

    def more(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """A stream came that has no heap."""
        hook = self._hook()
        with self._lock:
            if hook is None or (device, stream) in self.heaps:
                return hook is not None
            try:
                kept = self._cuda.stream_object(device)
                if self._inherit(hook, device, stream, kept):
                    return True
                heap = self._make(device, stream)
            except Exception as error:  # noqa: BLE001  there is C between here and whoever asked: `recover` raises it
                self._thread.error = error
                return False
            self.heaps[device, stream], self._streams[device, stream] = heap, kept
            hook.add(heap, device, stream)
        return True

    def _inherit(self, hook: "CupyHook", device: int, stream: int, kept: object) -> bool:
        """Take over the heap of a stream that nobody has any more; False where there is none."""
        for old in [key for key in self._streams if key[0] == device]:
            heap = self.heaps[old]
            if _references(self._streams, old) > _ALONE or heap.stats().chunks_in_use:
                continue
            try:
                self._streams[old].synchronize()
            except Exception:  # noqa: BLE001  a foreign one, and gone
                self._cuda.synchronize(device)
            heap.trim()  # what was taken in the order of the old stream goes back in it
            self._cuda.redirect(heap.sub_allocator, stream)
            self.heaps[device, stream] = self.heaps.pop(old)
            self._streams[device, stream] = kept
            del self._streams[old]
            hook.move(device, old[1], stream)
            return True
        return False

    def hold(self, pointer: int, device: int, stream: int, now: int) -> bool:
        """Memory of one stream is freed under another: whether it is held back until that one is done."""
        hook = self._hook()
        if self._keeper is None or hook is None or not hook.is_open or now == ~stream:
            self._cuda.synchronize(device)  # no later request would let it go, or the stream is not known
            return False
        return self._keeper.hold_for(pointer, device, stream, [now])

    def let_go(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Carry out the frees that need not wait any more."""
        return self._keeper is not None and self._keeper.let_go(0, device, stream)

    def wait(self) -> None:
        """Carry out all frees that wait."""
        for device in {device for device, _ in list(self.heaps)}:
            if self._keeper is not None:
                self._keeper.wait(0, device, 0)

    def recover(self, hook: "CupyHook", size: int) -> Any:
        """A request got no memory: make room and try once more, as CuPy's pool does.

        Raises:
            OutOfMemory: in vain.
            LiveError: this is a forked process.
        """
        if os.getpid() != self._process:
            raise LiveError(
                "memory was asked of CuPy in a forked process, where CUDA cannot be used: start it with "
                "multiprocessing's 'spawn'"
            )
        self._raise_error()
        device = self._cuda.device()
        stream = hook.stream(device)
        gc.collect()
        self.wait()
        for (place, _), heap in list(self.heaps.items()):
            if place == device:
                heap.trim()
        pointer = hook.malloc(size)
        if pointer.ptr:
            return pointer
        self._raise_error()
        raise self._out_of_memory(self.heaps[device, stream], size)

    def _raise_error(self) -> None:
        error, self._thread.error = getattr(self._thread, "error", None), None
        for heap in list(self.heaps.values()):
            kept = heap.sub_allocator.error
            if error is None and kept is not None:
                error, heap.sub_allocator.error = kept, None
        if error is not None:
            raise error

    def _out_of_memory(self, heap: "CupyHeap", size: int) -> OutOfMemory:
        stats = heap.stats()
        self.failure = OutOfMemory(
            requested=size,
            rounded=(size + 255) // 256 * 256,
            free_bytes=stats.free_bytes,
            largest_free_chunk=stats.largest_free_chunk,
            pool_bytes=stats.pool_bytes,
            bytes_limit=stats.bytes_limit,
        )
        return self.failure
