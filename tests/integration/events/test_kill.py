"""A recording is killed at any moment: everything it wrote can be read, and its follower read the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from integration.events.follower import look

from bfcviz.events.trace import Status, Trace

HERE = Path(__file__).parent


def start(script, folder):
    return subprocess.Popen(
        [sys.executable, HERE / script, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_recording_and_its_follower(tmp_path, seed):
    folder = tmp_path / "run"
    with start("writer.py", folder) as writer:
        assert writer.stdout.readline() == "begun\n"
        with start("follower.py", folder) as follower:
            assert follower.stdout.readline() == "following\n"
            print("go on", file=writer.stdin, flush=True)
            time.sleep(np.random.default_rng(seed).uniform(0.05, 0.3))
            assert Trace.open(folder).origin.status is Status.RECORDING
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            trace = Trace.open(folder)
            said, _ = follower.communicate(timeout=30)
    assert follower.returncode == 0, said
    seen, looks, status = said.split()

    assert trace.origin.status is Status.TRUNCATED
    assert f"recording did not end cleanly; {len(trace)} complete events read" in trace.origin.reasons[0]
    assert (int(seen), status) == (len(trace), "truncated")
    assert int(looks) > 1
    look(trace, 0)
    assert trace.origin.status is Status.TRUNCATED

    packed = Trace.open(trace.save(tmp_path / "run.parquet"), check=True)
    assert packed.origin == trace.origin
    assert np.array_equal(packed.read(0, len(packed)), trace.read(0, len(trace)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_neither_writes_nor_keeps_the_recording_alive(tmp_path):
    with start("forker.py", tmp_path / "run") as parent:
        child = int(parent.stdout.readline())
        try:
            parent.wait(30)
            trace = Trace.open(tmp_path / "run")
            assert list(trace.labels.names) == ["", "before", "of the parent"]
            assert trace.origin.status is Status.TRUNCATED
        finally:
            os.kill(child, signal.SIGKILL)
