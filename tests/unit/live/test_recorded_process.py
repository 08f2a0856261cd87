"""Where each process of a program records."""

import json
import sys
import time
from types import SimpleNamespace

from unit.live.record_orders import order

from bfcviz.events.memory_samples import DEVICE_FILE, read_samples
from bfcviz.events.storage.recording import Recording
from bfcviz.live import recorded_process as record
from bfcviz.live.recorded_process import begin_recording, device_sampler
from bfcviz.live.startup import sitecustomize


def test_there_is_a_most(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "MOST_PROCESSES", 3)
    monkeypatch.setenv("RANK", "0")
    found = [begin_recording(tmp_path, Recording) for _ in range(4)]
    assert [each and each.folder.name for each in found] == ["rank-0", "rank-0-2", "rank-0-3", None]
    for each in found[:3]:
        each.close()


def test_pytorch_tells_of_devices_on_another_driver_than_cudas(tmp_path, monkeypatch):
    monkeypatch.setattr(record.cuda_driver, "in_use", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # half imported
    sampler = device_sampler(tmp_path)
    monkeypatch.setattr(record, "SAMPLE_EVERY_S", 0.01)
    sampler.start()
    try:
        time.sleep(0.05)
        cuda = SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 2,
            memory_reserved=[0, 4096].__getitem__,
            mem_get_info={1: (5 << 20, 12 << 20)}.__getitem__,  # it would create a context on the other
        )
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        until = time.monotonic() + 10
        while not (tmp_path / DEVICE_FILE).exists() and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        sampler.stop()
    (device, found), *more = read_samples(tmp_path, 0)["device_memory"].items()
    assert (device, {*found["used_bytes"]}, more) == ("1", {7 << 20}, [])


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
