"""serve_cupy: CuPy's arrays on instrumented heaps of GPU memory.

::

    with serve_cupy("8GiB", log=recording) as served:     # records every split, merge and extension
        train()
"""

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, ref

from bfcviz import _forks
from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import Budget, Memory
from bfcviz.errors import BfcvizError, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.cupy import cupy_api
from bfcviz.live.cupy.cupy_api import Cuda
from bfcviz.live.cupy.hook import CupyHook
from bfcviz.live.deferred_frees import DeferredFrees
from bfcviz.live.heap_provider import HeapProvider, log_and_labels, logs_of_heaps
from bfcviz.live.memory_limits import Share
from bfcviz.live.served_heap import OPTIONS, HeapFactory, ServedHeap, require_compiled
from bfcviz.live.stacks import Capture, Captured
from bfcviz.units import format_bytes

if TYPE_CHECKING:
    from bfcviz.live.cupy.hook import CupyHook


def cupy_out_of_memory(theirs: type, numbers: OutOfMemory) -> OutOfMemory:
    """The error that a served CuPy raises, with these numbers; programs catch it as CuPy's, `theirs`, too."""
    return _class_of_both(theirs)(**numbers.numbers())


@cache
def _class_of_both(theirs: type) -> type[OutOfMemory]:
    """The class of the error that a served CuPy raises: a subclass of bfcviz's and of CuPy's."""
    return type("OutOfMemory", (OutOfMemory, theirs), {"__module__": OutOfMemory.__module__})


def _cupy_stream_references(table: dict[Any, Any], key: object) -> int:
    """Python's reference count of a CuPy stream in a table; includes references of this function itself."""
    return sys.getrefcount(table[key])


_ALONE = _cupy_stream_references({0: object()}, 0)
"""The reference count of an entry that only the table references."""


class _HookReference:
    """The owner of deferred frees while CuPy is served: a weak reference to the hook."""

    def __init__(self, hook: "CupyHook") -> None:
        self._hook = ref(hook)

    def give_back(self, pointer: int, device: int, stream: int) -> None:
        hook = self._hook()
        if hook is not None:
            hook.give_back(pointer, device, stream)

    def count(self, noted: int, held: int) -> None:
        hook = self._hook()
        if hook is not None:
            hook.count(noted, held)


class _ThreadStream:
    """A thread's own default stream. Other threads can only wait for the whole device."""

    def __init__(self, cuda: Cuda, device: int) -> None:
        self._cuda = cuda
        self._device = device

    def synchronize(self) -> None:
        """Wait for all work on the device."""
        self._cuda.synchronize(self._device)


