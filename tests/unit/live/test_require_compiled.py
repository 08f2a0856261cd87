"""Without the compiled build, serving and stacks end with one error that says what to do, and nothing is changed."""

import sys

import numpy as np
import pytest
from fake_cuda import FakeCuda
from fake_rmm import FakeRmm
from fake_torch import FakeTorch, HostMemory
from unit.live.cupy_stand_in import cupy, gpu, needs_cupy

import bfcviz
from bfcviz import _compiled
from bfcviz.allocator import cuda_driver
from bfcviz.errors import LiveError
from bfcviz.live import numpy as numpy_api
from bfcviz.live import rmm as rmm_serve
from bfcviz.live import served_heap, stack_capture
from bfcviz.live.cupy import observe_cupy, serve_cupy
from bfcviz.live.numpy import serve_numpy
from bfcviz.live.rmm import serve_rmm
from bfcviz.live.torch.serve import serve_torch

__all__ = ["gpu"]

REFUSED = "needs the compiled build"


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr(served_heap, "IS_COMPILED", False)
    monkeypatch.setattr(stack_capture, "IS_COMPILED", False)


def test_numpy_keeps_its_own_memory():
    before = numpy_api.get_handler()
    for serve in (serve_numpy, lambda: bfcviz.watch(numpy=True, dashboard=False).__enter__()):
        with pytest.raises(LiveError, match=f"Serving NumPy {REFUSED}"):
            serve()
    assert numpy_api.get_handler() is before
    assert np.arange(3).sum() == 3


def test_a_recording_that_cannot_begin_leaves_no_folder(tmp_path):
    with pytest.raises(LiveError, match=REFUSED):
        bfcviz.watch(numpy=True, path=tmp_path / "run", dashboard=False).__enter__()
    assert list(tmp_path.iterdir()) == []


@needs_cupy
def test_cupy_keeps_its_own_memory(gpu):
    before = cupy.cuda.get_allocator()
    with pytest.raises(LiveError, match=f"Serving CuPy {REFUSED}"):
        serve_cupy()
    with pytest.raises(LiveError, match=f"Recording Python stacks {REFUSED}"):
        observe_cupy(capture="stack")
    assert cupy.cuda.get_allocator() == before
    assert gpu.regions == {}


@pytest.mark.parametrize("mechanism", ["pool", "replace"])
def test_pytorch_keeps_its_own_memory(monkeypatch, mechanism):
    torch = FakeTorch()
    settings = dict(torch.settings)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(LiveError, match=f"Serving PyTorch {REFUSED}"):
        serve_torch(mechanism=mechanism)
    assert (torch.current_allocator, torch.pools, torch.settings) == (None, {}, settings)


def test_rmm_is_served_without_stacks(monkeypatch):
    rmm = FakeRmm()
    rmm.put(monkeypatch)
    monkeypatch.setattr(cuda_driver, "load", lambda: cuda_driver.Driver(FakeCuda(devices=2)))
    monkeypatch.setattr(
        rmm_serve, "cuda_sub_allocator", lambda _, device, stream, budget: HostMemory(device, budget)
    )
    before = dict(rmm.resources)
    with pytest.raises(LiveError, match=f"Recording Python stacks {REFUSED}"):
        serve_rmm(capture="stack")
    assert rmm.resources == before
    with serve_rmm() as source:
        rmm.buffer(1000)
    assert source.heaps[0].stats().num_allocs == 1


@pytest.mark.parametrize(
    ("environment", "home", "advice"),
    [
        ("1", "pyproject.toml", "BFCVIZ_UNCOMPILED is set. Unset it"),
        ("", "pyproject.toml", "pip install -e"),
        ("", "other", "Install a compiler (apt install gcc python3-dev) and bfcviz again: pip install"),
    ],
)
def test_the_error_says_what_to_do(monkeypatch, tmp_path, environment, home, advice):
    monkeypatch.setenv("BFCVIZ_UNCOMPILED", environment)
    (tmp_path / home).touch()
    monkeypatch.setattr(_compiled, "HOME", tmp_path)
    with pytest.raises(LiveError) as caught:
        served_heap.require_compiled("Serving NumPy")
    assert advice in str(caught.value)
