"""ComparedPolicy: what one allocator did with the requests of a job, as plain data."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.style.text import harmless

_LONGEST: Final = 26  # characters of a line of a name


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

    @property
    def peak_reserved(self) -> int:
        """The most bytes that the driver had granted."""
        return int(self.reserved.max(initial=0))

    @property
    def peak_in_use(self) -> int:
        """The most bytes of blocks in use."""
        return int(self.in_use.max(initial=0))

    @property
    def unused_share(self) -> float:
        """1 - peak in use / peak reserved; 0 for an empty heap."""
        return 1 - self.peak_in_use / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def rounding_share(self) -> float:
        """(in use - requested) / in use, where most is in use; 0 for an empty heap."""
        return 1 - self.requested_at_peak / self.peak_in_use if self.peak_in_use else 0.0

    def lines(self, longest: int = _LONGEST) -> str:
        """The name in short lines, escaped."""
        parts = self.name.replace(":", ":\n").replace(",", ",\n").split("\n")
        return "<br>".join(harmless(line, longest) for line in parts if line)


@dataclass(frozen=True)
class ComparedJob:
    """The job that all of them served.

    Attributes:
        source: name of its trace.
        requests: number of requests.
        live_bytes: the most requested bytes in use: no allocator can need less.
        limit: memory limit in bytes; None: none.
    """

    source: str
    requests: int
    live_bytes: int
    limit: int | None = None
