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
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from threading import RLock, Thread
from typing import Any, ClassVar, Final, Literal, cast
from weakref import ref

from bfcviz import _forks
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import Budget, Memory, cuda_sub_allocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.errors import BfcvizError, InvalidRequest, LiveError, OutOfMemory, OutOfMemoryTotals
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.formats.torch import CONF
from bfcviz.live.c_callbacks import StreamHeap, StreamTable
from bfcviz.live.deferred_frees import DeferredFrees
from bfcviz.live.heap_provider import HeapProvider, log_and_labels, logs_of_heaps
from bfcviz.live.memory_limits import CAPABILITY_MAJOR, Room, Share
from bfcviz.live.served_heap import OPTIONS, ServedHeap, require_compiled
from bfcviz.live.stack_capture import Capture
from bfcviz.live.torch import torch_api
from bfcviz.live.torch.torch_api import refuse_to_share
from bfcviz.units import format_bytes


class GpuMemory:
    """The GPUs' memory for the heaps that serve PyTorch, from the driver: PyTorch would initialize CUDA."""

    def __init__(self, kind: Memory) -> None:
        self.kind = kind

    def total(self, device: int) -> int:
        """Bytes of a GPU that serves PyTorch. Unlike `room` this creates no context."""
        return cuda_driver.load().total_memory(device)

    def room(self, device: int) -> Room:
        """The memory of a GPU now, for PyTorch. Only in a context the driver says what other processes left free."""
        driver = cuda_driver.load()
        free, total = driver.memory_now(device)
        return Room(total, free, driver.attribute(CAPABILITY_MAJOR, device))

    def source(self, device: int, budget: Budget, stream: Callable[[], int]) -> SubAllocator:
        """The sub-allocator of a heap that serves PyTorch; `stream` returns the handle of the stream that uses it."""
        return cuda_sub_allocator(self.kind, device, stream, budget=budget)


class TorchHeap(ServedHeap):
    """A heap behind PyTorch's tensors."""

    users = "PyTorch"
    advice = "drop the tensors and call torch.cuda.empty_cache() first"

    def contains(self, address: int) -> bool:
        """Whether an address lies in a region of this heap of PyTorch's."""
        regions = self.regions()
        start = regions["address"]
        is_inside = (start <= address) & (address - start < regions["size"])
        return bool(is_inside.any())


