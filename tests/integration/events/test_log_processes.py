"""Logs in processes of their own: faults of memory that are not theirs, files cut while they are read, a full disk."""

import errno
import subprocess
import sys

import pytest
from processes import WarmPython, run_code
from unit.events.fabricate import fabricate

from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace

LOG = """
import faulthandler, os, signal, sys
from bfcviz.events.log import EventLog
from heaps import new_heap
"""


@pytest.fixture(scope="module")
def warm():
    with WarmPython(LOG) as python:
        yield python


FOREIGN = """
import mmap
def fault():
    with open(folder + "/mine", "wb+") as file:
        file.truncate(8192)
        mine = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        mine[5000]
def write(count=10):
    for _ in range(count):
        heap.mark("mark")
"""


@pytest.mark.parametrize(
    "code",
    [
        "{new}; write(); fault()",
        "faulthandler.enable(); {new}; write(); fault()",
        "{new}; write(); faulthandler.enable(); fault()",
        "{new}; write(); faulthandler.enable(); write(5000); fault()",
        "faulthandler.disable(); {new}; write(); fault()",
        "faulthandler.enable(); {new}; write(); log.close(); fault()",
        "{new}; write(); faulthandler.enable(); write(5000); os.kill(os.getpid(), signal.SIGBUS)",
    ],
)
@pytest.mark.timeout(60)
def test_a_fault_that_is_not_of_a_window_ends_the_process_as_ever(code, tmp_path, warm):
    new = f"folder = {str(tmp_path)!r}; log = EventLog(64, folder=folder); heap = new_heap(log=log)"
    status, _, said = warm.result_of(FOREIGN + code.format(new=new))
    assert status == -7
    assert said.count("Fatal Python error: Bus error") == ("disable" not in code)


def test_the_handler_goes_with_the_last_file_and_others_are_kept(tmp_path, warm):
    code = f"""
import ctypes
libc = ctypes.CDLL(None)
libc.signal.restype = ctypes.c_void_p
def handler():
    now = libc.signal(signal.SIGBUS, None)
    libc.signal(signal.SIGBUS, ctypes.c_void_p(now))
    return now or 0
faulthandler.disable()
came = []
before = handler()
os.makedirs("{tmp_path}/2")
logs = [EventLog(64, folder="{tmp_path}"), EventLog(64, folder="{tmp_path}/2")]
for log in logs:
    new_heap(log=log).mark("mark")
logs[0].close()
logs[1].close()
print(handler() == before)
signal.signal(signal.SIGBUS, lambda *_: came.append(1))
os.makedirs("{tmp_path}/3")
log = EventLog(64, folder="{tmp_path}/3")
new_heap(log=log).mark("mark")
os.kill(os.getpid(), signal.SIGBUS)
os.kill(os.getpid(), signal.SIGBUS)
print(len(came))
"""
    assert warm.run(code) == "True\n2\n"


def test_a_packed_trace_that_is_truncated_is_an_error_that_says_so(tmp_path):
    with Recording(tmp_path / "run") as recording:
        fabricate(200_000).tofile(recording.events_path)
    code = f"""
import os, bfcviz
from bfcviz.errors import FileError
trace = bfcviz.open({str(tmp_path / "run.parquet")!r})
os.truncate(trace.path, 4096)
try:
    trace.read(150_000, 150_010)
except FileError:
    print("told")
"""
    Trace.open(tmp_path / "run").save(tmp_path / "run.parquet")
    assert run_code(code) == "told\n"


FULL = """
import resource, signal, sys
from bfcviz import BFCAllocator, EventLog, SimulatedSubAllocator
from bfcviz.events.log import Reader
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 200, 64 * 200))
log = EventLog(64, folder=sys.argv[1])
heap = BFCAllocator(SimulatedSubAllocator(), 1 << 20, log=log)
for number in range(230):
    heap.mark("mark", number)
heap.check_invariants()
seen = Reader(log, 0).read(1 << 20)
assert seen["size"].tolist() == list(range(230)), seen["size"]
print(log.error, log.on_disk, log.head)
"""


def test_a_full_disk_ends_the_file_and_not_the_heap(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    error, on_disk, head = map(int, done.stdout.split())
    assert (error, on_disk, head) == (errno.EFBIG, 192, 230)  # three whole windows fit


def test_a_limit_of_file_sizes_is_used_up(tmp_path):
    """The window does not fit, half of it does, then a quarter: whole pages of 64 records up to the limit."""
    code = FULL.replace("EventLog(64,", "EventLog(256,")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    error, on_disk, head = map(int, done.stdout.split())
    assert (error, on_disk, head) == (errno.EFBIG, 192, 230)
    assert (tmp_path / "events.bin").stat().st_size == 192 * 64


def test_after_a_full_disk_a_slow_reader_is_told_what_it_missed(tmp_path):
    code = f"""
import resource, signal
from heaps import new_heap
from bfcviz.errors import Lapped
from bfcviz.events.log import EventLog
from bfcviz.events.log import Reader
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 100, 64 * 100))
heap = new_heap(log=EventLog(64, {str(tmp_path)!r}))
reader = Reader(heap.log)
for number in range(127):
    heap.mark("mark", number)
assert reader.read()["size"].tolist() == list(range(127))
for number in range(127, 500):
    heap.mark("mark", number)
try:
    reader.read()
except Lapped as lapped:
    print(lapped.missed, lapped.resume_at)
reader.resync()
print(reader.read()["size"].tolist() == list(range(437, 500)), heap.log.error != 0)
heap.close()
"""
    assert run_code(code).split() == ["310", "437", "True", "True"]
    assert (tmp_path / "events.bin").stat().st_size == 64 * 64
