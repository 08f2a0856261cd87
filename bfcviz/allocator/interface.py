"""The interface of an allocator: its protocol, its options, the attributes of a request, and its totals."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from bfcviz import native
from bfcviz.errors import InvalidRequest
from bfcviz.formats.tensorflow import max_waste

# `AllocatorAttributes` select the allocator, `AllocationAttributes` belong to a request, both by TensorFlow's rules.


@dataclass(frozen=True)
class AllocatorAttributes:
    """Requirements on memory; none set means ordinary memory of the device.

    Attributes:
        on_host: memory of the machine, also for work on a device.
        nic_compatible: a network card may read and write it.
        gpu_compatible: a GPU may copy from and to it (pinned).
        track_sizes: the allocator knows sizes and ids of its chunks.
        device_specific: 8 bits whose meaning the device defines, 0..255.
        scope_id: number of a special-purpose allocator of the device, 0 = none.

    Raises:
        InvalidRequest: a number is out of range.
    """

    on_host: bool = False
    nic_compatible: bool = False
    gpu_compatible: bool = False
    track_sizes: bool = False
    device_specific: int = 0
    scope_id: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.device_specific <= 0xFF:
            raise InvalidRequest(
                f"device_specific is {self.device_specific}, but it has 8 bits: give 0 to 255"
            )
        if not 0 <= self.scope_id < 1 << 31:
            raise InvalidRequest(f"scope_id is {self.scope_id}; give a number from 0 to 2^31 - 1")

    def __str__(self) -> str:
        words = [name if value is True else f"{name}={value}" for name, value in vars(self).items() if value]
        return ", ".join(words) or "device memory"


DEFAULT: Final = AllocatorAttributes()
"""Ordinary memory of the device."""


@dataclass(frozen=True)
class AllocationAttributes:
    """Options of one request.

    Attributes:
        no_retry_on_failure: fail at once, even if the allocator waits for frees. For memory that is optional, such as
            scratch memory that only gains speed.
        allocation_will_be_logged: the caller writes the memory log; otherwise the allocation is unknown there.
        freed_by: called for each request, returns a safe-frontier count: of chunks with a timestamp, use only those
            freed at or before it. None = any.
    """

    no_retry_on_failure: bool = False
    allocation_will_be_logged: bool = False
    freed_by: Callable[[], int] | None = None

    def freed_before(self) -> int:
        """The current count, 0 = any."""
        return 0 if self.freed_by is None else self.freed_by()


def bytes_of(dtype: DTypeLike, count: int) -> int:
    """Bytes that an allocator is asked for by `Allocator.allocate_elements`: of `count` elements.

    Raises:
        InvalidRequest: the dtype has no fixed size, or the count is negative.
    """
    if dtype is None:  # NumPy would take it for float64
        raise InvalidRequest("the dtype is None: give one such as 'float32'")
    try:
        item = np.dtype(dtype)
    except TypeError as error:
        raise InvalidRequest(f"{dtype!r} is not a NumPy dtype: give one such as 'float32'") from error
    if item.hasobject:
        raise InvalidRequest(f"dtype {item} holds Python objects, not bytes: give a fixed-size one")
    if operator.index(count) < 0:
        raise InvalidRequest(f"{count} elements were requested; give 0 or more")
    return int(item.itemsize) * operator.index(count)


@dataclass(frozen=True)
class AllocatorOptions:
    """Options of an allocator that is a BFC heap, with TensorFlow's names.

    Attributes:
        allow_growth: start with `first_region` and double the size with each region; otherwise the first region has
            the limit.
        garbage_collection: before a request fails, release wholly free regions and extend once more.
        fragmentation_fraction: split a chunk whose waste would reach this share of the memory limit. A chunk of at
            least twice the request is always split. 0 = split when the waste would reach 128 MiB.
        retry_s: seconds that a failed request waits for frees of other threads before it raises (TensorFlow's
            allow_retry_on_failure waits 10 s); 0 = do not wait.
        timestamps: number every free, and merge a freed chunk only after `set_safe_frontier` has passed its number.
        honour_alignment: keep alignments above 256 by splitting padding off the front of the chunk, as XLA's main
            branch does. False: only pass the alignment to the sub-allocator, as TensorFlow 2.21 does.
        first_region: bytes of the first region with allow_growth; at most the limit, rounded up to 256. TensorFlow
            up to 2.1 starts with 1 MiB (1048576 in its bfc_allocator.cc), from 2.7 on with 2 MiB.
        exact_growth: when the sub-allocator refuses, end with a request for exactly the rounded size. TensorFlow goes
            down by tenths and gives up below that size, without a request for it. Heaps that share a limit need it: a
            heap does not know what the others left.
    """

    allow_growth: bool = False
    garbage_collection: bool = False
    fragmentation_fraction: float = 0.0
    retry_s: float = 0.0
    timestamps: bool = False
    honour_alignment: bool = True
    first_region: int = native.FIRST_REGION
    exact_growth: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.fragmentation_fraction <= 1:
            raise InvalidRequest(
                f"fragmentation_fraction is {self.fragmentation_fraction}, but it is a share of the memory limit: "
                "give a number from 0 to 1"
            )
        if not 0 <= self.retry_s < float("inf"):
            raise InvalidRequest(f"retry_s is {self.retry_s}; give a finite number from 0 up")
        if not 1 <= self.first_region <= native.MAX_REQUEST:
            raise InvalidRequest(f"first_region is {self.first_region} bytes; give a number from 1 to 2^62")

    def max_waste(self, limit: int) -> int:
        """Bytes of waste at which a chunk is split; at least 1, so that an exact fit is never split."""
        return max_waste(limit, self.fragmentation_fraction)


@dataclass(frozen=True)
class Stats:
    """A heap's totals, in bytes unless they count.

    Attributes:
        num_allocs: successful requests since the start, or since `clear_stats`.
        bytes_in_use: sizes of the chunks in use.
        requested_bytes_in_use: bytes requested for them.
        peak_bytes_in_use: the maximum of `bytes_in_use` since the start, or since `clear_stats`.
        largest_alloc_size: the largest chunk allocated since then.
        bytes_limit: the largest size of the pool.
        pool_bytes: bytes granted by the sub-allocator.
        peak_pool_bytes: the maximum of `pool_bytes` since the start.
        free_bytes: `pool_bytes - bytes_in_use`.
        largest_free_chunk: size of the largest free chunk.
        regions: number of regions.
        chunks_in_use: number of chunks in use.
    """

    num_allocs: int
    bytes_in_use: int
    requested_bytes_in_use: int
    peak_bytes_in_use: int
    largest_alloc_size: int
    bytes_limit: int
    pool_bytes: int
    peak_pool_bytes: int
    free_bytes: int
    largest_free_chunk: int
    regions: int
    chunks_in_use: int


@dataclass(frozen=True)
class Internals:
    """The allocator's interface for conformance tests: internal numbers of the algorithm, as TensorFlow's.

    Attributes:
        next_region_bytes: size of the next region to request (curr_region_allocation_bytes_).
        chunk_handles: handles ever used (chunks_.size()).
        next_allocation_id: of the next successful request.
        held_chunks: freed chunks not yet safe to merge (timestamped_chunks_.size()).
        timing_count: frees so far, with timestamps.
    """

    next_region_bytes: int
    chunk_handles: int
    next_allocation_id: int
    held_chunks: int
    timing_count: int


@runtime_checkable
class Allocator(Protocol):
    """Allocates memory by address: TensorFlow's interface in Python.

    Sizes are in bytes, addresses are integers. A call that raises has changed nothing.
    """

    @property
    def name(self) -> str:
        """The name of this memory, such as `GPU_0_bfc`."""

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Address of at least `num_bytes`; 0 for an empty request. Raises OutOfMemory or InvalidRequest."""

    def try_allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int | None:
        """Allocate as `allocate` does; None instead of OutOfMemory."""

    def allocate_elements(
        self,
        dtype: DTypeLike,
        count: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Address of memory for `count` elements of a NumPy dtype."""

    def free(self, address: int) -> None:
        """Free an address that `allocate` returned; 0 is ignored. Raises a subclass of InvalidFree."""

    def tracks_allocation_sizes(self) -> bool:
        """Whether the three methods below work."""

    def requested_size(self, address: int) -> int:
        """Bytes requested for the memory at an address."""

    def allocated_size(self, address: int) -> int:
        """Bytes allocated at an address."""

    def allocation_id(self, address: int) -> int:
        """Number of the request, counting successes from 1; never used twice."""

    def should_allocate_empty(self) -> bool:
        """Whether a request for 0 bytes gets an address of its own."""

    def stats(self) -> Stats:
        """Current totals."""

    def clear_stats(self) -> None:
        """Restart the counts of requests and the peaks; allocation ids continue."""

    def set_safe_frontier(self, count: int) -> None:
        """With timestamps: allow merging of chunks freed before this count."""

    def check_invariants(self) -> None:
        """Compare all tables with each other; raises BrokenInvariant where they disagree (a bug)."""

    def close(self) -> None:
        """Release all memory; afterwards a request fails, and a free does nothing."""
