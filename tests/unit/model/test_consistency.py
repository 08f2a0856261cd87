"""Events that contradict the state are refused with step, kind and the facts, and change nothing."""

import numpy as np
import pytest
from both_ways import both_ways
from naive_heap import NaiveHeap

from bfcviz.errors import TraceError
from bfcviz.events.schema import EVENT, Flag, Kind
from bfcviz.model.pool_state import PoolState
from bfcviz.model.row_storage import CHUNK_ROW, REGION_ROW
from bfcviz.model.state_snapshots import Snapshot

BASE = 0x10_0000


@pytest.fixture
def heap():
    """Region 0: chunk 0 in use (512 bytes), 1 free (512 bytes), 2 in use (1 KiB), 3 free (2 KiB)."""
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 4096, 0)
    heap.allocate(0, 500, label=5, thread=1, stream=2)
    middle = heap.allocate(0, 512)
    heap.allocate(0, 1000)
    heap.free(0, middle)
    return heap


def record(heap, kind, **fields):
    event = np.zeros(1, EVENT)
    event["seq"], event["kind"] = len(heap.records), kind
    for name, value in fields.items():
        event[name] = value
    return event


FREE_0 = {"chunk": 0, "address": BASE, "size": 512, "requested": 500, "label": 5, "thread": 1, "stream": 2}
TAKE_1 = {"chunk": 1, "address": BASE + 512, "size": 512}
CUT_3 = {"chunk": 3, "other": 4, "address": BASE + 3072, "size": 1024}

CASES = {
    "step missing": (Kind.MARK, {"seq": 99}, "number is 99"),
    "unknown kind": (9, {}, "9 is not a kind"),
    "no kind": (0, {}, "0 is not a kind"),
    "unknown pool": (Kind.MARK, {"pool": 1}, "pool is 1"),
    "no such chunk": (Kind.FREE, {"chunk": 77}, "chunk 77 does not exist"),
    "free of a free chunk": (Kind.FREE, TAKE_1, "not in use: chunk 1 is free, 512 bytes at 0x100200"),
    "allocate of a chunk in use": (Kind.ALLOCATE, FREE_0, "chunk 0 is in use, 512 bytes at 0x100000"),
    "free by another owner": (Kind.FREE, {**FREE_0, "other": 2, "label": 6}, "label 6"),
    "free of another request": (Kind.FREE, {**FREE_0, "other": 2, "requested": 501}, "501 bytes requested"),
    "free of another birth": (Kind.FREE, {**FREE_0, "other": 1}, "low 32 bits are 1, but chunk 0 is in use"),
    "free at another place": (
        Kind.FREE,
        {**FREE_0, "other": 2, "address": BASE + 1},
        "but chunk 0 is in use",
    ),
    "free of another size": (Kind.FREE, {**FREE_0, "other": 2, "size": 256}, "256 bytes"),
    "allocate of another size": (Kind.ALLOCATE, {**TAKE_1, "size": 256}, "256 bytes at 0x100200"),
    "allocate asks for more": (Kind.ALLOCATE, {**TAKE_1, "requested": 513}, "more than the chunk's 512"),
    "another region": (Kind.ALLOCATE, {**TAKE_1, "region": 3}, "region is 3"),
    "split of all": (Kind.SPLIT, {**CUT_3, "address": BASE + 2048, "size": 2048}, "too large"),
    "split of more": (Kind.SPLIT, {**CUT_3, "size": 1 << 60}, "too large"),
    "split of nothing": (Kind.SPLIT, {**CUT_3, "size": 0}, "its size is 0"),
    "split elsewhere": (Kind.SPLIT, {**CUT_3, "address": BASE + 3000}, "1024 bytes at"),
    "split of a chunk in use": (Kind.SPLIT, {**CUT_3, "chunk": 0}, "chunk 0 is in use"),
    "handle taken": (Kind.SPLIT, {**CUT_3, "other": 2}, "taken: chunk 3 is free"),
    "own handle taken": (Kind.SPLIT, {**CUT_3, "other": 3}, "taken"),
    "handle too high": (Kind.SPLIT, {**CUT_3, "other": 10}, "handle is higher"),
    "handle absurd": (Kind.SPLIT, {**CUT_3, "other": 2**32 - 1}, "handle is higher"),
    "merge of chunks apart": (
        Kind.MERGE,
        {"chunk": 1, "other": 3, "address": BASE + 2048, "size": 2048},
        "not neighbours: chunk 1 is free",
    ),
    "merge into itself": (Kind.MERGE, {**TAKE_1, "other": 1}, "not neighbours"),
    "merge of a chunk in use": (Kind.MERGE, {"chunk": 1, "other": 2}, "chunk 2 is in use, 1024 bytes"),
    "merge of another size": (
        Kind.MERGE,
        {"chunk": 1, "other": 3, "address": BASE + 2048, "size": 1},
        " 1 bytes at",
    ),
    "region taken": (Kind.EXTEND, {"chunk": 4, "address": 1 << 30, "size": 256}, "region 0 exists already"),
    "region overlaps behind": (
        Kind.EXTEND,
        {"chunk": 4, "address": BASE + 4095, "size": 256, "region": 1},
        "overlap",
    ),
    "region overlaps before": (
        Kind.EXTEND,
        {"chunk": 4, "address": BASE - 255, "size": 256, "region": 1},
        "overlap",
    ),
    "region overlaps all": (Kind.EXTEND, {"chunk": 4, "address": 0, "size": 1 << 40, "region": 1}, "overlap"),
    "region past the end": (
        Kind.EXTEND,
        {"chunk": 4, "address": 1 << 63, "size": 1 << 63, "region": 1},
        "too large",
    ),
    "region of nothing": (Kind.EXTEND, {"chunk": 4, "address": 1 << 30, "region": 1}, "its size is 0"),
    "region's handle taken": (
        Kind.EXTEND,
        {"chunk": 2, "address": 1 << 30, "size": 256, "region": 1},
        "taken",
    ),
    "growth of no region": (
        Kind.EXTEND,
        {"chunk": 4, "address": BASE + 4096, "size": 256, "region": 1, "flags": Flag.GREW},
        "region 1 does not exist",
    ),
    "growth elsewhere": (
        Kind.EXTEND,
        {"chunk": 4, "address": BASE, "size": 256, "flags": Flag.GREW},
        "not the region's end",
    ),
    "release in part": (Kind.RELEASE, {"chunk": 3, "address": BASE, "size": 4096}, "4096 bytes at"),
    "release in use": (Kind.RELEASE, {"chunk": 0, "address": BASE, "size": 4096}, "chunk 0 is in use"),
    "release of another size": (
        Kind.RELEASE,
        {"chunk": 3, "address": BASE, "size": 256},
        "256 bytes",
    ),
}