class Heaps:
    """The heaps that serve PyTorch, several for each device. The heaps of a device share one budget.

    A device's limit is determined with its first heap: when the service begins for the current device, and for others
    when PyTorch first requests memory there. Before that, a device has no context, and what is free is not known.

    Args:
        table: receives the heaps; PyTorch's functions find them there.
        share: what each device's heaps may take together.
        log: the log of all heaps if it is on disk, otherwise of the first one.
        options: the options of the heaps.
        memory: the source of their memory.
    """

    served: ClassVar[dict[TorchHeap, "Heaps"]] = {}
    """The heaps that PyTorch may have memory of, of all services: tensors may outlive theirs."""
    _tidying_lock: ClassVar[Any] = _forks.keep(RLock())
    _tidying: ClassVar[Thread | None] = None  # returns what such tensors leave; it ends with the last of them

    def __init__(
        self,
        table: StreamTable,
        share: Share,
        log: EventLog | None,
        labels: Labels,
        options: AllocatorOptions,
        memory: GpuMemory,
    ) -> None:
        self._table = table
        self._share = share
        self._logs = logs_of_heaps(log)
        self._labels = labels
        self._options = options
        self._memory = memory
        self._heaps: list[tuple[int, TorchHeap]] = []  # with their devices, in order of creation
        self._budgets: dict[int, Budget] = {}
        # What the table said of a heap when it was removed, or last failed.
        self._past: dict[TorchHeap, StreamHeap] = {}
        self._told: tuple[int, OutOfMemory] | None = None  # the last failure, as it was when first read
        self._has_ended = False
        self._lock = _forks.keep(RLock())

    def check(self, device: int) -> None:
        """Raise LiveError where PyTorch is to be served and a device has less than the given limit."""
        self._share.fixed(device, self._memory.total(device), self._memory.kind)

    def budget(self, device: int) -> Budget:
        """The budget that PyTorch's heaps of a device share.

        Raises:
            LiveError: the device has less than requested.
        """
        if device not in self._budgets:
            limit = self._share.of(device, self._memory.room(device), self._memory.kind)
            self._budgets[device] = Budget(limit)
        return self._budgets[device]

    def begin(self, device: int) -> None:
        """Let the heaps serve PyTorch, and make one for a device that has none."""
        Heaps.tidy()
        self._has_ended = False
        with Heaps._tidying_lock:
            for owner, heap in self._heaps:
                heap.is_serving = True
                if heap not in Heaps.served and not heap.heap.closed:
                    self._put(heap, owner)
        if not any(heap in Heaps.served for heap in self.of(device)):
            self.add(device)

    def end(self) -> None:
        """The service of PyTorch ended: return what is free. Heaps without tensors are forgotten."""
        self.out_of_memory()
        with self._lock:
            self._has_ended = True
            for _, heap in self._heaps:
                heap.is_serving = False
        Heaps.tidy()
        with Heaps._tidying_lock:
            if self._has_late() and (Heaps._tidying is None or not Heaps._tidying.is_alive()):
                Heaps._tidying = Thread(target=Heaps._tidy_late, args=(self._table,), daemon=True)
                Heaps._tidying.name = "bfcviz: return PyTorch's memory"
                Heaps._tidying.start()

    @staticmethod
    def _has_late() -> bool:
        return not all(heap.is_serving for heap in list(Heaps.served))

    @staticmethod
    def _tidy_late(table: StreamTable) -> None:
        for _ in table.late_frees():
            with suppress(BfcvizError):  # a GPU that fails here has failed before
                Heaps.tidy()
            with Heaps._tidying_lock:
                if not Heaps._has_late():
                    Heaps._tidying = None
                    return

    @staticmethod
    def tidy() -> None:
        """Return what heaps of services that ended have free, and forget those that PyTorch has no memory of."""
        errors: list[BaseException] = []
        for heap, owner in list(Heaps.served.items()):
            if heap.is_serving:
                continue
            try:
                heap.give_back()
            except BfcvizError as error:
                errors.append(error)
            with Heaps._tidying_lock:  # its service may have begun again meanwhile
                if heap in Heaps.served and not heap.is_serving:
                    owner._forget(heap)  # noqa: SLF001  another object of this class
        if errors:
            raise errors[0]

    def _forget(self, heap: TorchHeap) -> None:
        rows = [taken for taken in self._table.in_use() if taken.allocator is heap]
        if not heap.holds_memory and self._table.remove(heap):
            before = [self._past[heap]] if heap in self._past else []
            if before or rows:
                self._past[heap] = max([*before, *rows], key=lambda taken: taken.failure[0])
            del Heaps.served[heap]

    def add(self, device: int) -> None:
        """Add a spare heap of PyTorch's for a device, unless the service ended."""
        with self._lock:
            if self._has_ended:
                return
            budget = self.budget(device)
            made: list[ref[TorchHeap]] = []

            def stream() -> int:
                heap = made[0]() if made else None
                return next((each.stream for each in self._table.in_use() if each.allocator is heap), 0)

            source = self._memory.source(device, budget, stream)  # may fail: then the next heap gets the log
            log, name = next(self._logs), self._name(device)
            heap = TorchHeap(source, budget.limit, self._options, name=name, log=log, labels=self._labels)
            heap.is_serving = True
            made.append(ref(heap))
            self._heaps.append((device, heap))
            self._put(heap, device)

    def _name(self, device: int) -> str:
        number = len(self.of(device))
        return f"torch cuda:{device}" + (f" stream {number}" if number else "")

    def _put(self, heap: TorchHeap, device: int) -> None:
        Heaps.served[heap] = self
        self._table.add(heap, device)

    def in_use(self) -> list[TorchHeap]:
        """PyTorch's heaps that a stream uses or used; the first one if none is used."""
        used = [taken.allocator for taken in self._rows()]
        heaps = [heap for _, heap in self._heaps]
        return [heap for heap in heaps if heap in used] or heaps[:1]

    def of(self, device: int) -> list[TorchHeap]:
        """PyTorch's heaps of one device."""
        return [heap for owner, heap in self._heaps if owner == device]

    def requested_in_use(self) -> int:
        """Bytes that PyTorch requested and has not freed, on all devices."""
        return sum(heap.stats().requested_bytes_in_use for _, heap in self._heaps)

    def trim(self, device: int) -> bool:
        """Release the wholly free regions of PyTorch's heaps of a device, so that others there can grow."""
        return sum(heap.trim() for heap in self.of(device)) > 0

    def trim_all(self) -> None:
        """Release the wholly free regions of PyTorch's heaps on all devices."""
        for device in list(self._budgets):
            self.trim(device)

    def errors(self) -> list[BaseException]:
        """The errors of the sub-allocators of PyTorch's heaps."""
        return [error for _, heap in self._heaps if (error := heap.sub_allocator.error) is not None]

    @classmethod
    def contain(cls, address: int) -> bool:
        """Whether an address lies in a region of any heap that serves or served PyTorch."""
        return any(heap.contains(address) for heap in list(cls.served))

    # -- failures -----------------------------------------------------------------------------------------------

    def number_of_failures(self) -> int:
        """The number of PyTorch's last failed request; grows with each failure; 0: none."""
        taken = self._last_failure()
        return 0 if taken is None else taken.failure[0]

    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of PyTorch's last failed request; the heap may have changed since."""
        taken = self._last_failure()
        if taken is None:
            return None
        number, requested, pool, in_use, largest = taken.failure
        if self._told is not None and self._told[0] == number:
            return self._told[1]
        others = [
            (f"stream 0x{each.stream:x}", each.allocator.stats())
            for each in self._table.in_use()
            if each.device == taken.device and each.stream != taken.stream
        ]
        totals = OutOfMemoryTotals(pool, in_use, largest, taken.allocator.limit)
        self._told = number, OutOfMemory.of(requested, totals, others=others)
        return self._told[1]

    def _last_failure(self) -> StreamHeap | None:
        failed = [taken for taken in self._rows() if taken.failure[0]]
        return max(failed, key=lambda taken: taken.failure[0], default=None)

    def _rows(self) -> list[StreamHeap]:
        return [*self._past.values(), *self._table.in_use()]


