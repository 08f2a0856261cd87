"""serve_torch: PyTorch's CUDA memory on instrumented heaps.

Mechanism `pool`: a memory pool, which can begin at any time. PyTorch's caching allocator stays in between, so chunks
are its segments of 2 MiB and more. PyTorch frees no segment while a pool is in use, also not in
`torch.cuda.empty_cache()`, and does not reuse memory that `record_stream` was called on. `empty_cache()` of what
`serve_torch` returns frees both: it ends the pool and begins another. When memory runs out PyTorch raises its
OutOfMemoryError. At the end of the `with` all memory without tensors goes back to the device; that of tensors which
outlive it goes back when PyTorch frees their segments, in `torch.cuda.empty_cache()` for example.

Mechanism `replace`: the heaps replace PyTorch's allocator and record every tensor. This must begin before the first use
of CUDA and stays until the process ends. CUDA graphs must not be captured, because a heap cannot keep the memory that
they used. `record_stream` defers frees by events. When memory runs out torch.OutOfMemoryError is raised, too: PyTorch
would take a NULL for an address, so C code throws a C++ exception through it. A PyTorch built differently from its
wheels raises a RuntimeError.
"""

import atexit
from collections.abc import Iterator
from itertools import count
from typing import Any, ClassVar, Final, Literal, cast

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.cuda.kinds_of_memory import Memory
from bfcviz.errors import BfcvizError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture
from bfcviz.live.common.deferred_frees import DeferredFrees
from bfcviz.live.common.headroom import Share
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import log_and_labels
from bfcviz.live.common.require_compiled import require_compiled
from bfcviz.live.common.served_heap import OPTIONS
from bfcviz.live.torch import torch_api
from bfcviz.live.torch.heaps import DeviceMemory, GpuMemory, Heaps, TorchHeap, TorchPool
from bfcviz.live.torch.stream_table import StreamTable
from bfcviz.live.torch.torch_api import refuse_to_share
from bfcviz.units import format_bytes

Mechanism = Literal["pool", "replace"]

_DESCRIPTIONS: Final = {
    "pool": "PyTorch is served by bfcviz through a memory pool: its own caching allocator stays, and each of its "
    "segments is a chunk of bfcviz's heap, with tensors inside. PyTorch keeps a pool's segments: within the with "
    "torch.cuda.empty_cache() frees nothing, and memory that record_stream was called on is not reused. "
    "empty_cache() of this object frees both",
    "replace": "PyTorch is served by bfcviz's heap instead of its own allocator, each tensor in its own chunk, until "
    "the process ends: PyTorch cannot change an allocator in use. PyTorch then has no memory statistics and snapshots: "
    "use memory_allocated() and memory_reserved() of this object",
}


_NAMES: Final = (
    "Allocations are named by bfcviz.label and bfcviz.phase, not by lines of code: PyTorch allocates where no Python "
    "stack can be read; observed PyTorch has them"
)


