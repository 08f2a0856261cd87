"""Replay of whole arrays: the same result as single operations, and invalid columns."""

import signal

import numpy as np
import pytest
from heaps import BASE, KIB, MIB, Scripted, assert_model_agrees, new_heap
from processes import COMPILED, sized

from bfcviz.allocator.replay import Operations, Replay
from bfcviz.errors import InvalidRequest
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind


def random_operations():
    rng = np.random.default_rng(5)
    live, rows = [], []
    for i in range(sized(4000, 1500)):
        if live and rng.random() < 0.48:
            rows.append((1, live.pop(rng.integers(len(live))), 0))
        else:
            rows.append((0, i, int(rng.choice([0, 1, 300, 5_000, 70_000, 900_000]))))
            live.append(i)
    return np.array(rows, np.int64).T


def test_it_is_the_same_as_one_by_one():
    kind, number, size = random_operations()
    heap, other = new_heap(16 * MIB, allow_growth=True), new_heap(16 * MIB, allow_growth=True)
    result = heap.replay(Operations(kind, number, size))
    live = {}
    for i, (k, n, s) in enumerate(zip(kind.tolist(), number.tolist(), size.tolist(), strict=True)):
        address = live[n] = other.try_allocate(s) or 0 if k == 0 else live[n]
        facts = (other.allocated_size(address), other.allocation_id(address)) if address else (0, 0)
        if k == 1:
            other.free(address)
        assert (result.address[i], result.allocated_size[i], result.allocation_id[i]) == (address, *facts)
        stats = other.stats()
        assert result.bytes_in_use[i] == stats.bytes_in_use
        assert (result.pool_bytes[i], result.largest_free_chunk[i]) == (
            stats.pool_bytes,
            stats.largest_free_chunk,
        )
    assert (
        heap.memory_map()[["address", "size", "in_use"]].tolist()
        == other.memory_map()[["address", "size", "in_use"]].tolist()
    )
    assert heap.stats() == other.stats()
    assert heap.stats().num_allocs < (kind == 0).sum()  # some failed, some were empty
    assert_model_agrees(heap)


def test_it_can_stop_and_go_on():
    kind, number, size = random_operations()
    whole, parts = new_heap(16 * MIB), new_heap(16 * MIB)
    expected = whole.replay(Operations(kind, number, size))
    replay = Replay(parts.heap, Operations(kind, number, size))
    for stop in (0, 1, 1000, 1000, 3999, 10**9):
        result = replay.run(stop)
        assert replay.position == min(stop, len(kind))
        assert not result.address[replay.position :].any()
    for name, column in vars(expected).items():
        np.testing.assert_array_equal(getattr(result, name), column)


def test_events_carry_what_the_columns_say():
    heap = new_heap()
    number = heap.labels.intern("gradient")
    columns = {"label": [number, 0, 0], "time": [-5, 10, 400], "thread": [3, 4, 5], "stream": [1, 2, 6]}
    heap.replay(Operations([0, 0, 1], [7, 9, 7], [100, 200, 0], **columns))
    heap.allocate(1)
    events = Reader(heap.log).read()
    kinds = [Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE, Kind.SPLIT, Kind.ALLOCATE, Kind.FREE, Kind.ALLOCATE]
    assert events["kind"].tolist() == kinds
    assert events["time"][:-1].tolist() == [-5, -5, -5, 10, 10, 400]
    assert events["time"][-1] > 0  # the clock again
    allocate = events[events["kind"] == Kind.ALLOCATE]
    assert allocate["label"].tolist() == [number, 0, 0]
    assert allocate["thread"].tolist()[:2] == [3, 4]
    assert allocate["stream"].tolist() == [1, 2, 0]
    (free,) = events[events["kind"] == Kind.FREE]
    assert (free["thread"], free["by"], free["label"], free["stream"]) == (3, 5, number, 1)


def test_frontiers_and_stats_are_operations():
    heap = new_heap(8 * KIB, timestamps=True)
    kinds = [0, 0, 1, 1, 2, 3, 0]
    result = heap.replay(Operations(kinds, [0, 1, 0, 1, 2, 3, 4], [4 * KIB, 4 * KIB, 0, 0, 3, 0, 8 * KIB]))
    assert result.address.tolist() == [BASE, BASE + 4 * KIB, BASE, BASE + 4 * KIB, 0, 0, BASE]
    assert heap.stats().num_allocs == 1
    assert heap.internals().timing_count == 2


