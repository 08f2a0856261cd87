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
from bfcviz.model.state.model import Model

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


def grants(trace: Trace, pool: int = 0) -> NDArray[np.void]:
    """Every grant of the trace so far, shape (n,) of GRANT, by `born`."""
    found = _before(trace, pool)
    alive = {row[6]: [index] for index, row in enumerate(found)}  # slot -> indices of its grants
    for block in trace.blocks():
        kinds = block["kind"]
        rare = np.flatnonzero((kinds == Kind.EXTEND) | (kinds == Kind.RELEASE))
        for event in block[rare]:
            if event["pool"] != pool:
                continue
            seq, time, slot = int(event["seq"]), int(event["time"]), int(event["region"])
            if event["kind"] == Kind.RELEASE:
                for index in alive.pop(slot, []):
                    found[index][3], found[index][5] = seq, time
                continue
            grew = bool(event["flags"] & Flag.GREW)
            alive.setdefault(slot, []).append(len(found))
            size = int(event["size"])
            found.append([int(event["address"]), size, seq, int(NEVER), time, _LAST, slot, grew])
    return np.array([tuple(row) for row in found], GRANT)


_LAST: Final = 2**63 - 1


def _before(trace: Trace, pool: int) -> list[list[int]]:
    """The regions at the first step of a trace that no longer has its first events."""
    if trace.first == 0:
        return []
    model = Model(trace, pool)
    return [
        [
            int(region["address"]),
            int(region["size"]),
            trace.first - 1,
            int(NEVER),
            0,
            _LAST,
            int(region["slot"]),
            0,
        ]
        for region in model.regions()
    ]


@dataclass(frozen=True)
class Layout:
    """Address <-> position, in bytes.

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
        found = grants(trace, pool)
        starts, sizes = _united(found["address"], found["size"])
        before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sizes, dtype=np.uint64)])
        bare = cls(found, starts, before, np.zeros(0))
        first = bare.position(found["address"][~found["grew"]])
        return cls(found, starts, before, np.unique(np.append(first, bare.total)))

    @property
    def total(self) -> int:
        """All bytes of the layout."""
        return int(self.before[-1])

    def position(self, address: NDArray[np.uint64]) -> NDArray[np.float64]:
        """The positions of addresses inside grants, float64 (exact to 2^53)."""
        if len(self.starts) == 0:
            return np.zeros(len(address))
        if len(self.starts) == 1:
            alone: NDArray[np.float64] = (address - self.starts[0]).astype(np.float64)
            return alone
        at = np.searchsorted(self.starts, address, side="right") - 1
        found: NDArray[np.float64] = (address - self.starts[at] + self.before[at]).astype(np.float64)
        return found

    def address(self, position: float) -> int | None:
        """The address at a position; None outside."""
        if not 0 <= position < self.total:
            return None
        at = int(np.searchsorted(self.before, np.uint64(position), side="right")) - 1
        return int(self.starts[at]) + int(position) - int(self.before[at])


def _united(
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
