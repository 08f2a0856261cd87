"""Sub-allocators by their kind: a shared budget, unknown kinds and devices."""

from dataclasses import asdict

import pytest
from fake_cuda import FakeCuda
from heaps import MIB, new_heap
from unit.allocator.sub_allocators.made import make

from bfcviz.allocator.sub_allocators.cuda import Budget
from bfcviz.errors import DeviceError, InvalidRequest, OutOfMemory
from bfcviz.live.served_heap import OPTIONS


def test_heaps_may_share_a_budget():
    library = FakeCuda()
    budget = Budget(8 * MIB)
    one, two = (
        new_heap(64 * MIB, make("device", library, budget=budget), allow_growth=True) for _ in range(2)
    )
    one.allocate(6 * MIB)
    with pytest.raises(OutOfMemory):
        two.allocate(3 * MIB)
    one.close()
    assert two.allocate(3 * MIB)
    two.close()
    assert budget.used == 0


@pytest.mark.parametrize("size", [200, 225, 232, 240, 254])
def test_a_heap_gets_all_that_the_others_left_of_their_budget(size):
    library = FakeCuda(memory=1 << 30)
    budget = Budget(256 * MIB)
    side, main = (
        new_heap(budget.limit, make("device", library, budget=budget), **asdict(OPTIONS)) for _ in range(2)
    )
    side.allocate(1000)
    assert main.allocate(size * MIB)
    assert budget.used <= budget.limit


def test_unknown_kinds_and_devices_are_refused():
    library = FakeCuda(devices=2)
    with pytest.raises(InvalidRequest, match=r"'pinned' .* 'device', 'managed', 'async', 'virtual'"):
        make("pinned", library)
    with pytest.raises(DeviceError, match="device 2: there are 2"):
        make("device", library, device=2)
    assert make("device", library, device=1).device == 1
