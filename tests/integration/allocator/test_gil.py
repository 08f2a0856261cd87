"""Threads without the GIL never wait for it: the thread that holds it may be waiting for them."""

import ctypes
import threading
from pathlib import Path

import pytest
from c_code import built, needs_compiler
from processes import COMPILED, run_python

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator

THREADS = 6
WINDOWS = 140  # a loaded machine may run a thread late; one that waits for the interpreter never goes on
WINDOW_US = 100_000
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not COMPILED, reason="uncompiled, a heap is Python and needs the interpreter's lock"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return built(Path(__file__).with_name("loop.c"), tmp_path_factory.mktemp("loop"), "-O1")


def test_c_threads_go_on_while_another_keeps_the_interpreter(library):
    heap = BFCAllocator(SimulatedSubAllocator(), 1 << 30)
    functions = heap.c_functions()
    work = ctypes.CDLL(str(library)).work  # releases the GIL
    watch = ctypes.PyDLL(str(library)).watch  # keeps it
    counts, stop = (ctypes.c_int64 * THREADS)(), ctypes.c_int(0)
    before, after = (ctypes.c_int64 * THREADS)(), (ctypes.c_int64 * THREADS)()

    def run(number):
        pointers = [ctypes.c_void_p(each) for each in (functions.allocate, functions.free, functions.context)]
        work(*pointers, ctypes.byref(counts, 8 * number), ctypes.byref(stop))

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    while not all(counts):
        pass
    went_on = set()
    for _ in range(WINDOWS):
        watch(counts, THREADS, before, after, WINDOW_US)
        went_on |= {number for number in range(THREADS) if after[number] > before[number]}
        if len(went_on) == THREADS:
            break
    stop.value = 1
    for thread in threads:
        thread.join()
    assert went_on == {*range(THREADS)}
    assert heap.stats().bytes_in_use == 0
    heap.check_invariants()


INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
except ImportError:  # Python 3.12 and earlier
    import _xxsubinterpreters as interpreters
interpreters.destroy(interpreters.create())
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_the_same_after_a_sub_interpreter():
    """From then on PyGILState_Check returns 1 in every thread."""
    test = f"{__file__}::{test_c_threads_go_on_while_another_keeps_the_interpreter.__name__}"
    done = run_python("-c", INTERPRETERS, "-q", "-n0", "-p", "no:cacheprovider", test)
    assert done.returncode == 0, done.stdout + done.stderr
