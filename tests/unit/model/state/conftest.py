"""A busy heap and its trace."""

import pytest
from unit.model.state.busy_heap import busy_heap

from bfcviz.events.labels import Labels
from bfcviz.events.trace import Origin, Pool, Trace


@pytest.fixture(scope="module")
def heap():
    return busy_heap()


@pytest.fixture
def labels():
    labels = Labels()
    for number in range(1, 5):
        labels.intern(f"op{number}")
    return labels


@pytest.fixture
def trace(heap, labels):
    return Trace.from_events(heap.events(), labels, Origin(pools=(Pool("gpu", 1 << 22),)))
