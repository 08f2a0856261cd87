"""Requests: what a profile recorded of a heap, one row per allocation and free, before any reconstruction."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels

ABSENT = -(1 << 63)
"""In an integer column: not recorded. (In `fragmentation`, any number below 0 means this.)"""

REQUEST = np.dtype(
    [
        ("time", "<i8"),  # ns from the first row of the file
        ("step", "<i8"),  # the framework's step id; 0 and -1 mean none
        ("address", "<u8"),
        ("requested", "<i8"),  # bytes that the caller requested
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
    """The requests of all heaps of one file.

    Attributes:
        requests: in order of time.
        pools: name of each heap, by `pool`.
        threads: name of each thread, by `thread`; numbers count from 1.
        left_out: number of unusable events, by reason.
    """

    requests: Requests
    pools: tuple[str, ...]
    labels: Labels
    threads: Mapping[int, str]
    left_out: Mapping[str, int]


def match_frees(requests: Requests) -> tuple[NDArray[np.int64], int]:
    """For each request the index of the allocation that it is or frees, -1 if unknown; and how many are unknown."""
    places = np.arange(len(requests), dtype=np.int64)
    live: dict[int, int] = {}
    unmatched = 0
    columns = zip(requests["address"].tolist(), requests["free"].tolist(), strict=True)
    for place, (address, free) in enumerate(columns):
        if free:
            places[place] = live.pop(address, -1)
            unmatched += places[place] < 0
        else:
            live[address] = place
    return places, int(unmatched)
