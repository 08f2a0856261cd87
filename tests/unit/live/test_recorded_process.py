"""Where each process of a program records."""

import json

from unit.live.record_orders import order

from bfcviz.events.storage.recording import Recording
from bfcviz.live import recorded_process as record
from bfcviz.live.recorded_process import begin_recording
from bfcviz.live.startup import sitecustomize


def test_there_is_a_most(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "MOST_PROCESSES", 3)
    monkeypatch.setenv("RANK", "0")
    found = [begin_recording(tmp_path, Recording) for _ in range(4)]
    assert [each and each.folder.name for each in found] == ["rank-0", "rank-0-2", "rank-0-3", None]
    for each in found[:3]:
        each.close()


# ------------------------------------------------------------------------------
# What every Python that `bfcviz record` starts runs first.


def test_a_python_that_is_too_old_is_said(monkeypatch, tmp_path):
    asked = order(tmp_path, framework=None, home="")
    with monkeypatch.context() as patched:
        patched.setattr("sys.version_info", (3, 10, 2, "final", 0))
        sitecustomize.begin(asked, "numpy")
    (file,) = (tmp_path / "told").iterdir()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [word["fact"] for word in told] == ["imported", "unable"]
    assert told[1]["why"] == "ImportError: bfcviz needs Python 3.11 or later, this is 3.10"