class TorchPool:
    """A MemPool of each device, for all threads; PyTorch's own caching allocator gets its segments from our heaps.

    PyTorch knows the allocator of a MemPool only on the device that it was made on; on others it calls cudaMalloc.
    `torch.cuda.use_mem_pool` would route only the calling thread, and not the threads of autograd.
    """

    def __init__(self, torch: Any, allocator: Any) -> None:
        make = getattr(torch.cuda, "MemPool", None)
        self._api = torch._C  # noqa: SLF001
        # Before 2.8 it has another name, and a pool serves one thread only.
        self._end: Any = getattr(self._api, "_cuda_endAllocateToPool", None)
        if make is None or self._end is None or not hasattr(self._api, "_cuda_beginAllocateToPool"):
            raise LiveError(
                f"PyTorch {torch.__version__} has no memory pools for this (since 2.8 it does): give "
                "mechanism='replace' before the first use of CUDA, or observe it: observe_torch"
            )
        self._torch = torch
        self._make_one: Callable[[], Any] = partial(make, allocator)
        self._pools = self._make()
        self._unlocked = _Unlocked(torch)

    def begin(self) -> None:
        """Allocate all of PyTorch's memory from the pool from now on."""
        self._unlocked.apply(on=True)
        self._open()

    def end(self) -> None:
        """End PyTorch's use of the pool. torch.cuda.empty_cache() frees its cached segments without tensors."""
        self._close()
        self._unlocked.apply(on=False)

    def renew(self) -> None:
        """Let PyTorch free all segments without tensors, and continue with a new pool.

        PyTorch frees no segment of a pool in use, and defers frees of memory that `record_stream` was called on. No
        other thread may allocate meanwhile: PyTorch deletes an empty pool even if another thread is allocating a
        segment for it, because its lock is released there, and would crash.
        """
        new = self._make()
        self._close()
        self._pools = new
        try:
            self._torch.cuda.empty_cache()
        finally:
            self._open()

    def _make(self) -> list[Any]:
        """A memory pool of PyTorch's for each device."""
        pools = []
        for device in range(self._torch.cuda.device_count()):
            with torch_api.device_named(self._torch, device):
                pools.append(self._make_one())
        return pools

    def _open(self) -> None:
        for device, pool in enumerate(self._pools):
            self._api._cuda_beginAllocateToPool(device, pool.id)  # noqa: SLF001

    def _close(self) -> None:
        for device, pool in enumerate(self._pools):
            self._end(device, pool.id)
            self._api._cuda_releasePool(device, pool.id)  # noqa: SLF001


