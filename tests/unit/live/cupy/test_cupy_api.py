"""What `CupyFunctions` asks of CuPy: the calls it makes, on a stand-in for the module, since there is no GPU to ask."""

import ctypes
import weakref
from types import SimpleNamespace

import pytest
from fake_cuda import GLOBAL, RELAXED, THREAD_LOCAL, FakeCuda, Status
from unit.live.cupy_stand_in import cupy as real
from unit.live.cupy_stand_in import needs_cupy

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import Budget
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.errors import LiveError
from bfcviz.live import cupy as cupy_api
from bfcviz.live.cupy import CupyFunctions
from bfcviz.live.deferred_frees import stream_handle


class RuntimeFailure(RuntimeError):
    """CuPy's CUDARuntimeError."""

    def __init__(self, status):
        super().__init__(f"cudaError{status}")
        self.status = status


class Module:
    """CuPy, as far as it is asked, over the stand-in for the driver; `current` is the current stream's handle."""

    __version__ = "14"

    def __init__(self, devices=2):
        self.library = FakeCuda(devices=devices)
        self.driver = Driver(self.library)
        self.current = self.library.add_stream(0x55)
        self.kept = []
        self.cuda = SimpleNamespace(Device=self.device, Event=self.event, get_current_stream=self.stream,
            runtime=SimpleNamespace(
                is_hip=False, CUDARuntimeError=RuntimeFailure, getDeviceCount=lambda: devices, getDevice=lambda: 1,
                runtimeGetVersion=lambda: 12090,
                eventRecord=lambda event, stream: self.call("cuEventRecord", event, ctypes.c_void_p(stream)),
                deviceSynchronize=lambda: self.call("cuCtxSynchronize"),
        ))  # fmt: skip

    def call(self, name, *arguments):
        if status := getattr(self.library, name)(*arguments):
            raise RuntimeFailure(int(status))

    def device(self, number):
        class Device:
            mem_info = (1 << 20, 1 << 30)

            def __enter__(device):  # noqa: N805
                context = ctypes.c_void_p()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
                self.call("cuCtxPushCurrent_v2", context)

            def __exit__(device, *_):  # noqa: N805
                self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

        return Device()

    def event(self, *, disable_timing):
        assert disable_timing
        return _Event(self)

    def stream(self, device):
        self.kept.append(weakref.ref(made := _Stream(self.current)))
        return made

    def enter(self, device=0):
        """As a thread of a program is, which has a current device."""
        self.device(device).__enter__()


class _Stream:
    def __init__(self, ptr):
        self.ptr = ptr


class _Event:
    """CuPy's Event."""

    def __init__(self, module):
        self.module, self.ptr = module, ctypes.c_void_p()
        module.call("cuEventCreate", ctypes.byref(self.ptr), 2)

    @property
    def done(self):
        status = self.module.library.cuEventQuery(self.ptr)
        if status not in (0, Status.NOT_READY):
            raise RuntimeFailure(status)
        return status == 0

    def synchronize(self):
        self.module.call("cuEventSynchronize", self.ptr)


@pytest.fixture
def cuda_of(monkeypatch):
    def make(module):
        monkeypatch.setattr(cupy_api, "find_spec", lambda _: object())
        monkeypatch.setattr(cupy_api, "import_module", lambda _: module)
        monkeypatch.setattr(cuda_driver, "load", lambda: module.driver)
        return CupyFunctions("served")

    return make


def test_events_are_recorded_on_their_device_and_can_be_waited_for(cuda_of):
    module = Module()
    library, cuda = module.library, cuda_of(module)
    stream = library.add_stream(device=1)
    module.enter(0)
    library.launch(stream)
    event = cuda.record(1, stream)
    assert not event.query()
    library.launch(stream)
    library.finish(stream)
    assert event.query()
    library.launch(stream)
    second = cuda.record(1, stream)
    second.synchronize()
    assert second.query()
    assert library.current == 0
    own = cuda.record(0, -3)
    assert own.query()


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_an_event_is_recorded_and_asked_without_breaking_a_capture(cuda_of, mode):
    module = Module()
    library, cuda = module.library, cuda_of(module)
    module.enter()
    reader = library.add_stream()
    library.launch(reader)
    early = cuda.record(0, reader)
    library.begin_capture(0x55, mode)
    assert not early.query()
    event = cuda.record(0, reader)
    assert not event.query()
    library.finish(reader)
    event.synchronize()
    assert event.query()
    assert early.query()
    assert library.end_capture(0x55) == Status.SUCCESS


