"""Peaks and finders against the states that a plain heap knows."""

from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st
from properties.plain_series import values_of

from bfcviz.events.schema import Kind
from bfcviz.model.find_steps import events_of, next_step, peak, previous_step, worst_fragmentation
from bfcviz.model.timelines import RATIOS


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
