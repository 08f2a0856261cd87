"""Holders at a step: sums, trees, names."""

import numpy as np
import pytest
from heap_strategies import seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap, trace_of
from unit.model.plain_holders import labels_of, plain_sums, trace_of_heap

import bfcviz
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.marks import BEGINS, ENDS
from bfcviz.events.schema import EVENT, Kind
from bfcviz.model import Model
from bfcviz.model.grouping import DEEPEST, UNNAMED, grouping
from bfcviz.model.holders import (
    ROOT,
    HolderIndex,
    HolderMark,
    HolderMarkGrowth,
    HolderMarkPair,
    RunningCount,
    holders,
    summary,
)


def by_path(found):
    """Path -> sums, as `plain_sums` gives them; from the rows."""
    paths, sums = [()], {}
    for row, values in enumerate(found.rows):
        if row:
            paths.append((*paths[values["parent"]], found.names[row]))
        fields = ("own_chunks", "own_bytes", "own_requested", "chunks", "bytes", "requested")
        sums[paths[row]] = tuple(int(values[name]) for name in fields)
    return sums


@given(seeded_operations(), st.integers(0, 10_000), st.integers(0, 1), st.sampled_from(list(UNNAMED)))
def test_rows_are_the_plain_sums_of_the_chunks(steps, place, pool, by):
    trace = trace_of_heap(steps)
    model = Model(trace, pool)
    model.seek(place % (len(trace) + 1))
    found, how = holders(model, by), grouping(trace, pool, by)
    chunks = model.in_use()
    paths = {
        code: tuple(UNNAMED[by] if part is None else part for part in how.path(code))
        for code in how.codes(chunks).tolist()
    }
    codes = iter(how.codes(chunks).tolist())
    assert by_path(found) == plain_sums(chunks, lambda _: paths[next(codes)])
    stats = model.stats()
    assert (found.bytes_in_use, found.chunks_in_use) == (stats.bytes_in_use, stats.chunks_in_use)
    assert int(found.rows["requested"][0]) == stats.requested_bytes_in_use


@given(seeded_operations(), st.sampled_from(list(UNNAMED)))
def test_the_tree_is_consistent(steps, by):
    trace = trace_of_heap(steps)
    model = Model(trace)
    model.seek(len(trace))
    rows = holders(model, by).rows
    assert rows["parent"][0] == -1
    for row in range(len(rows)):
        children = np.flatnonzero(rows["parent"] == row)
        assert len(children) == rows["children"][row]
        assert rows["depth"][children].tolist() == [rows["depth"][row] + 1] * len(children)
        # Siblings by their bytes; each directly before all that lies below it.
        sizes = rows["bytes"][children].tolist()
        assert sizes == sorted(sizes, reverse=True)
        assert row + 1 + sum(rows["rows"][children].tolist()) == row + rows["rows"][row]
        if len(children):
            assert children[0] == row + 1
        for name in ("bytes", "requested", "chunks"):
            assert rows[name][row] == rows[f"own_{name}"][row] + rows[name][children].sum()


def test_memory_without_a_label_is_not_that_of_a_label_with_this_name():
    heap = PlainHeap(64 * MiB)
    for label in ("", "no label", "a/b", "a"):
        heap.allocate(MiB, label)
    model = Model(heap.trace())
    model.seek(len(model.trace))
    found = holders(model)
    assert sorted(found.names) == ["a", "b", "in use", "no label", "no label"]
    assert found.paths() == [found.path(row) for row in range(len(found))]
    assert "a/b" in found.paths()


def test_the_sample_at_its_peak():
    trace = sample_trace("transformer")
    model = Model(trace)
    model.seek(bfcviz.peak(trace))
    found = holders(model)
    assert found.bytes_in_use == model.stats().bytes_in_use == model.stats().peak_bytes_in_use
    table = found.to_arrow()
    assert sum(table["own_bytes"].to_pylist()) == found.bytes_in_use
    assert (table["parent"].null_count, table["name"][0].as_py()) == (1, "in use")
    assert found.names[1] == "functional_1"
    threads = holders(model, "thread").names
    assert any(name.startswith("python (thread ") for name in threads)
    shapes = holders(model, "shape")
    assert shapes.names[1] == "[8,53,256]"
    assert "no shape" in shapes.names


