"""RMM on a real GPU: served, with CuPy and streams, out of memory; and observed, by callbacks and by its log."""

import numpy as np
import pytest
from heaps import MIB, model_of
from processes import needs_compiled

from bfcviz.events.schema import Kind
from bfcviz.live.rmm import observe_rmm, serve_rmm
from bfcviz.model.holders import holders

try:
    import rmm
    import rmm.mr
    from rmm._cuda.gpu import getDeviceCount

    WHY = None if getDeviceCount() else "RMM sees no CUDA device"
except Exception as error:  # noqa: BLE001  not installed, or no driver: RMM raises an error of its own
    rmm, WHY = None, f"RMM cannot be used: {error}"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(WHY is not None, reason=f"needs an NVIDIA GPU and RMM: {WHY}"),
]


def test_buffers_keep_their_bytes():
    given = np.random.default_rng(1).integers(0, 256, 1_000_000, np.uint8).tobytes()
    before = rmm.mr.get_current_device_resource()
    with serve_rmm() as served:
        buffers = [rmm.DeviceBuffer.to_device(given) for _ in range(5)]
        assert served.heaps[0].stats().requested_bytes_in_use == 5 * len(given)
        assert all(buffer.tobytes() == given for buffer in buffers)
        del buffers[1:4]
        buffers += [rmm.DeviceBuffer.to_device(given) for _ in range(3)]
    assert rmm.mr.get_current_device_resource() is before
    assert all(buffer.tobytes() == given for buffer in buffers)
    del buffers
    served.settle()
    assert sum(heap.stats().chunks_in_use for heap in served.heaps) == 0
    for heap in served.heaps:
        heap.check_invariants()


def test_streams_have_heaps_of_their_own():
    from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

    with serve_rmm() as served:
        streams = [Stream() for _ in range(3)]
        buffers = [rmm.DeviceBuffer(size=1000, stream=stream) for stream in streams]
        assert len(served.heaps) == 4  # and the default one's
        del buffers


def test_out_of_memory_is_a_memory_error():
    with serve_rmm("16MiB") as served:
        with pytest.raises(MemoryError, match="asked for"):
            rmm.DeviceBuffer(size=100 * MIB)
        assert served.out_of_memory.requested == 100 * MIB
        rmm.DeviceBuffer(size=MIB)


def test_cupy_is_seen_through_it():
    cupy = pytest.importorskip("cupy")
    allocator = pytest.importorskip("rmm.allocators.cupy").rmm_cupy_allocator
    before = cupy.cuda.get_allocator()
    try:
        with serve_rmm() as served:
            cupy.cuda.set_allocator(allocator)
            array = cupy.arange(1_000_000)
            assert int(array.sum()) == 499_999_500_000
            assert served.heaps[0].stats().bytes_in_use >= array.nbytes
            del array
    finally:
        cupy.cuda.set_allocator(before)


def load_table():
    return rmm.DeviceBuffer.to_device(bytes(range(256)) * 20)


@needs_compiled
def test_an_observed_pool_is_unchanged_and_its_holders_are_lines_of_code():
    before = rmm.mr.get_current_device_resource()
    pool = rmm.mr.PoolMemoryResource(
        rmm.mr.CudaMemoryResource(), initial_pool_size=16 * MIB, maximum_pool_size=32 * MIB
    )
    rmm.mr.set_current_device_resource(pool)
    try:
        with observe_rmm() as source:
            (heap,) = source.heaps[:1]
            kept, gone = load_table(), rmm.DeviceBuffer(size=700)
            del gone
            with pytest.raises(MemoryError):
                rmm.DeviceBuffer(size=64 * MIB)
            assert (heap.stats().num_allocs, heap.stats().requested_bytes_in_use) == (2, kept.size)
            assert source.out_of_memory.requested == 64 * MIB
            (row,) = holders(model_of(heap)).to_arrow().to_pylist()[1:]
            assert (row["name"].partition(" ")[2], row["bytes"]) == ("load_table", kept.size)
        assert rmm.mr.get_current_device_resource() is pool
        assert kept.tobytes() == bytes(range(256)) * 20
        del kept  # its free reaches the pool: it has room for one buffer of all its memory
        rmm.DeviceBuffer(size=15 * MIB)
    finally:
        rmm.mr.set_current_device_resource(before)


def test_streams_are_observed_by_number():
    from rmm.pylibrmm.stream import Stream  # noqa: PLC0415

    streams = [Stream() for _ in range(3)]
    with observe_rmm() as source:
        buffers = [rmm.DeviceBuffer(size=1000, stream=stream) for stream in streams]
        events = source.heaps[0].log.copy(0, source.heaps[0].log.head)
        assert set(events["stream"][events["kind"] == Kind.ALLOCATE].tolist()) == {1, 2, 3}
        del buffers
    assert source.heaps[0].stats().chunks_in_use == 0


def test_its_log_is_read_as_it_grows():
    with observe_rmm(mechanism="log", every_s=1000) as source:
        kept = rmm.DeviceBuffer(size=5000)
        del kept
        kept = rmm.DeviceBuffer(size=700)
        source.settle()
        (heap,) = source.heaps[:1]
        assert heap.stats().requested_bytes_in_use == kept.size == 700
        assert heap.stats().num_allocs == 2
    assert source.mechanism.files[0].unreadable == 0
