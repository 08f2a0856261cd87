"""Guard words and NaN fill in a real GPU's memory: by the driver's copies, and seen by a kernel's array."""

import pytest
from gpu.cuda_machine import cupy, needs_gpu
from heaps import MIB, new_heap

from bfcviz.allocator.cuda import KINDS, cuda_sub_allocator
from bfcviz.devices.allocator_wrappers import FRESH, GuardAllocator, NaNFillAllocator
from bfcviz.errors import GuardOverrun

pytestmark = needs_gpu


def on_gpu(memory):
    return new_heap(64 * MIB, cuda_sub_allocator(memory), allow_growth=True)


def array(address, count, dtype):
    """CuPy's array at an address."""
    memory = cupy.cuda.UnownedMemory(address, count * cupy.dtype(dtype).itemsize, None)
    return cupy.ndarray(count, dtype, cupy.cuda.MemoryPointer(memory, 0))


@pytest.mark.parametrize("memory", KINDS)
@pytest.mark.parametrize("side", ["before", "after"])
def test_one_byte_outside_is_caught_and_names_both_chunks(memory, side):
    with GuardAllocator(on_gpu(memory)) as guard:
        first, second = guard.allocate(1000, label="weights"), guard.allocate(1000, label="bias")
        array(first, 1000, "u1")[:] = 7
        array(second, 1000, "u1")[:] = 7
        cupy.cuda.Device().synchronize()
        guard.check()
        chunk, at, neighbour = (
            ("weights", first + 1000, "bias") if side == "after" else ("bias", second - 1, "weights")
        )
        array(at, 1, "u1")[:] = 7
        cupy.cuda.Device().synchronize()
        address = first if side == "after" else second
        with pytest.raises(GuardOverrun) as caught:
            guard.free(address)
        (damage,) = caught.value.damages
        assert (damage.chunk.label, damage.side, damage.address) == (chunk, side, at)
        assert (damage.neighbour.label, damage.found) == (neighbour, b"\x07")
        assert (array(address, 1000, "u1") == 7).all()  # what the owner wrote is untouched
        guard.mend(address)
        guard.free(first)
        guard.free(second)


@pytest.mark.parametrize("memory", KINDS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_fresh_and_freed_memory_is_nan(memory, dtype):
    with NaNFillAllocator(on_gpu(memory)) as nan:
        address = nan.allocate_elements(dtype, 1_000_003)
        values = array(address, 1_000_003, dtype)
        assert bool(cupy.isnan(values).all())
        values[:] = 1
        cupy.cuda.Device().synchronize()
        nan.free(address)
        assert bool(cupy.isnan(values).all())
        assert nan.access.read(nan.allocate(5), 5) == (FRESH * 3)[:5]
