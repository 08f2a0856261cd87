"""All addresses that a pool ever had on one axis, without the gaps between regions.

::

    address   |==region 0==|      gap      |==region 1==|==2==|
    position  |==region 0==|==region 1==|==2==|                  `total` bytes in all

Regions may be released, and granted again elsewhere or over old addresses: the layout is the union of all grants of
the trace, and it is the same at every step.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.model import Model

GRANT = np.dtype(
    [
        ("address", "<u8"),
        ("size", "<u8"),
        ("born", "<u8"),  # `seq` of its EXTEND
        ("died", "<u8"),  # `seq` of the RELEASE of its region, NEVER if there is none
        ("born_time", "<i8"),
        ("died_time", "<i8"),
        ("region", "<u2"),  # slot
        ("grew", "?"),  # it lengthened a region
    ],
    align=True,
)
"""The bytes that one EXTEND added."""

NEVER: Final = np.uint64(2**64 - 1)
"""The `seq` of an event that has not happened."""

LONG_AGO: Final = -(2**63)
"""The time of an event that was not read, in nanoseconds."""

_LAST: Final = 2**63 - 1


@dataclass(frozen=True)
class Layout:
    """The address layout of a pool: address <-> position, in bytes.

    Attributes:
        grants: of GRANT, by `born`.
        starts: start addresses of the united ranges, ascending, uint64.
        before: start positions of the ranges, and the end: one more than `starts`, uint64.
        edges: start positions of regions, and the end; ascending, float64.
    """

    grants: NDArray[np.void]
    starts: NDArray[np.uint64]
    before: NDArray[np.uint64]
    edges: NDArray[np.float64]

    @classmethod
    def of(cls, trace: Trace, pool: int = 0) -> "Layout":
        """The layout of all grants of the trace so far."""
        return LayoutReader(trace, pool).read()

    @classmethod
    def of_grants(cls, grants: NDArray[np.void]) -> "Layout":
        """The layout of these grants, of GRANT, by `born`."""
        starts, sizes = _united_address_ranges(grants["address"], grants["size"])
        before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sizes, dtype=np.uint64)])
        bare = cls(grants, starts, before, np.zeros(0))
        first = bare.position(grants["address"][~grants["grew"]])
        return cls(grants, starts, before, np.unique(np.append(first, bare.total)))

    def same_positions(self, other: "Layout") -> bool:
        """Whether each address has the same position in both layouts."""
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.before, other.before)

    @property
    def total(self) -> int:
        """All bytes of the layout."""
        return int(self.before[-1])

    def position(self, address: NDArray[np.uint64]) -> NDArray[np.float64]:
        """The positions of addresses inside grants of a layout, float64 (exact to 2^53)."""
        if len(self.starts) == 0:
            return np.zeros(len(address))
        if len(self.starts) == 1:
            alone: NDArray[np.float64] = (address - self.starts[0]).astype(np.float64)
            return alone
        at = np.searchsorted(self.starts, address, side="right") - 1
        found: NDArray[np.float64] = (address - self.starts[at] + self.before[at]).astype(np.float64)
        return found

    def address(self, position: float) -> int | None:
        """The address at a position of a layout; None outside."""
        if not 0 <= position < self.total:
            return None
        at = int(np.searchsorted(self.before, np.uint64(position), side="right")) - 1
        return int(self.starts[at]) + int(position) - int(self.before[at])


def _united_address_ranges(
    address: NDArray[np.uint64], size: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Starts and sizes of the fewest ranges that cover the same addresses, ascending."""
    if not len(address):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    order = np.argsort(address, kind="stable")
    start = address[order]
    end = np.maximum.accumulate(start + size[order])
    first = np.append(True, start[1:] > end[:-1])
    last = np.append(first[1:], True)
    return start[first], end[last] - start[first]


class LayoutReader:
    """Reads the layout of a trace that grows; reads each event once."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self._trace, self._pool = trace, pool
        self._first = self._step = -1
        self._grants: list[list[int]] = []
        self._alive: dict[int, list[int]] = {}  # slot -> indices of its grants
        self._layout: Layout | None = None

    def read(self) -> Layout:
        """The address layout of all grants so far; the same object as before if no region came or went."""
        changed = self._trace.first != self._first
        if changed:  # the first call, or the trace dropped its first events
            self._begin()
        for block in self._trace.blocks(self._step):
            kinds = block["kind"]
            for event in block[np.flatnonzero((kinds == Kind.EXTEND) | (kinds == Kind.RELEASE))]:
                if event["pool"] == self._pool:
                    self._take(event)
                    changed = True
        self._step = len(self._trace)
        if self._layout is None or changed:
            self._layout = Layout.of_grants(np.array([tuple(row) for row in self._grants], GRANT))
        return self._layout

    def _begin(self) -> None:
        self._first = self._step = self._trace.first
        # Those of a trace that no longer has its first events: nothing is known of their beginning.
        regions = Model(self._trace, self._pool).regions().tolist() if self._first else []
        times = [self._first - 1, int(NEVER), LONG_AGO, _LAST]
        self._grants = [[address, size, *times, slot, 0] for address, size, slot in regions]
        self._alive = {row[6]: [index] for index, row in enumerate(self._grants)}

    def _take(self, event: np.void) -> None:
        """Add an EXTEND to the address layout, or apply a RELEASE."""
        seq, time, slot = int(event["seq"]), int(event["time"]), int(event["region"])
        if event["kind"] == Kind.RELEASE:
            for index in self._alive.pop(slot, []):
                self._grants[index][3], self._grants[index][5] = seq, time
            return
        grew = bool(event["flags"] & Flag.GREW)
        self._alive.setdefault(slot, []).append(len(self._grants))
        size = int(event["size"])
        self._grants.append([int(event["address"]), size, seq, int(NEVER), time, _LAST, slot, grew])