def test_frees_of_nothing_are_nothing():
    heap = new_heap()
    result = heap.replay(Operations([1, 0, 1, 1, 0, 1], [5, 5, 5, 5, 6, 5], [0, 256, 0, 0, MIB + 1, 0]))
    assert result.address.tolist() == [0, BASE, BASE, 0, 0, 0]
    assert heap.stats().bytes_in_use == 0


def test_memory_freed_behind_its_back_is_not_freed_again():
    heap = new_heap()
    replay = Replay(heap.heap, Operations([0, 1, 0], [1, 1, 1], [100, 0, 300]))
    heap.free(int(replay.run(1).address[0]))
    result = replay.run()
    assert result.address.tolist() == [BASE, 0, BASE]
    heap.check_invariants()


@pytest.mark.parametrize("shape", [0, 1])
def test_the_smallest_replays(shape):
    result = new_heap().replay(Operations([0] * shape, [0] * shape, [5] * shape))
    assert result.address.tolist() == [BASE] * shape


def test_one_number_stands_for_a_column():
    heap = new_heap(64 * KIB)
    result = heap.replay(Operations([0] * 4, range(4), 300, alignment=4096))
    assert (result.address % 4096 == 0).all()
    assert (result.allocated_size == 512).all()


def test_marks_are_put_where_they_are():
    heap = new_heap()
    heap.replay(Operations(kind=[0, 4, 1], id=[1, 0, 1], size=[100, 7, 0], label=[0, 3, 0], time=[5, 6, 7]))
    events = Reader(heap.log, 0).read(heap.log.head)
    marks = events[events["kind"] == Kind.MARK]
    assert (marks["label"].tolist(), marks["size"].tolist(), marks["time"].tolist()) == ([3], [7], [6])
    assert events["kind"][-2:].tolist() == [Kind.FREE, Kind.MERGE]


GOOD = {"kind": [0, 1], "id": [1, 1], "size": [100, 0]}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("kind", [5, 0]), ("kind", [256, 0]), ("kind", [-1, 0]), ("kind", [0.5, 1]),
        ("size", [-1, 0]), ("size", [1.0, 0]), ("size", np.array([1 << 63, 0], np.uint64)), ("size", ["1", "0"]),
        ("size", [None, 0]), ("size", [1]), ("size", [[1, 2]]), ("alignment", -256), ("alignment", [256, 256, 256]),
        ("label", [1 << 32, 0]), ("thread", 65_536), ("stream", [0, -1]), ("freed_before", [-1, 0]),
        ("time", [0.5, 1]), ("time", np.array([1 << 63, 0], np.uint64)), ("id", [[1, 2]]),
    ],
)  # fmt: skip
def test_columns_that_cannot_be(name, values):
    heap = new_heap()
    with pytest.raises(InvalidRequest, match=name):
        heap.replay(Operations(**{**GOOD, name: values}))
    assert heap.log.head == 0


@pytest.mark.parametrize("size", [(1 << 62) + 1, (1 << 63) - 1])
def test_single_operations_fail_alone(size):
    result = new_heap().replay(Operations([0, 0], [1, 2], [size, 100]))
    assert result.address.tolist() == [0, BASE]
    result = new_heap().replay(Operations([0, 0], [1, 2], [100, 100], alignment=[3, 256]))
    assert result.address.tolist() == [0, BASE]


def test_an_exception_of_the_sub_allocator_comes_out():
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new_heap(MIB, Scripted(interrupt)).replay(Operations([0], [0], [1]))


def test_it_can_be_interrupted():
    def interrupt(*_):
        raise KeyboardInterrupt

    n = sized(2_000_000, 50_000)
    heap = new_heap()
    kinds = np.arange(n) % 2
    replay = Replay(heap.heap, Operations(kinds, np.arange(n) // 2, 1000 * (1 - kinds)))
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        with pytest.raises(KeyboardInterrupt):
            replay.run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    heap.check_invariants()
    if COMPILED:  # plain Python stops within a batch too
        assert 0 < replay.position < n
        replay.run(replay.position + 2)
