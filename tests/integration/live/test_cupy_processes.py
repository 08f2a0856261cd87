"""What is left when Python ends, or a process forks, while CuPy is served; and a machine without a GPU."""

import ctypes
import os
import sys

import pytest
from processes import WarmPython, needs_compiled
from unit.live.cupy_stand_in import cupy, needs_cupy

from bfcviz.errors import LiveError, MissingExtra
from bfcviz.live import cupy as cupy_api
from bfcviz.live.cupy import observe_cupy, serve_cupy

pytestmark = [needs_cupy, needs_compiled]

BEGIN = """
import sys
import cupy
import numpy as np
from forks import child_ends_well
from unit.live.cupy_stand_in import StandIn
from bfcviz import Recording
from bfcviz.live import cupy as cupy_api
from bfcviz.live.cupy import serve_cupy
gpu = StandIn()
cupy_api.CupyFunctions = lambda wish: gpu
"""

HERE = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture(scope="module")
def warm():
    with WarmPython(BEGIN, **HERE) as python:
        yield python


@pytest.mark.parametrize(
    "end", ["", "sys.exit()", "del source", "sys.kept = array; cycle = [array]; cycle.append(cycle)"]
)
@pytest.mark.parametrize("inside", [False, True])
def test_arrays_may_live_until_python_ends(end, inside, tmp_path, warm):
    code = f"""
recording = Recording({str(tmp_path / "run")!r})
source = serve_cupy("8MiB", log=recording)
source.__enter__()
array = cupy.empty(1000)
with gpu.on(stream=0x55):
    other = cupy.empty(1000)
if not {inside}: source.__exit__(None, None, None)
print(array.size)
{end}
"""
    assert warm.run(code) == "1000\n"


def test_a_daemon_thread_may_allocate_while_python_ends(warm):
    """Python ends such a thread when it wants the GIL back, and in C++ code of CuPy's that aborts the process."""
    code = """
import threading, time
inside = threading.Event()
original = gpu.sub_allocator

def slow(*arguments):
    inside.set()
    for _ in range(30):
        time.sleep(0.01)
    return original(*arguments)

source = serve_cupy("8MiB")
source.__enter__()
gpu.sub_allocator = slow

def work():
    try:
        while True:
            array = cupy.empty(3000)
            with gpu.on(stream=0x55):
                del array
                cupy.empty(1000)
    except cupy.cuda.runtime.CUDARuntimeError:
        pass  # at the end CuPy's own pool is asked, and here is no GPU

threading.Thread(target=work, daemon=True).start()
inside.wait(20)
"""
    assert warm.run(code) == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_leaves_the_parents_books_alone(warm):
    code = """
with serve_cupy("8MiB") as source:
    kept, dropped = cupy.empty(1000), cupy.empty(500)
    heap = source.heaps[0]
    before = heap.log.head
    def work():
        global dropped
        try:
            del dropped
            cupy.empty(10)
        except Exception as error:
            print(type(error).__name__, str(error).partition(":")[0], heap.log.head == before, flush=True)
    assert child_ends_well(work)
    del kept, dropped
    print(heap.stats().chunks_in_use)
"""
    printed = warm.run(code)
    assert printed.startswith("LiveError ")
    assert "forked process" in printed
    assert printed.endswith(" True\n0\n")


def has_gpu():
    try:
        return cupy is not None and cupy.cuda.is_available()
    except cupy.cuda.runtime.CUDARuntimeError:  # CuPy 13, without a driver
        return False


without_gpu = pytest.mark.skipif(has_gpu(), reason="tells what a machine without a GPU says")


@without_gpu
@pytest.mark.parametrize(("watch", "word"), [(serve_cupy, "served"), (observe_cupy, "observed")])
def test_no_gpu_or_driver(watch, word):
    before = cupy.cuda.get_allocator()
    with pytest.raises(LiveError, match=rf"CuPy \S+ cannot be {word}: .*cuda.* driver for CUDA 1"):
        watch()
    assert cupy.cuda.get_allocator() == before


def test_cupy_that_is_not_installed_or_broken(monkeypatch):
    monkeypatch.setattr(cupy_api, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'bfcviz\[cuda12\]'"):
        serve_cupy()
    monkeypatch.undo()

    def broken(name):
        raise ImportError("libnvrtc.so.12: cannot open shared object file\nmore")

    monkeypatch.setattr(cupy_api, "import_module", broken)
    with pytest.raises(LiveError, match=r"ImportError: libnvrtc\.so\.12: .*cupy-cuda12x or"):
        serve_cupy()


def test_a_build_for_other_gpus(monkeypatch):
    monkeypatch.setattr(cupy.cuda.runtime, "is_hip", True)
    with pytest.raises(LiveError, match=r"ROCm.* cupy-cuda12x"):
        serve_cupy()


@pytest.mark.skipif(cupy is not None and cupy.__version__.startswith("13."), reason="CuPy 13 has none")
def test_the_c_function_that_tells_the_stream_is_found():
    cuda = cupy_api.CupyFunctions.__new__(cupy_api.CupyFunctions)
    cuda.cupy = cupy
    exported = sys.modules["cupy_backends.cuda.stream"].__pyx_capi__
    assert "get_stream_ptr" in exported
    assert cuda.stream_of() == cuda.stream_of() > 0


def test_a_cupy_that_exports_no_such_function_is_asked_in_python(monkeypatch):
    cuda = cupy_api.CupyFunctions.__new__(cupy_api.CupyFunctions)
    cuda.cupy = type(
        "cupy", (), {"cuda": type("cuda", (), {"get_current_stream": staticmethod(lambda _: Stream)})}
    )
    monkeypatch.setattr(sys.modules["cupy_backends.cuda.stream"], "__pyx_capi__", {})
    assert ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)(cuda.stream_of())(0) == 0x77


class Stream:
    ptr = 0x77
