"""CUDA's driver: missing drivers, devices and functions, and the capture mode of a thread."""

import pytest
from fake_cuda import FakeCuda
from heaps import MIB
from unit.allocator.made_sub_allocators import make

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import cuda_sub_allocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.errors import DeviceError


def test_a_machine_without_devices_says_so():
    with pytest.raises(DeviceError, match=r"cuInit failed: CUDA_ERROR_100 \(100\)"):
        Driver(FakeCuda(devices=0))


def test_an_old_driver_says_what_it_lacks():
    source = make("async", FakeCuda(lacks=("cuMemAllocAsync",)))
    with pytest.raises(
        DeviceError, match=r"no cuMemAllocAsync: it is older than CUDA 11\.2; update the NVIDIA driver"
    ):
        source.allocate(256, MIB)
    assert source.budget.used == 0


def test_a_machine_without_a_driver_says_what_to_do(monkeypatch):
    monkeypatch.setattr(cuda_driver, "NAMES", ("libcuda-that-is-not-there.so",))
    cuda_driver.load.cache_clear()
    with pytest.raises(DeviceError, match=r"NVIDIA driver.*--gpus all"):
        cuda_sub_allocator("device")


def test_the_threads_capture_mode_is_as_before():
    library = FakeCuda()
    source = make("device", library)
    source.free(*source.allocate(256, MIB))
    stream = library.add_stream()
    library.begin_capture(stream)
    library.cuCtxPushCurrent_v2(library.CONTEXT)
    assert library.cuEventQuery(0) == 900
    library.contexts.clear()
