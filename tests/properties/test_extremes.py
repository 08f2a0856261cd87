"""Extremes: each row of a timeline against the states that a plain heap knows."""

import numpy as np
from both_ways import both_ways, small_steps
from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st
from properties.plain_series import values_of

from bfcviz.model import timeline
from bfcviz.model.timelines import SERIES


@both_ways
@given(
    operations(),
    st.integers(1, 30),
    st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
    st.sampled_from([0, 1, 512, 2000, 1 << 40]),
)
def test_every_bucket_has_the_extremes_of_its_events(table_class, steps, points, places, wanted):
    heap = run(steps)
    start, stop = sorted(place % (len(heap.records) + 1) for place in places)
    with small_steps(table_class):
        rows = timeline(heap.trace(), 1, start, stop, points, wanted=wanted)
    assert len(rows) == min(points, stop - start)
    assert rows["events"].sum() == stop - start
    expected = values_of(heap, 1, wanted)
    first = start
    for row in rows:
        last = int(row["step"])
        assert last - first == row["events"] > 0
        assert row["time"] == heap.records[last - 1]["time"]
        for name in SERIES:
            values = expected[name][first:last]
            low, high = min(values), max(values)
            assert (row[f"{name}_min"], row[f"{name}_max"]) == (low, high)
            assert row[f"{name}_last"] == values[-1]
            for end, value in (("min", low), ("max", high)):
                at = first + values.index(value)
                assert row[f"{name}_{end}_step"] == at + 1
                assert row[f"{name}_{end}_time"] == heap.records[at]["time"]
        first = last
    if len(rows):
        assert first == stop
        lengths = rows["events"].astype(int)
        assert lengths.max() - lengths.min() <= 1


def test_a_range_that_is_empty_has_an_empty_timeline():
    heap = run([])
    assert len(timeline(heap.trace(), start=1, stop=1)) == 0
    assert np.array_equal(timeline(heap.trace())["step"], [1, 2])
