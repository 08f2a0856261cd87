"""Outcome: what happened when a policy served a request stream, and the measures of fragmentation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.trace import Trace
from bfcviz.whatif.requests import ALLOCATE, FREE, RequestStream


def failed_allocations(rows: NDArray[np.void], address: NDArray[np.integer]) -> NDArray[np.intp]:
    """Indices of the requests for memory that got none.

    Args:
        rows: of `STREAM_ROW`, shape (n,).
        address: of the block of each; 0 without one, shape (n,).
    """
    return np.flatnonzero((rows["kind"] == ALLOCATE) & (rows["size"] > 0) & (address == 0))


class DriverCalls(NamedTuple):
    """Calls for memory of the device: segments granted, refused and released."""

    grants: int
    refusals: int
    releases: int


class FreeMemory(NamedTuple):
    """Bytes of all free chunks, and of the largest one."""

    total: int
    largest: int

    @property
    def scattered_share(self) -> float:
        """1 - largest / total: TensorFlow's external fragmentation; 0 if nothing is free."""
        return 1 - self.largest / self.total if self.total else 0.0


@dataclass(frozen=True)
class Outcome:
    """The result of each request: arrays uint64[n], sizes in bytes; n is less than the stream's length if it stopped.

    Attributes:
        policy: name of the rules.
        options: of the policy.
        limit: memory limit in bytes; None: none.
        stream: the requests.
        address: of the block allocated or freed; 0 without one.
        size: of that block, after rounding.
        in_use: bytes of all blocks in use after each request.
        reserved: bytes that the driver granted, after each request.
        driver_calls: number of calls.
        largest_free: bytes of the largest free chunk after each request; None: not known.
        trace: the events, if they were recorded.
        ranges: the first address of each range of addresses that the driver reserved, ascending: a segment, or the
            addresses that it grows in. None: the regions of the trace.
    """

    policy: str
    options: Mapping[str, Any]
    limit: int | None
    stream: RequestStream = field(repr=False)
    address: NDArray[np.uint64] = field(repr=False)
    size: NDArray[np.uint64] = field(repr=False)
    in_use: NDArray[np.uint64] = field(repr=False)
    reserved: NDArray[np.uint64] = field(repr=False)
    driver_calls: DriverCalls
    largest_free: NDArray[np.uint64] | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False)
    ranges: NDArray[np.uint64] | None = field(default=None, repr=False)

    @property
    def served(self) -> int:
        """Number of requests that were tried, frees and marks included."""
        return len(self.address)

    def free_memory(self, request: int) -> FreeMemory | None:
        """The free memory after a request, as the allocator counts it; None: it does not."""
        if self.largest_free is None:
            return None
        free = int(self.reserved[request]) - int(self.in_use[request])
        return FreeMemory(free, int(self.largest_free[request]))

    @cached_property
    def failures(self) -> NDArray[np.intp]:
        """Indices of the allocations that failed."""
        return failed_allocations(self.stream.rows[: self.served], self.address)

    @property
    def fits(self) -> bool:
        """Whether every request was served."""
        return self.served == len(self.stream) and not len(self.failures)

    @property
    def peak_reserved(self) -> int:
        """The most bytes that the driver had granted."""
        return int(self.reserved.max(initial=0))

    @property
    def peak_in_use(self) -> int:
        """The most bytes of blocks in use."""
        return int(self.in_use.max(initial=0))

    @cached_property
    def requested(self) -> NDArray[np.int64]:
        """Requested bytes of the blocks in use after each request, int64[n]."""
        rows = self.stream.rows[: self.served]
        done = self.address != 0
        change = np.where((rows["kind"] == ALLOCATE) & done, rows["size"], 0)
        frees = np.flatnonzero((rows["kind"] == FREE) & done)
        blocks: NDArray[np.int64] = rows["block"][frees]
        change[frees] = -self.stream.block_sizes[blocks]
        found: NDArray[np.int64] = np.cumsum(change)
        return found

    @property
    def reserved_not_in_use(self) -> float:
        """1 - peak in use / peak reserved: the fragmentation of GMLake and STAlloc; 0 for an empty heap."""
        return 1 - self.peak_in_use / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """(in use - requested) / in use, where most is in use: what rounding wastes; 0 for an empty heap."""
        if not self.peak_in_use:
            return 0.0
        at = int(self.in_use.argmax())
        return 1 - int(self.requested[at]) / self.peak_in_use