def test_a_phase_is_a_path_and_belongs_to_its_thread():
    heap = PlainHeap(64 * MiB)

    def put(kind, name, value, thread):
        heap.mark(f"{name} {kind}", value, **{kind: name})
        heap.events[-1]["by"] = thread

    def allocate(thread):
        heap.allocate(MiB)
        heap.events[-1]["thread"] = thread

    allocate(1)
    put("begins", "epoch", 1, 1)
    put("begins", "forward", 2, 1)
    put("begins", "loading", 3, 2)
    allocate(1)  # epoch > forward
    allocate(2)  # loading
    allocate(3)  # no phase of its own: all that are open
    put("ends", "forward", 2, 1)
    put("ends", "loading", 3, 2)
    allocate(2)  # epoch
    put("ends", "epoch", 1, 1)
    allocate(1)
    model = Model(heap.trace())
    model.seek(len(model.trace))
    found = holders(model, "phase")
    chunks = dict(zip(found.paths(), found.rows["own_chunks"].tolist(), strict=True))
    assert {path: count for path, count in chunks.items() if count} == {
        "no phase": 2,
        "epoch": 1,
        "epoch > forward": 1,
        "epoch > forward > loading": 1,
        "loading": 1,
    }


@pytest.mark.parametrize(
    ("by", "detail", "name"),
    [("op", {}, "a/" * 100_000), ("stack", {"stack": "f (x.py:1)\n" * 100_000}, "f")],
)
def test_paths_without_end_are_cut_in_the_middle(by, detail, name):
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, name, **detail)
    model = Model(heap.trace())
    model.seek(len(model.trace))
    found = holders(model, by)
    assert found.rows["depth"].max() == DEEPEST
    assert max(map(len, found.names)) > 100_000


def test_no_such_holders_and_no_such_pool():
    trace = trace_of(np.zeros(0, EVENT))
    with pytest.raises(ValueError, match="by 'colour'; choose one of op, line, stack, shape"):
        holders(Model(trace), "colour")
    with pytest.raises(TraceError, match="pool 1 does not exist"):
        grouping(trace, 1, "op")
    empty = holders(Model(trace))
    assert (len(empty), empty.bytes_in_use, empty.to_arrow().num_rows) == (1, 0, 1)


def test_sums_beyond_the_exact_range_of_floats():
    events = np.zeros(6, EVENT)
    events["seq"], events["bin"] = range(6), -1
    big = (1 << 53) + 256
    for place in range(2):
        events[3 * place]["kind"], events[3 * place + 1]["kind"] = Kind.EXTEND, Kind.ALLOCATE
        events[3 * place + 2]["kind"] = Kind.MARK
        both = events[3 * place : 3 * place + 2]
        both["address"], both["size"], both["chunk"], both["region"] = (
            (place + 1) << 60,
            big,
            place + 1,
            place,
        )
        both["bin"] = 20
        events[3 * place + 1]["requested"] = big - 1
    model = Model(trace_of(events, Labels()))
    model.seek(6)
    assert holders(model).rows[["bytes", "requested"]][0].item() == (2 * big, 2 * big - 2)


# ------------------------------------------------------------------------------
# Summaries of trees of holders.

NAMES = ("", "a/b/c", "a/b/d/e", "f/g")


@given(seeded_operations(), st.integers(1, 12), st.floats(0, 1))
def test_parts_sum_up_at_every_depth_and_are_few(steps, most, share):
    trace = trace_of_heap(steps, labels_of(NAMES))
    model = Model(trace)
    model.seek(len(trace))
    found = holders(model)
    parts = summary(found, most, share)
    assert parts[0].bytes == found.bytes_in_use
    assert len([part for part in parts if part.row >= 0]) <= most
    assert len(parts) <= 2 * most
    for number, part in enumerate(parts):
        inside = [each for each in parts if each.parent == number]
        sizes = [each.bytes for each in inside if each.row >= 0]
        assert sizes == sorted(sizes, reverse=True)
        if inside:
            assert part.own_bytes + sum(each.bytes for each in inside) == part.bytes
            assert all(each.depth == part.depth + 1 for each in inside)
            assert [each.row for each in inside].count(-1) <= 1
    assert sum(part.chunks for part in parts if part.depth == 1) + int(found.rows["own_chunks"][0]) == (
        found.chunks_in_use
    )


