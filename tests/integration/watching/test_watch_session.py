"""A watch of NumPy while processes are forked."""

import os

import numpy as np
from heaps import KIB
from processes import run_code
from unit.watching.numpy_watch import as_it_was, watched

import bfcviz
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage.block_codec import MOST_EVENTS
from bfcviz.model import Model
from bfcviz.model.find_steps import events_of

__all__ = ["as_it_was"]


def test_a_forked_process_may_watch_by_itself():
    code = """
import numpy as np, bfcviz
from forks import child_ends_well
def work():
    with bfcviz.watch(numpy=True, limit="8MiB") as w:
        np.ones(1000)
    assert len(w.trace)
with bfcviz.watch(numpy=True, limit="8MiB"):
    print(child_ends_well(work))
"""
    assert run_code(code) == "True\n"


def test_a_long_recording_is_packed_and_holds_the_arrays_of_the_program_only(tmp_path):
    """Also beside a forked process that leaves the `with`, too: it packs nothing."""
    with watched(path=tmp_path / "run", capture="nothing") as w:
        kept = np.ones(KIB, np.uint8)
        for number in range(MOST_EVENTS // 2):
            np.empty(KIB + number % 64, np.uint8)
            if number == MOST_EVENTS // 4 and not (child := os.fork()):
                break
        used = w.sources[0].allocator.stats().bytes_in_use
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    names = ["events.bfc", "labels.jsonl", "origin.json", "threads.jsonl"]
    assert sorted(path.name for path in w.folder.iterdir()) == names
    trace = bfcviz.open(w.folder)
    assert trace.origin.status == Status.COMPLETE
    requested = events_of(trace, [Kind.ALLOCATE])["requested"]
    assert (requested >= KIB).sum() == MOST_EVENTS // 2 + 1
    assert requested.max() < 2 * KIB  # the arrays of the thread that packs are larger
    model = Model(trace)
    model.seek(len(trace))
    assert model.stats().bytes_in_use == used >= kept.nbytes
