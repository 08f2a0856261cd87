"""The functions of PyTorch that bfcviz uses: its errors, its backend, its allocator, and what is missing."""

import ctypes
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from heaps import MIB
from processes import needs_compiled
from unit.live.torch.stream_service import Service, needs_gxx

from bfcviz.errors import LiveError
from bfcviz.live.torch import torch_api
from bfcviz.live.torch.serve import serve_torch

pytestmark = needs_compiled


C10 = r"""
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
namespace c10 {
    static int alive = 0;
    struct SourceLocation { const char *function, *file; uint32_t line; };
    class Error : public std::exception {
        std::string text, whole;
    public:
        Error(SourceLocation from, std::string said);
        ~Error() override { alive--; }
        const char *what() const noexcept override { return whole.c_str(); }
    };
    Error::Error(SourceLocation from, std::string said) : text(said), whole(said + " in " + from.file) { alive++; }
    class OutOfMemoryError : public Error { using Error::Error; };
}
extern "C" int living() { return c10::alive; }
extern "C" void emit() { throw c10::OutOfMemoryError({}, ""); }
extern "C" int call(void *(*alloc)(ssize_t, int, void *), ssize_t size, char *text) {
    try { return alloc(size, 0, nullptr) ? 1 : 2; }
    catch (const c10::OutOfMemoryError &error) { strcpy(text, error.what()); return 4; }
    catch (const std::runtime_error &error) { strcpy(text, error.what()); return 3; }
}
"""
"""The classes of PyTorch's libc10 that matter, and a caller that tells which exception came."""


@pytest.fixture(scope="module")
def libc10(tmp_path_factory):
    """The library, built once."""
    folder = tmp_path_factory.mktemp("c10")
    (folder / "c10.cpp").write_text(C10)
    library = folder / "libc10.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", library, folder / "c10.cpp"], check=True)
    return library


@pytest.fixture
def c10(libc10, tmp_path):
    """A folder like PyTorch's, and its library loaded."""
    library = tmp_path / "lib" / "libc10.so"
    library.parent.mkdir()
    shutil.copy(libc10, library)
    library.with_name("libc10_cuda.so").symlink_to(library)
    loaded = ctypes.CDLL(str(library))
    loaded.call.argtypes = [ctypes.c_size_t, ctypes.c_ssize_t, ctypes.c_char_p]
    return types.SimpleNamespace(__file__=str(tmp_path / "__init__.py")), loaded


@needs_gxx
def test_where_memory_runs_out_pytorchs_own_error_is_thrown(c10):
    torch, library = c10
    service = Service()
    service.table.serve(torch_api.thrower(torch, service.table.thrower), service.deferred)
    alloc = service.table.functions()[0]
    for size, expected in ((1000, 1), (2 * MIB, 4), (2 * MIB, 4), (1000, 1)):
        text = ctypes.create_string_buffer(500)
        assert library.call(alloc, size, text) == expected
        if expected == 4:
            assert text.value.startswith(
                b"CUDA out of memory. bfcviz's heap of cuda:0 was asked for 2097152 bytes"
            )
            assert text.value.endswith(b" in bfcviz")
        assert library.living() == 0
    service.table.stop(service.deferred)


@needs_gxx
def test_another_pytorchs_error_is_a_runtime_error(c10):
    torch, library = c10
    Path(torch.__file__).with_name("lib").joinpath("libc10_cuda.so").unlink()
    service = Service()
    service.table.serve(torch_api.thrower(torch, service.table.thrower), service.deferred)
    text = ctypes.create_string_buffer(500)
    assert library.call(service.table.functions()[0], 2 * MIB, text) == 3
    service.table.stop(service.deferred)


def test_an_allocator_in_use_cannot_be_replaced(torch):
    torch.empty(1)
    with pytest.raises(LiveError, match="has been used already"):
        serve_torch(mechanism="replace").__enter__()
    assert torch.current_allocator is None
    with serve_torch() as served:
        torch.empty(1)
    assert served.heaps[0].stats().num_allocs == 1


def test_without_pytorch_or_a_gpu_it_says_what_to_do(torch, monkeypatch):
    torch.devices = 0
    with pytest.raises(LiveError, match="sees no CUDA device"):
        serve_torch().__enter__()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LiveError, match="pip install torch"):
        serve_torch().__enter__()


def test_the_drivers_allocator_is_refused(torch):
    torch.backend = "cudaMallocAsync"
    with pytest.raises(LiveError, match="backend:cudaMallocAsync"):
        serve_torch().__enter__()
    assert (torch.pools, torch.settings["release_lock_on_cudamalloc"]) == ({}, False)


def test_the_drivers_allocator_can_be_replaced(torch):
    torch.backend = "cudaMallocAsync"
    with serve_torch("8MiB", mechanism="replace") as served:
        torch.empty(1000)
    assert served.memory_allocated() == 1024


pytestmark = needs_compiled


def test_served_memory_is_not_shared_with_other_processes(torch):
    others = torch.UntypedStorage(0x1000)
    with serve_torch():
        segment = torch.empty(3 * MIB)
        torch.kept.add(segment)
        served = torch.UntypedStorage(segment + 2 * MIB)
        assert others._share_cuda_() == ("handle", 0x1000)
        with pytest.raises(LiveError, match="shared with another process"):
            served._share_cuda_()
    with pytest.raises(LiveError, match="shared with another process"), serve_torch():
        served._share_cuda_()  # it outlived the first
    assert others._share_cuda_() == ("handle", 0x1000)
    del torch.UntypedStorage
    with serve_torch() as again:
        torch.kept.add(torch.empty(1))
    assert again.heaps[0].stats().chunks_in_use == 1
