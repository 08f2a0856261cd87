"""Replay: run whole arrays of operations in a heap, at the heap's own speed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bfcviz import native
from bfcviz.allocator.heap import Heap
from bfcviz.errors import InvalidRequest

ALLOCATE, FREE, SAFE_FRONTIER, CLEAR_STATS, MARK = range(5)
BATCH = 65_536  # operations between two chances to interrupt


@dataclass(frozen=True)
class Operations:
    """Operations on a heap, in order: n operations, one array per column.

    Attributes:
        kind: u1[n]; 0 allocate, 1 free, 2 set the safe frontier (to `size`), 3 clear the stats, 4 put a mark of
            `label` with the value `size` (0 or more).
        id: i8[n]; names the block: a free frees the block that the allocate of the same id got. A free of a block
            that was never allocated is ignored.
        size: i8[n]; bytes requested.
        alignment: i8[n] or one number, in bytes.
        freed_before: i8[n]; with timestamps, use only chunks freed before this count; 0 = any.
        label: u4[n]; interned label ids, 0 = none.
        time: i8[n]; nanoseconds, written into the events instead of the clock's time.
        thread: u2[n], stream: u2[n]; numbers, 0 = none.
    """

    kind: ArrayLike
    id: ArrayLike
    size: ArrayLike
    alignment: ArrayLike = 256
    freed_before: ArrayLike = 0
    label: ArrayLike = 0
    time: ArrayLike | None = None
    thread: ArrayLike = 0
    stream: ArrayLike = 0

    def __len__(self) -> int:
        return len(np.atleast_1d(self.kind))


@dataclass(frozen=True)
class Replayed:
    """The result of each operation: arrays u8[n]; sizes in bytes.

    Attributes:
        address: of the block allocated or freed; 0 without one.
        allocated_size: size of its chunk.
        allocation_id: number of its request.
        bytes_in_use: in the heap after the operation.
        pool_bytes: in the heap after the operation.
        largest_free_chunk: in the heap after the operation.
    """

    address: NDArray[np.uint64]
    allocated_size: NDArray[np.uint64]
    allocation_id: NDArray[np.uint64]
    bytes_in_use: NDArray[np.uint64]
    pool_bytes: NDArray[np.uint64]
    largest_free_chunk: NDArray[np.uint64]


@dataclass
class Replay:
    """An allocator's replay of `Operations`, in progress; `run` continues where it stopped.

    Attributes:
        position: number of operations done.
        result: their results; rows from `position` on are 0.
    """

    heap: Heap
    operations: Operations
    position: int = 0
    result: Replayed = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.operations)
        ops = self.operations
        slot, blocks = _numbered_replay_ids(np.asarray(_replay_column("id", ops.id, np.int64, n)))
        columns = [
            ("kind", ops.kind, np.uint8), ("slot", slot, np.int64), ("size", ops.size, np.int64),
            ("alignment", ops.alignment, np.int64), ("freed_before", ops.freed_before, np.int64),
            ("time", 0 if ops.time is None else ops.time, np.int64), ("label", ops.label, np.uint32),
            ("thread", ops.thread, np.uint16), ("stream", ops.stream, np.uint16),
        ]  # fmt: skip
        self._columns = [_replay_column(name, values, dtype, n) for name, values, dtype in columns]
        self._live = np.zeros(blocks, np.uint64)
        self.result = Replayed(*(np.zeros(n, np.uint64) for _ in range(6)))

    def run(self, stop: int | None = None) -> Replayed:
        """Run operations up to `stop` (all by default)."""
        last = len(self.operations) if stop is None else min(stop, len(self.operations))
        out = tuple(vars(self.result).values())
        is_timed = self.operations.time is not None
        while self.position < last:
            batch = min(self.position + BATCH, last)
            run_with_clock(self.heap, is_timed, self.position, batch, self._columns, self._live, out)
            self.position = batch
            native.check_signals()
        return self.result


def _numbered_replay_ids(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """A number from 0 on for each id, and how many there are (at least 1)."""
    n = len(ids)
    if not n or (ids.min() >= 0 and ids.max() < n):  # they are such numbers already
        return ids, n + 1
    names, slot = np.unique(ids, return_inverse=True)
    return slot.reshape(-1), len(names)


def _replay_column(name: str, values: ArrayLike, dtype: Any, n: int) -> Any:
    array = np.asarray(values)
    if array.ndim and array.shape != (n,):
        raise InvalidRequest(
            f"column {name!r} has shape {array.shape}; there are {n} operations: give shape ({n},)"
        )
    if array.size:
        _check_replay_column_range(name, array, dtype)
    column = np.ascontiguousarray(np.broadcast_to(array.astype(dtype), (n,)))
    return column if native.is_compiled() else column.tolist()  # NumPy's scalars wrap around, Python's do not


def _check_replay_column_range(name: str, array: Any, dtype: Any) -> None:
    if array.dtype.kind not in "biu":
        raise InvalidRequest(f"column {name!r} holds {array.dtype}; give integers")
    low = int(np.iinfo(dtype).min) if name in ("id", "time") else 0
    high = MARK if name == "kind" else int(np.iinfo(dtype).max)
    for number in (int(array.min()), int(array.max())):
        if not low <= number <= high:
            raise InvalidRequest(f"column {name!r} holds {number}; give numbers from {low} to {high}")


def run_with_clock(
    heap: Heap, timed: bool, start: int, stop: int, columns: list[Any], live: Any, out: tuple[Any, ...]
) -> None:
    """Run a batch; with `timed` the events carry the times of the operations."""
    heap.set_replaying(timed)
    try:
        run(heap, start, stop, *[*columns, live, *out])
    finally:
        heap.set_replaying(False)


def run(
    heap: Heap, start: int, stop: int, kind: Any, slot: Any, size: Any, alignment: Any, freed_before: Any, time: Any,
    label: Any, thread: Any, stream: Any, live: Any, address_out: Any, size_out: Any, id_out: Any, in_use_out: Any,
    pool_out: Any, largest_out: Any,
) -> None:  # fmt: skip
    """Run operations [start, stop); reads the columns of Operations, writes those of Replayed."""
    for i in range(start, stop):
        heap.source.operation = i
        heap.space.log.at(time[i], thread[i])
        address = 0
        if kind[i] == 0:
            address = heap.allocate(size[i], alignment[i], freed_before[i], label[i], stream[i])
            if address < native.MIN_CHUNK:
                address = 0
            live[slot[i]] = address
        elif kind[i] == 1:
            address = int(live[slot[i]])
            live[slot[i]] = 0
        elif kind[i] == 2:
            heap.set_safe_frontier(size[i])
        elif kind[i] == 3:
            heap.clear_stats()
        else:
            heap.put_mark(label[i], size[i])
        native.spin_lock(heap.lock)
        h = heap.space.table.find(address) if address != 0 else native.NONE
        if h != native.NONE:
            address_out[i] = address
            size_out[i] = heap.space.table.chunks[h].size
            id_out[i] = heap.space.table.chunks[h].allocation_id
        native.spin_unlock(heap.lock)
        if h != native.NONE and kind[i] == 1:
            heap.free(address)
        native.spin_lock(heap.lock)
        in_use_out[i] = heap.space.bytes_in_use
        pool_out[i] = heap.space.pool_bytes
        largest_out[i] = heap.space.largest_free()
        native.spin_unlock(heap.lock)
