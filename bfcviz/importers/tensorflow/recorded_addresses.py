"""Rebuild the events of a heap whose beginning was not recorded, from the recorded addresses.

A profile that starts in the middle of a run does not say what was in the pool, so a replay cannot repeat the heap's
decisions. A `Ledger` places every chunk at its recorded address. All requests are known beforehand: a region is a run
of addresses that they touch.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.ledger.ledger import Ledger
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Events
from bfcviz.importers.tensorflow.requests import ABSENT, Requests
from bfcviz.native import MAX_REGIONS

_COLUMNS = ("address", "size", "requested", "label", "thread", "free")
_MOST_EVENTS = 3  # per request: SPLIT, SPLIT, ALLOCATE or FREE, MERGE, MERGE
_BLOCK = 8192  # requests


class PlacedChunks(NamedTuple):
    """The events of one pool, and how well they agree with the recorded numbers.

    Attributes:
        events: with the index of the request in `time`; chunks from before the first request are allocated first.
        chunks_before: number of those chunks.
        contradicting: requests that were ignored: they allocate memory in use, or free where no chunk begins.
        bytes_not_seen: bytes in use of chunks that no request mentions.
        bytes_differing: requests after which the recorded bytes in use are not those plus the known ones.
    """

    events: Events
    chunks_before: int
    contradicting: int
    bytes_not_seen: int
    bytes_differing: int


def place_chunks(requests: Requests, label_before: int) -> PlacedChunks | None:
    """The events of one pool, with each chunk at its recorded address.

    Args:
        requests: in order.
        label_before: for chunks that were in use before the first request.

    Returns:
        None if the touched memory has more separate regions than a trace can number.
    """
    regions, before = _touched(requests), _from_before(requests)
    if len(regions) > MAX_REGIONS:
        return None
    most = len(regions) + _MOST_EVENTS * (len(before) + len(requests))
    log = EventLog((most // 64 + 1) * 64)
    ledger = Ledger(log)
    log.begin_operation(0)
    for start, stop in regions:
        ledger.cover(start, stop - start)
    for address, size, requested, *_ in _rows(requests[before]):
        ledger.allocate(address, size, max(0, requested), label_before)
    first, chunks_before = log.head, len(before) - ledger.inconsistencies.left_out
    known = np.empty(len(requests), np.int64)
    for place, (address, size, requested, label, thread, free) in enumerate(_rows(requests)):
        log.begin_operation(place)
        ledger.thread = thread
        if free:
            ledger.free(address)
        else:
            ledger.allocate(address, size, max(0, requested), label)
        known[place] = ledger.bytes_in_use
    events = log.copy(0, log.head)
    # The log wrote the thread of this process.
    events["by"][:first] = 0
    places: NDArray[np.uint64] = events["time"][first:]
    events["by"][first:] = requests["thread"][places]
    return PlacedChunks(events, chunks_before, ledger.inconsistencies.left_out, *_not_seen(requests, known))


def _rows(requests: Requests) -> Iterator[tuple[Any, ...]]:
    """The columns that become events, row by row; in blocks, because Python objects need ten times the memory."""
    for start in range(0, len(requests), _BLOCK):
        block = requests[start : start + _BLOCK]
        yield from zip(*(block[name].tolist() for name in _COLUMNS), strict=True)


def _touched(requests: Requests) -> list[tuple[int, int]]:
    """The addresses that requests touch, as ascending, separate runs [start, stop)."""
    runs: list[tuple[int, int]] = []
    for start, size in sorted(zip(requests["address"].tolist(), requests["size"].tolist(), strict=True)):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], start + size))
        else:
            runs.append((start, start + size))
    return runs


def _from_before(requests: Requests) -> list[int]:
    """Indices of the frees whose chunk was in use before the first request."""
    places, seen = [], set()
    for place, (address, free) in enumerate(
        zip(requests["address"].tolist(), requests["free"].tolist(), strict=True)
    ):
        if free and address not in seen:
            places.append(place)
        seen.add(address)
    return places


def _not_seen(requests: Requests, known: NDArray[np.int64]) -> tuple[int, int]:
    """Bytes in use beyond the known ones, which should be constant, and the number of requests where they differ."""
    recorded = requests["bytes_in_use"] != ABSENT
    beyond = requests["bytes_in_use"][recorded] - known[recorded]
    if not len(beyond):
        return 0, 0
    values, counts = np.unique(beyond, return_counts=True)
    usual = int(np.argmax(counts))
    return int(values[usual]), len(beyond) - int(counts[usual])
