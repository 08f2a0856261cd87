import random

import pytest
from naive_expandable import NaiveExpandable

from bfcviz.whatif.policies.torch_caching import TorchCachingPool
from bfcviz.whatif.simulation import DriverMemory

KiB, MiB = 1 << 10, 1 << 20


def pool_of(limit=1 << 36, device=None):
    return TorchCachingPool(DriverMemory(limit), expandable_segments=True, device=device)


def test_a_segment_grows_in_place_by_whole_granules():
    pool = pool_of()
    first = pool.allocate(30 * MiB, 0)
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(15 * MiB, 0) == first + 30 * MiB  # 10 MiB are there, 20 MiB are mapped
    assert pool.driver.reserved == 60 * MiB
    small = pool.allocate(KiB, 0)
    assert pool.driver.reserved == 62 * MiB
    assert not first <= small < first + 60 * MiB


def test_a_block_that_can_grow_is_the_last_choice():
    pool = pool_of()
    first = pool.allocate(16 * MiB, 0)
    second = pool.allocate(8 * MiB, 0)  # 16 MiB remain at the end
    pool.free(first)
    assert pool.allocate(15 * MiB, 0) == first
    assert second == first + 16 * MiB
    pool.free(first)
    third = pool.allocate(20 * MiB, 0)
    assert third == second + 8 * MiB
    assert pool.driver.reserved == 60 * MiB
    pool.free(third)
    pool.allocate(10 * MiB, 0)
    assert pool.allocate(6 * MiB, 0) == first + 10 * MiB


def test_before_a_failure_free_granules_are_unmapped_and_mapped_at_the_lowest_place_that_has_room():
    pool = pool_of(100 * MiB, device=1 << 30)  # so that there are addresses enough
    blocks = [pool.allocate(20 * MiB, 0) for _ in range(5)]
    pool.free(blocks[1])
    pool.free(blocks[3])
    assert pool.allocate(40 * MiB, 0) == blocks[4] + 20 * MiB
    assert (pool.driver.releases, pool.driver.reserved) == (2, 100 * MiB)
    assert pool.allocate(MiB, 0) == 0
    pool.free(blocks[4])
    assert pool.allocate(20 * MiB, 0) == blocks[4]
    pool.free(blocks[0])
    pool.free(blocks[2])
    assert pool.allocate(60 * MiB, 0) == 0  # 40 MiB at most can be mapped again
    assert pool.allocate(40 * MiB, 0) == blocks[0]


def test_granules_with_blocks_in_use_stay_mapped():
    pool = pool_of(60 * MiB)
    first, second, third = (pool.allocate(size * MiB, 0) for size in (15, 30, 15))
    pool.free(second)
    assert pool.allocate(35 * MiB, 0) == 0
    assert pool.driver.releases == 1  # [15, 45) has one whole granule
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(29 * MiB, 0) == first + 15 * MiB
    assert third == first + 45 * MiB


def churn(seed, count, live, largest):
    """Requests of sizes between 512 bytes and `largest`, on two streams: (name, size, stream), or a name to free."""
    draw, names = random.Random(seed), []
    for name in range(count):
        if names and (len(names) >= live or draw.random() < 0.45):
            yield names.pop(draw.randrange(len(names)))
        size = int(512 * (largest / 512) ** draw.random())
        names.append(name)
        yield name, size, draw.randrange(2)


@pytest.mark.parametrize("meaning", ["device", "fraction", "fraction of a device that is little larger"])
@pytest.mark.parametrize("share", [1.0, 0.9, 0.7, 0.5])
@pytest.mark.parametrize(
    ("seed", "live", "largest"), [(1, 60, 200 * MiB), (2, 200, 4 * MiB), (3, 25, 40 * MiB)]
)
def test_each_step_is_that_of_the_plain_rules(meaning, share, seed, live, largest):
    requests = list(churn(seed, 800, live, largest))
    in_use, most, sizes = 0, 0, {}
    for request in requests:
        if isinstance(request, tuple):
            sizes[request[0]] = request[1]
            in_use += request[1]
        else:
            in_use -= sizes[request]
        most = max(most, in_use)
    limit = int(most * share) // (2 * MiB) * 2 * MiB + 4 * MiB
    device = {"device": None, "fraction": 64 << 30}.get(meaning, limit + 6 * MiB)
    naive = NaiveExpandable(limit if device is None else device, None if device is None else limit)
    pool = TorchCachingPool(DriverMemory(limit), expandable_segments=True, device=device)
    at, failed = {}, 0
    for request in requests:
        if isinstance(request, tuple):
            name, size, stream = request
            address = pool.allocate(size, stream)
            assert bool(address) == naive.allocate(name, size, stream)
            failed += not address
            if address:
                at[name] = address
        elif request in at:
            pool.free(at.pop(request))
            naive.free(request)
        assert (pool.driver.reserved, pool.in_use) == (naive.reserved, naive.in_use)
    assert failed or share > 0.5


def test_where_addresses_run_out_another_segment_begins():
    pool = pool_of(160 * MiB)  # 180 MiB of addresses
    blocks = [pool.allocate(20 * MiB, 0) for _ in range(8)]
    for block in blocks[::2]:
        pool.free(block)
    other = pool.allocate(30 * MiB, 0)  # holes of 20 MiB, and 20 MiB at the end
    assert not blocks[0] <= other < blocks[0] + 180 * MiB
    assert pool.driver.reserved == 120 * MiB


def test_a_fraction_refuses_a_whole_segment_and_lets_granules_exceed_it():
    pool = pool_of(50 * MiB, device=1 << 30)
    assert pool.allocate(30 * MiB, 0)
    assert pool.driver.reserved == 40 * MiB
    assert pool.allocate(11 * MiB, 0) == 0  # 12 MiB more than 40: only 1 MiB would have to be mapped
    assert pool.allocate(10 * MiB, 0)
    assert pool.allocate(MiB, 0)
    large = pool_of(70 * MiB, device=1 << 30)
    assert large.allocate(64 * MiB, 0)
    assert large.driver.reserved == 80 * MiB  # four granules, above the 70 MiB that the fraction allows


def test_the_default_allocator_keeps_to_the_fraction():
    pool = TorchCachingPool(DriverMemory(50 * MiB), device=1 << 30)
    assert pool.allocate(40 * MiB, 0)
    assert pool.allocate(11 * MiB, 0) == 0
    assert pool.allocate(10 * MiB, 0)
