"""serve_torch: PyTorch's CUDA memory on instrumented heaps.

By way of a memory pool, which can begin at any time, PyTorch's caching allocator stays between: chunks are its segments
of 2 MiB and more. PyTorch gives none of them back while a pool is in use, whatever `torch.cuda.empty_cache()` is told,
and does not reuse memory that `record_stream` was called on. `empty_cache()` of what `serve_torch` returns gives both
back: it ends the pool and begins another. When memory runs out PyTorch raises its OutOfMemoryError.

Replacing the allocator shows every tensor; it must be done before CUDA is first used and stays for good, and CUDA
graphs must not be captured meanwhile: a heap cannot keep what they used. There `record_stream` is honoured by events.
When memory runs out torch.OutOfMemoryError is raised, too, by a C++ exception thrown through PyTorch, for it would take
a NULL for an address; a RuntimeError where PyTorch is built otherwise than its wheels.
"""

import atexit
from collections.abc import Iterator
from itertools import count
from typing import Any, ClassVar, Final, Literal, cast

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.cuda.choice import Memory
from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture
from bfcviz.live.observed.heap import log_and_labels
from bfcviz.live.shared.compiled import require_compiled
from bfcviz.live.shared.deferred_frees import Keeper
from bfcviz.live.shared.headroom import Share
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.live.shared.lent_heap import OPTIONS
from bfcviz.live.torch import api
from bfcviz.live.torch.heaps import SPARE, DeviceMemory, GpuMemory, Heaps, TorchHeap
from bfcviz.live.torch.lanes import Lanes
from bfcviz.live.torch.pool import TorchPool
from bfcviz.live.torch.sharing import refuse_to_share
from bfcviz.units import format_bytes

Mechanism = Literal["pool", "replace"]

_SAYS: Final = {
    "pool": "PyTorch is served by bfcviz through a memory pool: its own caching allocator stays, and every segment it "
    "asks for is a chunk of bfcviz's heap; tensors are inside those. PyTorch keeps a pool's segments: in the with "
    "torch.cuda.empty_cache() gives nothing back, and memory that record_stream was called on is not used again. "
    "empty_cache() of this object gives both back",
    "replace": "PyTorch is served by bfcviz's heap in place of its own allocator, every tensor from a chunk of its "
    "own, until the process ends: PyTorch swaps no allocator in use. It has no memory statistics and snapshots then: "
    "use memory_allocated() and memory_reserved() of this object",
}


