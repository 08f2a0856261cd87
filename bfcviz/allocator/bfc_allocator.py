"""BFCAllocator: the public interface of the instrumented heap.

Every address equals TensorFlow 2.21's, but these of its defects are not copied (letters as in the reference rules):

==  =====================================================  =====================================================
    tsl::BFCAllocator 2.21                                 here
==  =====================================================  =====================================================
A   hangs when the sub-allocator refuses a region for a    the back-off always steps down, by at least 256 bytes,
    request of 2,304 bytes or less                         and ends in OutOfMemory
B   hangs once the next region's size has doubled to 0     the size stops doubling at 2^63
C   corrupts itself where fragmentation_fraction * limit   exact fits are never split
    is below 1
D   returns a zero-byte chunk for sizes near 2^64          InvalidRequest for sizes above 2^62, and below 0
E   hangs for sizes between 2^63 and the limit             InvalidRequest, also for limits above 2^62
F   aborts on a double free or a foreign pointer, accepts  DoubleFree, ForeignPointer, InteriorPointer
    some interior ones
==  =====================================================  =====================================================

None of these errors changes the heap.
"""

import operator
import sys
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bfcviz import _forks, native
from bfcviz.allocator import c_api, queries
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.interface import AllocationAttributes, AllocatorOptions, Internals, Stats, bytes_of
from bfcviz.allocator.queries import Moment
from bfcviz.allocator.replay import Operations, Replay, Replayed
from bfcviz.allocator.sub_allocators import SubAllocator
from bfcviz.errors import (
    AllocatorError,
    DoubleFree,
    ForeignPointer,
    InteriorPointer,
    InvalidFree,
    InvalidRequest,
    OutOfMemory,
    SubAllocatorError,
)
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import join_recorded_log
from bfcviz.units import parse_bytes

# ------------------------------------------------------------------------------
# Convert the heap's failure numbers (native.FAILED_..., native.FREE_...) into errors with a message.

NO_TABLE_MEMORY = "the machine has no memory for the heap's own tables; the heap is unchanged"


def failure(reason: int, num_bytes: int, alignment: int) -> Exception:
    """The error that `BFCAllocator.allocate` raises for a failure of the heap other than out of memory."""
    if reason == native.FAILED_TABLES:
        return MemoryError(NO_TABLE_MEMORY)
    if reason == native.FAILED_GRANT:
        return SubAllocatorError(
            "the sub-allocator granted a region that overlaps another, is smaller than requested, or does not "
            "begin at a multiple of 256 bytes; the heap did not use it"
        )
    if reason == native.FAILED_CLOSED:
        return AllocatorError(f"{num_bytes} bytes were requested, but the allocator is closed")
    if reason == native.FAILED_FORKED:
        return AllocatorError(
            f"{num_bytes} bytes were requested, but the heap cannot grow in this process: it was forked while another "
            "thread was in the sub-allocator. Use the free memory, or create a new heap in this process"
        )
    if reason == native.FAILED_ALIGNMENT:
        return InvalidRequest(f"the alignment is {alignment}; give a power of two")
    return InvalidRequest(f"{num_bytes} bytes were requested; give a size from 0 to 2^62")


def whole(number: int, what: str, bits: int = 64) -> int:
    """A number given to a `BFCAllocator`, as an int; raises InvalidRequest if it does not fit `bits` unsigned bits."""
    if not 0 <= operator.index(number) < 1 << bits:
        raise InvalidRequest(f"{number} is out of range for {what}; give a number from 0 to 2^{bits} - 1")
    return operator.index(number)


def invalid_free(reason: int, address: int) -> Exception:
    """The error that `BFCAllocator.free` raises for a failure of the heap."""
    kind: type[InvalidFree]
    if reason == native.FREE_TABLES:
        return MemoryError(NO_TABLE_MEMORY)
    if reason == native.FREE_DOUBLE:
        kind, text = DoubleFree, "is in a free chunk: it was freed already, or never allocated"
    elif reason == native.FREE_INTERIOR:
        kind, text = InteriorPointer, "is inside a chunk in use: give the address that allocate returned"
    else:
        kind, text = ForeignPointer, "is in no region of this heap: it belongs to another allocator"
    return kind(address, f"{address:#x} {text}")


