"""The timeline by time, compared with plain sums over the intervals."""

import numpy as np
import pytest
from heaps import new_heap

from bfcviz.events.labels import Labels
from bfcviz.events.log import Reader
from bfcviz.events.origin import Origin
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.timelines import SHORTEST_NS, TimeTimeline

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def events():
    """Some 6,000 events: 5,000 in the first second, the others over an hour."""
    heap, held, random = new_heap(1 << 24), [], np.random.default_rng(1)
    for size in random.integers(1, 1 << 14, 2500):
        held.append(heap.allocate(int(size)))
        if len(held) > 100:
            heap.free(held.pop(int(random.integers(100))))
    heap.try_allocate(1 << 26)
    found = Reader(heap.log).read(1 << 20)
    busy = len(found) - 1000
    found["time"] = np.sort(
        np.concatenate([random.integers(0, SECOND, busy), random.integers(0, 3600 * SECOND, 1000)])
    )
    return found


def trace_of(events):
    return Trace.from_events(events, Labels(), Origin())


def in_use(events):
    sizes = events["size"].astype(np.int64)
    return np.cumsum(
        np.where(events["kind"] == Kind.ALLOCATE, sizes, 0) - np.where(events["kind"] == Kind.FREE, sizes, 0)
    )


def test_each_row_has_the_extremes_of_its_interval(events):
    found = TimeTimeline(points=50)
    assert not found.extend(trace_of(events))
    rows, plain = found.series, in_use(events)
    buckets = events["time"] // found.width_ns
    assert len(rows) == len(np.unique(buckets)) <= 100
    for row in rows:
        values = plain[buckets == row["time"] // found.width_ns]
        assert (row["bytes_in_use_max"], row["bytes_in_use_last"]) == (values.max(), values[-1])
    assert rows["events"].sum() == len(events)
    assert (found.step, found.failed) == (len(events), 1)


@pytest.mark.parametrize("most", [17, 1000])
def test_the_rows_do_not_depend_on_when_the_events_came(events, most):
    trace, whole, parts = trace_of(events), TimeTimeline(), TimeTimeline()
    whole.extend(trace)
    while parts.extend(trace, most):
        assert parts.step % most == 0
    assert (parts.width_ns, parts.step, parts.failed) == (whole.width_ns, whole.step, whole.failed)
    for name in ("time", "events", "bytes_in_use_max", "pool_bytes_max", "largest_free_chunk_min"):
        assert np.array_equal(parts.series[name], whole.series[name]), name


def test_an_hour_needs_no_more_rows_than_a_second(events):
    found = TimeTimeline(points=30)
    found.extend(trace_of(events))
    assert len(found.series) <= 60
    assert found.width_ns % SHORTEST_NS == 0


def test_events_a_little_out_of_order_are_in_one_row(events):
    few = events[:200].copy()
    few["time"] = np.arange(200) * SHORTEST_NS
    few["time"][100] -= 3 * SHORTEST_NS
    found = TimeTimeline()
    found.extend(trace_of(few))
    assert found.series["events"].sum() == 200
    assert len(found.series) <= 200


def test_without_events_there_are_no_rows():
    found = TimeTimeline()
    assert not found.extend(trace_of(np.zeros(0, EVENT)))
    assert (len(found.series), found.begin_ns) == (0, None)
