"""PyTorch made up, and its heaps over host memory."""

import sys
import types

import pytest
from fake_cuda import FakeCuda
from fake_torch import FakeTorch, HostMemory

from bfcviz.allocator import cuda_driver
from bfcviz.live.memory_limits import Room
from bfcviz.live.torch import serve as torch_serve


@pytest.fixture
def torch(monkeypatch):
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    room = lambda device: Room(fake.total, fake.free, 8)  # noqa: E731
    fake.host = types.SimpleNamespace(room=room, total=lambda _: fake.total, source=HostMemory, kind="device")
    fake.library = FakeCuda()
    driver = cuda_driver.Driver(fake.library)
    monkeypatch.setattr(cuda_driver, "load", lambda: driver)
    monkeypatch.setattr(torch_serve, "GpuMemory", lambda kind: setattr(fake.host, "kind", kind) or fake.host)
    monkeypatch.setattr(torch_serve.TorchServed, "_replaced", None)
    return fake
