"""Desk: the rare cases of serving CuPy, in Python: a stream that is new, a free under another stream, no memory.

A stream has a heap of its own, and memory that is freed goes back to the heap it came from: what the stream is told
later comes after what it was told before, so its memory can be used again at once. Three things remain:

- Memory is freed while another stream is current. That stream may have been told to use it, and may not be done. An
  event is recorded in it, and the chunk stays in use until the event has passed (`keeper`). CuPy's own pool does not
  wait. Streams that are not current at the free are, as with that pool, the program's own care.
- A stream is destroyed, and its handle given to a new one. So each heap keeps CuPy's object of its stream; only a
  foreign one (`ExternalStream`) can go while its heap is there, and must not before its work is done. A thread's own
  default stream goes with the thread: an object that only the thread has stands for it. Where nobody else has the
  object any more, and nothing of the heap is in use, the heap gives its regions back when the next new stream comes,
  and serves that one, once the old one is done.
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

from bfcviz import _forks
from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.live.cupy.api import Cuda
from bfcviz.live.shared.deferred_frees import Keeper

if TYPE_CHECKING:
    from bfcviz.live.cupy.hook import CupyHook
    from bfcviz.live.cupy.serve import CupyHeap


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


class _ThreadStream:
    """A thread's own default stream. Other threads cannot wait for it alone."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self._cuda = cuda
        self._device = device

    def synchronize(self) -> None:
        """Wait for all of the device."""
        self._cuda.synchronize(self._device)


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
        self._lock = _forks.keep(threading.RLock())
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
                kept = self._stream_object(device, stream)
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
        """Take over a heap whose stream is gone, and empty all such heaps; False where there is none."""
        free = [key for key in list(self._streams) if key[0] == device and self._release(key)]
        for old in free[:1]:
            heap = self.heaps[old]
            self._cuda.redirect(heap.sub_allocator, stream)
            self.heaps[device, stream] = self.heaps.pop(old)
            self._streams[device, stream] = kept
            del self._streams[old]
            hook.move(device, old[1], stream)
        return bool(free)

    def _release(self, key: tuple[int, int]) -> bool:
        """Whether the stream of a heap is gone and done, and nothing of the heap is in use: its regions go back."""
        heap = self.heaps[key]
        if _references(self._streams, key) > _ALONE or heap.stats().chunks_in_use:
            return False
        if heap.stats().pool_bytes == 0:
            return True
        try:
            self._streams[key].synchronize()
        except Exception:  # noqa: BLE001  a foreign one, and gone
            try:
                self._cuda.synchronize(key[0])
            except LiveError:  # a graph is captured: another time
                return False
        heap.trim()  # what was taken in the order of the old stream goes back in it
        return True

    def _stream_object(self, device: int, stream: int) -> Any:
        """What lives as long as a stream: CuPy's object of it; of a thread's own stream an object of the thread."""
        if stream >= 0:
            return self._cuda.stream_object(device)
        streams: dict[int, _ThreadStream] = self._thread.__dict__.setdefault("streams", {})
        return streams.setdefault(device, _ThreadStream(self._cuda, device))

    def hold(self, pointer: int, device: int, stream: int, now: int) -> bool:
        """Memory of one stream is freed under another: whether it is held back until that one is done."""
        hook = self._hook()
        if self._keeper is None or hook is None or now == ~stream:
            self._cuda.synchronize(device)  # the stream is not known
            return False
        is_held = self._keeper.hold_for(pointer, device, stream, [now])
        if is_held and not hook.is_open:  # no later request would let it go
            self._keeper.wait(0, device, stream)
        return is_held

    def let_go(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Carry out the frees that need not wait any more."""
        return self._keeper is not None and self._keeper.let_go(0, device, stream)

    def wait(self) -> None:
        """Carry out all frees that wait."""
        for device in {device for device, _ in list(self.heaps)}:
            if self._keeper is not None:
                self._keeper.wait(0, device, 0)

    def heaps_of(self, device: int) -> "list[CupyHeap]":
        """Those of a device."""
        return [heap for (place, _), heap in list(self.heaps.items()) if place == device]

    def trim(self, device: int) -> int:
        """Give the wholly free regions of a device back; returns how many bytes."""
        self.let_go(0, device, 0, 0)
        return sum(heap.trim() for heap in self.heaps_of(device))

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
        self.trim(device)
        pointer = hook.malloc(size)
        if pointer.ptr:
            return pointer
        self._raise_error()
        self.failure = self._numbers(device, stream, size)
        raise self._cuda.out_of_memory(self.failure)

    def _raise_error(self) -> None:
        error, self._thread.error = getattr(self._thread, "error", None), None
        for heap in list(self.heaps.values()):
            kept = heap.sub_allocator.error
            if error is None and kept is not None:
                error, heap.sub_allocator.error = kept, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it refers to this frame, and so to the program's: they would live until a collection

    def _numbers(self, device: int, stream: int, size: int) -> OutOfMemory:
        """What is true now that a request of a stream has failed."""
        heap = self.heaps[device, stream]
        others = [(other.name, other.stats()) for other in self.heaps_of(device) if other is not heap]
        return OutOfMemory.of(size, heap.stats(), others=others)
