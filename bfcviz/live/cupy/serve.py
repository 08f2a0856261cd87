"""serve_cupy: CuPy's arrays on instrumented heaps of GPU memory.

::

    with serve_cupy("8GiB", log=recording) as served:     # records every split, merge and extension
        train()
"""

import atexit
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda.choice import Budget, Memory
from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Chosen, Stacks
from bfcviz.live.cupy import api
from bfcviz.live.cupy.fallbacks import Desk
from bfcviz.live.cupy.hook import CupyHook
from bfcviz.live.observed.heap import log_and_labels
from bfcviz.live.shared.compiled import require_compiled
from bfcviz.live.shared.headroom import Share
from bfcviz.live.shared.heap_maker import Maker
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.live.shared.lent_heap import OPTIONS, LentHeap
from bfcviz.units import format_bytes

_MEMORY: Final = {
    "device": "memory of the device",
    "managed": "memory that device and host share",
    "async": "the driver's own pool",
    "virtual": "virtual memory, in regions that grow in place",
}


class CupyHeap(LentHeap):
    """A heap behind arrays."""

    is_serving = True
    users = "CuPy arrays"
    advice = "leave serve_cupy's `with` and drop them first; without arrays the heap closes by itself"


class CupyServed(HeapProvider):
    """What `serve_cupy` returns. As a context manager it serves all threads; it can be entered again.

    Attributes:
        way: how CuPy is watched.
        labels: where names are interned.
    """

    way = "serve"
    title = "CuPy"

    def __init__(
        self,
        cuda: api.Cuda,
        make: Callable[[int, int], CupyHeap],
        capture: Capture,
        words: str,
    ) -> None:
        self.labels = capture.labels
        self._says = words
        self._capture = capture
        self._cuda = cuda
        self._desk = Desk(cuda, make)
        self._hook = CupyHook(self._desk, cuda.stream_of(), capture.use(), capture.walker)
        self._hook.malloc = cuda.allocator_of(self._hook.functions())
        self._hook.plain = cuda.get_allocator()  # a thread may ask in the midst of `__enter__`
        self._desk.open(self._hook)
        self._before: Any = None
        self._desk.require(cuda.device())
        self._serving(on=False)
        _hooks.add(self._hook)

    @property
    def says(self) -> str:
        """How CuPy is watched, in words."""
        return self._says

    @property
    def heaps(self) -> list[BFCAllocator]:
        """A heap for each stream of each device that came; more may come. The log that was given is the first one's."""
        return list(self._desk.heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last request that failed, None if none has."""
        return self._desk.failure

    def settle(self) -> None:
        """Carry out the frees that need not wait for other streams any more."""
        self._desk.let_go(0, 0, 0, 0)

    # -- as CuPy's MemoryPool has them, of the current device ----------------------------------------------------

    def free_all_blocks(self) -> int:
        """Give the wholly free regions of this device back to it; returns how many bytes.

        CuPy's own `free_all_blocks` empties its own pool, which is not in use here.
        """
        return self._desk.trim(self._cuda.device())

    def used_bytes(self) -> int:
        """Bytes that arrays have, with what is wasted in their chunks and what waits for other streams."""
        return sum(heap.stats().bytes_in_use for heap in self._desk.heaps_of(self._cuda.device()))

    def free_bytes(self) -> int:
        """Bytes of the heaps that no array has."""
        return sum(heap.stats().free_bytes for heap in self._desk.heaps_of(self._cuda.device()))

    def total_bytes(self) -> int:
        """Bytes that the heaps got from the device."""
        return sum(heap.stats().pool_bytes for heap in self._desk.heaps_of(self._cuda.device()))

    # -- for the length of a `with` -----------------------------------------------------------------------------

    def _start(self) -> None:
        self._capture.use()
        before = self._cuda.get_allocator()
        self._cuda.set_allocator(self._hook.serve)
        if before != self._hook.serve:  # as it still is where it could not be restored
            self._before = self._hook.plain = before
        self._hook.is_open = True
        self._serving(on=True)

    def _stop(self, error: BaseException | None) -> None:
        self._hook.is_open = False  # whoever still asks it is passed on to what was there before
        self._serving(on=False)
        if self._cuda.get_allocator() == self._hook.serve:
            self._cuda.set_allocator(self._before)
        try:
            self._desk.wait()
        except Exception:
            if error is None:  # else it is the GPU's answer to everything since that one
                raise

    def _serving(self, *, on: bool) -> None:
        for heap in list(self._desk.heaps.values()):
            heap.is_serving = on


def serve_cupy(
    limit: int | str | None = None,
    *,
    fraction: float | None = None,
    headroom: int | str | None = None,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    memory: Memory = "device",
    capture: Chosen | Stacks = "label",
    options: AllocatorOptions = OPTIONS,
) -> CupyServed:
    """Let CuPy's new arrays have their memory from instrumented heaps, for the length of a `with`, in all threads.

    Each stream of each device has a heap of its own (`cupy_desk`). Arrays may outlive the `with`, and keep their heaps.
    Those that a captured graph works on must live as long as the graph.

    Args:
        limit: of the heaps of one device together, in bytes or as text. By default what is free, less what TensorFlow
            leaves to CUDA's libraries and kernels (`live.headroom`).
        fraction: the limit as a share of all memory of the device; give at most one of the three.
        headroom: bytes, or text, to be left of what is free.
        log: where the events of the first heap go, that of the stream that is current now; a recording brings its
            labels along. Heaps of other streams have rings in memory.
        labels: where the names that `labels.label` gives are interned.
        memory: `device`, `managed`, `async` or `virtual`; see `sub_allocators.cuda`.
        capture: what is recorded with each allocation: `nothing`, `label`, `stack`, or `Stacks` that say which frames.
        options: how the heaps behave.

    Raises:
        MissingExtra: CuPy is not installed.
        LiveError: bfcviz is not compiled; CuPy has no GPU, no driver or the wrong build; the limit exceeds the device;
            `capture` is none of these; on entering: it is served already.
        DeviceError: the driver refuses.
        InvalidRequest: a limit, fraction or headroom that cannot be, or several of them.
        ValueError: a limit that is no size.
    """
    require_compiled("Serving CuPy")
    _check_memory(memory)
    cuda = api.Cuda("served")
    share = Share.parse(limit, fraction, headroom)
    logs, table = log_and_labels(log, labels)

    def limit_of(device: int) -> int:
        return share.of(device, cuda.room(device), memory)

    def source(device: int, stream: int, budget: Budget) -> SubAllocator:
        return cuda.sub_allocator(memory, device, stream, budget)

    make = Maker(CupyHeap, "cupy", source, limit_of, logs, table, options)
    return CupyServed(cuda, make, api.capture_of(table, capture), _words(limit_of(cuda.device()), memory))


def _check_memory(memory: str) -> None:
    if memory not in _MEMORY:
        raise LiveError(f"memory={memory!r} was asked for; choose one of {', '.join(_MEMORY)}")


def _words(limit: int, memory: Memory) -> str:
    return (
        f"CuPy is served: new arrays have their memory from bfcviz's own heaps, one a stream, of at most "
        f"{format_bytes(limit)} a device together ({_MEMORY[memory]}), so every split, merge and extension is seen"
    )


_hooks: WeakSet[CupyHook] = WeakSet()
_PATIENCE: Final = 5.0
"""Seconds for calls that are under way when Python ends."""


@atexit.register
def _end() -> None:
    """Python ends: CuPy may free its last arrays when there is no Python to run any more.

    A daemon thread that wants the GIL back later is ended where it stands. Within a call of CuPy's, which is C++, that
    would abort the process: so the calls under way come to their end first.
    """
    hooks = list(_hooks)
    for hook in hooks:
        hook.end()
    deadline = time.monotonic() + _PATIENCE
    while any(hook.inside for hook in hooks) and time.monotonic() < deadline:
        time.sleep(0.001)
