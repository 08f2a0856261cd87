"""Join the requests of the windows of one run, so that they read as one profile.

::

    training     |window 1 ...........|gap|window 2 ...........|gap|window 3 ....
    requests      a  b  c  free a          d  free c  free e        ...
                                      ^ inferred here: e was allocated; what d overlaps was freed

TensorFlow's profiler records nothing while it writes a window. What a window shows of the gap before it is inferred: a
chunk that it frees was allocated, and one that a new chunk overlaps was freed. What came and went within a gap is not
known, nor what was allocated there and never freed.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.row_copy import joined
from bfcviz.importers.tensorflow.replay import ABSENT, REQUEST, RecordedRequests, Requests

BETWEEN = "allocated between two windows"
"""The label of inferred allocations."""

_MAX_THREADS = int(np.iinfo(REQUEST["thread"]).max)
"""They are numbered from 1."""

_UNKNOWN = ("bytes_in_use", "bytes_available", "bytes_reserved", "peak_bytes_in_use")


def join(windows: Sequence[RecordedRequests], path: object) -> tuple[RecordedRequests, list[str]]:
    """The requests of all windows in one table, and what was inferred, as sentences.

    Args:
        windows: of one process, the oldest first; one or more.
        path: their folder, for errors.

    Raises:
        FileError: together they have more heaps or threads than a trace holds.
    """
    labels, pools, threads = Labels(), dict[str, int](), dict[tuple[str, int], int]()
    heaps: dict[int, _Heap] = {}
    inferred = Counter[str]()
    between = labels.intern(BETWEEN) if len(windows) > 1 else 0
    parts: list[Requests] = []
    begin = 0
    for number, window in enumerate(windows):
        rows = _renumbered_window_requests(window, labels, pools, threads, path)
        rows["time"] += begin
        begin = int(rows["time"][-1]) + 1
        for pool in sorted({*rows["pool"].tolist()}):
            mine = rows[rows["pool"] == pool]
            found = heaps.setdefault(pool, _Heap()).read(mine, is_first=number == 0)
            if len(found):
                found["time"], found["pool"] = rows["time"][0], pool
                found["label"] = np.where(found["free"], 0, between)
                inferred["freed"] += int(np.count_nonzero(found["free"]))
                inferred["allocated"] += int(np.count_nonzero(~found["free"]))
                parts.append(found)
        parts.append(rows)
    left_out = sum((Counter(window.left_out) for window in windows), Counter[str]())
    names = {number: name for (name, _), number in threads.items()}
    everything: Requests = joined(parts)
    recorded = RecordedRequests(everything, tuple(pools), labels, names, dict(left_out))
    return recorded, _inferred_window_reasons(len(windows), inferred)


def _inferred_window_reasons(windows: int, inferred: Counter[str]) -> list[str]:
    if windows < 2:
        return []
    text = f"{windows} windows of TensorFlow's profiler, which records nothing while it writes one"
    if not inferred.total():
        return [text]
    counts = f"{inferred['allocated']} allocations and {inferred['freed']} frees between them were inferred"
    return [f"{text}: {counts}; what came and went there is not known"]


def _renumbered_window_requests(
    window: RecordedRequests,
    labels: Labels,
    pools: dict[str, int],
    threads: dict[tuple[str, int], int],
    path: object,
) -> Requests:
    """The requests of a window with the numbers of all windows, which get the new names of this one."""
    rows: Requests = window.requests.copy()
    of_label = [
        labels.intern(each.name, **each.details)
        for each in map(window.labels.__getitem__, range(len(window.labels)))
    ]
    of_pool = [pools.setdefault(name, len(pools)) for name in window.pools]
    seen = Counter[str]()
    of_thread = {0: 0}
    for number, name in window.threads.items():  # several threads may have one name
        of_thread[number] = threads.setdefault((name, seen[name]), len(threads) + 1)
        seen[name] += 1
    for known, most, what in ((pools, MAX_POOLS, "allocators"), (threads, _MAX_THREADS, "threads")):
        if len(known) > most:
            raise FileError(
                path,
                "",
                f"its windows have {len(known):,} {what} or more, a trace holds {most:,}; open them one by one, each a "
                "file *.xplane.pb, or move some of them away",
            )
    rows["label"] = np.array(of_label, np.uint32)[rows["label"]]
    rows["pool"] = np.array(of_pool, np.uint8)[rows["pool"]]
    numbers = np.zeros(max(of_thread) + 1, np.uint16)
    numbers[list(of_thread)] = list(of_thread.values())
    rows["thread"] = numbers[rows["thread"]]
    return rows


@dataclass
class _Heap:
    """What one heap has in use after the windows so far.

    Attributes:
        sizes: bytes of each chunk in use, by address.
        addresses: of these chunks, ascending.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    addresses: list[int] = field(default_factory=list)

    def read(self, rows: Requests, *, is_first: bool) -> Requests:
        """Carry out the requests of a window; the requests that must have come in the gap before it."""
        frees: list[tuple[int, int, int]] = []
        allocations: list[tuple[int, int, int]] = []
        fresh: set[int] = set()  # addresses of which this window has told something
        columns = (rows[name].tolist() for name in ("address", "size", "requested", "free"))
        for address, size, requested, free in zip(*columns, strict=True):
            if not is_first and address not in fresh:
                is_known = free and self.sizes.get(address) == size
                if not is_known:
                    frees += self._remove_old(address, address + size, fresh)
                    if free:
                        allocations.append((address, size, requested))
            fresh.add(address)
            if free:
                self._remove(address)
            else:
                self._add(address, size)
        found: Requests = np.zeros(len(frees) + len(allocations), REQUEST)
        for name in _UNKNOWN:
            found[name] = ABSENT
        found["fragmentation"] = -1.0  # as where a profile does not say it
        if len(found):
            found["address"], found["size"], found["requested"] = zip(*frees, *allocations, strict=True)
        found["free"][: len(frees)] = True
        return found

    def _remove_old(self, start: int, stop: int, fresh: set[int]) -> list[tuple[int, int, int]]:
        """Remove the chunks in [start, stop) that are in use since before this window.

        Returns:
            Their addresses, sizes and requested bytes, which are not known.
        """
        at = bisect_left(self.addresses, start)
        if at and self.addresses[at - 1] + self.sizes[self.addresses[at - 1]] > start:
            at -= 1
        end = bisect_left(self.addresses, stop)
        old = [address for address in self.addresses[at:end] if address not in fresh]
        return [(address, self._remove(address), ABSENT) for address in old]

    def _add(self, address: int, size: int) -> None:
        if address not in self.sizes:
            insort(self.addresses, address)
        self.sizes[address] = size

    def _remove(self, address: int) -> Any:
        size = self.sizes.pop(address, None)
        if size is not None:
            del self.addresses[bisect_left(self.addresses, address)]
        return size