# ------------------------------------------------------------------------------
# Finalizer: release a heap's memory when its allocator is collected or closed.
#
# Always plain Python, in an object of its own: compiled classes have no finalizers under Python's limited C
# interface.


def wait_for_growth(heap: Heap, patience: int) -> None:
    """Wait until no other thread is in the sub-allocator, for at most `patience` nanoseconds."""
    native.mutex_wait(heap.growth, patience)


class _GrowthLock:
    """Makes a fork wait until no other thread is in the sub-allocator: the child could not continue that call."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap

    def acquire(self, _blocking: bool, timeout: float) -> bool:
        wait_for_growth(self._heap, int(timeout * 1e9))
        return False

    def release(self) -> None:
        """Do nothing: `acquire` takes no lock."""

    def _at_fork_reinit(self) -> None:
        """Do nothing: the heap detects the fork (`Heap.was_forked_while_growing`)."""


class Finalizer:
    """Releases the regions and ends the log.

    Only the allocator owns it. Its members may be in a reference cycle with the allocator.

    Args:
        heap: its regions are released.
        log: it is closed; None: a recording closes it, other heaps may write to it.
    """

    def __init__(self, heap: Heap, log: EventLog | None) -> None:
        self._heap = heap
        self._log = log
        self._is_ending = sys.is_finalizing
        self._is_compiled = "bfcviz._heap" in sys.modules
        self._growth_lock = _forks.keep(_GrowthLock(heap), _forks.FIRST)

    def close(self) -> None:
        """Release the memory and end the log; a second call does nothing."""
        if not self._heap.closed:
            self._heap.release_all()
            self._heap.frees.wake_waiters()
            self._close_log()

    def __del__(self) -> None:
        # No thread waits for memory of a heap without references, so none is woken; at the end of Python waking would
        # fail. Then the modules of an uncompiled heap may be unloaded too: its memory is freed with the process.
        if not self._heap.closed and (self._is_compiled or not self._is_ending()):
            self._heap.release_all()
            self._close_log()

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()


# ------------------------------------------------------------------------------
# Retry a failed request after frees of other threads, as TensorFlow's allow_retry_on_failure does.


def allocate_after_free(
    heap: Heap, seconds: float, num_bytes: int, alignment: int, freed_before: int, label: int, stream: int
) -> int:
    """`BFCAllocator`'s retry after each free of another thread until the time is up; each failed try records an event.

    Returns:
        The result of the last `Heap.allocate`.
    """
    attempt = partial(try_heap, heap, num_bytes, alignment, freed_before, label, stream)
    address: int | None = heap.frees.try_after_frees(attempt, seconds)
    return native.FAILED_MEMORY if address is None else address


def try_heap(
    heap: Heap, num_bytes: int, alignment: int, freed_before: int, label: int, stream: int
) -> int | None:
    """One try of `BFCAllocator.allocate`: call `Heap.allocate`; None where there is no memory."""
    address = heap.allocate(num_bytes, alignment, freed_before, label, stream)
    return None if address == native.FAILED_MEMORY else address


# ------------------------------------------------------------------------------
# Return free memory on demand, as whole regions or as pages.


def trim_heap(heap: Heap) -> int:
    """Release every wholly free region; returns the number of bytes released. Does nothing within the sub-allocator.

    A heap that is empty afterwards grows from its first region size again. TensorFlow's `DeallocateFreeRegions` and the
    heap's own `collect` do not reset the growth, so those addresses equal TensorFlow's.
    """
    if heap.is_growing_here() or heap.was_forked_while_growing():
        return 0
    native.mutex_lock(heap.growth)
    heap.space.log.lock_and_tick(heap.pool)
    before = heap.space.pool_bytes
    if not heap.closed and heap.has_room():
        heap.release_free_regions()
    released = before - heap.space.pool_bytes
    if heap.space.pool_bytes == 0:
        heap.next_region = heap.first_region
    native.spin_unlock(heap.lock)
    native.mutex_unlock(heap.growth)
    return released


def return_free_pages(heap: Heap, only_idle: bool) -> int:
    """Return pages of free chunks of 1 MiB and more to the operating system; returns the number of bytes."""
    if only_idle:
        native.spin_lock(heap.lock)
        heap.page_ages.begin_period()
        native.spin_unlock(heap.lock)
    state = native.release_gil()
    returned = heap.return_pages(not only_idle)
    native.take_gil(state)
    return returned


class CFunctions(NamedTuple):
    """C entry points of a `BFCAllocator`, as integers, valid while it lives.

    `allocate` is `void *(*)(void *context, size_t alignment, size_t num_bytes)` and returns NULL where it fails.
    `free` is `void (*)(void *context, void *pointer)`; it ignores NULL, and counts a pointer that belongs to no chunk
    in `BFCAllocator.rejected_frees`. Any thread may call both, with or without the GIL. Uncompiled they are ctypes
    callbacks and take the GIL.
    """

    context: int
    allocate: int
    free: int


class BFCAllocator:
    """A best-fit-with-coalescing heap that records an event for each change.

    Args:
        sub_allocator: grants the regions; not shared with another heap.
        limit: the largest size of the pool: bytes, 1..2^62, or text such as `512MiB`.
        options: how the heap behaves.
        name: the name of this memory.
        log: receives the events; by default a ring of 16,384 events in memory.
        labels: interns the labels.

    Raises:
        InvalidRequest: the limit is out of range.
        ValueError: the text is not a size.
        TypeError: `sub_allocator` is not a SubAllocator.
    """

    def __init__(
        self,
        sub_allocator: SubAllocator,
        limit: int | str,
        options: AllocatorOptions | None = None,
        *,
        name: str = "bfc",
        log: EventLog | None = None,
        labels: Labels | None = None,
    ) -> None:
        if not isinstance(sub_allocator, SubAllocator):
            raise TypeError(
                f"{sub_allocator!r} is not a sub-allocator: derive its class from PythonSubAllocator"
            )
        most = parse_bytes(limit, "limit")
        if not 1 <= most <= 1 << 62:
            raise InvalidRequest(f"the limit is {limit} bytes; give 1 to 2^62 bytes")
        self.name = name
        self.options = AllocatorOptions() if options is None else options
        self.labels = Labels() if labels is None else labels
        self.log = EventLog() if log is None else log
        self.sub_allocator = sub_allocator
        self.limit = most
        pool, is_recorded = join_recorded_log(self.log, Pool(name, most, vars(self.options)))
        self.heap = Heap(
            sub_allocator,
            most,
            self.log,
            pool,
            self.options.allow_growth,
            self.options.garbage_collection,
            self.options.max_waste(most),
            self.options.timestamps,
            self.options.honour_alignment,
            self.options.first_region,
            self.options.exact_growth,
        )
        self.finalizer = Finalizer(self.heap, None if is_recorded else self.log)

    # -- allocate and free --------------------------------------------------------------------------------------

    def label_id(self, label: str | int) -> int:
        """The id of a label; text is interned."""
        if isinstance(label, str):
            return self.labels.intern(label)
        number = operator.index(label)
        if not 0 <= number < len(self.labels):
            raise InvalidRequest(
                f"label id {label} is unknown: there are {len(self.labels)} labels; give text, or an id from intern"
            )
        return number

    def allocate(
        self,
        num_bytes: int | str,
        alignment: int = 256,
        label: str | int | None = None,
        freed_before: int = 0,
        stream: int = 0,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes`.

        Args:
            num_bytes: in bytes, or text such as `20MiB`; 0 returns address 0 and changes nothing.
            alignment: the address is a multiple of this power of two, in bytes.
            label: what the memory is for: text, or an id from `labels.intern`.
            freed_before: with timestamps: use only chunks freed at or before this count; 0 = any.
            stream: number of the stream that uses the memory; the event records it.
            attributes: further wishes of this request; their `freed_by` replaces `freed_before`.

        Returns:
            The address.

        Raises:
            OutOfMemory: no chunk can serve it; carries the numbers.
            InvalidRequest: the size or alignment is out of range.
            ValueError: the text is not a size.
            SubAllocatorError: the sub-allocator granted an invalid region.
        """
        if type(num_bytes) is str:  # isinstance would cost every request some nanoseconds
            size = parse_bytes(num_bytes, "num_bytes")
            return self.allocate(size, alignment, label, freed_before, stream, attributes)
        if attributes is not None:
            freed_before = attributes.freed_before() or freed_before
        number = 0 if label is None else self.label_id(label)
        queue = 0 if stream == 0 else whole(stream, "a stream", 16)
        address = self.heap.allocate(
            native.to_u64(num_bytes), native.to_u64(alignment), native.to_u64(freed_before), number, queue
        )
        if address >= native.MIN_CHUNK or address == 0:
            return address
        wait = attributes is None or not attributes.no_retry_on_failure
        return self._recover(address, num_bytes, alignment, number, freed_before, queue, wait)

    def try_allocate(
        self,
        num_bytes: int | str,
        alignment: int = 256,
        label: str | int | None = None,
        freed_before: int = 0,
        stream: int = 0,
        attributes: AllocationAttributes | None = None,
    ) -> int | None:
        """Allocate as `allocate` does; None instead of OutOfMemory."""
        try:
            return self.allocate(num_bytes, alignment, label, freed_before, stream, attributes)
        except OutOfMemory:
            return None

    def allocate_elements(
        self,
        dtype: DTypeLike,
        count: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `count` elements of a NumPy dtype; raises as `allocate` does."""
        return self.allocate(bytes_of(dtype, count), alignment, label, attributes=attributes)

    def free(self, address: int) -> None:
        """Free an address that `allocate` returned; 0 is ignored.

        Raises:
            DoubleFree, InteriorPointer, ForeignPointer: no chunk in use begins there; the heap is unchanged.
        """
        where = native.to_u64(address)
        if where == 0:
            return
        reason = self.heap.free(where)
        if reason != 0:
            raise invalid_free(reason, address)

    def replay(self, operations: Operations) -> Replayed:
        """Run whole arrays of operations in one call; can be interrupted.

        Raises:
            InvalidRequest: a column is invalid. A single operation that fails gets address 0 instead.
        """
        if self.heap.closed:
            raise AllocatorError("the operations cannot be replayed: the allocator is closed")
        result = Replay(self.heap, operations).run()
        self._raise_error_of_sub_allocator()
        return result

    def mark(self, label: str | int, value: int = 0) -> None:
        """Record a mark of the user in the log: a step, a phase, a note."""
        self.heap.put_mark(self.label_id(label), whole(value, "a mark's value"))

    def set_safe_frontier(self, count: int) -> None:
        """With timestamps: allow merging of chunks freed before this count; it never goes down."""
        self.heap.set_safe_frontier(whole(count, "a safe frontier"))

    def trim(self) -> int:
        """Return wholly free regions to the sub-allocator now; returns the number of bytes released."""
        released = trim_heap(self.heap)
        self._raise_error_of_sub_allocator()
        return released

    def return_pages(self, *, only_idle: bool = False) -> int:
        """Return the pages of free chunks of 1 MiB and more to the operating system.

        Chunks, addresses and events do not change; the memory reads as zeros when it is used again. Only memory of
        this machine (`HostSubAllocator`) is returned.

        Args:
            only_idle: return only memory that was not used since the last but one such call.

        Returns:
            Bytes returned, in blocks of 256 KiB.
        """
        released: int = return_free_pages(self.heap, only_idle)
        return released

    def c_functions(self) -> CFunctions:
        """Entry points for C code."""
        return CFunctions(*c_api.functions(self.heap))

    def heap_functions(self) -> object:
        """A capsule of the C functions for a framework (heap_functions.h), valid while this lives; None uncompiled."""
        return c_api.heap_functions(self.heap)

    # -- state --------------------------------------------------------------------------------------------------

    @property
    def pool(self) -> int:
        """Its number among the heaps that write to its log: the `pool` of its events."""
        number: int = self.heap.pool
        return number

    @property
    def rejected_frees(self) -> int:
        """Number of calls of the C `free` with a pointer that no chunk in use begins at."""
        return self.heap.rejected_frees

    def tracks_allocation_sizes(self) -> bool:
        """True: the three methods below work."""
        return True

    def should_allocate_empty(self) -> bool:
        """False: empty requests get address 0."""
        return False

    def requested_size(self, address: int) -> int:
        """Bytes requested for the chunk at an address; raises as `free` does."""
        return self._facts(address)[1]

    def allocated_size(self, address: int) -> int:
        """Bytes of the chunk at an address; raises as `free` does."""
        return self._facts(address)[2]

    def allocation_id(self, address: int) -> int:
        """Number of the request that allocated the chunk at an address, counting successes from 1."""
        return self._facts(address)[3]

    def _facts(self, address: int) -> tuple[int, int, int, int]:
        facts = queries.chunk_facts(self.heap, native.to_u64(address))
        if facts[0] != 0:
            raise invalid_free(facts[0], address)
        return facts

    def stats(self) -> Stats:
        """Current totals."""
        return queries.read_totals(self.heap)

    def clear_stats(self) -> None:
        """Restart the counts of requests and the peaks; allocation ids continue."""
        self.heap.clear_stats()

    def internals(self) -> Internals:
        """Internal numbers of the algorithm."""
        return queries.read_internals(self.heap)

    def memory_map(self) -> NDArray[np.void]:
        """Every chunk, in address order: an array of `queries.MEMORY_MAP`."""
        return self.moment().chunks

    def regions(self) -> NDArray[np.void]:
        """Every region, in address order: an array of `queries.REGION`."""
        return queries.read_regions(self.heap)

    def moment(self) -> Moment:
        """The whole heap between two events, and the number of events: a reader of the log can begin here."""
        return queries.read_moment(self.heap)

    def occupancy(self) -> str:
        """TensorFlow's strip of 100 characters: `*` used, `x` wasted inside chunks, `_` free."""
        now = self.moment()
        return queries.occupancy(now.chunks, now.regions)

    def check_invariants(self) -> None:
        """Compare all tables with each other; raises BrokenInvariant where they disagree (a bug)."""
        queries.check(self.heap, held=self.options.timestamps)

    # -- close --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Return all regions, even those in use, and end the log.

        Afterwards a request fails, and a free does nothing: objects that own memory may outlive the heap.
        """
        if self.heap.is_growing_here():
            raise AllocatorError("a sub-allocator cannot close the heap that is calling it")
        self.finalizer.close()
        self._raise_error_of_sub_allocator()

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("an allocator cannot be copied or pickled: it owns its memory")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- failures -----------------------------------------------------------------------------------------------

    def _recover(
        self,
        reason: int,
        num_bytes: Any,
        alignment: int,
        label: int,
        freed_before: int,
        stream: int,
        wait: bool,
    ) -> int:
        """Wait for a free of another thread if the options say so; else raise the error of the failure."""
        if reason == native.FAILED_MEMORY and wait and self.options.retry_s > 0:
            address = allocate_after_free(
                self.heap, self.options.retry_s, num_bytes, alignment, freed_before, label, stream
            )
            if address >= native.MIN_CHUNK:
                return address
            reason = address
        if reason in (native.FAILED_MEMORY, native.FAILED_GRANT):
            self._raise_error_of_sub_allocator()
        if reason == native.FAILED_MEMORY:
            raise OutOfMemory.of(operator.index(num_bytes), self.stats())
        raise failure(reason, num_bytes, alignment)

    def _raise_error_of_sub_allocator(self) -> None:
        """Raise the exception of a sub-allocator written in Python, once."""
        error = self.sub_allocator.error
        if error is not None:
            self.sub_allocator.error = None
            raise error
