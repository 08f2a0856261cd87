import numpy as np
from heap_strategies import run, seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace
from unit.model.one_pass import find

from bfcviz.events.schema import Kind
from bfcviz.events.trace import event_times
from bfcviz.model import Model
from bfcviz.model.address_layout import NEVER
from bfcviz.model.lifetimes import Ends

FIELDS = ("address", "size", "requested", "label", "thread", "stream", "region")


def expected(heap, pool, start, stop):
    """(born, died, fields) of every allocation alive at one of the steps, event by event."""
    living, found = {}, []
    for seq, record in enumerate(heap.records[:stop]):
        if record["pool"] != pool:
            continue
        if record["kind"] == Kind.ALLOCATE:
            living[record["chunk"]] = seq, record
        elif record["kind"] == Kind.FREE:
            born, allocated = living.pop(record["chunk"])
            if seq >= start:
                found.append((born, seq, allocated))
    found += [(born, int(NEVER), record) for born, record in living.values()]
    return sorted(found, key=lambda life: life[0])


@given(seeded_operations(), st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 1))
def test_lifetimes_are_those_of_every_single_event(steps, one, other, pool):
    heap = run(steps)
    start, stop = sorted((one % (len(heap.records) + 1), other % (len(heap.records) + 1)))
    found = find(heap.trace(), pool, start, stop).lifetimes
    lives = expected(heap, pool, start, stop)
    assert [(int(life["born"]), int(life["died"])) for life in found] == [life[:2] for life in lives]
    assert found["chunk"].tolist() == [record["chunk"] for _, _, record in lives]
    for name in FIELDS:
        assert found[name].tolist() == [record.get(name, 0) for _, _, record in lives]


@given(seeded_operations(), st.integers(0, 12), st.integers(0, 10_000))
def test_the_largest_are_the_first_of_the_largest_sizes(steps, largest, place):
    heap = run(steps)
    start = place % (len(heap.records) + 1)
    every = find(heap.trace(), 0, start).lifetimes
    order = np.lexsort([every["born"], ~every["size"]])[:largest]
    found = find(heap.trace(), 0, start, largest=largest).lifetimes
    assert np.array_equal(found, every[np.sort(order)])


def test_what_is_alive_at_a_step_is_what_the_model_has_there():
    trace = busy_trace()
    model = Model(trace)
    every = find(trace).lifetimes
    for step in (0, 1, 2, 77, 300, len(trace)):
        model.seek(step)
        chunks = model.chunks()
        alive = every[(every["born"] < step) & (step <= every["died"])]
        assert sorted(alive["address"].tolist()) == chunks["address"][chunks["in_use"]].tolist()


def test_a_search_gives_up_when_there_are_more_and_says_how_many_it_saw():
    trace = busy_trace()
    every = find(trace).lifetimes
    assert find(trace, most=len(every)).seen == len(every)
    gave_up = find(trace, most=len(every) - 1)
    assert gave_up.seen > len(every) - 1
    assert len(gave_up.lifetimes) == 0


def test_only_what_is_wanted_is_found_and_counted():
    trace = busy_trace()
    every = find(trace).lifetimes
    found = find(trace, start=200, stop=400, wanted=lambda _, size: size > 100 * KiB)
    within = find(trace, start=200, stop=400).lifetimes
    assert np.array_equal(found.lifetimes, within[within["size"] > 100 * KiB])
    assert found.seen == len(found.lifetimes) < len(every)


def test_a_model_that_is_lent_comes_back_where_it_was():
    trace = busy_trace()
    model = Model(trace)
    model.seek(33)
    find(trace, start=200, model=model)
    assert model.step == 33


def test_the_end_of_one_lifetime_is_found_by_itself():
    heap = PlainHeap(MiB)
    first, second = heap.allocate(1000), heap.allocate(1000)
    heap.free(first)
    trace = heap.trace()
    born = find(trace).lifetimes["born"].tolist()
    freed = next(seq for seq, event in enumerate(heap.events) if event["kind"] == Kind.FREE)
    assert second is not None
    ends = Ends(trace, 0)
    assert ends.end_of(born[0], freed) == int(NEVER)
    assert [ends.end_of(seq, len(trace)) for seq in born] == [freed, int(NEVER)]
    assert ends.end_of(born[0], freed) == int(NEVER)


def test_times_are_those_of_the_events():
    trace = busy_trace()
    assert event_times(trace, np.array([5, 3, 600], np.uint64)).tolist() == [5000, 3000, 600_000]
    assert len(event_times(trace, np.zeros(0, np.uint64))) == 0