def test_an_event_of_a_stream_that_is_captured_is_recorded_after_the_capture(cuda_of):
    module = Module()
    library, cuda = module.library, cuda_of(module)
    module.enter()
    library.launch(0x55)
    library.begin_capture(0x55)
    event = cuda.record(0, 0x55)
    event.synchronize()
    library.finish(0x55)
    assert not event.query()
    assert module.kept[-1]() is not None  # the stream's object: its handle is used later
    assert library.end_capture(0x55) == Status.SUCCESS
    library.launch(0x55)
    assert not event.query()
    library.finish(0x55)
    assert event.query()


def test_the_default_stream_cannot_be_used_while_a_blocking_stream_is_captured(cuda_of):
    module = Module()
    library, cuda = module.library, cuda_of(module)
    module.enter()
    blocking = library.add_stream(flags=0)
    library.begin_capture(blocking)
    event = cuda.record(0, 0)
    assert not event.query()
    with pytest.raises(LiveError, match="while a CUDA graph is captured"):
        cuda.synchronize(0)
    assert library.end_capture(blocking) == Status.SUCCESS
    assert event.query()
    cuda.synchronize(0)


def test_any_answer_that_tells_of_a_capture_is_taken_for_one(cuda_of):
    module = Module()
    library, cuda = module.library, cuda_of(module)
    module.enter()
    library.fails["cuEventRecord"] = Status.CAPTURE_MERGE
    event = cuda.record(0, 0x55)
    assert not event.query()
    del library.fails["cuEventRecord"]
    assert event.query()
    library.fails["cuEventRecord"] = Status.INVALID_HANDLE
    with pytest.raises(RuntimeFailure, match="400"):
        cuda.record(0, 0x55)


def test_devices(cuda_of):
    module = Module()
    cuda = cuda_of(module)
    assert (cuda.device(), cuda.total_memory(1)) == (1, 1 << 30)
    module.enter()
    stream = module.library.add_stream(device=1)
    module.library.launch(stream)
    event = cuda.record(1, stream)
    cuda.synchronize(1)
    assert event.query()


@pytest.mark.parametrize("stream", [0, 0x66, -4])
def test_memory_in_the_order_of_a_stream(cuda_of, stream):
    module = Module()
    library, cuda = module.library, cuda_of(module)
    library.add_stream(0x66, device=1)
    source = cuda.sub_allocator("async", 1, stream, Budget(1 << 20))
    address, size = source.allocate(256, 4096)
    assert library.stream == (stream_handle(stream) or None)
    source.free(address, size)
    for memory in ("async", "device"):
        source = cuda.sub_allocator(memory, 0, 0, Budget(1))
        cuda.redirect(source, 0x55)
        assert source.stream == 0x55


@needs_cupy
def test_cupys_own_allocators_are_made_around_the_functions(cuda_of):
    cuda = cuda_of(Module())
    cuda.cupy = real
    assert isinstance(cuda.allocator_of((1, 2, 3)).__self__, real.cuda.memory.CFunctionAllocator)


class _Pool:
    """CuPy's MemoryPool: bytes of the current device, in use and idle."""

    def __init__(self, module, used, idle):
        self.module, self.used, self.idle = module, used, idle

    def total_bytes(self):
        return self.used + self.idle

    def free_all_blocks(self):
        assert self.module.library.contexts  # of the device that is meant
        self.idle = 0

    def malloc(self, size):
        raise NotImplementedError


@pytest.mark.parametrize("own", [True, False])
def test_what_the_pools_return_is_told_whatever_other_processes_do(cuda_of, own):
    module = Module()
    default, other = _Pool(module, 300, 200), _Pool(module, 0, 50)
    module.get_default_memory_pool = lambda: default
    module.cuda.memory = SimpleNamespace(MemoryPool=_Pool, MemoryAsyncPool=_Pool)
    module.cuda.get_allocator = lambda: (other if own else default).malloc
    assert cuda_of(module).empty_cache(0) == 200 + 50 * own
    assert (default.total_bytes(), other.total_bytes()) == (300, 0 if own else 50)
