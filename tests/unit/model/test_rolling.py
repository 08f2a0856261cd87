"""RollingTimeline of a trace that is long, damaged or a window."""

import numpy as np
import pytest
from heaps import MIB, new_heap
from processes import sized
from unit.figures.synthetic import busy_trace, trace_of
from unit.model.test_notable_events import marks

from bfcviz.errors import TraceError
from bfcviz.events.sliding_window import WindowSource
from bfcviz.events.trace import Origin, Pool, Trace
from bfcviz.model import keyframes, timeline
from bfcviz.model.timelines import RollingTimeline


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
