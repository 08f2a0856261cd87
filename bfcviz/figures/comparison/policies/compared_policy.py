"""ComparedPolicy: what one allocator did with the requests of a job, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.style.text import harmless

_LONGEST: Final = 36  # characters of a line of a name


@dataclass(frozen=True)
class ComparedPolicy:
    """One allocator.

    Attributes:
        name: as it was asked for, such as `bfc:allow_growth=true`.
        reserved: bytes that the driver had granted, after each request, uint64[n].
        in_use: bytes of blocks in use, after each request, uint64[n].
        requested_at_peak: requested bytes where most is in use.
        scattered_share: 1 - largest free chunk / free bytes, where most is in use; None: not known.
        failed: index of the first request that failed, the last one of the arrays; None: none.
        failed_size: bytes of that request.
        message: why it cannot serve the requests; empty if it can.
        driver_calls: grants, refused grants and releases; None: not known.
        stall_s: seconds that these calls may take.
        role: what the row is, such as `as recorded` or `plan`; empty: a policy like others.
        is_allocator: rules that a heap can have; no plan, no lower bound.
    """

    name: str
    reserved: NDArray[np.uint64] = field(repr=False)
    in_use: NDArray[np.uint64] = field(repr=False)
    requested_at_peak: int = 0
    scattered_share: float | None = None
    failed: int | None = None
    failed_size: int = 0
    message: str = ""
    is_allocator: bool = True
    driver_calls: int | None = None
    stall_s: float = 0.0
    role: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether its numbers end before the job does."""
        return self.failed is not None

    @property
    def peak_reserved(self) -> int:
        """The most bytes that the driver had granted."""
        return int(self.reserved.max(initial=0))

    @property
    def peak_in_use(self) -> int:
        """The most bytes of blocks in use."""
        return int(self.in_use.max(initial=0))

    @property
    def reserved_not_in_use(self) -> float:
        """1 - peak in use / peak reserved; 0 for an empty heap."""
        return 1 - self.peak_in_use / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """(in use - requested) / in use, where most is in use; 0 for an empty heap."""
        return 1 - self.requested_at_peak / self.peak_in_use if self.peak_in_use else 0.0

    @property
    def lines(self) -> list[str]:
        """The role and the name in short lines, escaped."""
        parts = self.name.replace(":", ":\n").replace(",", ",\n").split("\n")
        role = [f"<b>{harmless(self.role)}</b>"] if self.role else []
        return [*role, *(harmless(line, _LONGEST) for line in parts if line)]


@dataclass(frozen=True)
class ComparedJob:
    """The job that all of them served.

    Attributes:
        source: name of its trace.
        requests: number of requests.
        live_bytes: the most requested bytes in use: no allocator can need less.
        limit: memory limit in bytes; None: none.
        verdict: what the comparison shows, in one sentence.
    """

    source: str
    requests: int
    live_bytes: int
    limit: int | None = None
    verdict: str = ""


def best_first(policies: Sequence[ComparedPolicy]) -> list[ComparedPolicy]:
    """Allocators that serve the job by their peak pool, then those that fail, then plans and bounds."""

    def rank(policy: ComparedPolicy) -> tuple[int, int]:
        if not policy.is_allocator:
            return 3, -policy.peak_reserved
        if policy.message:
            return 2, 0
        return (1, -(policy.failed or 0)) if policy.has_failed else (0, policy.peak_reserved)

    return sorted(policies, key=rank)
