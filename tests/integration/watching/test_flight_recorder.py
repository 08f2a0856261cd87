"""The flight recorder: what it writes when a request fails, a threshold is passed or a signal asks; else nothing."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from processes import needs_compiled
from shared import ROOT

import bfcviz
from bfcviz.errors import LiveError

pytestmark = needs_compiled
MIB = 1 << 20


def files(folder):
    return sorted(folder.rglob("*.parquet"))


def test_nothing_is_written_while_all_goes_well(tmp_path):
    with bfcviz.flight_recorder("numpy", folder=tmp_path / "flight") as recorder:
        np.ones(1000)
    assert not (tmp_path / "flight").exists()
    assert recorder.written == []


def test_a_failed_request_is_written_and_the_error_names_the_file(tmp_path):
    with (
        pytest.raises(MemoryError) as caught,
        bfcviz.flight_recorder("numpy", limit="16MiB", folder=tmp_path) as recorder,
    ):
        kept = [np.ones(MIB >> 3) for _ in range(100)]
    (path,) = recorder.written
    assert path.name == "01-request-failed.parquet"
    assert any(str(path) in note and "bfcviz why" in note for note in caught.value.__notes__)
    found = bfcviz.why(path)
    assert found.event is not None
    assert found.requested >= MIB
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert "kept" not in locals() or len(kept) < 100


def test_any_other_error_writes_nothing(tmp_path):
    with pytest.raises(KeyError), bfcviz.flight_recorder("numpy", folder=tmp_path):
        raise KeyError("mine")
    assert files(tmp_path) == []


def test_only_the_newest_events_are_kept(tmp_path):
    with bfcviz.flight_recorder("numpy", keep=64 * 20_000, folder=tmp_path) as recorder:
        held = np.ones(MIB >> 3)
        for _ in range(60_000):
            np.ones(100)
        path = recorder.write("asked")
    trace = bfcviz.open(path)
    assert 10_000 < len(trace) < 60_000
    model = bfcviz.Model(trace)
    model.seek(len(trace))
    assert int(model.in_use()["size"].max()) >= MIB  # the state before the events that are kept is there
    assert held.sum() == MIB >> 3


def test_a_signal_asks(tmp_path):
    with bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder:
        held = np.ones(MIB >> 3)
        os.kill(os.getpid(), signal.SIGUSR2)
        recorder.settle()
        assert [path.name for path in recorder.written] == ["01-signal.parquet"]
        assert held.sum() == MIB >> 3
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_signal_that_the_program_handles_stays_its_own(tmp_path):
    got = []
    before = signal.signal(signal.SIGUSR2, lambda *_: got.append(1))
    try:
        with bfcviz.flight_recorder("numpy", folder=tmp_path) as recorder:
            os.kill(os.getpid(), signal.SIGUSR2)
        assert (got, recorder.written) == ([1], [])
    finally:
        signal.signal(signal.SIGUSR2, before)


SCRIPT = """
import numpy as np, bfcviz
bfcviz.flight_recorder("numpy", limit="16MiB", folder={folder!r})
kept = []
while True:
    kept.append(np.ones(1 << 17))
"""


def test_one_line_in_a_script_is_enough(tmp_path):
    code = SCRIPT.format(folder=str(tmp_path / "flight"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RANK": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    (path,) = files(tmp_path / "flight")
    assert path.parent.name.endswith("-rank-3")
    assert f"bfcviz why {path}" in done.stderr
    assert bfcviz.why(path).event is not None


def test_another_thread_is_refused(tmp_path):
    errors = []

    def start():
        try:
            bfcviz.flight_recorder("numpy", folder=tmp_path)
        except LiveError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert bfcviz.Watch.current is None


def test_a_threshold_that_is_passed(tmp_path):
    with bfcviz.flight_recorder("numpy", fragmentation=0.3, folder=tmp_path) as recorder:
        held = [np.ones(MIB >> 3) for _ in range(40)]
        del held[::2]
        until = time.monotonic() + 20
        while not recorder.written and time.monotonic() < until:
            time.sleep(0.01)
        assert recorder.written[0].name == "01-external-fragmentation.parquet"
        assert len(held) == 20
