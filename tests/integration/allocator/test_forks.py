"""In a child process every lock is free and the tables are valid, no matter what other threads did at the fork."""

import os
from pathlib import Path

import pytest
from c_code import built, needs_compiler
from processes import COMPILED, WarmPython, run_code, sized

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

BEGIN = """
import ctypes, os, signal, sys, threading, warnings
warnings.simplefilter("ignore")  # Python 3.12 and later warn of a fork with threads
from forks import child_ends_well
from heaps import BASE, KIB, MIB, new_heap
from bfcviz import _forks
from bfcviz.allocator.sub_allocators import PythonSubAllocator
from bfcviz.errors import AllocatorError
"""


@pytest.fixture(scope="module")
def warm():
    with WarmPython(BEGIN) as python:
        yield python


SLOW = """
class Slow(PythonSubAllocator):
    def __init__(self):
        super().__init__()
        self.top, self.freed = BASE, 0
        self.waits, self.inside, self.done = False, threading.Event(), threading.Event()

    def allocate(self, alignment, num_bytes):
        if self.waits:
            self.inside.set()
            self.done.wait()
        self.top += num_bytes
        return self.top - num_bytes, num_bytes

    def free(self, address, num_bytes):
        self.freed += 1

source = Slow()
heap = new_heap(64 * MIB, source, allow_growth=True, garbage_collection=True)
small, other = heap.allocate(KIB), heap.allocate(KIB)
heap.free(other)
source.waits = True
grower = threading.Thread(target=lambda: heap.allocate(8 * MIB))
grower.start()
source.inside.wait()
before = heap.stats()
"""


def test_a_fork_while_another_thread_is_in_the_sub_allocator(warm):
    """The child can use the existing memory, and gets an error when the heap must grow."""
    code = """
_forks.PATIENCE = 0.01
def work():
    assert heap.stats() == before
    heap.check_invariants()
    heap.free(small)
    heap.free(heap.allocate(KIB))
    for _ in range(2):
        try:
            heap.allocate(4 * MIB)
        except AllocatorError as error:
            assert type(error) is AllocatorError
        else:
            raise AssertionError("it grew")
    assert heap.trim() == 0
    heap.check_invariants()
    heap.close()
    assert heap.stats().pool_bytes == source.freed == 0
print(child_ends_well(work))
source.done.set()
grower.join()
assert heap.stats().bytes_in_use > 8 * MIB
heap.check_invariants()
heap.close()
print(source.freed)
"""
    assert warm.run(SLOW + code) == "True\n2\n"


def test_a_fork_waits_a_while_for_the_sub_allocator(warm):
    code = """
os.register_at_fork(before=source.done.set)
def work():
    assert heap.stats().bytes_in_use > 8 * MIB
    heap.allocate(4 * MIB)
    heap.close()
_forks.PATIENCE = 60
print(child_ends_well(work))
grower.join()
heap.close()
"""
    assert warm.run(SLOW + code) == "True\n"


def test_a_sub_allocator_may_fork(warm):
    code = """
class Forking(PythonSubAllocator):
    def allocate(self, alignment, num_bytes):
        self.child = os.fork()
        return BASE, num_bytes

    def free(self, address, num_bytes):
        pass

source = Forking()
heap = new_heap(MIB, source)
signal.alarm(20)
heap.free(heap.allocate(KIB))
assert heap.trim() == MIB
if source.child == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(source.child, 0)[1]))
"""
    assert warm.run(code) == "7\n"


def test_forks_beside_threads_at_work(warm):
    code = f"""
heaps = [new_heap(4 * MIB, allow_growth=True, garbage_collection=True) for _ in range(2)]
goes_on = True
def work(number):
    turn = 0
    while goes_on:
        heap, turn = heaps[turn % 2], turn + 1
        heap.free(heap.allocate(300 << turn % 12, label=f"{{number}} {{turn}}"))
        heap.mark("turn", turn)
        if turn % 50 == 0:
            heap.trim()
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
for thread in threads: thread.start()
def look():
    for heap in heaps:
        heap.check_invariants()
        heap.allocate(3 * KIB, label="the child's own")
        heap.close()
sys.setswitchinterval(1e-5)
print(sum(child_ends_well(look) for _ in range({sized(12, 6)})))
goes_on = False
for thread in threads: thread.join()
for heap in heaps: heap.check_invariants()
"""
    assert warm.run(code) == f"{sized(12, 6)}\n"


@needs_compiler
@pytest.mark.skipif(not COMPILED, reason="uncompiled, threads of C wait for the interpreter's lock")
def test_forks_beside_threads_of_c(tmp_path, warm):
    library = built(Path(__file__).with_name("loop.c"), tmp_path, "-O1")
    code = f"""
heap = new_heap(4 * MIB, allow_growth=True)
functions, library = heap.c_functions(), ctypes.CDLL({str(library)!r})
counts, stop = (ctypes.c_int64 * 2)(), ctypes.c_int(0)
def work(number):
    pointers = [ctypes.c_void_p(each) for each in (functions.allocate, functions.free, functions.context)]
    library.work(*pointers, ctypes.byref(counts, 8 * number), ctypes.byref(stop))
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(2)]
for thread in threads: thread.start()
while not all(counts): pass
def look():
    heap.check_invariants()
    heap.allocate(KIB)
    heap.close()
print(sum(child_ends_well(look) for _ in range(8)))
stop.value = 1
for thread in threads: thread.join()
heap.check_invariants()
"""
    assert warm.run(code) == "8\n"


