"""Bytes times steps in use: how much memory, and how long, over a whole trace."""

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.lifetimes.lifetimes import in_use_at


def byte_steps(trace: Trace, pool: int, name: str) -> NDArray[np.float64]:
    """Bytes in use times steps in use, summed over the trace, by the value of field `name`."""
    carried = in_use_at(trace, pool, trace.first)
    remaining = float(len(trace) - trace.first)
    carried_over = np.bincount(carried[name], weights=carried["size"] * remaining)
    totals: NDArray[np.float64] = carried_over.astype(np.float64)
    for block in trace.blocks():
        kinds = np.where(block["pool"] == pool, block["kind"], 0)
        at = np.flatnonzero((kinds == Kind.ALLOCATE) | (kinds == Kind.FREE))
        left = (len(trace) - block["seq"][at].astype(np.float64)) * block["size"][at]
        # An ALLOCATE counts up to the end of the trace; its FREE subtracts the rest.
        signed = np.where(kinds[at] == Kind.FREE, -left, left)
        found = np.bincount(block[name][at], weights=signed, minlength=len(totals))
        totals = found.astype(np.float64) + np.pad(totals, (0, len(found) - len(totals)))
    return totals