class TorchServed(HeapProvider):
    """What `serve_torch` returns; serves for the length of a `with`, all threads and devices.

    Attributes:
        way: `serve`.
        labels: where names are interned.
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
        self._lanes = Lanes(next(TorchServed._numbers), capture.use())
        self._heaps = Heaps(self._lanes, share, log, capture.labels, options, memory)
        self._torch: Any = None
        self._keeper: Keeper | None = None
        self._pool: TorchPool | None = None
        self._failures = 0

    @property
    def says(self) -> str:
        """Which way, and what that means."""
        return _SAYS[self._mechanism]

    @property
    def heaps(self) -> list[TorchHeap]:
        """A heap for each stream that came; more may come. The log that was given is the first one's."""
        return self._heaps.in_use()

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers behind the last request that failed; the heap may have changed since."""
        return self._heaps.out_of_memory()

    def settle(self) -> None:
        """Carry out the frees that need not wait for other streams any more."""
        if self._keeper is not None:
            self._keeper.let_go(0, 0, 0)

    def empty_cache(self) -> None:
        """Give what no tensor uses back to the heaps, and their wholly free regions to the device.

        In the `with` of a pool torch.cuda.empty_cache() gives nothing back; this ends the pool and begins another. Call
        it while no other thread allocates CUDA memory and no graph is captured: PyTorch does not survive that.
        """
        if self._pool is not None:
            self._pool.renew()
        elif self._torch is not None:
            self._torch.cuda.empty_cache()
        self.settle()
        self._heaps.trim_all()

    def memory_allocated(self, device: int | None = None) -> int:
        """Bytes that tensors have of a device, by default of the current one; like torch.cuda.memory_allocated()."""
        if self._mechanism == "pool" and self._torch is not None:
            return int(self._torch.cuda.memory_allocated(device))
        return sum(heap.stats().bytes_in_use for heap in self._heaps_of(device))

    def memory_reserved(self, device: int | None = None) -> int:
        """Bytes that the heaps have of a device, by default of the current one, in use or free."""
        return sum(heap.stats().pool_bytes for heap in self._heaps_of(device))

    def _heaps_of(self, device: int | None) -> list[TorchHeap]:
        if device is None:
            device = 0 if self._torch is None else self._torch.cuda.current_device()
        return self._heaps.of(device)

    def _refuse_second(self) -> None:
        if TorchServed._replaced is not self:  # one that replaced the allocator may be entered within itself
            super()._refuse_second()
        if TorchServed._replaced not in (None, self):
            raise LiveError(
                "PyTorch's allocator was replaced in this process before, and stays so: enter that service again"
            )

    def _start(self) -> None:
        self._torch = api.torch_with_cuda("served")
        self._capture.use()
        self._failures = self._heaps.number_of_failures()
        if TorchServed._replaced is not self:
            self._begin()

    def _stop(self, error: BaseException | None) -> None:
        failed = isinstance(error, RuntimeError) and self._heaps.number_of_failures() > self._failures
        notes = self._notes() if failed else []
        if self._pool is not None:
            self._pool.end()
            self._pool = None
            self._lanes.stop(self._keeper)
        try:
            self.settle()
        except RuntimeError:
            if error is None:  # else it is the GPU's answer to everything since that one
                raise
        for note in notes:
            cast("RuntimeError", error).add_note(f"bfcviz, {note}")

    def _notes(self) -> list[str]:
        """What is to be said of a failure."""
        notes = [f"of the heap PyTorch was served from: {self.out_of_memory}"]
        cached = 0 if self._pool is None else self._heaps.requested_in_use() - self._allocated_by_pytorch()
        if cached > 0:
            notes.append(
                f"of PyTorch's cache: {format_bytes(cached)} of the heaps are in segments without tensors, or wait for "
                "other streams; empty_cache() of what serve_torch returned gives them back"
            )
        return notes + [f"of where its memory comes from: {cause}" for cause in self._heaps.errors()]

    def _allocated_by_pytorch(self) -> int:
        cuda = self._torch.cuda
        return sum(int(cuda.memory_allocated(device)) for device in range(cuda.device_count()))

    # -- how it begins ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        torch = self._torch
        for device in range(torch.cuda.device_count()):
            self._heaps.budget(device)
        throws = 0
        if self._mechanism == "replace":
            throws = api.thrower(torch, self._lanes.thrower)
        else:
            api.refuse_async(
                torch, "served by a pool", ", or give mechanism='replace' before CUDA is first used"
            )
            torch.cuda.init()
        allocator = api.allocator_of(torch, self._lanes.functions())
        atexit.unregister(self._lanes.end)
        atexit.register(self._lanes.end)
        refuse_to_share(torch, Heaps.contain)
        if is_new := self._keeper is None:
            self._keeper = Keeper(self._lanes, self._heaps.add, api.TorchStreams(torch), self._heaps.trim)
        if self._mechanism == "replace":
            self._replace(allocator, throws)
        if is_new:
            current = torch.cuda.current_device()
            for device in sorted(range(torch.cuda.device_count()), key=lambda device: device != current):
                for _ in range(SPARE):
                    self._heaps.add(device)
        if self._mechanism == "pool":
            pool = TorchPool(torch, allocator)
            self._lanes.serve(throws, self._keeper)
            pool.begin()
            self._pool = pool

    def _replace(self, allocator: Any, throws: int) -> None:
        """From here on PyTorch may ask, whatever else goes wrong; a NULL it would take for an address."""
        self._lanes.serve(throws, self._keeper)
        try:
            api.replace(self._torch, allocator)
        except BaseException:
            self._lanes.stop(self._keeper)
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
    """Let PyTorch's CUDA memory come from instrumented heaps, one a stream, for the length of a `with`.

    ::

        with serve_torch(log=recording) as served:
            train()

    Args:
        limit: of each device's heaps together, in bytes or as text. By default what is free, less what TensorFlow
            leaves to CUDA's libraries and kernels (`live.headroom`).
        log: where events of the first stream's heap go; a recording brings its labels along. By default, and for the
            heaps of further streams, a ring in memory.
        labels: where the names that `labels.label` gives are interned.
        mechanism: `pool`, or `replace`; see above.
        fraction: the limit as a share of all memory of the device; give at most one of the three.
        headroom: bytes, or text, to be left of what is free.
        memory: `device`, `managed`, which may exceed the device, or `virtual`, whose regions grow in place.
        capture: what is recorded with each allocation: `nothing`, or the `label` in force.
        options: how the heaps behave.

    Raises:
        ValueError: a limit that is no size.
        InvalidRequest: a mechanism there is not; memory there is not, or `async`, which belongs to one stream.
        LiveError: bfcviz is not compiled; stacks are wanted, which PyTorch's functions cannot see; on entering:
            PyTorch is not there, sees no GPU, has less than the limit, or cannot be served by this mechanism now.
    """
    require_compiled("Serving PyTorch")
    _check(mechanism, memory)
    share = _share(limit, fraction, headroom)
    log, labels = log_and_labels(log, labels)
    captured = Capture(labels, capture)
    if captured.walker is not None:
        raise LiveError(
            "PyTorch was to be served with Python's stack at each allocation, but it asks for memory without Python's "
            "lock, where there is no stack to be seen: give capture='label', or observe it, observe_torch"
        )
    return TorchServed(share, mechanism, log, captured, options, GpuMemory(memory))


def _check(mechanism: str, memory: str) -> None:
    if mechanism not in ("pool", "replace"):
        raise InvalidRequest(f"mechanism={mechanism!r} was given to serve PyTorch; give 'pool' or 'replace'")
    if memory not in ("device", "managed", "virtual"):
        raise InvalidRequest(
            f"PyTorch was to be served with memory {memory!r}; there are 'device', 'managed' and 'virtual'. A heap is "
            "made before its stream is known, and 'async' memory is of one stream"
        )


def _share(limit: int | str | None, fraction: float | None, headroom: int | str | None) -> Share:
    share = Share.parse(limit, fraction, headroom)
    if share.limit is not None and not 1 <= share.limit <= 1 << 62:
        raise InvalidRequest(f"a limit of {share.limit} bytes was given; give one from 1 to 2^62")
    return share
