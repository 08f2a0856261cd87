"""Lifetimes by holder."""

from collections import defaultdict

import pytest
from heap_strategies import seeded_operations
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap
from unit.model.plain_holders import trace_of_heap

import bfcviz
from bfcviz.errors import TraceError
from bfcviz.events.origin import STATE_ONLY
from bfcviz.events.trace import Origin, Trace
from bfcviz.model.address_layout import NEVER
from bfcviz.model.grouping import UNNAMED, grouping
from bfcviz.model.holders import holder_lifetimes
from bfcviz.model.lifetimes import find


@settings(max_examples=50)
@given(
    seeded_operations(),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 1),
    st.sampled_from(list(UNNAMED)),
)
def test_rows_are_the_plain_numbers_of_each_holder(steps, one, other, pool, by):
    trace = trace_of_heap(steps)
    start, stop = sorted((one % (len(trace) + 1), other % (len(trace) + 1)))
    how, lives = grouping(trace, pool, by), find(trace, pool, start, stop).lifetimes
    times = [int(time) for block in trace.blocks() for time in block["time"]]
    by_holder = defaultdict(list)
    for code, life in zip(how.codes(lives).tolist(), lives, strict=True):
        alive = life["died"] == NEVER
        died = stop if alive else int(life["died"])
        ends = max(stop - 1, 0) if alive else died
        span = max(times[ends] - times[int(life["born"])], 0)
        name = how.text(how.path(code))
        by_holder[name].append((died - int(life["born"]), span, int(life["size"]), bool(alive)))
    found = holder_lifetimes(trace, pool, by, start, stop)
    assert sorted(found.names) == sorted(by_holder)
    assert found.rows["bytes"].tolist() == sorted(found.rows["bytes"].tolist(), reverse=True)
    for name, row in zip(found.names, found.rows, strict=True):
        mine = by_holder[name]
        events, spans = sorted(each[0] for each in mine), sorted(each[1] for each in mine)
        alive = [each[2] for each in mine if each[3]]
        middle = (len(mine) - 1) // 2
        assert row.item() == (
            len(mine), sum(each[2] for each in mine), len(alive), sum(alive),
            events[middle], events[-1], spans[middle], spans[-1],
        )  # fmt: skip


def test_a_sample_and_its_table():
    trace = sample_trace("lstm")
    found = holder_lifetimes(trace)
    table = found.to_arrow()
    assert table.num_rows == len(found.names) > 100
    model = bfcviz.Model(trace)
    model.seek(len(trace))
    stats = model.stats()
    assert sum(table["count"].to_pylist()) == stats.num_allocs
    assert sum(table["alive_bytes"].to_pylist()) == stats.bytes_in_use


def test_a_state_has_no_lifetimes():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB)
    trace = heap.trace()
    origin = Origin(source="oom.log", pools=trace.origin.pools, details={"history": STATE_ONLY})
    trace = Trace.from_events(trace.read(0, len(trace)), trace.labels, origin)
    with pytest.raises(TraceError, match=r"oom\.log holds the state of one moment and no history"):
        holder_lifetimes(trace)
