import numpy as np
import pytest
from heaps import MIB, new_heap
from processes import sized
from unit.figures.synthetic import busy_trace, trace_of

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import Reader
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.sliding_window import WindowSource
from bfcviz.events.trace import Origin, Pool, Trace
from bfcviz.model import keyframes, timeline
from bfcviz.model.timelines import SHORTEST_NS, NotableTimelineEvents, RollingTimeline, TimeTimeline

# ------------------------------------------------------------------------------
# Ranges that `timeline` refuses; tests/properties checks its values.


@pytest.mark.parametrize(
    ("start", "stop", "points"), [(-1, None, 5), (5, 4, 5), (0, 10_000, 5), (0, None, 0)]
)
def test_a_range_outside_the_trace_is_refused(start, stop, points):
    with pytest.raises(TraceError, match="timeline of steps"):
        timeline(busy_trace(20), 0, start, stop, points)


# ------------------------------------------------------------------------------
# NotableEvents keeps a bounded number of events of one kind and pool.


def marks(count, start=0):
    events = np.zeros(count, EVENT)
    events["seq"] = np.arange(start, start + count)
    events["kind"], events["bin"] = Kind.MARK, -1
    return events


@pytest.mark.parametrize("pieces", [[5000], [1] * 300, [999, 1, 1, 1500, 3], [0, 2500, 0, 1]])
def test_events_are_thinned_evenly_in_any_division_into_blocks(pieces):
    notable, at = NotableTimelineEvents(Kind.MARK, 0, most=100), 0
    for count in pieces:
        notable.take(marks(count, at))
        at += count
    assert notable.total == at
    assert len(notable.events) <= 100
    assert notable.events["seq"].tolist() == list(range(0, at, notable.every))


def test_events_are_of_one_kind_and_pool():
    events = marks(9)
    events["pool"][::2] = 1
    events["kind"][1] = Kind.OOM
    notable = NotableTimelineEvents(Kind.MARK, 0)
    notable.take(events)
    assert notable.events["seq"].tolist() == [3, 5, 7]


# ------------------------------------------------------------------------------
# RollingTimeline of a trace that is long, damaged or a window.


def test_memory_stays_bounded_however_long_it_runs():
    rolling = RollingTimeline(points=8)
    count = sized(100_000, 12_500)
    events = marks(count)
    for stop in (1, 10, 17, 1000, 1001, count - 1, count):
        rolling.extend(trace_of(events[:stop]))
        assert len(rolling.series) <= 16
        assert rolling.series["events"].sum() == rolling.step == stop
        assert len(rolling.marks.events) <= 1000
    assert rolling.length == sized(8192, 1024)


def test_a_contradiction_is_an_error_each_time_and_keeps_earlier_rows():
    good = busy_trace(50)
    events = good.read(0, len(good)).copy()
    events["size"][60] += 1
    bad = Trace.from_events(events, good.labels, good.origin)
    rolling = RollingTimeline()
    rolling.extend(Trace.from_events(events[:50], good.labels, good.origin))
    before = rolling.series
    for _ in range(2):
        with pytest.raises(TraceError, match="event 60"):
            rolling.extend(bad)
        assert rolling.step == 50
        assert rolling.series is before
    rolling.extend(good)
    assert np.array_equal(rolling.series, timeline(good, points=len(good)))


@pytest.mark.parametrize("look_every", [1, 40])
def test_a_window_on_a_heap_has_gaps_for_events_that_were_not_read(look_every):
    heap = new_heap(MIB)
    origin = Origin(pools=(Pool("heap", MIB),))
    trace = Trace(WindowSource(heap.log, heap.labels, origin, keyframes, keep=512))
    rolling = RollingTimeline(points=20_000)
    for i in range(1500):
        heap.free(heap.allocate(300 * (i % 5 + 1)))
        if i % (20 * look_every) == 0:
            trace.refresh()
            rolling.extend(trace)
    assert trace.first > 0
    rows = rolling.series
    assert rolling.step == rows["step"][-1] == len(trace)
    assert (np.diff(rows["step"].astype(int)) > 0).all()
    whole = rows["events"].sum() == len(trace)
    assert whole if look_every == 1 else not whole
    newest = timeline(trace, points=len(trace))
    kept = rows[rows["step"] > trace.first]
    assert np.array_equal(kept, newest[-len(kept) :])


# ------------------------------------------------------------------------------
# The timeline by time, compared with plain sums over the intervals.

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


def trace_of_events(events):
    return Trace.from_events(events, Labels(), Origin())


def in_use(events):
    sizes = events["size"].astype(np.int64)
    return np.cumsum(
        np.where(events["kind"] == Kind.ALLOCATE, sizes, 0) - np.where(events["kind"] == Kind.FREE, sizes, 0)
    )


def test_each_row_has_the_extremes_of_its_interval(events):
    found = TimeTimeline(points=50)
    assert not found.extend(trace_of_events(events))
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
    trace, whole, parts = trace_of_events(events), TimeTimeline(), TimeTimeline()
    whole.extend(trace)
    while parts.extend(trace, most):
        assert parts.step % most == 0
    assert (parts.width_ns, parts.step, parts.failed) == (whole.width_ns, whole.step, whole.failed)
    for name in ("time", "events", "bytes_in_use_max", "pool_bytes_max", "largest_free_chunk_min"):
        assert np.array_equal(parts.series[name], whole.series[name]), name


def test_an_hour_needs_no_more_rows_than_a_second(events):
    found = TimeTimeline(points=30)
    found.extend(trace_of_events(events))
    assert len(found.series) <= 60
    assert found.width_ns % SHORTEST_NS == 0


def test_events_a_little_out_of_order_are_in_one_row(events):
    few = events[:200].copy()
    few["time"] = np.arange(200) * SHORTEST_NS
    few["time"][100] -= 3 * SHORTEST_NS
    found = TimeTimeline()
    found.extend(trace_of_events(few))
    assert found.series["events"].sum() == 200
    assert len(found.series) <= 200


def test_without_events_there_are_no_rows():
    found = TimeTimeline()
    assert not found.extend(trace_of_events(np.zeros(0, EVENT)))
    assert (len(found.series), found.begin_ns) == (0, None)
