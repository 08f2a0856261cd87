"""Phases: pairs of marks of a heap."""

from unit.figures.synthetic import KiB, MiB, PlainHeap

from bfcviz.events.labels import BEGINS, ENDS, PhaseEnd, phase_ends
from bfcviz.model.navigation import Phase, phases


def test_pairs_are_found_by_name_and_value_and_ends_may_be_missing():
    heap = PlainHeap(MiB)
    heap.mark("early ends", 1, ends="early")
    heap.mark("epoch begins", 2, begins="epoch")
    heap.mark("forward begins", 3, begins="forward")
    heap.allocate(KiB)  # EXTEND, SPLIT, ALLOCATE
    heap.mark("forward begins", 4, begins="forward")
    heap.mark("forward ends", 3, ends="forward")
    heap.mark("forward ends", 4, ends="forward")
    assert phases(heap.trace()) == [
        Phase("early", None, 0, 0),
        Phase("forward", 2, 7, 0),
        Phase("forward", 6, 8, 0),
        Phase("epoch", 1, None, 0),
    ]
    assert phases(heap.trace(pools=2), pool=1) == []


def test_a_plain_mark_is_no_phase():
    heap = PlainHeap(MiB)
    heap.mark("step", 1)
    heap.mark("a begins", 2, begins="a")
    heap.mark("a ends", 2, ends="a")
    trace = heap.trace()
    assert phase_ends(trace.read(0, 3), trace.labels) == [None, PhaseEnd(BEGINS, "a"), PhaseEnd(ENDS, "a")]
