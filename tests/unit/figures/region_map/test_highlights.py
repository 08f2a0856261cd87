import numpy as np
import pytest
from unit.analysis.built import state
from unit.figures.synthetic import BASE, MiB, PlainHeap, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.region_map import touched
from bfcviz.model import Model
from bfcviz.model.navigation import last_event


@pytest.fixture
def small():
    """EXTEND, SPLIT, ALLOCATE a, SPLIT, ALLOCATE b, FREE a, FREE b, MERGE, MERGE, OOM."""
    heap = PlainHeap(64 * MiB)
    a, b = heap.allocate(MiB), heap.allocate(2 * MiB)
    heap.free(a)
    heap.free(b)
    heap.allocate(65 * MiB)
    return heap.trace()


@pytest.mark.parametrize(
    ("step", "kind", "spans"),
    [
        (1, Kind.EXTEND, [(0, 64)]),
        (2, Kind.SPLIT, [(0, 1), (1, 63)]),
        (3, Kind.ALLOCATE, [(0, 1)]),
        (6, Kind.FREE, [(0, 1)]),
        (8, Kind.MERGE, [(1, 63)]),
        (9, Kind.MERGE, [(0, 64)]),
        (10, Kind.OOM, [(0, 64)]),
    ],
)
def test_each_event_points_at_what_it_touched(small, step, kind, spans):
    model = Model(small)
    model.seek(step)
    event = last_event(model)
    assert event["kind"].tolist() == [kind]
    found = touched(event, model.chunks(), model.regions())
    assert found.tolist() == [(BASE + at * MiB, size * MiB) for at, size in spans]


def test_before_the_first_event_nothing_is_touched(small):
    model = Model(small)
    assert last_event(model) is None
    assert len(touched(None, model.chunks(), model.regions())) == 0


def test_marks_releases_and_other_heaps_touch_nothing():
    events = np.zeros(3, EVENT)
    events["seq"], events["kind"], events["bin"] = range(3), Kind.MARK, -1
    events["pool"] = [0, 0, 1]
    model = Model(trace_of(events, pools=2))
    model.seek(1)
    assert len(touched(last_event(model), model.chunks(), model.regions())) == 0
    model.seek(3)
    assert last_event(model) is None


def test_events_that_only_build_a_state_are_not_highlighted():
    trace = state([[2, -3, 1]], 4)
    model = Model(trace)
    model.seek(len(trace) - 1)
    assert last_event(model) is None
    model.seek(len(trace))
    assert [Kind(kind) for kind in last_event(model)["kind"]] == [Kind.OOM]
