"""Among free blocks of one size PyTorch takes that with the lowest address: the driver's order decides."""

import random

import pytest
from unit.whatif.streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.units import format_bytes
from bfcviz.whatif.comparison import compare, comparison_text
from bfcviz.whatif.policies.torch_caching import TorchCachingPool
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.replay import replay
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


def test_a_comparison_says_the_range_of_both_orders():
    stream = ties()
    peaks = [replay(stream, "torch", addresses=order).peak_reserved for order in ("ascending", "descending")]
    assert peaks[0] != peaks[1]
    text = " ".join(comparison_text(compare(stream, ["torch"]), explain=False).split())
    assert f"{format_bytes(min(peaks))} to {format_bytes(max(peaks))}" in text
    given = comparison_text(compare(stream, ["torch:addresses=descending"]), explain=False)
    assert format_bytes(peaks[1]) in given
    assert "the order in which" not in given


@pytest.mark.parametrize("order", ["ascending", "descending"])
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