class TorchServed(HeapProvider):
    """What `serve_torch` returns; serves all threads and devices within a `with`.

    Attributes:
        way: `serve`.
        labels: the table of names.
    """

    way = "serve"
    title = "PyTorch"
    _numbers: ClassVar[Iterator[int]] = count(1)
    _replaced: ClassVar["TorchServed | None"] = None

    def __init__(
        self,
        share: Share,
        mechanism: Mechanism,
        log: EventLog | None,
        capture: Capture,
        options: AllocatorOptions,
        memory: DeviceMemory,
    ) -> None:
        self.labels = capture.labels
        self._capture = capture
        self._mechanism = mechanism
        self._table = StreamTable(next(TorchServed._numbers), capture.use())
        self._heaps = Heaps(self._table, share, log, capture.labels, options, memory)
        self._torch: Any = None
        self._deferred: DeferredFrees | None = None
        self._pool: TorchPool | None = None
        self._failures = 0
        self._emptied = 0  # bytes of PyTorch's cache

    @property
    def description(self) -> str:
        """The way, and what it means."""
        text = f"{_DESCRIPTIONS[self._mechanism]}. {_NAMES}"
        if self._emptied:
            text += (
                f". PyTorch's own cache was emptied first: {format_bytes(self._emptied)} without tensors went back to "
                "the device"
            )
        return text

    @property
    def heaps(self) -> list[TorchHeap]:
        """A heap for each stream used so far; more may come. The first one writes to the log that was given."""
        return self._heaps.in_use()

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failed request; the heap may have changed since."""
        return self._heaps.out_of_memory()

    def settle(self) -> None:
        """Carry out the deferred frees whose streams are done."""
        if self._deferred is not None:
            self._deferred.free_ready(0, 0, 0)

    def empty_cache(self) -> None:
        """Free the segments without tensors, and release the heaps' wholly free regions to the device.

        Within a pool torch.cuda.empty_cache() frees nothing; this ends the pool and begins another. Call it while no
        other thread allocates CUDA memory and no graph is captured: otherwise PyTorch crashes.
        """
        if self._pool is not None:
            self._pool.renew()
        elif self._torch is not None:
            self._torch.cuda.empty_cache()
        self.settle()
        self._heaps.trim_all()

    def memory_allocated(self, device: int | None = None) -> int:
        """Bytes of tensors on a device, default: the current one; like torch.cuda.memory_allocated()."""
        if self._mechanism == "pool" and self._torch is not None:
            return int(self._torch.cuda.memory_allocated(device))
        return sum(heap.stats().bytes_in_use for heap in self._heaps_of(device))

    def memory_reserved(self, device: int | None = None) -> int:
        """Bytes of the heaps on a device, in use or free; default: the current device."""
        return sum(heap.stats().pool_bytes for heap in self._heaps_of(device))

    def _heaps_of(self, device: int | None) -> list[TorchHeap]:
        if device is None:
            device = 0 if self._torch is None else self._torch.cuda.current_device()
        return self._heaps.of(device)

    def _refuse_second(self) -> None:
        if (
            TorchServed._replaced is not self
        ):  # after `replace`, the same object may be entered again inside itself
            super()._refuse_second()
        if TorchServed._replaced not in (None, self):
            raise LiveError(
                "PyTorch's allocator was replaced before, until this process ends: enter the same object again"
            )

    def _start(self) -> None:
        self._torch = torch_api.torch_with_cuda("served")
        self._capture.use()
        self._failures = self._heaps.number_of_failures()
        if TorchServed._replaced is not self:
            self._begin()

    def _stop(self, error: BaseException | None) -> None:
        failed = isinstance(error, RuntimeError) and self._heaps.number_of_failures() > self._failures
        notes = self._notes() if failed else []
        try:
            if self._pool is not None:
                self._end()
            self.settle()
        except (RuntimeError, BfcvizError):
            if error is None:  # otherwise the GPU repeats the first error
                raise
        for note in notes:
            cast("RuntimeError", error).add_note(f"bfcviz, {note}")

    def _notes(self) -> list[str]:
        """Notes to add to an error when memory ran out."""
        notes = [f"of the heap PyTorch was served from: {self.out_of_memory}"]
        cached = 0 if self._pool is None else self._heaps.requested_in_use() - self._allocated_by_pytorch()
        if cached > 0:
            notes.append(
                f"of PyTorch's cache: {format_bytes(cached)} of the heaps are in segments without tensors, or wait for "
                "other streams; empty_cache() of what serve_torch returned frees them"
            )
        return notes + [f"of the source of its memory: {cause}" for cause in self._heaps.errors()]

    def _allocated_by_pytorch(self) -> int:
        cuda = self._torch.cuda
        return sum(int(cuda.memory_allocated(device)) for device in range(cuda.device_count()))

    # -- start -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Leave the pool, and return all memory without tensors to the device."""
        try:
            cast("TorchPool", self._pool).end()
        finally:
            self._pool = None  # PyTorch keeps the segments of a pool that has an owner
            self._table.stop(self._deferred)
        try:
            self._torch.cuda.empty_cache()
        finally:
            self._heaps.end()

    def _begin(self) -> None:
        torch = self._torch
        for device in range(torch.cuda.device_count()):
            self._heaps.check(device)
        throws = 0
        if self._mechanism == "replace":
            throws = torch_api.thrower(torch, self._table.thrower)
        else:
            wish, instead = "served by a pool", ", or give mechanism='replace' before CUDA is first used"
            torch_api.refuse_async(torch, wish, instead)
            torch_api.refuse_uncached(wish, instead)
            torch.cuda.init()
        self._emptied = torch_api.empty_cache(torch)
        # Before it is replaced, PyTorch's allocator must not be initialized, as the query would do.
        current = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
        self._heaps.budget(current)
        allocator = torch_api.allocator_of(torch, self._table.functions())
        atexit.unregister(self._table.end)
        atexit.register(self._table.end)
        refuse_to_share(torch, Heaps.contain)
        if self._deferred is None:
            self._deferred = DeferredFrees(
                self._table, self._heaps.add, torch_api.TorchStreams(torch), self._heaps.trim
            )
        if self._mechanism == "replace":
            self._replace(allocator, throws)
            self._heaps.begin(torch.cuda.current_device())
        else:
            pool = TorchPool(torch, allocator)
            self._heaps.begin(current)
            self._table.serve(throws, self._deferred)
            self._pool = pool
            pool.begin()

    def _replace(self, allocator: Any, throws: int) -> None:
        """Serve first, then replace: PyTorch may allocate at once, and would take a NULL for an address."""
        self._table.serve(throws, self._deferred)
        try:
            torch_api.replace(self._torch, allocator)
        except BaseException:
            self._table.stop(self._deferred)
            raise
        TorchServed._replaced = self


