"""The regions that the heap of a trace was granted, beside the requests during which it happened."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Events, Flag, Kind

REGION_ROW: Final = np.dtype(
    [
        ("request", "<i8"),  # index of the request during which it happened
        ("address", "<u8"),
        ("size", "<u8"),  # bytes granted; 0: the region that begins there was released
        ("joined", "?"),  # the grant extended the region that ends there
        ("needed", "<u8"),  # bytes that the request needed, after rounding; 0 for a release
    ]
)
"""One region that the heap was granted in the trace, or released."""


def region_changes(events: Events, pool: int) -> Events:
    """The regions granted and released among these events."""
    changed: Events = events[(events["pool"] == pool) & np.isin(events["kind"], (Kind.EXTEND, Kind.RELEASE))]
    return changed


def regions_of(changes: Events, event: NDArray[np.int64]) -> NDArray[np.void]:
    """The regions granted and released, as rows of `REGION_ROW`; `event` is that of each request."""
    regions = np.zeros(len(changes), REGION_ROW)
    regions["request"] = np.searchsorted(event, changes["seq"].astype(np.int64))
    regions["address"] = changes["address"]
    granted = changes["kind"] == Kind.EXTEND
    regions["size"] = np.where(granted, changes["size"], 0)
    regions["needed"] = np.where(granted, changes["requested"], 0)
    regions["joined"] = granted & (changes["flags"] & Flag.GREW != 0)
    return regions
