"""What `Cuda` asks of CuPy: the calls it makes, on a stand-in for the module, since there is no GPU to ask."""

from types import SimpleNamespace

import pytest
from fake_cuda import FakeCuda
from live.cupy_stand_in import cupy as real
from live.cupy_stand_in import needs_cupy

from bfcviz.allocator.sub_allocators import cuda_driver
from bfcviz.allocator.sub_allocators.cuda import Budget
from bfcviz.allocator.sub_allocators.cuda_driver import Driver
from bfcviz.live import cupy_api
from bfcviz.live.cupy_api import Cuda, handle_of


class Module:
    """CuPy, as far as it is asked; `calls` has what was."""

    __version__ = "14"

    def __init__(self, capturing=False):
        self.calls = []
        self.cuda = SimpleNamespace(Device=self.device, Event=self.event, runtime=SimpleNamespace(
            is_hip=False, CUDARuntimeError=RuntimeError, getDeviceCount=lambda: 2, getDevice=lambda: 1,
            runtimeGetVersion=lambda: 12090, streamIsCapturing=lambda _: capturing,
            eventRecord=lambda *what: self.calls.append(("record", *what)),
            deviceSynchronize=lambda: self.calls.append("synchronize"),
        ))  # fmt: skip

    def device(self, number):
        class Device:
            mem_info = (1 << 20, 1 << 30)

            def __enter__(device):  # noqa: N805
                self.calls.append(("device", number))

            def __exit__(device, *_):  # noqa: N805
                self.calls.append("back")

        return Device()

    def event(self, *, disable_timing):
        assert disable_timing
        return SimpleNamespace(ptr=77, done=False, synchronize=lambda: self.calls.append("wait"))


@pytest.fixture
def cuda_of(monkeypatch):
    def make(module):
        monkeypatch.setattr(cupy_api, "find_spec", lambda _: object())
        monkeypatch.setattr(cupy_api, "import_module", lambda _: module)
        return Cuda("served")

    return make


def test_events_are_recorded_on_their_device_and_can_be_waited_for(cuda_of):
    module = Module()
    cuda = cuda_of(module)
    event = cuda.record(1, 0x55)
    assert module.calls == [("device", 1), ("record", 77, 0x55), "back"]
    assert not event.query()
    event.synchronize()
    assert module.calls[-1] == "wait"
    cuda.record(0, -3)
    assert ("record", 77, cupy_api.PER_THREAD) in module.calls


def test_a_stream_that_is_capturing_runs_nothing_to_wait_for(cuda_of):
    module = Module(capturing=True)
    event = cuda_of(module).record(0, 0x55)
    assert event.query()
    event.synchronize()
    assert module.calls == [("device", 0), "back"]


def test_devices(cuda_of):
    module = Module()
    cuda = cuda_of(module)
    assert (cuda.device(), cuda.total_memory(1)) == (1, 1 << 30)
    cuda.synchronize(1)
    assert module.calls == [("device", 1), "synchronize", "back"]


@pytest.mark.parametrize("stream", [0, 0x55, -4])
def test_memory_in_the_order_of_a_stream(cuda_of, monkeypatch, stream):
    library = FakeCuda(devices=2)
    monkeypatch.setattr(cuda_driver, "load", lambda: Driver(library))
    cuda = cuda_of(Module())
    source = cuda.sub_allocator("async", 1, stream, Budget(1 << 20))
    address, size = source.allocate(256, 4096)
    assert library.stream == (handle_of(stream) or None)
    source.free(address, size)
    cuda.redirect(source, 0x66)
    assert source.stream == 0x66
    cuda.redirect(cuda.sub_allocator("device", 0, 0, Budget(1)), 0x66)


@needs_cupy
def test_cupys_own_allocators_are_made_around_the_functions(cuda_of):
    cuda = cuda_of(Module())
    cuda.cupy = real
    module = real.cuda.memory
    assert isinstance(cuda.allocator_of((1, 2, 3)).__self__, module.CFunctionAllocator)
    assert isinstance(cuda.allocator_of((len, print)).__self__, module.PythonFunctionAllocator)
