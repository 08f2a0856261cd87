"""EventCodec: events as what cannot be predicted of them, and back; compiled where there is a compiler.

A heap's events follow from each other: a FREE repeats what its ALLOCATE said, a MERGE names the freed chunk and its
neighbour, a program repeats its requests. The codec predicts each field of an event from the events before it in the
same block, and from the fields before it in the same event::

    seq, pool, kind, time, by, chunk, other, region, stream, size, address, requested, label, thread, bin, flags

    masks      [ bit per field: was the prediction wrong? ]            u2 an event
    residuals  [ of each field: the differences, where it was wrong ]  u8 each

Encoding and decoding are one function, so both predict alike. A prediction may be wrong, never the result: any records
at all, also damaged ones, come back bit for bit. The tables of what is known have a limited size and forget what does
not fit; wrong input can make a block large, but not the memory.

The C types are in `block_codec.pxd`; `codec_memory` has the tables.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.errors import BfcvizError
from bfcviz.events import event_record
from bfcviz.events.schema import EVENT, Events
from bfcviz.events.storage import codec_memory
from bfcviz.events.storage.codec_memory import HABIT, ROW

CODED: Final = (
    *("seq", "pool", "kind", "time", "by", "chunk", "other", "region", "stream"),
    *("size", "address", "requested", "label", "thread", "bin", "flags"),
)
"""The fields in the order of their coding: the number of a field is its bit in the mask."""

MOST_EVENTS: Final = 1 << 18
"""Events of a block."""

_MOST_ROWS: Final = 1 << 18
_HABITS: Final = 1 << 14
_FOLLOWERS: Final = 1 << 16


class DamagedBlock(ValueError):
    """The coded events of a block contradict each other."""


class EventCodec:
    """The codec of blocks: codes each independently of the others. Not thread-safe; releases the interpreter's lock."""

    def __init__(self) -> None:
        self._row_table, self._unused_table = np.zeros(0, ROW), np.zeros(0, np.uint32)
        self._request_table, self._size_table = np.zeros(_HABITS, HABIT), np.zeros(_HABITS, HABIT)
        self._follower_table = np.zeros(_FOLLOWERS, np.uint32)
        self._kind_table = np.zeros(codec_memory.NUM_KINDS, np.uint32)
        self._flag_table, self._scratch = np.zeros(16, np.uint32), np.zeros(2, EVENT)
        self._place_table = np.zeros(2 * len(CODED), np.uint64)
        self._residual_table, self._room = np.zeros(0, np.uint64), 0
        self._none_table, self._sums = np.zeros(1, ROW), np.zeros(8, np.uint64)

    def encode(self, events: Events) -> tuple[int, NDArray[np.uint16], list[NDArray[np.uint64]], int]:
        """Code at most `MOST_EVENTS` events as a block, contiguous in memory.

        Returns:
            The number of rows that `decode` needs; the masks; the residuals of each field of `CODED`, valid until the
            next call; the checksum.
        """
        count = len(events)
        rows = _rows_for(events)
        masks = np.zeros(count, np.uint16)
        if count > MOST_EVENTS:
            raise BfcvizError(f"{count} events were given for one block; it holds at most {MOST_EVENTS}")
        if self._room < count:
            self._room = count
            self._residual_table = np.empty(len(CODED) * _residual_stride(count), np.uint64)
        starts = [field * _residual_stride(self._room) for field in range(len(CODED))]
        self._decoding = False
        self._prepare(rows, events, masks, self._residual_table, starts + starts)
        ends = self._code_all(count)
        parts = [self._residual_table[start:end] for start, end in zip(starts, ends, strict=True)]
        return rows, masks, parts, self._checksum(count)

    def decode(
        self, rows: int, masks: NDArray[np.uint16], residuals: list[NDArray[np.uint64]], checksum: int
    ) -> Events:
        """The events of a block that `encode` coded.

        Raises:
            DamagedBlock: these are not what it returned.
        """
        count = len(masks)
        if rows not in _SIZES or len(residuals) != len(CODED):
            raise DamagedBlock(f"needs {rows} rows and has {len(residuals)} fields")
        events = np.zeros(count, EVENT)
        lengths = np.cumsum([0, *map(len, residuals)]).tolist()
        packed = np.concatenate([*residuals, np.zeros(1, np.uint64)])
        self._decoding = True
        self._prepare(rows, events, masks, packed, lengths[: len(CODED)] + lengths[1:])
        if self._code_all(count) != lengths[1:] or self._failed or self._checksum(count) != checksum:
            raise DamagedBlock("does not match its checksum")
        return events

    def _prepare(
        self,
        rows: int,
        events: Events,
        masks: NDArray[np.uint16],
        residuals: NDArray[np.uint64],
        places: list[int],
    ) -> None:
        """Take the arrays of a block into the codec, and forget what was known of the last one."""
        if len(self._row_table) != rows:
            self._row_table, self._unused_table = np.zeros(rows, ROW), np.zeros(rows, np.uint32)
        habits = (self._request_table, self._size_table)
        numbers = (self._unused_table, self._follower_table, self._kind_table, self._flag_table, self._sums)
        for table in (self._row_table, *habits, *numbers, self._scratch):
            table.view(np.uint8)[:] = 0
        self._arrays = (events, masks, residuals)  # the pointers below point into them
        self._events, self._masks = codec_memory.events(events), codec_memory.masks(masks)
        self._words, self._residuals = codec_memory.words(events), codec_memory.words(residuals)
        self._rows = codec_memory.rows(self._row_table)
        self._unused = codec_memory.handles(self._unused_table)
        self._requests = codec_memory.habits(self._request_table)
        self._sizes = codec_memory.habits(self._size_table)
        self._followers = codec_memory.handles(self._follower_table)
        self._kinds = codec_memory.handles(self._kind_table)
        self._flags = codec_memory.handles(self._flag_table)
        self._first = codec_memory.events(self._scratch)
        self._none = codec_memory.rows(self._none_table)
        self._place_table[:] = places
        self._places = codec_memory.words(self._place_table)
        self._last_row, self._failed = rows - 1, False
        self._num_unused = self._highest = self._trail = self._history = self._last_key = 0
        self._circumstances = self._last_request = self._allocation = self._stream = self._value = 0
        self._survivor = self._absorbed = 0

    def _code_all(self, count: int) -> list[int]:
        state = native.release_gil()
        for i in range(count):
            self._code_event(i)
        native.take_gil(state)
        ended: list[int] = self._place_table[: len(CODED)].tolist()
        return ended

    # -- one event -----------------------------------------------------------------------------------------------

    def _code(self, field: int, guess: int, base: int, value: int) -> int:
        """Code one field of an event: nothing where the guess is right, else the difference from `base`.

        Encoding takes `value`, decoding ignores it.
        """
        guess, base, value = native.wrap_64(guess), native.wrap_64(base), native.wrap_64(value)
        place = self._places[field]
        if not self._decoding:
            if value != guess:
                self._mask |= 1 << field
                self._residuals[place] = _zigzag_encoded(native.wrap_64(value - base))
                self._places[field] = place + 1
            return value
        if not self._mask >> field & 1:
            return guess
        if place >= self._places[codec_memory.NUM_FIELDS + field]:
            self._failed = True
            return guess
        self._places[field] = place + 1
        return native.wrap_64(base + _zigzag_decoded(self._residuals[place]))

    def _code_event(self, i: int) -> None:
        e = codec_memory.event(self._events, i)
        x = codec_memory.event(self._first, 1)
        last = codec_memory.event(self._first, 0) if i == 0 else codec_memory.event(self._events, i - 1)
        self._mask = self._masks[i]  # all 0 when encoding
        x.seq = self._code(codec_memory.SEQ, last.seq + 1, last.seq + 1, e.seq)
        x.pool = self._code(codec_memory.POOL, last.pool, 0, e.pool)
        x.kind = self._code(codec_memory.KIND, self._next_kind(last, x.pool), 0, e.kind)
        x.time = self._code(codec_memory.TIME, last.time, last.time, e.time)
        x.by = self._code(codec_memory.BY, last.by, 0, e.by)
        x.chunk = self._code(codec_memory.CHUNK, self._next_chunk(x.kind, last), 0, e.chunk)
        row = self._find(x.chunk, x.pool)
        x.other = self._next_other(x, row, e.other)
        other = (
            self._find(x.other, x.pool) if x.kind == event_record.MERGE else codec_memory.row(self._none, 0)
        )
        x.region = self._code(codec_memory.REGION, row.region if row.state else last.region, 0, e.region)
        x.stream = self._next_stream(x.kind, row, e.stream)
        x.size = self._next_size(x, row, other, e.size)
        x.address = self._next_address(x, row, other, last, e.address)
        x.requested = self._next_requested(x, row, e.requested)
        x.label = self._next_label(x, row, e.label)
        thread = row.thread if x.kind == event_record.FREE and row.state else x.by
        x.thread = self._code(codec_memory.THREAD, thread, 0, e.thread)
        x.bin = self._code(codec_memory.BIN, self._next_bin(x, row, last), 0, e.bin)
        x.flags = self._code(codec_memory.FLAGS, self._flags[x.kind & 15], 0, e.flags)
        if self._decoding:
            codec_memory.put(self._events, i, x)
        else:
            self._masks[i] = self._mask
        self._flags[x.kind & 15] = x.flags
        self._learn(x, last)

    # -- predictions ---------------------------------------------------------------------------------------------

    def _look_for_merge(self, last: Any, pool: int) -> bool:
        """For the codec, whether a chunk that is now free has a free neighbour; sets both."""
        if last.kind not in (event_record.FREE, event_record.MERGE) or last.flags:
            return False
        row = self._find(last.chunk, pool)
        if row.state != codec_memory.FREE_CHUNK:
            return False
        if row.after and self._find(row.after - 1, pool).state == codec_memory.FREE_CHUNK:
            self._survivor, self._absorbed = last.chunk, row.after - 1
            return True
        if row.before and self._find(row.before - 1, pool).state == codec_memory.FREE_CHUNK:
            self._survivor, self._absorbed = row.before - 1, last.chunk
            return True
        return False

    def _next_kind(self, last: Any, pool: int) -> int:
        if self._look_for_merge(last, pool):
            return event_record.MERGE
        if last.kind == event_record.SPLIT:
            return event_record.ALLOCATE
        if last.kind == event_record.EXTEND:
            return event_record.SPLIT
        likely: int = self._kinds[self._history]
        return likely

    def _next_chunk(self, kind: int, last: Any) -> int:
        likely: int = 0
        if kind in (event_record.OOM, event_record.MARK):
            pass
        elif kind == event_record.MERGE:
            likely = self._survivor
        elif last.kind == event_record.SPLIT:
            likely = last.other if last.flags else last.chunk
        elif last.kind == event_record.EXTEND:
            likely = last.chunk
        elif kind == event_record.EXTEND:
            likely = self._next_handle()
        else:
            likely = self._followers[self._trail_of(kind)]
        return likely

    def _next_handle(self) -> int:
        """The codec's guess of the handle of a heap's next chunk: the one used last, or the next one."""
        likely: int = self._unused[self._num_unused - 1] if self._num_unused else self._highest
        return likely

    def _trail_of(self, kind: int) -> int:
        return native.spread(self._trail * 8 + kind, 48)

    def _next_other(self, x: Any, row: Any, value: int) -> int:
        if x.kind == event_record.FREE:
            return self._code(codec_memory.OTHER, row.born, x.seq & native.LOW_32, value)
        if x.kind == event_record.ALLOCATE:
            after = (self._allocation + 1) & native.LOW_32
            return self._code(codec_memory.OTHER, after, self._allocation, value)
        if x.kind == event_record.SPLIT:
            return self._code(codec_memory.OTHER, self._next_handle(), 0, value)
        return self._code(codec_memory.OTHER, self._absorbed if x.kind == event_record.MERGE else 0, 0, value)

    def _next_stream(self, kind: int, row: Any, value: int) -> int:
        if kind == event_record.FREE and row.state:
            return self._code(codec_memory.STREAM, row.stream, 0, value)
        return self._code(codec_memory.STREAM, self._stream if kind == event_record.ALLOCATE else 0, 0, value)

    def _next_size(self, x: Any, row: Any, other: Any, value: int) -> int:
        """The size of an event for the codec; of a SPLIT what stays is coded, which is the request."""
        if x.kind == event_record.SPLIT:
            habit = codec_memory.habit(self._requests, self._circumstances)
            return self._code(codec_memory.SIZE, row.size - habit.size, row.size, value)
        if x.kind == event_record.MARK:
            return self._code(codec_memory.SIZE, self._value, self._value, value)
        if x.kind == event_record.MERGE:
            return self._code(codec_memory.SIZE, other.size, 0, value)
        return self._code(codec_memory.SIZE, row.size, 0, value)

    def _next_address(self, x: Any, row: Any, other: Any, last: Any, value: int) -> int:
        guess = row.address
        if x.kind == event_record.MERGE:
            guess = row.address + row.size if row.address else other.address
        elif x.kind == event_record.SPLIT and guess:
            guess = row.address + row.size - x.size
        elif x.kind in (event_record.OOM, event_record.MARK):
            return self._code(codec_memory.ADDRESS, 0, 0, value)
        return self._code(codec_memory.ADDRESS, guess, guess or last.address, value)

    def _next_requested(self, x: Any, row: Any, value: int) -> int:
        if x.kind == event_record.FREE and row.state:
            return self._code(codec_memory.REQUESTED, row.requested, x.size, value)
        if x.kind not in (event_record.ALLOCATE, event_record.FREE):
            return self._code(codec_memory.REQUESTED, 0, 0, value)
        habit = codec_memory.habit(self._requests, self._circumstances)
        if habit.size != x.size:
            habit = codec_memory.habit(self._sizes, native.spread(x.size, 50))
        guess = habit.requested if habit.size == x.size else x.size
        return self._code(codec_memory.REQUESTED, guess, x.size, value)

    def _next_label(self, x: Any, row: Any, value: int) -> int:
        if x.kind == event_record.FREE and row.state:
            return self._code(codec_memory.LABEL, row.label, 0, value)
        if x.kind not in (event_record.ALLOCATE, event_record.FREE):
            return self._code(codec_memory.LABEL, 0, 0, value)
        habit = codec_memory.habit(self._requests, self._circumstances)
        if habit.size != x.size or habit.requested != x.requested:
            habit = codec_memory.habit(self._sizes, native.spread(x.size, 50))
        return self._code(codec_memory.LABEL, habit.label, 0, value)

    def _next_bin(self, x: Any, row: Any, last: Any) -> int:
        if x.kind == event_record.MARK:
            return native.wrap_64(-1)
        size = x.size
        if x.kind == event_record.MERGE:
            size += row.size
        elif x.kind == event_record.ALLOCATE and last.kind == event_record.SPLIT:
            size += last.size
        elif x.kind == event_record.OOM:
            size = x.requested + native.MIN_CHUNK - 1
        return native.bin_of(native.wrap_64(size))

    # -- what is known -------------------------------------------------------------------------------------------

    def _find(self, chunk: int, pool: int) -> Any:
        """What the codec knows of a chunk; an empty row if nothing is."""
        row = codec_memory.row(self._rows, (chunk ^ pool << 10) & self._last_row)
        if row.state != codec_memory.UNKNOWN and row.chunk == chunk and row.pool == pool:
            return row
        return codec_memory.row(self._none, 0)

    def _enter(self, chunk: int, pool: int) -> Any:
        """The codec's row of a chunk, which replaces that of another chunk with the same place."""
        row = codec_memory.row(self._rows, (chunk ^ pool << 10) & self._last_row)
        if row.state == codec_memory.UNKNOWN or row.chunk != chunk or row.pool != pool:
            row.address = row.size = row.requested = 0
            row.born = row.label = row.before = row.after = 0
            row.thread = row.stream = row.region = 0
            row.chunk = chunk
            row.pool = pool
            row.state = codec_memory.FREE_CHUNK
        return row

    def _learn(self, x: Any, last: Any) -> None:
        """Change the codec's tables as the event changed the heap."""
        kind = x.kind
        if kind == event_record.MERGE:
            self._merged(x)
            return
        if last.kind not in (event_record.SPLIT, event_record.EXTEND):
            self._began(x)
        if kind == event_record.ALLOCATE:
            self._allocated(x)
        elif kind == event_record.FREE:
            self._freed(x)
        elif kind == event_record.SPLIT:
            self._was_split(x)
        elif kind == event_record.EXTEND:
            self._took_handle(x.chunk)
            self._placed(x.chunk, x)
        elif kind == event_record.RELEASE:
            self._dropped(x.chunk, x.pool)
        elif kind == event_record.MARK:
            self._value = x.size

    def _began(self, x: Any) -> None:
        """Let the codec remember which operation followed those before."""
        self._followers[self._trail_of(x.kind)] = x.chunk
        key = native.wrap_64(x.chunk) * 16 + x.kind
        self._trail = native.wrap_64(native.spread(self._last_key, 0) + key)
        self._last_key = key
        self._kinds[self._history] = x.kind
        self._history = (self._history * 8 + (x.kind & 7)) & (codec_memory.NUM_KINDS - 1)

    def _allocated(self, x: Any) -> None:
        row = self._placed(x.chunk, x)
        row.state = codec_memory.USED_CHUNK
        row.requested = x.requested
        row.born = x.seq & native.LOW_32
        row.label = x.label
        row.thread = x.thread
        row.stream = x.stream
        self._allocation, self._stream = x.other, x.stream
        habit = codec_memory.habit(self._requests, self._circumstances)
        habit.size, habit.requested, habit.label = x.size, x.requested, x.label
        habit = codec_memory.habit(self._sizes, native.spread(x.size, 50))
        habit.size, habit.requested, habit.label = x.size, x.requested, x.label
        key = native.wrap_64(x.size + native.spread(x.label, 0))
        self._circumstances = native.spread(native.wrap_64(self._last_request * 5 + key), 50)
        self._last_request = key

    def _freed(self, x: Any) -> None:
        self._placed(x.chunk, x).state = codec_memory.FREE_CHUNK

    def _was_split(self, x: Any) -> None:
        self._took_handle(x.other)
        row = self._enter(x.chunk, x.pool)
        row.size = native.wrap_64(row.size - x.size) if row.size > x.size else 0
        row.region = x.region
        rest = self._placed(x.other, x)
        rest.state = codec_memory.FREE_CHUNK
        rest.before, rest.after = x.chunk + 1, row.after
        self._link(row.after, x.pool, x.other + 1)
        row.after = x.other + 1

    def _merged(self, x: Any) -> None:
        row, other = self._enter(x.chunk, x.pool), self._find(x.other, x.pool)
        row.size = native.wrap_64(row.size + x.size) if row.size else 0
        row.region = x.region
        row.after = other.after
        self._link(row.after, x.pool, x.chunk + 1)
        self._dropped(x.other, x.pool)

    def _placed(self, chunk: int, x: Any) -> Any:
        row = self._enter(chunk, x.pool)
        row.address, row.size, row.region = x.address, x.size, x.region
        return row

    def _link(self, after: int, pool: int, before: int) -> None:
        row = self._find(after - 1, pool) if after else codec_memory.row(self._none, 0)
        if row.state != codec_memory.UNKNOWN:
            row.before = before

    def _dropped(self, chunk: int, pool: int) -> None:
        row = self._find(chunk, pool)
        if row.state != codec_memory.UNKNOWN:
            row.state = codec_memory.UNKNOWN
        self._left_handle(chunk)

    def _took_handle(self, chunk: int) -> None:
        if self._num_unused and self._unused[self._num_unused - 1] == chunk:
            self._num_unused -= 1
        if chunk >= self._highest:
            self._highest = native.wrap_64(chunk + 1)

    def _left_handle(self, chunk: int) -> None:
        if self._num_unused <= self._last_row:
            self._unused[self._num_unused] = chunk
            self._num_unused += 1

    def _checksum(self, count: int) -> int:
        """A number of a block that differs when any bit of the events does, except by chance."""
        sums = codec_memory.words(self._sums)
        state = native.release_gil()
        for i in range(count):
            for lane in range(8):
                sums[lane] = native.wrap_64(native.spread(sums[lane], 0) + self._words[8 * i + lane])
        native.take_gil(state)
        total = count
        for lane in range(8):
            total = native.spread(total ^ sums[lane], 0)
        return total


def _zigzag_encoded(difference: int) -> int:
    """For the codec, a small number for a small difference of either sign."""
    return native.wrap_64(difference << 1) ^ native.wrap_64(-(difference >> 63))


def _zigzag_decoded(number: int) -> int:
    return number >> 1 ^ native.wrap_64(-(number & 1))


def _residual_stride(count: int) -> int:
    """Values between the codec's residuals of two fields: no power of two, so that no cache line is shared."""
    return count + 72


_SIZES: Final = frozenset(1 << bits for bits in range(_MOST_ROWS.bit_length()))


def _rows_for(events: Events) -> int:
    """Rows of the codec's table for the handles of these events, a power of two."""
    highest = int(events["chunk"].max(initial=0))
    splits = events["other"][events["kind"] == event_record.SPLIT]
    return min(1 << max(highest, int(splits.max(initial=0))).bit_length(), _MOST_ROWS)
