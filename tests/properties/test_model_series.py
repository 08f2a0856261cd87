"""Timelines and finders against the states a plain heap knows."""

from types import SimpleNamespace

import numpy as np
from both_ways import both_ways, small_steps
from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.events.schema import Kind
from bfcviz.model import timeline
from bfcviz.model.browse.navigation import events_of, next_step, peak, previous_step, worst_fragmentation
from bfcviz.model.timelines import fragmentation
from bfcviz.model.timelines.timeline import RATIOS, SERIES


def values_of(heap, pool, wanted=0):
    """Each series after every event, from the heap's own states."""
    states = [dict(state[pool]) for state in heap.states[1:]]
    for state in states:
        free = [chunk[1] for chunk in state["chunks"] if not chunk[-1]]
        state["too_small_bytes"] = sum(size for size in free if size < wanted)
        stats = SimpleNamespace(**state)
        state["external_fragmentation"] = fragmentation.external(stats)
        state["internal_fragmentation"] = fragmentation.internal(stats)
        state["reserved_not_in_use"] = fragmentation.reserved_not_in_use(stats)
        state["too_small_share"] = stats.too_small_bytes / stats.free_bytes if stats.free_bytes else 0
    return {name: [state[name] for state in states] for name in SERIES}


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


@given(operations())
def test_peak_and_worst_fragmentation_are_the_first_highest(steps):
    heap = run(steps)
    values = values_of(heap, 0)
    trace = heap.trace()
    for found, name in ((peak(trace, 0), "bytes_in_use"), (worst_fragmentation(trace, 0), RATIOS[0])):
        with_start = [0, *values[name]]
        assert found == with_start.index(max(with_start))


@given(
    operations(),
    st.sets(st.sampled_from(Kind), min_size=1),
    st.integers(0, 10_000),
    st.sampled_from([None, 0, 1]),
)
def test_finders_find_the_nearest_event_of_a_kind(steps, kinds, place, pool):
    heap = run(steps)
    trace = heap.trace()
    step = place % (len(trace) + 1)
    hits = [
        record["seq"] + 1
        for record in heap.records
        if record["kind"] in kinds and pool in (None, record["pool"])
    ]
    assert next_step(trace, step, kinds, pool) == min((hit for hit in hits if hit > step), default=None)
    assert previous_step(trace, step, kinds, pool) == max((hit for hit in hits if hit < step), default=None)
    assert (events_of(trace, kinds, pool)["seq"] + 1).tolist() == hits


def test_a_range_that_is_empty_has_an_empty_timeline():
    heap = run([])
    assert len(timeline(heap.trace(), start=1, stop=1)) == 0
    assert np.array_equal(timeline(heap.trace())["step"], [1, 2])
