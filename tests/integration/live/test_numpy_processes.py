"""What is left when Python ends, or a process forks, while NumPy is served; the memory of a process that it served."""

import json

import pytest
from heaps import MIB
from processes import WarmPython, needs_compiled, run_code

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace

pytestmark = needs_compiled

BEGIN = """
import sys, threading
import numpy as np
from bfcviz import Recording, serve_numpy
from forks import child_ends_well
from numpy import ones
"""


@pytest.fixture(scope="module")
def warm():
    with WarmPython(BEGIN) as python:
        yield python


@pytest.mark.parametrize(
    "end",
    [
        "",
        "recording.close()",
        "sys.exit()",
        "del service",
        "import atexit; atexit.register(lambda: ones(1000).resize(5, refcheck=False))",
        "sys.kept = array; cycle = [array]; cycle.append(cycle); del array",
        "class Late:\n    def __del__(self): self.array = self.ones(100)\nlate = Late(); late.ones = ones",
        "threading.Thread(target=lambda: [ones(100) for _ in iter(int, 1)], daemon=True).start()",
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_arrays_may_live_until_python_ends(end, inside, tmp_path, warm):
    code = f"""
recording = Recording({str(tmp_path / "run")!r})
service = serve_numpy("64MiB", log=recording)
service.__enter__()
array = ones(1000)
held = [ones(100) for _ in range(100)]
if not {inside}: service.__exit__(None, None, None)
print(array.sum())
{end}
"""
    assert warm.run(code) == "1000.0\n"
    trace = Trace.open(tmp_path / "run")
    assert (trace.read(0, len(trace))["kind"] == Kind.ALLOCATE).sum() >= 101


def test_a_forked_process_is_not_served_and_leaves_the_parents_books_alone(tmp_path, warm):
    code = f"""
recording = Recording({str(tmp_path / "run")!r})
with serve_numpy("64MiB", log=recording) as service:
    kept, dropped = ones(1000), ones(500)
    before = service.allocator.log.head
    def work():
        global dropped, kept, service
        del dropped
        made = np.arange(5000)
        kept.resize(2000, refcheck=False)
        assert kept[:1000].all() and not kept[1000:].any() and made.sum() == 12497500
        assert service.left_to_numpy > 0 and service.allocator.log.head == before
        with serve_numpy("1MiB") as own:
            made = np.empty(10)
        assert own.allocator.stats().num_allocs == 1
        del kept, made, own, service
    assert child_ends_well(work)
    assert service.allocator.log.head == before and service.left_to_numpy == 0
    kept += dropped[0]
    del dropped
print(int(kept.sum()))
"""
    assert warm.run(code) == "2000\n"


def test_a_fork_finds_the_books_whole_whatever_other_threads_do(warm):
    code = """
import warnings
warnings.simplefilter("ignore")  # Python 3.12 and later warn of a fork with threads
with serve_numpy("64MiB") as service:
    goes_on = True
    def work():
        while goes_on:
            [ones(n) for n in (1, 1000, 30)]
    def resize_and_drop():
        global array
        array.resize(200, refcheck=False)
        del array
    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads: thread.start()
    for _ in range(50):
        array = ones(100)
        assert child_ends_well(resize_and_drop)
    goes_on = False
    for thread in threads: thread.join()
del array
assert service.allocator.stats().chunks_in_use == 0
service.allocator.check_invariants()
print("whole")
"""
    assert warm.run(code) == "whole\n"


def test_a_finalizer_that_allocates_while_a_stack_is_told_does_not_wait_for_ever():
    code = """
import gc
import numpy as np
from bfcviz import serve_numpy
class Late:
    def __init__(self): self.me = self
    def __del__(self): np.empty(100); made.append(1)
made = []
gc.set_threshold(1, 1, 1)
with serve_numpy("64MiB", capture="stack") as service:
    for number in range(300):
        Late()
        exec(f"np.empty({number + 1}, np.uint8)")
gc.collect()
service.allocator.check_invariants()
print(len(made))
"""
    assert run_code(code) == "300\n"


def test_deleted_arrays_leave_the_memory_of_the_process():
    """In a process of its own: what other tests left in this one comes and goes."""
    held, left = json.loads(
        run_code("""
import resource
from pathlib import Path

import numpy as np

from bfcviz.live.numpy import serve_numpy


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


with serve_numpy("1GiB"):
    before = resident()
    arrays = [np.ones(5 * 2**20 // 8) for _ in range(20)]
    held = resident() - before
    arrays.clear()
    print([held, resident() - before])
""")
    )
    assert held > 90 * MIB
    assert left < 40 * MIB
