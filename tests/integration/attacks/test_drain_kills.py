"""The recorded program and the drain beside it are killed at random moments: every acknowledged allocation is there.

With its label, which the drain packs, too.
"""

import mmap
import os
import signal
import subprocess
import sys
import time
from random import Random

import numpy as np
import pytest
from processes import COMPILED
from shared import ROOT

from bfcviz.events.schema import Kind
from bfcviz.events.storage.folder import BLOCKS_FILE, LABELS_FILE
from bfcviz.events.trace import Trace
from bfcviz.model import Model

ROUNDS = int(os.environ.get("BFCVIZ_KILLS", "2"))

WRITER = """
import mmap, sys
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.events.storage.recording import Recording
with open(sys.argv[2], "r+b") as file:
    done = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
recording = Recording(sys.argv[1])
heap = BFCAllocator(SimulatedSubAllocator(), 1 << 30, log=recording.log, labels=recording.labels)
kept = []
while True:
    kept.append(heap.allocate(len(kept) * 700 + 1, label=f"{len(kept) * 700 + 1} bytes, allocation {done[0]}"))
    done[0] += 1  # acknowledged
    if len(kept) > 100:
        for address in kept[::-3]:
            heap.free(address)
        kept = [address for at, address in enumerate(reversed(kept)) if at % 3]
"""

DRAIN = """
import sys, time
from pathlib import Path
from bfcviz.events.storage import drain, label_file
from bfcviz.events.storage.folder import LABELS_FILE, is_locked
from bfcviz.model.trace_index import IndexBuilder
drain.MOST_EVENTS, label_file._LEAST, label_file._PIECE = 2048, 8192, 65536
place = drain.Drain(Path(sys.argv[1]), IndexBuilder)
while not place.step(has_ended=not is_locked(place.folder / LABELS_FILE)):
    time.sleep(0.001)
"""

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain, neither gets far")


def started(code, *words):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], env=env, stderr=subprocess.PIPE)


def wait_for(happened):
    until = time.monotonic() + 60
    while not happened() and time.monotonic() < until:
        time.sleep(0.005)
    assert happened()


def killed(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stderr.read() == b""
    process.stderr.close()


def check_labels(trace):
    """Each allocation has the label that names its bytes; `trace` may have been open for long."""
    trace.refresh()
    for block in trace.blocks():
        allocated = block[block["kind"] == Kind.ALLOCATE]
        for requested, label in allocated[["requested", "label"]].tolist():
            assert trace.labels.name(label).startswith(f"{requested} bytes, ")


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_no_acknowledged_allocation_is_lost(tmp_path, round_):
    random, folder, counter = Random(round_), tmp_path / "run", tmp_path / "counter"
    counter.write_bytes(bytes(8))
    with counter.open("r+b") as file:
        done = mmap.mmap(file.fileno(), 8)
    writer = started(WRITER, folder, counter)
    try:
        wait_for((folder / "events.bin").exists)
        drain = started(DRAIN, folder)
        try:
            follower = Trace.open(folder)
            for _ in range(random.randrange(3)):
                wait_for(lambda: (folder / BLOCKS_FILE).is_file() and (folder / BLOCKS_FILE).stat().st_size)
                time.sleep(random.random() / 20)
                killed(drain)
                drain = started(DRAIN, folder)
                check_labels(follower)
            before = int.from_bytes(done[:8], sys.byteorder)
            wait_for(lambda: int.from_bytes(done[:8], sys.byteorder) > before + 3000)
            time.sleep(random.random() / 20)
        finally:
            if random.random() < 0.5:  # the drain first, so that much is left as it was written
                killed(drain)
    finally:
        killed(writer)
    if drain.poll() is None and drain.returncode is None:
        assert drain.wait(timeout=150) == 0
        drain.stderr.close()
        labels = (folder / LABELS_FILE).stat()
        assert labels.st_blocks * 512 < labels.st_size // 2
    acknowledged = int.from_bytes(done[:8], sys.byteorder)
    trace = Trace.open(folder)
    check_labels(trace)
    check_labels(follower)
    kinds = [block["kind"] for block in trace.blocks()]
    assert np.count_nonzero(np.concatenate(kinds) == Kind.ALLOCATE) >= acknowledged > 3000
    model = Model(trace)
    model.seek(len(trace))
    assert model.stats().num_allocs >= acknowledged
