"""RollingTimeline where a trace is long, damaged or a window; NotableEvents where there are many."""

import numpy as np
import pytest
from figures.synthetic import busy_trace, trace_of
from heaps import MIB, new_heap

from bfcviz.errors import TraceError
from bfcviz.events.live_window import follow
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.trace import Origin, Pool, Trace
from bfcviz.model import keyframes, timeline
from bfcviz.model.timelines.notable_events import NotableEvents
from bfcviz.model.timelines.rolling import RollingTimeline


def marks(count, start=0):
    events = np.zeros(count, EVENT)
    events["seq"] = np.arange(start, start + count)
    events["kind"], events["bin"] = Kind.MARK, -1
    return events


def test_memory_stays_bounded_however_long_it_runs():
    running = RollingTimeline(points=8)
    events = marks(100_000)
    for stop in (1, 10, 17, 1000, 1001, 99_999, 100_000):
        running.extend(trace_of(events[:stop]))
        assert len(running.series) <= 16
        assert running.series["events"].sum() == running.step == stop
        assert len(running.marks.events) <= 1000
    assert running.length == 8192


def test_what_contradicts_itself_is_an_error_each_time_and_spoils_nothing():
    good = busy_trace(50)
    events = good.read(0, len(good)).copy()
    events["size"][60] += 1
    bad = Trace.from_events(events, good.labels, good.origin)
    running = RollingTimeline()
    running.extend(Trace.from_events(events[:50], good.labels, good.origin))
    before = running.series
    for _ in range(2):
        with pytest.raises(TraceError, match="event 60"):
            running.extend(bad)
        assert running.step == 50
        assert running.series is before
    running.extend(good)
    assert np.array_equal(running.series, timeline(good, points=len(good)))


@pytest.mark.parametrize("look_every", [1, 40])
def test_a_window_on_a_heap_is_followed_with_gaps_where_it_was_not_looked_at(look_every):
    heap = new_heap(MIB)
    origin = Origin(pools=(Pool("heap", MIB),))
    trace = follow(heap.log, heap.labels, origin, keyframes, keep=512)
    running = RollingTimeline(points=20_000)
    for i in range(1500):
        heap.free(heap.allocate(300 * (i % 5 + 1)))
        if i % (20 * look_every) == 0:
            trace.refresh()
            running.extend(trace)
    assert trace.first > 0
    rows = running.series
    assert running.step == rows["step"][-1] == len(trace)
    assert (np.diff(rows["step"].astype(int)) > 0).all()
    whole = rows["events"].sum() == len(trace)
    assert whole if look_every == 1 else not whole
    newest = timeline(trace, points=len(trace))
    kept = rows[rows["step"] > trace.first]
    assert np.array_equal(kept, newest[-len(kept) :])


@pytest.mark.parametrize("pieces", [[5000], [1] * 300, [999, 1, 1, 1500, 3], [0, 2500, 0, 1]])
def test_notes_are_thinned_evenly_however_they_come(pieces):
    notes, at = NotableEvents(Kind.MARK, 0, most=100), 0
    for count in pieces:
        notes.take(marks(count, at))
        at += count
    assert notes.total == at
    assert len(notes.events) <= 100
    assert notes.events["seq"].tolist() == list(range(0, at, notes.every))


def test_notes_are_of_one_kind_and_pool():
    events = marks(9)
    events["pool"][::2] = 1
    events["kind"][1] = Kind.OOM
    notes = NotableEvents(Kind.MARK, 0)
    notes.take(events)
    assert notes.events["seq"].tolist() == [3, 5, 7]
