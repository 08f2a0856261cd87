"""RollingTimeline against `timeline`, however the trace came in."""

import numpy as np
from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st
from properties.growing_trace import cuts, grown, wanted_sizes

from bfcviz.events.schema import Kind
from bfcviz.model import timeline
from bfcviz.model.timelines import RollingTimeline


@given(operations(), cuts, wanted_sizes)
def test_it_is_the_timeline_while_nothing_was_merged(steps, cuts, wanted):
    heap = run(steps)
    running = RollingTimeline(1, points=len(heap.records), wanted=wanted)
    trace = grown(heap, cuts, running)
    assert running.length == 1
    exact = timeline(trace, 1, points=2 * len(trace), wanted=wanted)
    assert np.array_equal(running.series, exact)


@given(operations(), st.integers(1, 9), st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)))
def test_a_part_is_as_if_measured_alone(steps, points, places):
    heap = run(steps)
    trace = heap.trace()
    running = RollingTimeline(1, points)
    running.extend(trace)
    start, stop = sorted(place % (len(trace) + 1) for place in places)
    peaks = [state[1]["peak_bytes_in_use"] for state in heap.states]
    part = running.measure(trace, start, stop, 5, wanted=700)
    assert np.array_equal(part.series, timeline(trace, 1, start, stop, 5, wanted=700))
    assert part.peak_before == peaks[start]
    if running.holds(start, stop, 3) and start < stop:
        part = running.part(start, stop, 3)
        first = int(part.series["step"][0] - part.series["events"][0])
        assert len(part.series) <= 3
        assert first <= start < first + part.series["events"][0]
        assert stop <= part.series["step"][-1] < stop + running.length
        assert part.peak_before == peaks[first]
    # And what came before is not disturbed.
    running.extend(trace)
    assert np.array_equal(running.series, grown_anew(trace, points))


def grown_anew(trace, points):
    running = RollingTimeline(1, points)
    running.extend(trace)
    return running.series


@given(operations(), cuts)
def test_failures_and_marks_are_gathered(steps, cuts):
    heap = run(steps)
    running = RollingTimeline(1)
    grown(heap, cuts, running)
    for notes, kind in ((running.failed, Kind.OOM), (running.marks, Kind.MARK)):
        expected = [r["seq"] for r in heap.records if r["kind"] == kind and r["pool"] == 1]
        assert notes.events["seq"].tolist() == expected
        assert notes.total == len(expected)
