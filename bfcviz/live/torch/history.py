"""DeviceHistory: PyTorch's memory history of one device, transferred into an ObservedHeap.

::

    history, a ring   [ ... old | read before | new ..... ]                of this reading
    next time         [           ... | new ..... | . . snapshot | newer . . . ]
    segments                                        ^ the whole state, which comes with this reading

PyTorch copies its history first and then the state; the latter leaves a `snapshot` entry that the next reading finds.
New entries are carried out one by one. At the `snapshot` entry the state shows whether entries were missed, and
differences are corrected. If entries were overwritten unread, the heap is set to the state.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from bfcviz.code_places import CodePlace
from bfcviz.errors import OutOfMemory, PoolTotals
from bfcviz.formats.torch import Rules, line_number
from bfcviz.live.common.observed_heap import ObservedHeap
from bfcviz.live.torch.segments_and_blocks import Segments, bytes_in_use
from bfcviz.live.torch.stack_names import StreamNumbers, stack_words

Entry = Mapping[str, Any]

_TAIL: Final = 8
"""Entries to compare, to find where the last reading ended."""


class DeviceHistory:
    """The history of one device.

    Args:
        heap: receives the events.
        number: number of the device.
        offset_ns: PyTorch's clock plus this is the heap's clock.
        named: whether allocations get labels.

    Attributes:
        lost: readings before which entries were overwritten unread.
        mended: blocks in which the state differed from the entries, except at the first reading.
        out_of_memory: the last failure; None: there was none.
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
        self._is_ahead = False  # the heap has that state, which is a little later than the entries read
        self._tail: list[tuple[Any, ...]] = []
        self._seen = 0
        self._labels: dict[tuple[Any, ...], int] = {}
        self._streams = StreamNumbers()

    @property
    def unmapped(self) -> int:
        """Bytes that PyTorch unmapped in parts of expandable segments; they are still drawn, as free."""
        return self._segments.unmapped

    def read(self, trace: Sequence[Entry], segments: Sequence[Entry], settings: Mapping[str, Any]) -> None:
        """Transfer the new entries of a reading.

        Args:
            trace: the device's history, the oldest entry first.
            segments: all segments of the device, a little later.
            settings: the allocator's settings.
        """
        self._rules = Rules.of(settings)
        if not self._go_on(trace):
            first = self._state is None
            differences = self._segments.mend(segments, self._label_of, self._streams.of)
            self.lost += not first
            self.mended += 0 if first else differences
            self._is_ahead = True
        self._state = segments
        self._tail = [_key(entry) for entry in trace[-_TAIL:]]
        self._seen = len(trace)

    def _go_on(self, trace: Sequence[Entry]) -> bool:
        """Carry out the new entries; False: they cannot be found, or some were overwritten."""
        start = self._find_new(trace)
        if self._state is None or start is None:
            return False
        snapshot = self._find_state(trace, start)
        if self._is_ahead:  # the state contains the entries before it
            if snapshot is None:
                return False
            self._is_ahead, start, snapshot = False, snapshot + 1, None
        for entry in trace[start:snapshot]:
            self._carry_out(entry)
        if snapshot is not None:
            self.mended += self._segments.mend(self._state, self._label_of, self._streams.of)
            for entry in trace[snapshot:]:
                self._carry_out(entry)
        return True

    def _find_state(self, trace: Sequence[Entry], start: int) -> int | None:
        """The `snapshot` entry of the last state; one of other code would show different bytes in use."""
        active = bytes_in_use(self._state or ())
        found = (at for at in range(start, len(trace)) if trace[at]["action"] == "snapshot")
        return next((at for at in found if trace[at]["size"] == active), None)

    def _find_new(self, trace: Sequence[Entry]) -> int | None:
        """The index of the first unread entry; None: some were overwritten."""
        tail = self._tail
        if not tail:
            return 0
        # In a ring that is not full yet, it is at the same place.
        for at in chain((self._seen,), range(len(trace), 0, -1)):
            if 0 < at <= len(trace) and _key(trace[at - 1]) == tail[-1]:
                begin = max(at - len(tail), 0)
                if [_key(entry) for entry in trace[begin:at]] == tail[len(tail) - (at - begin) :]:
                    return at
        return None

    # -- one entry at a time ------------------------------------------------------------------------------------

    def _carry_out(self, entry: Entry) -> None:
        action, address, size = entry["action"], entry.get("addr", 0), entry["size"]
        when = entry["time_us"] * 1000 + self._offset_ns if "time_us" in entry else None
        if action == "alloc":
            block = self._rules.block(size, self.heap.free_at(address))
            label, stream = self._label_of(entry), self._streams.of(entry["stream"])
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
        device_free = entry.get("device_free", entry.get("addr", 0))  # its name until 2.0
        label, stream = self._label_of(entry), self._streams.of(entry["stream"])
        self.heap.oom(requested, label, stream, when, device_free)
        totals = self.heap.stats()
        free, pool = max(totals.free_bytes - self.unmapped, 0), totals.pool_bytes - self.unmapped
        mapped = PoolTotals(pool, pool - free, min(totals.largest_free_chunk, free), pool + device_free)
        self.out_of_memory = OutOfMemory.of(requested, mapped, rounded=self._rules.round_up(requested))

    def _label_of(self, entry: Entry) -> int:
        """The label of an allocation: its metadata, or the innermost frame outside of libraries."""
        frames = entry.get("frames") or []
        metadata = entry.get("user_metadata") or ""
        key = (metadata, *((frame["filename"], frame["line"], frame["name"]) for frame in frames))
        if key not in self._labels:
            self._labels[key] = self._intern(metadata, frames)
        return self._labels[key]

    def _intern(self, metadata: str, frames: Sequence[Entry]) -> int:
        if not self._named or not (frames or metadata):
            return 0
        lines = [CodePlace(frame["name"], frame["filename"], line_number(frame["line"])) for frame in frames]
        name, stack = stack_words(metadata, lines)
        return self.heap.labels.intern(name, stack=stack) if stack else self.heap.labels.intern(name)


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry.get(field) for field in ("action", "addr", "size", "stream", "time_us"))
