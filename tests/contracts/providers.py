"""Every provider of heaps, each made new, with stand-ins for the frameworks that want a GPU."""

import sys
import types
from functools import partial
from pathlib import Path

from fake_cuda import FakeCuda
from fake_rmm import FakeRmm
from fake_torch import FakeTorch, HostMemory
from unit.live.cupy_stand_in import StandIn, cupy
from unit.live.jax_stand_in import Array, Device, put_jax, stack

from bfcviz.allocator import cuda_driver
from bfcviz.live import cupy as cupy_api
from bfcviz.live import rmm as rmm_serve
from bfcviz.live.cupy import observe_cupy, serve_cupy
from bfcviz.live.jax import observe_jax
from bfcviz.live.memory_limits import Room
from bfcviz.live.numpy import serve_numpy
from bfcviz.live.rmm import observe_rmm, serve_rmm
from bfcviz.live.tensorflow import observe_tensorflow
from bfcviz.live.torch import serve as torch_serve
from bfcviz.live.torch.observe import observe_torch
from bfcviz.live.torch.serve import serve_torch


def _numpy(_patch, _folder):
    return partial(serve_numpy, "64MiB")


def _cupy(make):
    def put(patch, _folder):
        gpu = StandIn()
        patch.setattr(cupy_api, "CupyFunctions", lambda _: gpu)
        return make

    return put


def _torch(make):
    def put(patch, _folder):
        fake = FakeTorch()
        patch.setitem(sys.modules, "torch", fake)
        room = lambda _: Room(fake.total, fake.free, 8)  # noqa: E731
        host = types.SimpleNamespace(room=room, total=lambda _: fake.total, source=HostMemory, kind="device")
        patch.setattr(torch_serve, "GpuMemory", lambda _: host)
        return make

    return put


def _rmm(make):
    def put(patch, _folder):
        FakeRmm().put(patch)
        driver = cuda_driver.Driver(FakeCuda(devices=2))
        patch.setattr(cuda_driver, "load", lambda: driver)
        patch.setattr(
            rmm_serve, "cuda_sub_allocator", lambda _, device, stream, budget: HostMemory(device, budget)
        )
        return make

    return put


def _jax(patch, _folder):
    device = Device(0, totals={"bytes_in_use": 1})
    put_jax(patch, [device], [Array(1, stack(1), device)])
    return partial(observe_jax, every_s=1000)


class _Profiler:
    """tf.profiler.experimental, which leaves an empty profile."""

    def ProfilerOptions(self, **options):  # noqa: N802
        return options

    def start(self, folder, options):
        self.folder = Path(folder)

    def stop(self):
        self.folder.mkdir()


def _tensorflow(patch, folder):
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.profiler = types.SimpleNamespace(experimental=_Profiler())
    patch.setitem(sys.modules, "tensorflow", tensorflow)
    return partial(observe_tensorflow, folder)


PROVIDERS = {
    "numpy serve": _numpy,
    "torch serve": _torch(partial(serve_torch, "16MiB")),
    "torch observe": _torch(partial(observe_torch, every_s=1000)),
    "rmm serve": _rmm(partial(serve_rmm, "16MiB")),
    "rmm observe": _rmm(observe_rmm),
    "rmm observe log": _rmm(partial(observe_rmm, mechanism="log", every_s=1000)),
    "jax observe": _jax,
    "tensorflow observe": _tensorflow,
}
"""By framework, way and mechanism, what puts a stand-in for it and returns what makes the provider."""

if cupy is not None:
    PROVIDERS["cupy serve"] = _cupy(partial(serve_cupy, "16MiB"))
    PROVIDERS["cupy observe"] = _cupy(observe_cupy)
