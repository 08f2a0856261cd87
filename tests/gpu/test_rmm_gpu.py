"""RMM on a real GPU: buffers, CuPy and PyTorch through it, streams, out of memory; and its log observed."""

import numpy as np
import pytest
from heaps import MIB

from bfcviz.live.rmm.observe import observe_rmm
from bfcviz.live.rmm.serve import serve_rmm

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


def test_its_log_is_read_as_it_grows():
    with observe_rmm(every_s=1000) as source:
        kept = rmm.DeviceBuffer(size=5000)
        del kept
        kept = rmm.DeviceBuffer(size=700)
        source.settle()
        (heap,) = source.heaps[:1]
        assert heap.stats().requested_bytes_in_use == kept.size == 700
        assert heap.stats().num_allocs == 2
    assert source.files[0].unreadable == 0
