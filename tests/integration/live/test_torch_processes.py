"""PyTorch's memory from instrumented heaps: C++ callers, and threads that allocate while Python ends."""

import ctypes
import subprocess

import pytest
from heaps import MIB
from processes import needs_compiled, run_code, run_python
from unit.live.torch.stream_service import Service, needs_gxx

pytestmark = needs_compiled


def test_memory_may_be_freed_when_python_has_ended():
    code = """
import atexit
from unit.live.torch.stream_service import Service
service = Service()
address = service.alloc(100)
atexit.register(service.free, address)
print(service.in_use())
"""
    assert run_code(code) == "[(0, 0)]\n"


HARNESS = r"""
#include <cstring>
#include <stdexcept>
struct Guard { int &left; ~Guard() { left = 1; } };
extern "C" int call(void *(*alloc)(ssize_t, int, void *), ssize_t size, char *text, int *left) {
    try { Guard guard{*left}; return alloc(size, 0, nullptr) ? 1 : 2; }
    catch (const std::runtime_error &error) { strcpy(text, error.what()); return 3; }
}
"""


@needs_gxx
def test_where_memory_runs_out_a_cpp_exception_can_be_thrown(tmp_path):
    (tmp_path / "caller.cpp").write_text(HARNESS)
    command = ["g++", "-shared", "-fPIC", "-O1", "-o", tmp_path / "caller.so", tmp_path / "caller.cpp"]
    subprocess.run(command, check=True)
    caller = ctypes.CDLL(str(tmp_path / "caller.so"))
    caller.call.argtypes = [ctypes.c_size_t, ctypes.c_ssize_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)]
    thrower = ctypes.cast(ctypes.CDLL("libstdc++.so.6")._ZSt21__throw_runtime_errorPKc, ctypes.c_void_p).value
    service = Service(thrower=thrower)
    for size, expected in ((1000, 1), (2 * MIB, 3), (1000, 1), (0, 2)):
        text, left = ctypes.create_string_buffer(500), ctypes.c_int()
        assert caller.call(service.table.functions()[0], size, text, left) == expected
        assert left.value == 1  # the caller's own destructors ran
        if expected == 3:
            assert text.value.startswith(
                b"CUDA out of memory. bfcviz's heap of cuda:0 was asked for 2097152 bytes"
            )
    service.table.stop(service.deferred)


# -- the end of the process -----------------------------------------------------------------------------------------

SPINNING = r"""
#include <atomic>
#include <sys/types.h>
#include <exception>
#include <thread>
using alloc_function = void *(*)(ssize_t, int, void *);
static std::atomic<long> done{0};
static void request(alloc_function alloc, size_t stream) noexcept {
    try { alloc(1000, 0, (void *)stream); }
    catch (const std::exception &) {}
    done++;
}
extern "C" long requests() { return done; }
extern "C" void spin(alloc_function alloc, size_t streams) {
    for (int number = 0; number < 3; number++)
        std::thread([=] { for (size_t n = 1;; n++) request(alloc, n % streams); }).detach();
}
"""
"""Threads of C++ that ask for memory without end; a thread that is killed in there aborts the process."""

ENDING = """
import atexit, ctypes, sys, threading
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import PythonSubAllocator
from bfcviz.live.deferred_frees import DeferredFrees
from bfcviz.live.c_callbacks import StreamTable

class Refusing(PythonSubAllocator):
    def allocate(self, alignment, num_bytes):
        return None

table = StreamTable(1, 7)
table.add(BFCAllocator(Refusing(), 1 << 20), 0)
thrower = ctypes.CDLL("libstdc++.so.6")._ZSt21__throw_runtime_errorPKc
throws = ctypes.cast(thrower, ctypes.c_void_p).value if int(sys.argv[3]) else 0
table.serve(throws, DeferredFrees(table, lambda device: None, None))
atexit.register(table.end)
spinning = ctypes.CDLL(sys.argv[1])
spinning.spin.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
spinning.spin(table.functions()[0], int(sys.argv[2]))
while spinning.requests() < 100:
    threading.Event().wait(0.001)
"""


@needs_gxx
@pytest.mark.parametrize(("streams", "throws"), [(1, 0), (1 << 40, 0), (1, 1)])
def test_threads_that_allocate_while_python_ends_do_not_abort_it(tmp_path, streams, throws):
    """With one stream they ask its heap's sub-allocator, which is Python's; with many, for more heaps."""
    (tmp_path / "spinning.cpp").write_text(SPINNING)
    command = [
        "g++",
        "-shared",
        "-fPIC",
        "-O1",
        "-pthread",
        "-o",
        tmp_path / "spinning.so",
        tmp_path / "spinning.cpp",
    ]
    subprocess.run(command, check=True)
    for _ in range(2):
        result = run_python("-c", ENDING, tmp_path / "spinning.so", streams, throws)
        assert (result.returncode, result.stderr) == (0, "")
