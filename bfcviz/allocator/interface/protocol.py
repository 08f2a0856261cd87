"""Allocator: the protocol of all allocators; TensorFlow's interface in Python."""

from typing import Protocol, runtime_checkable

from numpy.typing import DTypeLike

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.stats import Stats


@runtime_checkable
class Allocator(Protocol):
    """Allocates memory by address.

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
