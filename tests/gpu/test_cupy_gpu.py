"""CuPy on a real GPU, served from our heaps: right results on streams, in threads, out of memory, on all devices."""

from contextlib import nullcontext

import numpy as np
import pytest
from gpu.cuda_machine import cupy, needs_gpu, spinner, trained
from heaps import GIB, MIB, assert_model_agrees
from threads import in_threads

from bfcviz.allocator.cuda import KINDS
from bfcviz.errors import DeviceError, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.live.cupy import observe_cupy, serve_cupy

pytestmark = needs_gpu

LOG = 1 << 18


def served(limit="1GiB", **options):
    return serve_cupy(limit, log=EventLog(LOG), **options)


def assert_sound(source):
    source.settle()
    for heap in source.heaps:
        heap.check_invariants()
        if heap.log.oldest == 0:
            assert_model_agrees(heap)


@pytest.mark.parametrize("memory", KINDS)
def test_a_network_is_trained_as_on_cupys_own_pool(memory):
    plain = trained()
    with served(memory=memory) as source:
        ours = trained()
        assert_sound(source)
    assert source.heaps[0].stats().num_allocs > 500
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-4)
    for one, other in zip(ours[1:], plain[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_arrays_outlive_it_and_the_pool_is_back():
    before = cupy.cuda.get_allocator()
    with served() as source:
        array = cupy.arange(1000)
    assert cupy.cuda.get_allocator() == before
    assert int((array + 1).sum()) == 500_500
    del array
    assert source.heaps[0].stats().chunks_in_use == 0


@pytest.mark.parametrize("memory", KINDS)
def test_memory_that_a_stream_still_reads_is_not_handed_out(memory):
    count, spin = 1 << 16, spinner()
    with served(memory=memory) as source:
        stream = cupy.cuda.Stream(non_blocking=True)
        for turn in range(20):
            wanted = cupy.arange(count, dtype=cupy.int32) + turn
            result = cupy.zeros(count, cupy.int32)
            cupy.cuda.get_current_stream().synchronize()
            with stream:
                spin((1,), (256,), (wanted, result, count, 3_000_000))
                del wanted  # of the default stream's heap, and the other stream is at work on it
            junk = [cupy.full(count, -1, cupy.int32) for _ in range(4)]
            stream.synchronize()
            assert (result.get() == np.arange(count) + turn).all()
            del junk, result
        assert len(source.heaps) >= 1
        assert_sound(source)


def test_streams_side_by_side():
    with served() as source:
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
        sums = []
        for turn in range(60):
            for number, stream in enumerate(streams):
                with stream:
                    made = cupy.full((100 + turn, 1000), number + 1, cupy.float32)
                    sums.append((((made * 2) + made).sum(), 3 * (number + 1) * (100 + turn) * 1000))
        for stream in streams:
            stream.synchronize()
        assert all(float(got) == want for got, want in sums)
        sums.clear()
        assert len(source.heaps) == 5
        assert_sound(source)


def test_threads_with_a_stream_each():
    errors = []

    def work(number):
        try:
            with cupy.cuda.Stream(non_blocking=True) as stream:
                for turn in range(100):
                    made = cupy.full(1000 + 37 * turn, number, cupy.int64)
                    total = int((made + made).sum())
                    assert total == 2 * number * made.size
                stream.synchronize()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with served() as source:
        in_threads(work, 6)
        assert errors == []
        assert_sound(source)


@pytest.mark.parametrize("memory", KINDS)
def test_out_of_memory_and_on(memory):
    with served("256MiB", memory=memory) as source:
        held = cupy.zeros(100 * MIB, cupy.uint8)
        with pytest.raises(OutOfMemory) as caught:
            cupy.zeros(300 * MIB, cupy.uint8)
        assert (caught.value.requested, caught.value.bytes_limit) == (300 * MIB, 256 * MIB)
        assert source.out_of_memory.requested == caught.value.requested
        assert int(held.sum()) == 0
        del held
        # Of a region of 256 MiB at most half: a larger request takes it whole, and leaves the sum no memory.
        assert int(cupy.ones(100 * MIB, cupy.uint8).sum()) == 100 * MIB


def test_the_device_itself_is_full():
    free, total = cupy.cuda.runtime.memGetInfo()
    with served(total) as source:
        with pytest.raises(OutOfMemory):
            cupy.zeros(free + GIB, cupy.uint8)
        assert int(cupy.ones(1000, cupy.uint8).sum()) == 1000
        assert_sound(source)
    with pytest.raises(LiveError, match="give a lower limit"):
        served(total + GIB)


def test_a_graph_is_captured_and_launched():
    with served(memory="device"):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            source = cupy.arange(1000, dtype=cupy.float32)
            result = source * 2  # compiles the kernel before the capture
            stream.synchronize()
            stream.begin_capture()
            cupy.multiply(source, 3, out=result)
            graph = stream.end_capture()
            graph.launch()
            stream.synchronize()
        assert float(result.sum()) == 3 * 499_500


@pytest.mark.parametrize("memory", KINDS)
def test_a_heap_that_grows_does_not_break_a_global_capture(memory):
    with served(memory=memory), cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        with pytest.raises(DeviceError) if memory == "async" else nullcontext():
            made = cupy.empty(100 * MIB, cupy.uint8)
        stream.end_capture()
        made = cupy.empty(100 * MIB, cupy.uint8)
        made[:] = 7
        assert int(made[-1]) == 7


def test_every_device():
    count = cupy.cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip("there is one device")
    with served() as source:
        for number in range(count):
            with cupy.cuda.Device(number):
                made = cupy.full(10_000, number + 1)
                assert int((made + made).sum()) == 20_000 * (number + 1)
                del made
        assert {heap.name for heap in source.heaps} == {f"cupy:{number}" for number in range(count)}
        assert_sound(source)


def test_its_own_pool_is_observed():
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    with observe_cupy(log=EventLog(LOG)) as source:
        before = pool.used_bytes()
        trained(20)
        held = [cupy.zeros(1000 * number + 1) for number in range(50)]
        (heap,) = source.heaps
        assert heap.stats().bytes_in_use == pool.used_bytes() - before
        pool.free_all_blocks()
        held.extend(cupy.zeros(77_777) for _ in range(10))
        assert heap.stats().bytes_in_use == pool.used_bytes() - before
        assert heap.inconsistencies.left_out == 0
        del held