def test_a_holder_around_one_other_is_one_part_with_it():
    heap = PlainHeap(64 * MiB)
    for label, size in (("a/b/c", 8), ("a/b/d/e", 4), ("f/g", 2), ("", 1)):
        heap.allocate(size * MiB, label)
    model = Model(heap.trace())
    model.seek(len(model.trace))
    parts = summary(holders(model), 100)
    assert [(part.depth, part.name) for part in parts] == [
        (0, "in use"),
        (1, "a/b"),
        (2, "c"),
        (2, "d/e"),
        (1, "f/g"),
        (1, "no label"),
    ]
    few = summary(holders(model), 2)
    assert [(part.name, part.holders, part.bytes // MiB) for part in few] == [
        ("in use", 1, 15),
        ("a/b", 1, 12),
        ("other", 2, 12),
        ("other", 2, 3),
    ]


def test_a_sample():
    trace = sample_trace("transformer")
    model = Model(trace)
    model.seek(bfcviz.peak(trace))
    parts = summary(holders(model), 150, 0.001)
    assert 20 < len(parts) <= 300
    assert sum(part.bytes for part in parts if part.depth == 1) == parts[0].bytes


# ------------------------------------------------------------------------------
# The tree of holders that grows from step to step: the same bytes as a tree of each step alone.


def held(index, amounts):
    """Path as text -> bytes, requested and chunks, of those that hold something."""
    rows = zip(amounts.bytes.tolist(), amounts.requested.tolist(), amounts.chunks.tolist(), strict=True)
    return {index.how.text(index.path(node)): row for node, row in enumerate(rows) if row[2]}


@given(
    seeded_operations(),
    st.lists(st.integers(0, 10_000), min_size=1, max_size=4),
    st.sampled_from(list(UNNAMED)),
)
def test_it_counts_as_a_tree_of_the_step_alone_does(steps, places, by):
    trace = trace_of_heap(steps)
    model = Model(trace)
    index = HolderIndex(grouping(trace, 0, by))
    for place in places:
        model.seek(place % (len(trace) + 1))
        found = holders(model, by)
        rows = zip(*(found.rows[name].tolist() for name in ("bytes", "requested", "chunks")), strict=True)
        plain = {path: row for path, row in zip(found.paths(), rows, strict=True) if row[2]}
        assert held(index, index.amounts(index.count(model.in_use()))) == plain


def heap_with_paths():
    heap = PlainHeap(4 * MiB)
    for name in ("a/b", "a/b", "a/c", "", "d"):
        heap.allocate(MiB // 4, name)
    heap.allocate(MiB // 4, "a/b", shape="[2]")  # another label of the same path
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    return trace, model


def test_holders_are_different_paths():
    trace, model = heap_with_paths()
    index = HolderIndex(grouping(trace, 0, "op"))
    amounts = index.amounts(index.count(model.in_use()))
    assert amounts.holders[ROOT] == 4
    counts = {index.how.text(index.path(node)): int(amounts.holders[node]) for node in range(len(index))}
    assert counts == {"": 4, "a": 2, "a/b": 1, "a/c": 1, "no label": 1, "d": 1}


def test_a_node_has_the_class_of_most_of_its_bytes():
    trace, model = heap_with_paths()
    index, records = HolderIndex(grouping(trace, 0, "op")), model.in_use()
    classes = np.where([trace.labels.name(label) == "a/b" for label in records["label"].tolist()], 2, 1)
    index.count(records)
    found = index.main_class(index.codes(records), classes, records["size"])
    named = {index.how.text(index.path(node)): int(found[node]) for node in range(len(index))}
    assert named == {"": 1, "a": 2, "a/b": 2, "a/c": 1, "no label": 1, "d": 1}  # of equal ones the first
    none = index.main_class(index.codes(records[:0]), classes[:0], records["size"][:0])
    assert none.tolist() == [-1] * len(index)


@given(
    seeded_operations(),
    st.lists(st.integers(0, 10_000), min_size=2, max_size=8),
    st.sampled_from(list(UNNAMED)),
)
def test_sums_that_follow_the_steps_are_those_of_each_step(steps, places, by):
    trace = trace_of_heap(steps)
    model = Model(trace)
    index = HolderIndex(grouping(trace, 0, by))
    running = RunningCount(index)
    for place in places:
        model.seek(place % (len(trace) + 1))
        sums = running.at(model)
        assert sums.tolist() == index.count(model.in_use()).tolist()


def test_nothing_in_use_counts_nothing():
    trace, model = heap_with_paths()
    index = HolderIndex(grouping(trace, 0, "op"))
    model.seek(0)
    assert index.amounts(index.count(model.in_use())).bytes.tolist() == [0]


# ------------------------------------------------------------------------------
# Growth of holders from mark to mark of one name.


def training(steps=4):
    """Steps that keep 1 MiB each, and use 8 MiB meanwhile; each ends with a mark; stops in the middle of one."""
    heap = PlainHeap(64 * MiB)
    heap.allocate(2 * MiB, "weights")
    for step in range(steps):
        held = heap.allocate(8 * MiB, "activations")
        heap.allocate(MiB, "kept")
        heap.free(held)
        heap.mark("step", step)
    heap.allocate(8 * MiB, "activations")
    return heap.trace()


def phased():
    heap = PlainHeap(8 * MiB)
    for _ in range(2):
        heap.mark("forward", **{BEGINS: "forward"})
        held = heap.allocate(MiB, "values")
        heap.mark("forward", **{ENDS: "forward"})
        heap.free(held)
    return heap.trace()


def steps_after_marks(trace):
    return (np.flatnonzero(trace.read(0, len(trace))["kind"] == Kind.MARK) + 1).tolist()


def growth_of(trace, marks, index):
    """Path -> its growth at the last step."""
    grown = marks.growth(marks.pair(len(trace)), index)
    return {"/".join(map(str, index.path(node))): int(size) for node, size in enumerate(grown)}


def test_what_is_kept_grows_and_what_comes_and_goes_does_not():
    trace = training()
    marks, index = HolderMarkGrowth(trace, 0), HolderIndex(grouping(trace, 0, "op"))
    model = Model(trace)
    model.seek(len(trace))
    assert "activations" in {trace.labels.name(int(each)) for each in model.in_use()["label"]}
    assert growth_of(trace, marks, index) == {"": 2 * MiB, "weights": 0, "kept": 2 * MiB}
    model.seek(len(trace))
    index.count(model.in_use())  # the holder of the activations is known from here on
    grown = growth_of(trace, marks, index)
    assert (grown["activations"], grown["kept"], grown[""]) == (0, 2 * MiB, 2 * MiB)


def test_an_array_that_was_kept_once_stays_growth():
    heap = PlainHeap(64 * MiB)
    for step in range(9):
        if step == 3:
            heap.allocate(4 * MiB, "cache")
        heap.free(heap.allocate(MiB, "work"))
        heap.mark("epoch", step)
    trace = heap.trace()
    marks, index = HolderMarkGrowth(trace, 0), HolderIndex(grouping(trace, 0, "op"))
    assert growth_of(trace, marks, index)["cache"] == 4 * MiB


def test_the_first_step_is_a_warm_up_once_there_are_three_marks():
    trace = training()
    marks, ends = HolderMarkGrowth(trace, 0), steps_after_marks(trace)
    named = [HolderMark(end, "step") for end in ends]
    assert marks.pair(ends[1] - 1) is None
    assert marks.pair(ends[1]) == HolderMarkPair(named[0], named[1], 1)
    assert marks.pair(ends[2]) == HolderMarkPair(named[1], named[2], 1)
    assert marks.pair(len(trace)) == HolderMarkPair(named[1], named[3], 2)


def test_marks_of_one_name_are_compared_and_numbers_do_not_matter():
    heap = PlainHeap(8 * MiB)
    for number in range(3):
        heap.mark("loaded")
        heap.mark("loaded")
        heap.mark(f"epoch {number}")
        heap.mark("alert: growth of bytes in use per step above 1 MiB")
    heap.mark("once")
    trace = heap.trace()
    pair = HolderMarkGrowth(trace, 0).pair(len(trace))
    assert (pair.first.name, pair.last.name, pair.apart) == ("epoch 1", "epoch 2", 1)


def test_a_phase_is_compared_at_its_begins_or_at_its_ends():
    trace = phased()
    marks = HolderMarkGrowth(trace, 0)
    pair = marks.pair(len(trace))
    assert {pair.first.name, pair.last.name} == {"forward begins"}
    assert marks.phases == 4
    assert marks.growth(pair, HolderIndex(grouping(trace, 0, "op")))[ROOT] == 0


def test_marks_that_name_nothing_twice_are_not_compared():
    heap = PlainHeap(8 * MiB)
    heap.mark("begin")
    heap.allocate(MiB, "a")
    heap.mark("end")
    trace = heap.trace()
    assert HolderMarkGrowth(trace, 0).pair(len(trace)) is None


def test_a_mark_is_visited_once_and_events_are_searched_once(monkeypatch):
    trace = training()
    marks, index = HolderMarkGrowth(trace, 0), HolderIndex(grouping(trace, 0, "op"))
    first = growth_of(trace, marks, index)
    sought, read = [], []
    seek, blocks = Model.seek, type(trace).blocks
    monkeypatch.setattr(Model, "seek", lambda self, step: sought.append(step) or seek(self, step))
    monkeypatch.setattr(
        type(trace), "blocks", lambda self, *at: read.append(at[0] < len(trace)) or blocks(self, *at)
    )
    assert growth_of(trace, marks, index) == first
    assert (sought, any(read)) == ([], False)


@pytest.mark.parametrize(("requested", "is_said"), [(300, True), (512, False)])
def test_the_text_says_where_chunks_are_larger_than_what_was_requested(requested, is_said):
    heap = bfcviz.BFCAllocator(SimulatedSubAllocator(), "1MiB")
    address = heap.allocate(requested)
    text = str(bfcviz.holders(heap))
    heap.free(address)
    assert (f"{requested} B of 512 B" in text) is is_said