@both_ways
@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_is_named_and_changes_nothing(heap, table_class, case):
    kind, fields, fact = CASES[case]
    events = heap.events()
    table = table_class()
    table.apply(events)
    before = (table.step, np.sort(table.chunk_rows(), order="address").tolist(), table.largest_free_chunk)
    with pytest.raises(TraceError) as caught:
        table.apply(record(heap, kind, **fields))
    assert fact in str(caught.value)
    assert str(caught.value).startswith(f"event {len(events)} (")
    after = (table.step, np.sort(table.chunk_rows(), order="address").tolist(), table.largest_free_chunk)
    assert after == before
    table.undo(events)
    assert table.pool_bytes == 0


@both_ways
def test_events_up_to_the_contradiction_stay_applied(heap, table_class):
    events = np.concatenate([heap.events(), record(heap, Kind.FREE, **TAKE_1)])
    table = table_class()
    with pytest.raises(TraceError, match="not in use"):
        table.apply(events)
    assert table.step == len(events) - 1
    assert table.bytes_in_use == 1536


@both_ways
def test_the_born_step_is_found_across_a_wrap_of_32_bits(table_class):
    """A chunk born at 2^32 - 1 and freed at 2^32 + 5, by a state that begins there."""
    chunks = np.zeros(1, CHUNK_ROW)
    chunks["address"], chunks["size"], chunks["born"], chunks["state"] = BASE, 256, 2**32 - 1, 2
    regions = np.array([(BASE, 256, 3)], REGION_ROW)
    table = table_class()
    table.restore(Snapshot(2**32 + 5, chunks, regions, np.array([0], np.uint64)))
    free = np.zeros(1, EVENT)
    free["seq"], free["kind"], free["address"], free["size"] = 2**32 + 5, Kind.FREE, BASE, 256
    free["other"] = 2**32 - 1
    table.apply(free)
    assert table.free_bytes == 256
    table.undo(free)
    assert table.chunk_rows()["born"].tolist() == [2**32 - 1]


def test_other_arrays_are_refused():
    table = PoolState()
    with pytest.raises(TraceError, match="float64"):
        table.apply(np.zeros(3))
    with pytest.raises(TraceError, match="2 dimensions"):
        table.undo(np.zeros((2, 2), EVENT))


@both_ways
def test_records_need_not_be_contiguous(heap, table_class):
    spread = np.repeat(heap.events(), 2)[::2]
    table = table_class()
    table.apply(spread)
    assert table.bytes_in_use == 1536
