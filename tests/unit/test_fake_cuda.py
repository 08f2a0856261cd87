"""The stand-in for the driver refuses what the driver refuses, with its status."""

import ctypes
from threading import Thread

import pytest
from fake_cuda import GLOBAL, RELAXED, THREAD_LOCAL, FakeCuda, Status

MIB = 1 << 20


@pytest.fixture
def library():
    made = FakeCuda(devices=2)
    assert made.cuInit(0) == 0
    return made


def enter(library, device=0):
    context = ctypes.c_void_p()
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert library.cuCtxPushCurrent_v2(context) == 0
    return context


def allocate(library, size=MIB):
    where = ctypes.c_uint64()
    return library.cuMemAlloc_v2(ctypes.byref(where), ctypes.c_size_t(size)), where


def in_thread(function):
    found = []
    thread = Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_a_context_is_current_in_one_thread(library):
    assert allocate(library)[0] == Status.INVALID_CONTEXT
    enter(library)
    assert allocate(library)[0] == 0
    assert in_thread(lambda: allocate(library)[0]) == Status.INVALID_CONTEXT
    assert library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
    assert library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == Status.INVALID_CONTEXT


def test_a_context_that_was_reset_is_destroyed_until_it_is_retained_again(library):
    enter(library)
    allocate(library)
    library.cuDevicePrimaryCtxReset_v2(0)
    assert (library.used, allocate(library)[0]) == (0, Status.CONTEXT_IS_DESTROYED)
    enter(library)
    assert allocate(library)[0] == 0


def test_each_device_has_its_own_memory(library):
    enter(library, 1)
    assert allocate(library, 60 * MIB)[0] == 0
    assert allocate(library, 60 * MIB)[0] == Status.OUT_OF_MEMORY
    enter(library, 0)
    assert allocate(library, 60 * MIB)[0] == 0
    assert (library.used_on(0), library.used_on(1)) == (60 * MIB, 60 * MIB)


def test_a_double_free_is_an_invalid_value(library):
    enter(library)
    _, where = allocate(library)
    assert [library.cuMemFree_v2(where) for _ in range(2)] == [0, Status.INVALID_VALUE]


def test_work_is_under_way_until_it_is_finished(library):
    enter(library)
    stream, event = library.add_stream(), ctypes.c_void_p()
    library.cuEventCreate(ctypes.byref(event), 2)
    library.launch(stream)
    assert library.cuEventRecord(event, ctypes.c_void_p(stream)) == 0
    library.launch(stream)
    assert library.cuEventQuery(event) == Status.NOT_READY
    library.finish(stream)
    assert library.cuEventQuery(event) == 0
    library.launch(stream)
    assert library.cuStreamQuery(ctypes.c_void_p(stream)) == Status.NOT_READY
    assert library.cuStreamSynchronize(ctypes.c_void_p(stream)) == 0
    assert library.cuStreamQuery(ctypes.c_void_p(stream)) == 0
    assert library.cuStreamQuery(ctypes.c_void_p(0xBAD)) == Status.INVALID_HANDLE


@pytest.mark.parametrize(
    ("mode", "thread_mode", "here", "elsewhere"),
    [
        (GLOBAL, GLOBAL, Status.CAPTURE_UNSUPPORTED, Status.CAPTURE_UNSUPPORTED),
        (THREAD_LOCAL, GLOBAL, Status.CAPTURE_UNSUPPORTED, 0),
        (RELAXED, GLOBAL, 0, 0),
        (GLOBAL, THREAD_LOCAL, Status.CAPTURE_UNSUPPORTED, 0),
        (GLOBAL, RELAXED, 0, 0),
    ],
)
def test_a_capture_forbids_unsafe_calls_by_its_mode_and_the_threads(
    library, mode, thread_mode, here, elsewhere
):
    enter(library)
    stream = library.add_stream()

    def status():
        library.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(thread_mode)))
        enter(library)
        return allocate(library)[0]

    library.begin_capture(stream, mode)
    assert in_thread(status) == elsewhere
    assert status() == here
    ended = library.end_capture(stream)
    assert ended == (Status.CAPTURE_INVALIDATED if here or elsewhere else 0)


def test_a_capturing_stream_cannot_be_waited_for_in_any_mode(library):
    enter(library)
    stream = library.add_stream()
    for wait in (library.cuCtxSynchronize, lambda: library.cuStreamSynchronize(ctypes.c_void_p(stream))):
        library.begin_capture(stream, RELAXED)
        assert wait() == Status.CAPTURE_UNSUPPORTED
        assert library.end_capture(stream) == Status.CAPTURE_INVALIDATED


def test_a_forked_child_is_refused(library):
    enter(library)
    library.pid -= 1  # a real fork would copy pytest's threads
    assert allocate(library)[0] == library.cuInit(0) == Status.NOT_INITIALIZED
