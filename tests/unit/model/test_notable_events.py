"""NotableEvents keeps a bounded number of events of one kind and pool."""

import numpy as np
import pytest

from bfcviz.events.schema import EVENT, Kind
from bfcviz.model.timelines import NotableTimelineEvents


def marks(count, start=0):
    events = np.zeros(count, EVENT)
    events["seq"] = np.arange(start, start + count)
    events["kind"], events["bin"] = Kind.MARK, -1
    return events


@pytest.mark.parametrize("pieces", [[5000], [1] * 300, [999, 1, 1, 1500, 3], [0, 2500, 0, 1]])
def test_events_are_thinned_evenly_in_any_division_into_blocks(pieces):
    notable, at = NotableTimelineEvents(Kind.MARK, 0, most=100), 0
    for count in pieces:
        notable.take(marks(count, at))
        at += count
    assert notable.total == at
    assert len(notable.events) <= 100
    assert notable.events["seq"].tolist() == list(range(0, at, notable.every))


def test_events_are_of_one_kind_and_pool():
    events = marks(9)
    events["pool"][::2] = 1
    events["kind"][1] = Kind.OOM
    notable = NotableTimelineEvents(Kind.MARK, 0)
    notable.take(events)
    assert notable.events["seq"].tolist() == [3, 5, 7]
