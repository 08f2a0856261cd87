"""Merged rows keep every extreme, however the trace came in."""

import numpy as np
from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st
from properties.growing_trace import cuts, grown, wanted_sizes

from bfcviz.model import TIMELINE, timeline
from bfcviz.model.extremes import downsample, merge_rows
from bfcviz.model.timelines import SERIES, RollingTimeline


@given(operations(), cuts, st.integers(1, 9), wanted_sizes)
def test_merged_rows_keep_every_extreme_however_it_came_in(steps, cuts, points, wanted):
    heap = run(steps)
    running = RollingTimeline(1, points, wanted)
    trace = grown(heap, cuts, running)
    rows = running.series
    assert len(rows) <= 2 * points
    assert rows["events"].sum() == rows["step"][-1] == len(trace)
    exact = timeline(trace, 1, points=len(trace), wanted=wanted)
    for row in rows:
        last = int(row["step"])
        inside = exact[last - int(row["events"]) : last]
        assert last == len(trace) or row["events"] == running.length
        assert row["time"] == inside["time"][-1]
        for name in SERIES:
            values = inside[f"{name}_last"]
            assert row[f"{name}_last"] == values[-1]
            for end, at in (("min", np.argmin(values)), ("max", np.argmax(values))):
                assert row[f"{name}_{end}"] == values[at]
                assert row[f"{name}_{end}_step"] == inside["step"][at]
                assert row[f"{name}_{end}_time"] == inside["time"][at]


def test_nothing_merges_to_nothing():
    none = np.zeros(0, TIMELINE)
    assert len(merge_rows(none, np.zeros(0))) == len(downsample(none, 5)) == 0
