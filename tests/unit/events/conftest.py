import numpy as np
import pytest
from unit.events.fabricate import fabricate, fabricate_labels

from bfcviz.events.schema import EVENT
from bfcviz.events.storage.recording import Recording

COUNT = 1000


@pytest.fixture
def folder(tmp_path):
    """A recording that ended normally: COUNT events, labels, and the file truncated after the last event."""
    with Recording(tmp_path / "run", labels=fabricate_labels()) as recording:
        fabricate(COUNT).tofile(recording.events_path)
    return recording.folder


@pytest.fixture
def broken_off(tmp_path):
    """A recording of a killed process: zeros after the events, no number of events in the origin, no lock."""
    with Recording(tmp_path / "cut", labels=fabricate_labels()) as recording:
        np.concatenate([fabricate(COUNT), np.zeros(500, EVENT)]).tofile(recording.events_path)
        begun = (recording.folder / "origin.json").read_bytes()
    (recording.folder / "origin.json").write_bytes(begun)
    return recording.folder
