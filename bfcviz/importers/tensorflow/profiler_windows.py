"""The windows of one run: their files, their traces as they appear, and their requests joined as of one profile.

::

    training     |window 1 ...........|gap|window 2 ...........|gap|window 3 ....
    requests      a  b  c  free a          d  free c  free e        ...
                                      ^ inferred here: e was allocated; what d overlaps was freed

TensorFlow's profiler records nothing while it writes a window. What a window shows of the gap before it is inferred: a
chunk that it frees was allocated, and one that a new chunk overlaps was freed. What came and went within a gap is not
known, nor what was allocated there and never freed.
"""

import os
import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS
from bfcviz.events.structured_arrays import joined
from bfcviz.events.trace import Trace
from bfcviz.formats.tensorflow import whole_windows
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.tensorflow.reconstruct import (
    ABSENT,
    REQUEST,
    RecordedRequestRows,
    RecordedRequests,
    unknown_requests,
)

# ------------------------------------------------------------------------------
# Join the windows: one table of requests, and what is inferred of the gaps.

BETWEEN = "allocated between two windows"
"""The label of inferred allocations."""

_MAX_THREADS = int(np.iinfo(REQUEST["thread"]).max)
"""They are numbered from 1."""


def join(windows: Sequence[RecordedRequests], path: object) -> tuple[RecordedRequests, list[str]]:
    """The requests of all windows of one process, the oldest first, in one table; and what was inferred, as sentences.

    Raises:
        FileError: together they have more heaps or threads than a trace holds.
    """
    labels, pools, threads = Labels(), dict[str, int](), dict[tuple[str, int], int]()
    heaps: dict[int, _WindowHeap] = {}
    inferred = Counter[str]()
    between = labels.intern(BETWEEN) if len(windows) > 1 else 0
    parts: list[RecordedRequestRows] = []
    begin = 0
    for number, window in enumerate(windows):
        rows = _renumbered_window_requests(window, labels, pools, threads, path)
        rows["time"] += begin
        begin = int(rows["time"][-1]) + 1
        for pool in sorted({*rows["pool"].tolist()}):
            mine = rows[rows["pool"] == pool]
            found = heaps.setdefault(pool, _WindowHeap()).read(mine, is_first=number == 0)
            if len(found):
                found["time"], found["pool"] = rows["time"][0], pool
                found["label"] = np.where(found["free"], 0, between)
                inferred["freed"] += int(np.count_nonzero(found["free"]))
                inferred["allocated"] += int(np.count_nonzero(~found["free"]))
                parts.append(found)
        parts.append(rows)
    left_out = sum((Counter(window.left_out) for window in windows), Counter[str]())
    names = {number: name for (name, _), number in threads.items()}
    everything: RecordedRequestRows = joined(parts)
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
) -> RecordedRequestRows:
    """The requests of a profiler window with the numbers of all windows, which get the new names of this one."""
    rows: RecordedRequestRows = window.requests.copy()
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
class _WindowHeap:
    """What one heap has in use after the profiler windows so far."""

    sizes: dict[int, int] = field(default_factory=dict)  # bytes of each chunk in use, by address
    addresses: list[int] = field(default_factory=list)  # of these chunks, ascending

    def read(self, rows: RecordedRequestRows, *, is_first: bool) -> RecordedRequestRows:
        """Carry out the requests of a profiler window; returns those that must have come in the gap before it."""
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
        found = unknown_requests(len(frees) + len(allocations))
        if len(found):
            found["address"], found["size"], found["requested"] = zip(*frees, *allocations, strict=True)
        found["free"][: len(frees)] = True
        return found

    def _remove_old(self, start: int, stop: int, fresh: set[int]) -> list[tuple[int, int, int]]:
        """Remove the chunks in [start, stop) that are in use since before this profiler window.

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


def files_of_windows(folder: Path) -> list[Path]:
    """The complete profiler windows in a folder and what is in them, innermost first; empty if one has other files."""
    found: list[Path] = []
    for window in whole_windows(folder):
        inside = sorted(window.rglob("*"), reverse=True)
        files = [path for path in inside if path.is_symlink() or not path.is_dir()]
        has_profile = any(path.name.endswith(".xplane.pb") for path in files)
        if not (has_profile and all(map(_is_of_profile, files))):
            return []
        found += [*inside, window]
    return found


def _is_of_profile(path: Path) -> bool:
    """Whether the profiler, or TensorBoard when it shows a profile, writes files of such names."""
    is_file = path.is_file() and not path.is_symlink()
    return is_file and path.name.endswith((".pb", ".json.gz", ".json", ".profile-empty", ".SSTABLE"))


# ------------------------------------------------------------------------------
# Open the profiler windows that `bfcviz.live.tensorflow` records, as they appear in the folder.


class ProfilerWindow(NamedTuple):
    """A profiler window: its folder, and its trace or the error."""

    path: Path
    trace: Trace | None
    error: FileError | None


def open_windows(
    folder: str | os.PathLike[str], *, every_s: float = 0.5, ended: threading.Event | None = None
) -> Iterator[ProfilerWindow]:
    """Yield the profiler windows in a folder, the oldest first, then each new one, until `ended` is set.

    Args:
        folder: of the windows; it may not exist yet.
        every_s: seconds between two checks of the folder.
        ended: the caller sets it when no more windows will appear; by default there is no waiting.
    """
    seen: set[Path] = set()
    while True:
        is_last = ended is None or ended.is_set()
        for path in whole_windows(Path(folder)):
            if path not in seen:
                seen.add(path)
                yield _opened_profile_window(path)
        if is_last:
            return
        if ended is not None:
            ended.wait(every_s)


def _opened_profile_window(window: Path) -> ProfilerWindow:
    """Open the profile in a profiler window."""
    try:
        return ProfilerWindow(window, open_trace(profile_in(window)), None)
    except FileError as error:
        return ProfilerWindow(window, None, error)


def profile_in(window: Path) -> Path:
    """The file of the profile in a profiler window; a process writes one profile.

    Raises:
        FileError: there is none.
    """
    found = sorted(window.rglob("*.xplane.pb"))
    if not found:
        raise FileError(window, "", "a window without a profile (*.xplane.pb)")
    return found[0]
