"""Ties: among free blocks of one size PyTorch takes the lowest address, CuPy any item of a set."""

import random
from itertools import pairwise

import pytest
from unit.whatif.streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.policy_comparison import compare, comparison_text
from bfcviz.units import format_bytes
from bfcviz.whatif import tie_breaking
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.policy_replay import replay
from bfcviz.whatif.policy_table import policy_of, policy_text
from bfcviz.whatif.search import TrialCache
from bfcviz.whatif.smallest_limit import smallest_limit
from bfcviz.whatif.tie_breaking import LEAST_ORDERS, MOST_REQUESTS, TIES, InOrder, in_orders
from bfcviz.whatif.torch_caching import TorchCachingPool


@pytest.mark.parametrize(("order", "first"), [("ascending", 0), ("descending", 1)])
def test_of_two_equal_segments_the_lower_one_serves(order, first):
    pool = TorchCachingPool(DriverMemory(1 << 40), addresses=order)
    blocks = [pool.allocate(40 * MiB, 0) for _ in range(2)]
    for block in blocks:
        pool.free(block)
    assert pool.allocate(40 * MiB, 0) == blocks[first] == min(blocks)


def ties():
    """Requests of few sizes: many free blocks are equal."""
    draw, held, made, requests = random.Random(0), [], 0, []
    for _ in range(300):
        if held and (len(held) > 25 or draw.random() < 0.47):
            requests.append(-held.pop(draw.randrange(len(held))))
        else:
            requests.append(("a", draw.choice([2, 10, 19, 20, 21, 40, 64, 100])))
            held.append(made)
            made += 1
    return stream_of(*requests)


@pytest.mark.parametrize("policy", ["torch", "cupy"])
def test_a_comparison_and_a_limit_say_the_range_of_all_orders(policy, monkeypatch):
    stream = ties()
    asked = [policy_of(policy, **order) for order in TIES[policy].orders[:LEAST_ORDERS]]
    peaks = [replay(stream, policy).peak_reserved, *(replay(stream, rules).peak_reserved for rules in asked)]
    result = compare(stream, [policy])
    orders = result[policy].orders
    assert orders is not None
    assert len(set(peaks)) > 1
    assert orders.least <= min(peaks) < max(peaks) <= orders.most
    found = f"{format_bytes(orders.least)} to {format_bytes(orders.most)}"
    assert found in " ".join(comparison_text(result, explain=False).split())
    given = policy_text(policy, TIES[policy].orders[1])
    assert " to " not in " ".join(comparison_text(compare(stream, [given]), explain=False).split())
    monkeypatch.setattr(tie_breaking, "MOST_REQUESTS", 400 * len(stream))  # each order is a search
    limit = smallest_limit(stream, policy, granule="1MiB", cache=TrialCache())
    alone = smallest_limit(stream, asked[0], granule="1MiB", cache=TrialCache())
    assert limit.orders is not None
    assert alone.orders is not None
    assert limit.orders.tried > 10
    assert limit.orders.found[1].amount == alone.limit_bytes
    assert alone.orders.tried == 1
    assert f"{max(each.amount for each in limit.orders.found):,} bytes" in str(limit)


def tried(amounts, *, policy="cupy", requests=100):
    """How many orders are tried if these are the results; the last one stays."""
    left = iter(amounts)
    last = amounts[-1]
    return in_orders(
        policy_of(policy), InOrder(fits=True, amount=1), lambda _: InOrder(fits=True, amount=next(left, last)),
        requests=requests,
    ).tried  # fmt: skip


def test_all_orders_are_tried_where_one_of_the_first_matters():
    assert tried([1]) == LEAST_ORDERS + 1
    assert tried([1] * (LEAST_ORDERS + 7) + [2]) == LEAST_ORDERS + 1
    assert tried([1] * (LEAST_ORDERS - 3) + [2]) == 1 + len(TIES["cupy"].orders)
    assert tried(range(1000)) == 1 + len(TIES["cupy"].orders)


def test_of_long_streams_fewer_orders_are_tried():
    assert tried([1], requests=MOST_REQUESTS // 2) == 3
    assert tried([1], requests=10 * MOST_REQUESTS) == 2
    assert tried([1], policy="bfc") == 1


@pytest.mark.parametrize("order", ["lowest", "highest"])
def test_the_addresses_of_returned_segments_are_used_again(order):
    pool = TorchCachingPool(DriverMemory(1 << 40), addresses=order)
    blocks = [pool.allocate(size * MiB, 0) for size in (40, 60, 40, 60, 20)]
    assert blocks == sorted(blocks, reverse=order == "highest")
    for block in blocks[:4:2]:
        pool.free(block)
    pool.release_cached()
    assert pool.allocate(30 * MiB, 0) == (blocks[0] if order == "lowest" else blocks[0] + 10 * MiB)
    assert pool.allocate(40 * MiB, 0) == blocks[2]


def test_shuffled_segments_do_not_overlap_and_keep_no_order():
    driver = DriverMemory(1 << 50)
    driver.order = 1
    sizes = [2 * MiB] * 1000 + [1 << 45] * 2
    found = [driver.grant(size) for size in sizes]
    spans = sorted(zip(found, sizes, strict=True))
    assert all(start + size <= after for (start, size), (after, _) in pairwise(spans))
    assert 200 < sum(one < other for one, other in pairwise(found)) < 800


@pytest.mark.parametrize("order", ["ascending", "descending", "lowest", "highest", "shuffled3"])
@pytest.mark.parametrize("expandable", [False, True])
def test_a_recorded_outcome_has_the_same_numbers_in_both_orders(order, expandable):
    stream = ties()
    found = replay(stream, "torch", record=True, addresses=order, expandable_segments=expandable)
    plain = replay(stream, "torch", addresses=order, expandable_segments=expandable)
    assert found.trace is not None
    assert (found.peak_reserved, found.peak_in_use) == (plain.peak_reserved, plain.peak_in_use)
    assert list(found.ranges) == sorted(found.ranges)


def test_another_order_is_refused():
    with pytest.raises(InvalidRequest, match="ascending, descending"):
        policy_of("torch:addresses=sideways")
