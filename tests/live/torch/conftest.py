"""PyTorch made up, and its heaps over host memory."""

import sys
import types

import pytest
from fake_torch import FakeTorch, HostMemory

from bfcviz.live.common.headroom import Room
from bfcviz.live.torch import serve as torch_serve


@pytest.fixture
def torch(monkeypatch):
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    room = lambda device: Room(fake.total, fake.free, 8)  # noqa: E731
    fake.host = types.SimpleNamespace(room=room, source=HostMemory, kind="device")
    monkeypatch.setattr(torch_serve, "GpuMemory", lambda kind: setattr(fake.host, "kind", kind) or fake.host)
    monkeypatch.setattr(torch_serve.TorchServed, "_replaced", None)
    return fake
