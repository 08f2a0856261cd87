"""serve_cupy: CuPy's arrays on instrumented heaps of GPU memory.

::

    with serve_cupy("8GiB", log=recording) as served:     # records every split, merge and extension
        train()
"""

import atexit
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from weakref import WeakSet

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Budget, Memory
from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Captured
from bfcviz.live.common.headroom import Share
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import log_and_labels
from bfcviz.live.common.require_compiled import require_compiled
from bfcviz.live.common.served_heap import OPTIONS, HeapFactory, ServedHeap
from bfcviz.live.cupy import cupy_api
from bfcviz.live.cupy.hook import CupyHook
from bfcviz.live.cupy.stream_heaps import CupyStreamHeaps
from bfcviz.units import format_bytes

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
    """What `serve_cupy` returns. As a context manager it serves all threads; it can be entered again.

    Attributes:
        way: `serve`.
        labels: the table of names.
        stream_heaps: the heaps by device and stream.
    """

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
        """A heap for each stream used so far; more may come. The first one writes to the log that was given."""
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
            emptied, less a headroom (`shared.headroom`).
        fraction: the limit as a share of the device's total memory; give at most one of the three.
        headroom: bytes, or text, of the free memory to leave free.
        log: receives the events of the current stream's heap; a recording includes its labels. Other heaps get rings.
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
    _check_memory(memory)
    cuda = cupy_api.Cuda("served")
    share = Share.parse(limit, fraction, headroom)
    logs, table = log_and_labels(log, labels)

    emptied: list[int] = []

    @cache
    def limit_of(device: int) -> int:
        emptied.append(cuda.empty_cache(device))
        return share.of(device, cuda.room(device), memory)

    def source(device: int, stream: int, budget: Budget) -> SubAllocator:
        return cuda.sub_allocator(memory, device, stream, budget)

    make = HeapFactory(CupyHeap, "cupy", source, limit_of, logs, table, options)
    recorded = Capture(table, capture, hide=cupy_api.HIDDEN)
    return CupyServed(cuda, make, recorded, _description(limit_of(cuda.device()), memory), emptied)


def _check_memory(memory: str) -> None:
    if memory not in _MEMORY:
        raise LiveError(f"memory={memory!r} was given; choose one of {', '.join(_MEMORY)}")


def _description(limit: int, memory: Memory) -> str:
    return (
        f"CuPy is served: new arrays come from bfcviz's heaps, one per stream, of at most {format_bytes(limit)} per "
        f"device together ({_MEMORY[memory]}); every split, merge and extension is recorded"
    )


_hooks: WeakSet[CupyHook] = WeakSet()
_EXIT_WAIT_S: Final = 5.0
"""Seconds to wait for running calls when Python exits."""


@atexit.register
def _end() -> None:
    """Python exits: CuPy may free its last arrays when Python cannot run any more.

    A daemon thread that requests the GIL later is killed. Within a call of CuPy, which is C++, that would abort the
    process: so this waits until the running calls return.
    """
    hooks = list(_hooks)
    for hook in hooks:
        hook.end()
    deadline = time.monotonic() + _EXIT_WAIT_S
    while any(hook.inside for hook in hooks) and time.monotonic() < deadline:
        time.sleep(0.001)
