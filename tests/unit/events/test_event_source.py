"""Events of an array in memory, read as views."""

import numpy as np
import pytest
from unit.events.fabricate import fabricate, fabricate_labels, fabricate_trace

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin
from bfcviz.events.schema import EVENT
from bfcviz.events.trace import BLOCK, Trace

COUNT = 2 * BLOCK + 100


@pytest.fixture(scope="module")
def trace():
    return fabricate_trace(COUNT)


def test_reading_is_a_view_that_cannot_be_written(trace):
    events = trace.read(BLOCK - 5, BLOCK + 5)
    assert events.dtype == EVENT
    assert events["seq"].tolist() == list(range(BLOCK - 5, BLOCK + 5))
    assert np.shares_memory(events, trace.read(0, COUNT))
    with pytest.raises(ValueError, match="read-only"):
        events["size"] = 1


def test_events_are_an_array_of_events():
    for wrong in (np.zeros(3), np.zeros((2, 2), EVENT)):
        with pytest.raises(TraceError, match="dtype EVENT"):
            Trace.from_events(wrong, Labels(), Origin())


def test_a_mapped_array_will_do(tmp_path):
    fabricate(100).tofile(tmp_path / "events")
    mapped = np.memmap(tmp_path / "events", EVENT, "r")
    trace = Trace.from_events(mapped, fabricate_labels(), Origin())
    assert np.array_equal(trace.read(0, 100), fabricate(100))
    assert type(trace.read(0, 100)) is np.ndarray
