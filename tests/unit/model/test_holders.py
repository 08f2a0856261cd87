"""Holders at a step: sums, trees, names."""

import numpy as np
import pytest
from heap_strategies import seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap, trace_of
from unit.model.plain_holders import plain_sums, trace_of_heap

import bfcviz
from bfcviz.errors import TraceError
from bfcviz.events.labels import Labels
from bfcviz.events.schema import EVENT, Kind
from bfcviz.model import Model
from bfcviz.model.grouping import DEEPEST, UNNAMED, grouping
from bfcviz.model.holders import holders


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
