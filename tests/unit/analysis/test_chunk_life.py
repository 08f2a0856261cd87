"""The life of a chunk, found from events."""

import pytest
from unit.figures.synthetic import BASE, KiB, MiB, PlainHeap, busy_trace

from bfcviz.analysis.chunk_life import end_words, life_of
from bfcviz.events.schema import Kind
from bfcviz.model import Model


def at(trace, step):
    model = Model(trace)
    model.seek(step)
    return model


@pytest.fixture
def heap():
    """Three chunks of 1 KiB, the middle one freed, then the first, then the last."""
    heap = PlainHeap(MiB)
    first, second, third = (heap.allocate(1000, f"op{number}") for number in range(3))
    for address in (second, first, third):
        heap.free(address)
    return heap


def test_an_allocation_is_known_before_and_after_it_is_in_use(heap):
    trace = heap.trace()
    before, during, after = (life_of(at(trace, step), BASE, 2) for step in (1, 5, len(trace)))
    assert [life.in_use for life in (before, during, after)] == [False, True, False]
    assert [int(life.began["seq"]) for life in (before, during, after)] == [2, 2, 2]
    assert [int(life.ended["seq"]) for life in (before, during, after)] == [8, 8, 8]
    assert len(after.splits) == len(after.extends) == len(after.merges) == 1


def test_a_chunk_that_does_not_exist_has_no_life(heap):
    model = at(heap.trace(), 5)
    for address, born in (
        (BASE, None),  # in use, not free
        (BASE + 256, None),  # inside a chunk
        (BASE + 100 * MiB, None),
        (BASE, 1),  # no ALLOCATE
        (BASE + 1, 2),  # of another chunk
        (BASE, 1 << 60),
    ):
        assert life_of(model, address, born) is None
    assert model.step == 5


def test_the_search_forward_and_back_is_bounded(monkeypatch, heap):
    monkeypatch.setattr("bfcviz.analysis.chunk_life._LOOK", 2)
    trace = heap.trace()
    used = life_of(at(trace, 4), BASE, 2)
    assert (used.ended, used.looked_to) == (None, 6)
    assert "6" in end_words(used, "freed")
    free = life_of(at(trace, 11), BASE, None)
    assert (int(free.began["seq"]), int(free.began["size"])) == (9, KiB)
    monkeypatch.setattr("bfcviz.analysis.chunk_life._LOOK", 1)
    free = life_of(at(trace, 11), BASE, None)
    assert free.began is None


def test_every_chunk_of_a_busy_heap_has_a_life_that_agrees_with_the_events():
    trace = busy_trace()
    events = trace.read(0, len(trace))
    for step in range(1, len(trace), 37):
        model = at(trace, step)
        for chunk in model.chunks():
            born = int(chunk["born"]) if chunk["in_use"] else None
            life = life_of(model, int(chunk["address"]), born)
            assert (life.size, life.handle, life.in_use) == (chunk["size"], chunk["handle"], chunk["in_use"])
            if born is not None:
                frees = events[(events["kind"] == Kind.FREE) & (events["other"] == born)]
                assert [life.ended["seq"]] == frees["seq"].tolist() if len(frees) else life.ended is None