class _Unlocked:
    """Lets PyTorch allocate segments without holding its own lock, by its setting for that.

    A heap that grows may have to wait for the GIL, and the thread that holds the GIL may wait for PyTorch's lock.
    """

    _SETTING = "release_lock_on_cudamalloc"

    def __init__(self, torch: Any) -> None:
        old = getattr(torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None)  # noqa: SLF001
        self._set: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", old)  # noqa: SLF001
        self._settings = torch.cuda.memory._snapshot().get("allocator_settings", {})  # noqa: SLF001
        self._is_wanted = self._set is not None and self._settings.get(self._SETTING) is False

    def apply(self, *, on: bool) -> None:
        """Begin to let PyTorch allocate segments without its lock, or end that."""
        if self._is_wanted:  # settings that are not repeated fall back to their defaults
            named = self._settings.get(CONF, "")
            self._set(",".join(filter(None, (named, f"{self._SETTING}:{on}"))))


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
    """What `serve_torch` returns; serves all threads and devices within a `with`."""

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
        memory: GpuMemory,
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
        """How PyTorch is served, and what that means, as a sentence."""
        text = f"{_DESCRIPTIONS[self._mechanism]}. {_NAMES}"
        if self._emptied:
            text += (
                f". PyTorch's own cache was emptied first: {format_bytes(self._emptied)} without tensors went back to "
                "the device"
            )
        return text

    @property
    def heaps(self) -> list[TorchHeap]:
        """PyTorch's heaps, one for each stream used so far; more may come."""
        return self._heaps.in_use()

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of PyTorch's last failed request; the heap may have changed since."""
        return self._heaps.out_of_memory()

    def settle(self) -> None:
        """Carry out PyTorch's deferred frees whose streams are done."""
        if self._deferred is not None:
            self._deferred.free_ready(0, 0, 0)

    def empty_cache(self) -> None:
        """Free PyTorch's segments without tensors, and release the heaps' wholly free regions to the device.

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
        """Bytes of PyTorch's tensors on a device, default: the current one; like torch.cuda.memory_allocated()."""
        if self._mechanism == "pool" and self._torch is not None:
            return int(self._torch.cuda.memory_allocated(device))
        return sum(heap.stats().bytes_in_use for heap in self._heaps_of(device))

    def memory_reserved(self, device: int | None = None) -> int:
        """Bytes of PyTorch's heaps on a device, in use or free; default: the current device."""
        return sum(heap.stats().pool_bytes for heap in self._heaps_of(device))

    def _heaps_of(self, device: int | None) -> list[TorchHeap]:
        if device is None:
            device = 0 if self._torch is None else self._torch.cuda.current_device()
        return self._heaps.of(device)

    def _refuse_second(self) -> None:
        if TorchServed._replaced is not self:  # else the same object may be entered again inside itself
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
        """Notes to add to PyTorch's error when memory ran out."""
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
        """Leave PyTorch's pool, and return all memory without tensors to the device."""
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
        torch_api.refuse_plugged(torch)
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
            emptied, less TensorFlow's reserve for CUDA's libraries and kernels (`memory_limits`).
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns the names of `labels_and_marks.label`.
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
    if mechanism not in ("pool", "replace"):
        raise InvalidRequest(f"mechanism={mechanism!r} was given to serve PyTorch; give 'pool' or 'replace'")
    if memory not in ("device", "managed", "virtual"):
        raise InvalidRequest(
            f"memory={memory!r} was given to serve PyTorch; give 'device', 'managed' or 'virtual'. A heap is made "
            "before its stream is known, and 'async' memory belongs to one stream"
        )
    share = _torch_memory_share(limit, fraction, headroom)
    log, labels = log_and_labels(log, labels)
    captured = Capture(labels, capture)
    if captured.walker is not None:
        raise LiveError(
            "PyTorch cannot be served with Python stacks: it allocates without the GIL, where no stack can be read. "
            "Give capture='label', or observe it: observe_torch"
        )
    return TorchServed(share, mechanism, log, captured, options, GpuMemory(memory))


def _torch_memory_share(limit: int | str | None, fraction: float | None, headroom: int | str | None) -> Share:
    share = Share.parse(limit, fraction, headroom)
    if share.limit is not None and not 1 <= share.limit <= 1 << 62:
        raise InvalidRequest(f"a limit of {share.limit} bytes was given; give one from 1 to 2^62")
    return share
