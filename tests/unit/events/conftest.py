import shutil

import numpy as np
import pytest
from unit.events.fabricate import fabricate, fabricate_labels

from bfcviz.events.schema import EVENT
from bfcviz.events.storage.recording import Recording

COUNT = 1000


@pytest.fixture(scope="module")
def whole_recording(tmp_path_factory):
    with Recording(tmp_path_factory.mktemp("whole") / "run", labels=fabricate_labels()) as recording:
        fabricate(COUNT).tofile(recording.events_path)
    return recording.folder


@pytest.fixture(scope="module")
def cut_recording(tmp_path_factory):
    with Recording(tmp_path_factory.mktemp("cut") / "run", labels=fabricate_labels()) as recording:
        np.concatenate([fabricate(COUNT), np.zeros(500, EVENT)]).tofile(recording.events_path)
        begun = (recording.folder / "origin.json").read_bytes()
    (recording.folder / "origin.json").write_bytes(begun)
    return recording.folder


@pytest.fixture
def folder(whole_recording, tmp_path):
    """A recording that ended normally: COUNT events, labels, and the file truncated after the last event."""
    return shutil.copytree(whole_recording, tmp_path / "run")


@pytest.fixture
def broken_off(cut_recording, tmp_path):
    """A recording of a killed process: zeros after the events, no number of events in the origin, no lock."""
    return shutil.copytree(cut_recording, tmp_path / "cut")
