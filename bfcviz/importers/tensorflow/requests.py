"""What a profile recorded of a heap: one row for every request and every free, before any reconstruction."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels

ABSENT = -(1 << 63)
"""In a whole-number column: the source did not say. (In `fragmentation` that is any number below 0.)"""

REQUEST = np.dtype(
    [
        ("time", "<i8"),  # ns from the first row of the file
        ("step", "<i8"),  # the framework's step id; 0 and -1 mean none
        ("address", "<u8"),
        ("requested", "<i8"),  # bytes the caller asked for
        ("size", "<i8"),  # bytes of the chunk
        ("bytes_in_use", "<i8"),  # after this row
        ("bytes_available", "<i8"),  # the limit less what is in use and reserved
        ("bytes_reserved", "<i8"),
        ("peak_bytes_in_use", "<i8"),
        ("fragmentation", "<f8"),  # 1 - largest free chunk / free bytes after this row; NaN: nothing free
        ("label", "<u4"),
        ("thread", "<u2"),
        ("pool", "u1"),
        ("free", "?"),  # False: an allocation that succeeded
    ]
)
Requests = NDArray[np.void]
"""An array of `REQUEST`."""


@dataclass(frozen=True)
class RecordedRequests:
    """All heaps of one file.

    Attributes:
        requests: in order of time.
        pools: name of each heap, by `pool`.
        threads: name of each thread, by `thread`; numbers count from 1.
        left_out: what could not be used, in words, with its number of events.
    """

    requests: Requests
    pools: tuple[str, ...]
    labels: Labels
    threads: Mapping[int, str]
    left_out: Mapping[str, int]