def serve_torch(
    limit: int | str | None = None,
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    mechanism: Mechanism = "pool",
    fraction: float | None = None,
    headroom: int | str | None = None,
    memory: Memory = "device",
    capture: Literal["nothing", "label"] = "label",
    options: AllocatorOptions = OPTIONS,
) -> TorchServed:
    """Allocate PyTorch's CUDA memory from instrumented heaps, one per stream, within a `with`.

    ::

        with serve_torch(log=recording) as served:
            train()

    Args:
        limit: of each device's heaps together, in bytes or as text. Default: what is free once PyTorch's own cache is
            emptied, less TensorFlow's reserve for CUDA's libraries and kernels (`shared.headroom`).
        log: receives the events of the first stream's heap; a recording includes its labels. Default, and for the heaps
            of further streams: a ring in memory.
        labels: interns the names of `labels.label`.
        mechanism: `pool`, or `replace`; see above.
        fraction: the limit as a share of the device's total memory; give at most one of the three.
        headroom: bytes, or text, of the free memory to leave free.
        memory: `device`, `managed`, which may exceed the device, or `virtual`, whose regions grow in place.
        capture: what is recorded with each allocation: `nothing`, or the current `label`.
        options: the options of the heaps.

    Raises:
        ValueError: a text is not a size.
        InvalidRequest: the mechanism or memory is unknown, or the memory is `async`, which belongs to one stream.
        LiveError: bfcviz is not compiled; stacks are requested, which PyTorch's functions cannot read; on entering:
            PyTorch is not installed, sees no GPU, has less than the limit, or cannot be served by this mechanism now.
    """
    require_compiled("Serving PyTorch")
    _check(mechanism, memory)
    share = _share(limit, fraction, headroom)
    log, labels = log_and_labels(log, labels)
    captured = Capture(labels, capture)
    if captured.walker is not None:
        raise LiveError(
            "PyTorch cannot be served with Python stacks: it allocates without the GIL, where no stack can be read. "
            "Give capture='label', or observe it: observe_torch"
        )
    return TorchServed(share, mechanism, log, captured, options, GpuMemory(memory))


def _check(mechanism: str, memory: str) -> None:
    if mechanism not in ("pool", "replace"):
        raise InvalidRequest(f"mechanism={mechanism!r} was given to serve PyTorch; give 'pool' or 'replace'")
    if memory not in ("device", "managed", "virtual"):
        raise InvalidRequest(
            f"memory={memory!r} was given to serve PyTorch; give 'device', 'managed' or 'virtual'. A heap is made "
            "before its stream is known, and 'async' memory belongs to one stream"
        )


def _share(limit: int | str | None, fraction: float | None, headroom: int | str | None) -> Share:
    share = Share.parse(limit, fraction, headroom)
    if share.limit is not None and not 1 <= share.limit <= 1 << 62:
        raise InvalidRequest(f"a limit of {share.limit} bytes was given; give one from 1 to 2^62")
    return share
