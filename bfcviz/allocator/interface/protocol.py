"""Allocator: what every allocator here can do, TensorFlow's interface in Python's manner."""

import operator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from bfcviz.allocator.interface.attributes import AllocationAttributes
from bfcviz.allocator.interface.stats import Stats
from bfcviz.errors import InvalidRequest


@runtime_checkable
class Allocator(Protocol):
    """Hands out memory by address.

    Sizes are bytes, addresses integers. Nothing is ever half done: a call that raises has changed nothing.
    """

    @property
    def name(self) -> str:
        """What this memory is called, such as `GPU_0_bfc`."""

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
        """The same, but None where memory runs out."""

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
        """Give back what `allocate` returned; 0 is nothing. Raises InvalidFree's kin."""

    def tracks_allocation_sizes(self) -> bool:
        """Whether the three methods below can answer."""

    def requested_size(self, address: int) -> int:
        """Bytes the caller asked for."""

    def allocated_size(self, address: int) -> int:
        """Bytes it got."""

    def allocation_id(self, address: int) -> int:
        """The request's number, counting successes from 1; never used twice."""

    def should_allocate_empty(self) -> bool:
        """Whether a request for 0 bytes gets an address of its own."""

    def stats(self) -> Stats:
        """Totals of this moment."""

    def clear_stats(self) -> None:
        """Count requests and peaks anew from here; allocation ids go on."""

    def set_safe_frontier(self, count: int) -> None:
        """With timestamps: chunks freed before this count may be merged from now on."""

    def check_invariants(self) -> None:
        """Go through all books; raises BrokenInvariant where they do not balance (a bug)."""

    def close(self) -> None:
        """Give all memory back; after it nothing can be allocated, and a free does nothing."""


def bytes_of(dtype: DTypeLike, count: int) -> int:
    """Bytes of `count` elements.

    Raises:
        InvalidRequest: not a fixed-size dtype, or a negative count.
    """
    if dtype is None:  # NumPy would take it for float64
        raise InvalidRequest("no dtype was given: give one such as 'float32'")
    try:
        item = np.dtype(dtype)
    except TypeError as error:
        raise InvalidRequest(f"{dtype!r} is no NumPy dtype: give one such as 'float32'") from error
    if item.hasobject:
        raise InvalidRequest(f"dtype {item} holds Python objects, not bytes: give a fixed-size one")
    if operator.index(count) < 0:
        raise InvalidRequest(f"{count} elements were asked for; give 0 or more")
    return int(item.itemsize) * operator.index(count)