class CupyStreamHeaps:
    """The heaps, and the methods that the hook calls; these take `(pointer, device, stream, current stream)`.

    Each stream has its own heap, and freed memory returns to the heap it came from. A stream works in order, so its
    own memory can be reused at once. Three cases need more:

    - Memory is freed while another stream is current. That stream may still use the memory. An event is recorded in
      it, and the chunk stays in use until the event is done (`DeferredFrees`). CuPy's own pool does not wait. As with
      that pool, the program itself must take care of streams that are not current at the free.
    - A stream is destroyed, and a new stream gets its handle. So each heap keeps CuPy's object of its stream alive;
      only a foreign stream (`ExternalStream`) can be destroyed before its heap, and must not be before its work is
      done. A thread's own default stream ends with the thread: an object that only the thread owns stands for it.
      When only the heap still references the object and no chunk is in use, the heap is reused: at the next new
      stream it waits for the old stream, releases its regions and serves the new one.
    - A heap is out of memory while others have free regions. They release these, which for plain memory waits for the
      device, and the request is retried once.

    Attributes:
        heaps: by device and stream, in order of creation.
        failure: numbers of the last request that failed after the retry; None: none has.
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
        self._deferred: DeferredFrees | None = None

    def open(self, hook: "CupyHook") -> None:
        """Serve this hook."""
        self._hook = ref(hook)
        owner: Any = _HookReference(hook)
        self._deferred = DeferredFrees(owner, lambda _: None, self._cuda)

    def require(self, device: int) -> None:
        """Make the heap of this thread's stream if there is none; raises the error if that fails."""
        hook = self._hook()
        if hook is not None and not self.add_heap(0, device, hook.stream(device), 0):
            self.raise_error()

    def add_heap(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Make the heap of a new stream; False: it failed, `recover` raises the error."""
        hook = self._hook()
        with self._lock:
            if hook is None or (device, stream) in self.heaps:
                return hook is not None
            try:
                kept = self._stream_object(device, stream)
                if self._inherit(hook, device, stream, kept):
                    return True
                heap = self._make(device, stream)
            except Exception as error:  # noqa: BLE001  called from C: `recover` raises it
                self._thread.error = error
                return False
            self.heaps[device, stream], self._streams[device, stream] = heap, kept
            hook.add(heap, device, stream)
        return True

    def _inherit(self, hook: "CupyHook", device: int, stream: int, kept: object) -> bool:
        """Reuse the heap of a destroyed stream, and empty all such heaps; False: there is none."""
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
        """Release the regions of a heap whose stream is destroyed and done, with no chunk in use; False: it is not."""
        heap = self.heaps[key]
        if _cupy_stream_references(self._streams, key) > _ALONE or heap.stats().chunks_in_use:
            return False
        if heap.stats().pool_bytes == 0:
            return True
        try:
            self._streams[key].synchronize()
        except Exception:  # noqa: BLE001  a foreign stream, destroyed already
            try:
                self._cuda.synchronize(key[0])
            except LiveError:  # a graph is being captured: try again later
                return False
        heap.trim()  # stream-ordered memory must be released in the old stream
        return True

    def _stream_object(self, device: int, stream: int) -> Any:
        """An object that lives as long as a stream: CuPy's own; for a thread's default stream one of the thread."""
        if stream >= 0:
            return self._cuda.stream_object(device)
        streams: dict[int, _ThreadStream] = self._thread.__dict__.setdefault("streams", {})
        return streams.setdefault(device, _ThreadStream(self._cuda, device))

    def defer(self, pointer: int, device: int, stream: int, now: int) -> bool:
        """Defer a free under another stream until that stream is done; returns whether it is deferred."""
        hook = self._hook()
        if self._deferred is None or hook is None or now == ~stream:
            self._cuda.synchronize(device)  # the stream is unknown
            return False
        is_held = self._deferred.defer_until(pointer, device, stream, [now])
        if is_held and not hook.is_open:  # no later request would carry it out
            self._deferred.wait(0, device, stream)
        return is_held

    def free_ready(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Carry out the deferred frees whose events are done."""
        return self._deferred is not None and self._deferred.free_ready(0, device, stream)

    def wait(self) -> None:
        """Wait for all deferred frees and carry them out."""
        for device in {device for device, _ in list(self.heaps)}:
            if self._deferred is not None:
                self._deferred.wait(0, device, 0)

    def give_back(self) -> None:
        """Return the wholly free regions of all devices."""
        for heap in list(self.heaps.values()):
            heap.give_back()

    def tidy(self, _pointer: int, device: int, stream: int, _now: int) -> bool:
        """Return the wholly free regions of a heap. A GPU that fails here has failed before."""
        with suppress(BfcvizError):
            self.heaps[device, stream].give_back()
        return True

    def heaps_of(self, device: int) -> "list[CupyHeap]":
        """The heaps of a device."""
        return [heap for (place, _), heap in list(self.heaps.items()) if place == device]

    def trim(self, device: int) -> int:
        """Release the wholly free regions of a device; returns how many bytes."""
        self.free_ready(0, device, 0, 0)
        return sum(heap.trim() for heap in self.heaps_of(device))

    def recover(self, hook: "CupyHook", size: int) -> Any:
        """A request got no memory: make room and retry once, as CuPy's pool does.

        Raises:
            OutOfMemory: the retry failed, too.
            LiveError: this is a forked process.
        """
        if os.getpid() != self._process:
            raise LiveError(
                "CuPy was asked for memory in a forked process, where CUDA does not work: start the process with "
                "multiprocessing's 'spawn'"
            )
        self.raise_error()
        device = self._cuda.device()
        stream = hook.stream(device)
        gc.collect()
        self.wait()
        self.trim(device)
        pointer = hook.malloc(size)
        if pointer.ptr:
            return pointer
        self.raise_error()
        self.failure = self._numbers(device, stream, size)
        raise cupy_out_of_memory(self._cuda.cupy.cuda.memory.OutOfMemoryError, self.failure)

    def raise_error(self) -> None:
        """Raise the error of this thread's last `add_heap`, or of a heap's sub-allocator; none: do nothing."""
        error, self._thread.error = getattr(self._thread, "error", None), None
        for heap in list(self.heaps.values()):
            kept = heap.sub_allocator.error
            if error is None and kept is not None:
                error, heap.sub_allocator.error = kept, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it references this frame and its callers: they would live until a garbage collection

    def _numbers(self, device: int, stream: int, size: int) -> OutOfMemory:
        """The totals after a request of a stream failed."""
        heap = self.heaps[device, stream]
        others = [(other.name, other.stats()) for other in self.heaps_of(device) if other is not heap]
        return OutOfMemory.of(size, heap.stats(), others=others)


_MEMORY: Final = {
    "device": "memory of the device",
    "managed": "memory shared by device and host",
    "async": "the driver's own pool",
    "virtual": "virtual memory, in regions that grow in place",
}


class CupyHeap(ServedHeap):
    """The heap behind CuPy's arrays."""

    is_serving = True
    users = "CuPy arrays"
    advice = "leave serve_cupy's `with` and drop them first; without arrays the heap closes automatically"


class CupyServed(HeapProvider):
    """What `serve_cupy` returns. As a context manager it serves all threads; it can be entered again."""

    way = "serve"
    title = "CuPy"

    def __init__(
        self,
        cuda: cupy_api.Cuda,
        make: Callable[[int, int], CupyHeap],
        capture: Capture,
        description: str,
        emptied: list[int],
    ) -> None:
        self.labels = capture.labels
        self._description = description
        self._emptied = emptied  # bytes of CuPy's own pools
        self._capture = capture
        self._cuda = cuda
        self.stream_heaps = CupyStreamHeaps(cuda, make)
        self._hook = CupyHook(self.stream_heaps, cuda.stream_of(), capture.use(), capture.walker)
        self._hook.malloc = cuda.allocator_of(self._hook.functions())
        self._hook.plain = cuda.get_allocator()  # a thread may request memory during `__enter__`
        self.stream_heaps.open(self._hook)
        self._before: Any = None
        self.stream_heaps.require(cuda.device())
        self._serving(on=False)
        _hooks.add(self._hook)

    @property
    def description(self) -> str:
        """The way, and what it means."""
        emptied = sum(self._emptied)
        if not emptied:
            return self._description
        return (
            f"{self._description}. CuPy's own pool was emptied first: {format_bytes(emptied)} without arrays went back "
            "to the device"
        )

    @property
    def heaps(self) -> list[BFCAllocator]:
        """A heap for each stream used so far; more may come."""
        return list(self.stream_heaps.heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failed request; None: none failed."""
        return self.stream_heaps.failure

    def settle(self) -> None:
        """Carry out the deferred frees whose streams are done."""
        self.stream_heaps.free_ready(0, 0, 0, 0)

    # -- the methods of CuPy's MemoryPool, for the current device -------------------------------------------------

    def free_all_blocks(self) -> int:
        """Release the wholly free regions of this device; returns how many bytes.

        CuPy's own `free_all_blocks` empties CuPy's pool, which is not in use here.
        """
        return self.stream_heaps.trim(self._cuda.device())

    def used_bytes(self) -> int:
        """Bytes of the chunks in use: arrays, padding, and deferred frees."""
        return sum(heap.stats().bytes_in_use for heap in self.stream_heaps.heaps_of(self._cuda.device()))

    def free_bytes(self) -> int:
        """Free bytes of the heaps."""
        return sum(heap.stats().free_bytes for heap in self.stream_heaps.heaps_of(self._cuda.device()))

    def total_bytes(self) -> int:
        """Bytes that the heaps allocated from the device."""
        return sum(heap.stats().pool_bytes for heap in self.stream_heaps.heaps_of(self._cuda.device()))

    # -- begin and end of the `with` ----------------------------------------------------------------------------

    def _start(self) -> None:
        self._capture.use()
        for device in {device for device, _ in list(self.stream_heaps.heaps)}:
            self._emptied.append(self._cuda.empty_cache(device))
        self._hook.return_regions(late=False)
        before = self._cuda.get_allocator()
        self._cuda.set_allocator(self._hook.serve)
        if before != self._hook.serve:  # equal if it could not be restored before
            self._before = self._hook.plain = before
        self._hook.is_open = True
        self._serving(on=True)

    def _stop(self, error: BaseException | None) -> None:
        self._hook.is_open = False  # remaining callers get the previous allocator
        self._serving(on=False)
        if self._cuda.get_allocator() == self._hook.serve:
            self._cuda.set_allocator(self._before)
        self._hook.return_regions(late=True)
        try:
            self.stream_heaps.wait()
            self.stream_heaps.give_back()
        except Exception:
            if error is None:  # otherwise the GPU repeats the first error
                raise

    def _serving(self, *, on: bool) -> None:
        for heap in list(self.stream_heaps.heaps.values()):
            heap.is_serving = on


def serve_cupy(
    limit: int | str | None = None,
    *,
    fraction: float | None = None,
    headroom: int | str | None = None,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    memory: Memory = "device",
    capture: Captured = None,
    options: AllocatorOptions = OPTIONS,
) -> CupyServed:
    """Allocate CuPy's new arrays from instrumented heaps, within a `with`, in all threads.

    Each stream of a device has its own heap. Arrays may outlive the `with`, and keep their heaps alive; what no array
    needs goes back to the device at the end of the `with`, the rest with the arrays. Arrays that a captured graph uses
    must live as long as the graph.

    Args:
        limit: of the heaps of one device together, in bytes or as text. Default: what is free once CuPy's own pool is
            emptied, less a headroom (`memory_limits`).
        fraction: the limit as a share of the device's total memory; give at most one of the three.
        headroom: bytes, or text, of the free memory to leave free.
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns the names of `labels.label`.
        memory: `device`, `managed`, `async` or `virtual`; see `sub_allocators.cuda`.
        capture: `nothing`, `label`, `stack` or `Stacks` with options; default: the stack, or the label if uncompiled.
        options: of the heaps.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: bfcviz is not compiled; CuPy has no GPU, no driver or the wrong build; the limit exceeds the device;
            `capture` is none of these; on entering: it is served already.
        DeviceError: the driver reports an error.
        InvalidRequest: a limit, fraction or headroom is out of range, or several are given.
        ValueError: a text is not a size.
    """
    require_compiled("Serving CuPy")
    if memory not in _MEMORY:
        raise LiveError(f"memory={memory!r} was given; choose one of {', '.join(_MEMORY)}")
    cuda = cupy_api.Cuda("served")
    share = Share.parse(limit, fraction, headroom)
    first, table = log_and_labels(log, labels)

    emptied: list[int] = []

    @cache
    def limit_of(device: int) -> int:
        emptied.append(cuda.empty_cache(device))
        return share.of(device, cuda.room(device), memory)

    def source(device: int, stream: int, budget: Budget) -> SubAllocator:
        return cuda.sub_allocator(memory, device, stream, budget)

    make = HeapFactory(CupyHeap, "cupy", source, limit_of, logs_of_heaps(first), table, options)
    recorded = Capture(table, capture, hide=cupy_api.HIDDEN)
    description = (
        "CuPy is served: new arrays come from bfcviz's heaps, one per stream, of at most "
        f"{format_bytes(limit_of(cuda.device()))} per device together ({_MEMORY[memory]}); every split, merge and "
        "extension is recorded"
    )
    return CupyServed(cuda, make, recorded, description, emptied)


_hooks: WeakSet[CupyHook] = WeakSet()
_EXIT_WAIT_S: Final = 5.0
"""Seconds to wait for running calls when Python exits."""


@atexit.register
def _end_cupy_hooks_at_exit() -> None:
    """Python exits while CuPy is served: it may free its last arrays when Python cannot run any more.

    A daemon thread that requests the GIL later is killed. Within a call of CuPy, which is C++, that would abort the
    process: so this waits until the running calls return.
    """
    hooks = list(_hooks)
    for hook in hooks:
        hook.end()
    deadline = time.monotonic() + _EXIT_WAIT_S
    while any(hook.inside for hook in hooks) and time.monotonic() < deadline:
        time.sleep(0.001)
