"""Ties: among free blocks of one size PyTorch takes the lowest address, CuPy any item of a set."""

import random
from itertools import pairwise

import pytest
from unit.whatif.streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.units import format_bytes
from bfcviz.whatif.comparison import compare, comparison_text
from bfcviz.whatif.policies.torch_caching import TorchCachingPool
from bfcviz.whatif.policy_table import policy_of, policy_text, tied
from bfcviz.whatif.replay import replay
from bfcviz.whatif.search.smallest_limit import smallest_limit
from bfcviz.whatif.search.trial import ResultCache
from bfcviz.whatif.simulation import DriverMemory


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


@pytest.mark.parametrize(
    ("policy", "option", "values"),
    [
        ("torch", "addresses", ["ascending", "descending", "shuffled1", "shuffled2"]),
        ("cupy", "ties", list(range(17))),
    ],
)
def test_a_comparison_and_a_limit_say_the_range_of_all_orders(policy, option, values):
    stream = ties()
    peaks = [replay(stream, policy, **{option: value}).peak_reserved for value in values]
    assert len(set(peaks)) > 1
    found = f"{format_bytes(min(peaks))} to {format_bytes(max(peaks))}"
    assert found in " ".join(comparison_text(compare(stream, [policy]), explain=False).split())
    given = policy_text(policy, {option: values[1]})
    assert found not in " ".join(comparison_text(compare(stream, [given]), explain=False).split())
    limit = smallest_limit(stream, policy, granule="1MiB", cache=ResultCache())
    alone = [
        smallest_limit(stream, policy_of(policy, **{option: value}), granule="1MiB", cache=ResultCache())
        for value in values[1:]
    ]
    assert limit.other_limits == tuple(each.limit_bytes for each in alone)
    assert all(each.other_limits == () for each in alone)
    assert f"{max(limit.limit_bytes, *limit.other_limits):,} bytes" in str(limit)


def test_of_long_streams_fewer_orders_are_tried():
    assert len(tied(policy_of("cupy"), 100)) == 16
    assert len(tied(policy_of("cupy"), 400_000)) == 2
    assert len(tied(policy_of("cupy"), 10_000_000)) == 1
    assert tied(policy_of("bfc"), 100) == ()


def test_shuffled_segments_do_not_overlap_and_keep_no_order():
    driver = DriverMemory(1 << 50)
    driver.order = 1
    sizes = [2 * MiB] * 1000 + [1 << 45] * 2
    found = [driver.grant(size) for size in sizes]
    spans = sorted(zip(found, sizes, strict=True))
    assert all(start + size <= after for (start, size), (after, _) in pairwise(spans))
    assert 200 < sum(one < other for one, other in pairwise(found)) < 800


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled3"])
@pytest.mark.parametrize("expandable", [False, True])
def test_a_recorded_outcome_has_the_same_numbers_in_both_orders(order, expandable):
    stream = ties()
    found = replay(stream, "torch", record=True, addresses=order, expandable_segments=expandable)
    plain = replay(stream, "torch", addresses=order, expandable_segments=expandable)
    assert found.trace is not None
    assert (found.peak_reserved, found.peak_in_use) == (plain.peak_reserved, plain.peak_in_use)
    assert list(found.ranges) == sorted(found.ranges)


def test_another_order_is_refused():
    with pytest.raises(InvalidRequest, match="ascending or descending"):
        policy_of("torch:addresses=sideways")
