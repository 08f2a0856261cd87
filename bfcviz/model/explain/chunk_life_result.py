"""The life of a chunk as plain data; see `life`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bfcviz.events.trace import Trace


@dataclass(frozen=True)
class Life:
    """What is known of one chunk, seen from a step.

    Attributes:
        trace: where its events are.
        step: from where it is seen.
        in_use: whether it is in use at that step.
        address, size: where it begins, and its bytes.
        region: slot of its region.
        handle: its handle, which the heap gives to another chunk later.
        began: the ALLOCATE of an allocation; else the event that left the free chunk as it is, None where that
            lies further back than was looked.
        ended: its FREE, or the first event that changes the free chunk; None where there is none before step
            `looked_to`.
        splits, extends: of an allocation, the events that made its chunk.
        merges: of an allocation, those that followed its FREE.
    """

    trace: Trace
    step: int
    in_use: bool
    address: int
    size: int
    region: int
    handle: int
    began: np.void | None
    ended: np.void | None
    looked_to: int
    splits: Sequence[np.void] = ()
    extends: Sequence[np.void] = ()
    merges: Sequence[np.void] = ()