RECURSION = """
import sys
from heaps import KIB, MIB, new_heap

def at_depth(left, work):
    return work() if left == 0 else at_depth(left - 1, work)

def depth():
    frame, count = sys._getframe(1), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count

def grow_and_free():
    heap.free(heap.allocate(9 * MIB))

heap = new_heap(64 * MIB, allow_growth=True, garbage_collection=True)
kept = heap.allocate(KIB)
failed = done = 0
for work in (
    lambda: heap.free(heap.allocate(KIB)), grow_and_free, heap.trim, heap.stats, heap.memory_map, heap.moment,
    lambda: heap.mark("m"), heap.clear_stats, lambda: heap.requested_size(kept),
):
    for left in range(1, 140, 2):
        try:
            at_depth(sys.getrecursionlimit() - depth() - left, work)
            done += 1
        except RecursionError:
            failed += 1
        for chunk in heap.memory_map():  # allocated and not freed
            if chunk["in_use"] and chunk["address"] != kept:
                heap.free(int(chunk["address"]))
        heap.check_invariants()
heap.close()
print(failed > 0, done > 0)
"""


def test_at_the_recursion_limit_no_lock_stays_closed():
    assert run_code(RECURSION, plain=True) == "True True\n"


def test_locks_that_other_threads_hold_are_free_in_the_child(warm):
    code = """
from bfcviz.devices.allocator_wrappers import LimitAllocator
from bfcviz.events.label_table import Labels
inside, done = threading.Barrier(3), threading.Event()
def wait():
    if threading.current_thread() in threads:
        inside.wait()
        done.wait()
class SlowText:
    def __str__(self):  # Labels asks for it while it holds its lock
        wait()
        return "text"
class SlowLimit(int):
    def __sub__(self, other):  # and LimitAllocator for this
        wait()
        return int(self) - other
labels, limited = Labels(), LimitAllocator(new_heap(), MIB)
limited.limit = SlowLimit(MIB)
threads = [
    threading.Thread(target=lambda: labels.intern("a", shape=SlowText())),
    threading.Thread(target=lambda: limited.allocate(KIB)),
]
for thread in threads: thread.start()
inside.wait()
_forks.PATIENCE = 0.01
def work():
    labels.intern("b")
    limited.free(limited.allocate(KIB))
print(child_ends_well(work))
done.set()
for thread in threads: thread.join()
"""
    assert warm.run(code) == "True\n"


def test_a_lock_that_the_forking_thread_holds_is_its_own_in_the_child(warm):
    code = """
from bfcviz.events.label_table import Labels
labels = Labels()
class ForkingText:
    def __str__(self):
        self.child = os.fork()
        return "text"
text = ForkingText()
signal.alarm(20)
labels.intern("a", shape=text)
labels.intern("b")
if text.child == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(text.child, 0)[1]))
"""
    assert warm.run(code) == "7\n"


def test_threads_that_fork_at_once_release_each_their_own_locks():
    """The second thread takes the lock that the first one released last, before the first one is done."""
    code = """
import os, threading, warnings
warnings.simplefilter("ignore")
from forks import child_ends_well
from bfcviz import _forks
class Watched:
    def __init__(self, on_acquire=None, on_release=None):
        self.lock, self.on_acquire, self.on_release = threading.RLock(), on_acquire, on_release
    def acquire(self, *how):
        taken = self.lock.acquire(*how)
        if self.on_acquire and threading.current_thread() is second:
            self.on_acquire()
        return taken
    def release(self):
        self.lock.release()
        if self.on_release and os.getpid() == parent and threading.current_thread() is not second:
            self.on_release()
    def _at_fork_reinit(self):
        self.lock._at_fork_reinit()

def fork():
    child_ends_well(lambda: None)

def let_second_in():
    second.start()
    second_has_it.wait(20)

def wait_for_first():
    second_has_it.set()
    first_is_done.wait(20)

_forks.PATIENCE = 20
parent = os.getpid()
second_has_it, first_is_done = threading.Event(), threading.Event()
second = threading.Thread(target=fork, daemon=True)
last_released = _forks.keep(Watched(on_release=let_second_in), _forks.FIRST)
next_taken = _forks.keep(Watched(on_acquire=wait_for_first), _forks.HEAP)
fork()
first_is_done.set()
second.join()
print(last_released.lock.acquire(timeout=0), next_taken.lock.acquire(timeout=0))
"""
    assert run_code(code) == "True True\n"
