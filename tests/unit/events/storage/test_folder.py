"""The files of a recording: what the origin says, and labels."""

import json
import os

import pytest

from bfcviz.errors import FileError
from bfcviz.events import label_table as labels_module
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(FileError, match=r"is not a recording: it has no origin\.json"):
        Trace.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[" * 9999, "nonsense", "\0" * 100, '{"bfcviz": 1}', "9" * 9999])
def test_an_origin_that_cannot_be_read(folder, text):
    (folder / "origin.json").write_text(text)
    with pytest.raises(FileError, match=r"origin\.json"):
        Trace.open(folder)


@pytest.mark.parametrize("events", ["7", 7.0, True, [], {}])
def test_an_impossible_number_of_events(folder, events):
    origin = json.loads((folder / "origin.json").read_text())
    (folder / "origin.json").write_text(json.dumps({**origin, "events": events}))
    with pytest.raises(FileError, match=r"origin\.json: events: is not a number"):
        Trace.open(folder)


def test_an_origin_of_absurd_size(folder):
    os.truncate(folder / "origin.json", 1 << 40)
    with pytest.raises(FileError, match="16777216"):
        Trace.open(folder)


def test_labels_are_parsed_many_at_once(tmp_path, monkeypatch):
    parsed, parse = [], labels_module.parse_file_json
    with Recording(tmp_path / "run") as recording:
        for number in range(5000):
            recording.labels.intern(f"name {number}", shape=f"[{number}]")
    monkeypatch.setattr(labels_module, "parse_file_json", lambda *text: parsed.append(1) or parse(*text))
    trace = Trace.open(recording.folder)
    assert trace.labels.to_json() == recording.labels.to_json()
    assert len(parsed) < 10
