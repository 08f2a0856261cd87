"""DeviceHistory: what PyTorch remembers of one device's memory, taken over into an ObservedHeap.

::

    history, a ring   [ ... old | read before | new ..... ]                of this reading
    next time         [           ... | new ..... | . . snapshot | newer . . . ]
    segments                                        ^ the whole state, told with this reading

PyTorch copies its history first and then the state, which leaves a `snapshot` entry for the next reading to find. New
entries are carried out one by one; at that entry the state says whether this was all there was, and what differs is
mended. Where entries were overwritten unread, all begins anew from the state.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import PureWindowsPath
from typing import Any, Final

from bfcviz.errors import OutOfMemory, PoolTotals
from bfcviz.live.observed.heap import ObservedHeap
from bfcviz.live.torch.blocks import Rules
from bfcviz.live.torch.segments import Segments, bytes_in_use

Entry = Mapping[str, Any]

_TAIL: Final = 8
"""Entries that are compared to find where the last reading ended."""

_OWN: Final = ("/torch/", "\\torch\\", "<frozen ")
"""Python files like these say little about who wanted the memory."""


class DeviceHistory:
    """One device.

    Args:
        heap: where it is written down.
        number: of the device.
        offset_ns: what to add to PyTorch's clock to get the heap's.
        named: whether allocations get labels.

    Attributes:
        lost: readings before which entries were overwritten unread.
        mended: blocks in which the state differed from what the entries said, the first reading apart.
        out_of_memory: the last failure, None while there was none.
    """

    def __init__(self, heap: ObservedHeap, number: int, offset_ns: int, *, named: bool = True) -> None:
        self.heap = heap
        self.number = number
        self.lost = 0
        self.mended = 0
        self.out_of_memory: OutOfMemory | None = None
        self._offset_ns = offset_ns
        self._named = named
        self._rules = Rules()
        self._segments = Segments(heap)
        self._state: Sequence[Entry] | None = None  # of the last reading
        self._is_ahead = False  # the heap is at that state, which is a little later than what was read
        self._tail: list[tuple[Any, ...]] = []
        self._seen = 0
        self._labels: dict[tuple[Any, ...], int] = {}
        self._streams: dict[int, int] = {}

    @property
    def unmapped(self) -> int:
        """Bytes that PyTorch unmapped in a part of an expandable segment; they are still drawn, as free."""
        return self._segments.unmapped

    def read(self, trace: Sequence[Entry], segments: Sequence[Entry], settings: Mapping[str, Any]) -> None:
        """Take over what is new in a reading.

        Args:
            trace: the device's history, the oldest entry first.
            segments: all of the device's, a little later.
            settings: the allocator's.
        """
        self._rules = Rules.of(settings)
        if not self._go_on(trace):
            first = self._state is None
            differences = self._segments.mend(segments, self._label_of, self._stream)
            self.lost += not first
            self.mended += 0 if first else differences
            self._is_ahead = True
        self._state = segments
        self._tail = [_key(entry) for entry in trace[-_TAIL:]]
        self._seen = len(trace)

    def _go_on(self, trace: Sequence[Entry]) -> bool:
        """Carry out what is new; False where that cannot be told, or some of it is gone."""
        start = self._find_new(trace)
        if self._state is None or start is None:
            return False
        snapshot = self._find_state(trace, start)
        if self._is_ahead:  # what came before the state is in it
            if snapshot is None:
                return False
            self._is_ahead, start, snapshot = False, snapshot + 1, None
        for entry in trace[start:snapshot]:
            self._carry_out(entry)
        if snapshot is not None:
            self.mended += self._segments.mend(self._state, self._label_of, self._stream)
            for entry in trace[snapshot:]:
                self._carry_out(entry)
        return True

    def _find_state(self, trace: Sequence[Entry], start: int) -> int | None:
        """The `snapshot` entry of the last state; somebody else's would tell of other bytes in use."""
        active = bytes_in_use(self._state or ())
        found = (at for at in range(start, len(trace)) if trace[at]["action"] == "snapshot")
        return next((at for at in found if trace[at]["size"] == active), None)

    def _find_new(self, trace: Sequence[Entry]) -> int | None:
        """Where the entries begin that were not seen yet; None where some are gone."""
        tail = self._tail
        if not tail:
            return 0
        # A ring that is not full yet has it where it was.
        for at in chain((self._seen,), range(len(trace), 0, -1)):
            if 0 < at <= len(trace) and _key(trace[at - 1]) == tail[-1]:
                begin = max(at - len(tail), 0)
                if [_key(entry) for entry in trace[begin:at]] == tail[len(tail) - (at - begin) :]:
                    return at
        return None

    # -- one entry after the other ------------------------------------------------------------------------------

    def _carry_out(self, entry: Entry) -> None:
        action, address, size = entry["action"], entry.get("addr", 0), entry["size"]
        when = entry["time_us"] * 1000 + self._offset_ns if "time_us" in entry else None
        if action == "alloc":
            block = self._rules.block(size, self.heap.free_at(address))
            label, stream = self._label_of(entry), self._stream(entry["stream"])
            self._segments.allocate(address, block, size, label, stream, when)
        elif action == "free_completed":
            self._segments.free(address, when)
        elif action in ("segment_alloc", "segment_map"):
            self._segments.grant(address, size, grows=action == "segment_map", time=when)
        elif action in ("segment_free", "segment_unmap"):
            self._segments.release(address, size, when)
        elif action == "oom":
            self._fail(entry, when)

    def _fail(self, entry: Entry, when: int | None) -> None:
        requested = entry["size"]
        self.heap.oom(requested, self._label_of(entry), self._stream(entry["stream"]), time=when)
        totals = self.heap.stats()
        free, pool = max(totals.free_bytes - self.unmapped, 0), totals.pool_bytes - self.unmapped
        device_free = entry.get("device_free", entry.get("addr", 0))  # its name until 2.0
        mapped = PoolTotals(pool, pool - free, min(totals.largest_free_chunk, free), pool + device_free)
        self.out_of_memory = OutOfMemory.of(requested, mapped, rounded=self._rules.round_up(requested))

    def _stream(self, handle: int) -> int:
        """Streams are numbered as they come, the default one 0."""
        if handle == 0:
            return 0
        return self._streams.setdefault(handle, min(len(self._streams) + 1, 0xFFFF))

    def _label_of(self, entry: Entry) -> int:
        """The label of whoever wanted the memory: its own words, or the innermost frame that is not PyTorch's."""
        frames = entry.get("frames") or []
        said = entry.get("user_metadata") or ""
        key = (said, *((frame["filename"], frame["line"], frame["name"]) for frame in frames))
        if key not in self._labels:
            self._labels[key] = self._intern(said, frames)
        return self._labels[key]

    def _intern(self, said: str, frames: Sequence[Entry]) -> int:
        if not self._named or not (frames or said):
            return 0
        known = [frame for frame in frames if frame["filename"] != "??"]
        python = [frame for frame in known if frame["filename"].endswith((".py", ">"))]
        theirs = [frame for frame in python if not any(part in frame["filename"] for part in _OWN)]
        name = said or next((_function(frame) for frame in theirs or python or known or frames), "")
        stack = "\n".join(_words(frame) for frame in known)
        return self.heap.labels.intern(name, stack=stack) if stack else self.heap.labels.intern(name)


def _function(frame: Entry) -> str:
    return f"{frame['name']} ({PureWindowsPath(frame['filename']).name})"


def _words(frame: Entry) -> str:
    return f"{frame['name']} ({frame['filename']}:{frame['line']})"


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry.get(field) for field in ("action", "addr", "size", "stream", "time_us"))
