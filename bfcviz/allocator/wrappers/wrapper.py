"""AllocatorWrapper: an allocator that hands everything on to another; the base of all wrappers."""

from typing import Any

from numpy.typing import DTypeLike

from bfcviz._closing import Closing
from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.protocol import Allocator, bytes_of
from bfcviz.allocator.interface.stats import Stats
from bfcviz.errors import OutOfMemory


class AllocatorWrapper(Closing):
    """Does what the allocator inside does. A wrapper overrides `allocate` and `free`; the other ways lead there.

    Args:
        wrapped: the allocator inside; belongs to the wrapper from now on.

    Raises:
        TypeError: it is no allocator.
    """

    def __init__(self, wrapped: Allocator) -> None:
        if isinstance(wrapped, type) or not isinstance(wrapped, Allocator):
            raise TypeError(f"{wrapped!r} is no allocator: give a BFCAllocator, or a wrapper around one")
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        """Of the allocator inside."""
        return self.wrapped.name

    @property
    def layers(self) -> tuple[Allocator, ...]:
        """This one, and all inside it, outermost first."""
        inner = self.wrapped.layers if isinstance(self.wrapped, AllocatorWrapper) else (self.wrapped,)
        return (self, *inner)

    @property
    def base(self) -> Any:
        """The allocator inside all wrappers; a BFCAllocator's log, labels and memory map are found there."""
        return self.layers[-1]

    def allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int:
        """Memory for `num_bytes`; raises as the allocator inside does."""
        return self.wrapped.allocate(num_bytes, alignment, label, attributes=attributes)

    def try_allocate(
        self,
        num_bytes: int,
        alignment: int = 256,
        label: str | int | None = None,
        *,
        attributes: AllocationAttributes | None = None,
    ) -> int | None:
        """As `allocate`, but None where memory runs out."""
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
        """Memory for `count` elements of a NumPy dtype; raises as `allocate` does."""
        return self.allocate(bytes_of(dtype, count), alignment, label, attributes=attributes)

    def free(self, address: int) -> None:
        """Give back what `allocate` returned; 0 is nothing."""
        self.wrapped.free(address)

    def tracks_allocation_sizes(self) -> bool:
        """Whether the three methods below can answer."""
        return self.wrapped.tracks_allocation_sizes()

    def requested_size(self, address: int) -> int:
        """Bytes the caller asked for."""
        return self.wrapped.requested_size(address)

    def allocated_size(self, address: int) -> int:
        """Bytes of its chunk."""
        return self.wrapped.allocated_size(address)

    def allocation_id(self, address: int) -> int:
        """Number of its request, counting successes from 1."""
        return self.wrapped.allocation_id(address)

    def should_allocate_empty(self) -> bool:
        """Whether a request for 0 bytes gets an address of its own."""
        return self.wrapped.should_allocate_empty()

    def stats(self) -> Stats:
        """Totals of this moment."""
        return self.wrapped.stats()

    def clear_stats(self) -> None:
        """Count requests and peaks anew from here."""
        self.wrapped.clear_stats()

    def set_safe_frontier(self, count: int) -> None:
        """With timestamps: chunks freed before this count may be merged from now on."""
        self.wrapped.set_safe_frontier(count)

    def check_invariants(self) -> None:
        """Go through all books, the wrappers' too; raises BrokenInvariant where they do not balance."""
        self.wrapped.check_invariants()

    def close(self) -> None:
        """Give all memory back; after it a free does nothing."""
        self.wrapped.close()

    def label_text(self, label: str | int | None) -> str:
        """A label as text, also where its number in the heap's table was given."""
        if label is None or isinstance(label, str):
            return label or ""
        labels = getattr(self.base, "labels", None)
        return str(label) if labels is None else str(labels.name(label))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.wrapped!r})"
