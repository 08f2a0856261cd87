"""A machine with two GPUs and a stand-in for RMM."""

import pytest
from fake_cuda import FakeCuda
from fake_rmm import FakeRmm
from fake_torch import HostMemory

from bfcviz.allocator import cuda_driver
from bfcviz.live import rmm as rmm_serve


@pytest.fixture
def rmm(monkeypatch):
    fake = FakeRmm()
    fake.put(monkeypatch)
    fake.library = FakeCuda(devices=2)
    fake.driver = cuda_driver.Driver(fake.library)
    monkeypatch.setattr(cuda_driver, "load", lambda: fake.driver)
    monkeypatch.setattr(
        rmm_serve, "cuda_sub_allocator", lambda _, device, stream, budget: HostMemory(device, budget)
    )
    return fake
