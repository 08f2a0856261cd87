"""AllocatorWrapper: base class of all wrappers; forwards every call to the allocator inside."""

from typing import Any

from numpy.typing import DTypeLike

from bfcviz._context_manager import Closing
from bfcviz.allocator.interface import AllocationAttributes, Allocator, Stats, bytes_of
from bfcviz.errors import OutOfMemory


class AllocatorWrapper(Closing):
    """Forwards every call to the allocator inside. A wrapper overrides `allocate` and `free`; other methods call these.

    Args:
        wrapped: the allocator inside; the wrapper owns it from now on.

    Raises:
        TypeError: `wrapped` is not an allocator.
    """

    def __init__(self, wrapped: Allocator) -> None:
        if isinstance(wrapped, type) or not isinstance(wrapped, Allocator):
            raise TypeError(f"{wrapped!r} is not an allocator: give a BFCAllocator, or a wrapper around one")
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        """Name of the allocator inside."""
        return self.wrapped.name

    @property
    def layers(self) -> tuple[Allocator, ...]:
        """This wrapper and all allocators inside it, outermost first."""
        inner = self.wrapped.layers if isinstance(self.wrapped, AllocatorWrapper) else (self.wrapped,)
        return (self, *inner)

    @property
    def base(self) -> Any:
        """The innermost allocator; a BFCAllocator there has the log, labels and memory map."""
        return self.layers[-1]

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Allocate `num_bytes`; raises as the allocator inside does."""
        return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)

    def try_allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int | None:
        """Allocate as `allocate` does; None instead of OutOfMemory."""
        try:
            return self.allocate(num_bytes, alignment, label, attributes=attributes)
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
        """Free an address that `allocate` returned; 0 is ignored."""
        self.wrapped.free(address)

    def tracks_allocation_sizes(self) -> bool:
        """Whether the three methods below work."""
        return self.wrapped.tracks_allocation_sizes()

    def requested_size(self, address: int) -> int:
        """Bytes that the caller requested."""
        return self.wrapped.requested_size(address)

    def allocated_size(self, address: int) -> int:
        """Bytes of the chunk."""
        return self.wrapped.allocated_size(address)

    def allocation_id(self, address: int) -> int:
        """Number of the request, counting successes from 1."""
        return self.wrapped.allocation_id(address)

    def should_allocate_empty(self) -> bool:
        """Whether a request for 0 bytes gets an address of its own."""
        return self.wrapped.should_allocate_empty()

    def stats(self) -> Stats:
        """Current totals."""
        return self.wrapped.stats()

    def clear_stats(self) -> None:
        """Restart the counts of requests and the peaks."""
        self.wrapped.clear_stats()

    def set_safe_frontier(self, count: int) -> None:
        """With timestamps: allow merging of chunks freed before this count."""
        self.wrapped.set_safe_frontier(count)

    def check_invariants(self) -> None:
        """Compare all tables, also of the wrappers; raises BrokenInvariant where they disagree."""
        self.wrapped.check_invariants()

    def close(self) -> None:
        """Release all memory; afterwards a free does nothing."""
        self.wrapped.close()

    def label_text(self, label: str | int | None) -> str:
        """A label as text, also if it is given as an id of the heap's table."""
        if label is None or isinstance(label, str):
            return label or ""
        labels = getattr(self.base, "labels", None)
        return str(label) if labels is None else str(labels.name(label))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.wrapped!r})"
