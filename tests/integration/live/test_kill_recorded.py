"""A recorded process is killed at 50 random moments: each recording opens, and lacks nothing that was done before."""

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from integration.live.kill_server import operations
from processes import needs_compiled
from shared import ROOT

from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model

MOMENTS = 50
SERVER = Path(__file__).with_name("kill_server.py")


def check(trace, acknowledged):
    """The recording is what the child did, in order, at least up to the last allocation that it told of."""
    assert trace.origin.status is Status.TRUNCATED
    events = trace.read(0, len(trace))
    done = events[np.isin(events["kind"], [Kind.ALLOCATE, Kind.FREE])]
    allocated = done["kind"] == Kind.ALLOCATE
    sizes = done["requested"].astype(np.int64) * np.where(allocated, 1, -1)
    assert sizes.tolist() == list(islice(operations(), len(sizes)))
    assert allocated.sum() in {acknowledged, acknowledged + 1}
    names = [trace.labels.name(number) for number in done["label"].tolist()]
    assert names == [f"{abs(size)} bytes" for size in sizes.tolist()]
    model = Model(trace)
    model.seek(len(trace))
    assert model.stats().requested_bytes_in_use == sizes.sum()
    assert model.stats().chunks_in_use == np.where(allocated, 1, -1).sum()
    chunks = model.chunks()
    assert (chunks["address"][1:] >= chunks["address"][:-1] + chunks["size"][:-1]).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.timeout(120)
@needs_compiled
def test_a_process_is_killed_at_50_moments(tmp_path):
    done = subprocess.run(
        [sys.executable, SERVER, tmp_path, str(MOMENTS), "1"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    acknowledged = [int(line) for line in done.stdout.split()]
    assert len(acknowledged) == MOMENTS
    assert len({*acknowledged}) > MOMENTS // 3  # they were different moments
    for number, count in enumerate(acknowledged):
        check(Trace.open(tmp_path / str(number)), count)
