"""SortedAddresses against a plain sorted list, across its own short lists."""

import random
from bisect import bisect_left, bisect_right, insort

import pytest

from bfcviz.events.sorted_addresses import SortedAddresses


@pytest.mark.parametrize("longest", [1, 2, 3, 1024])
def test_it_finds_what_a_sorted_list_finds(longest):
    rng, found, plain = random.Random(longest), SortedAddresses(longest), []
    for step in range(3000):
        address = rng.randrange(400)
        at = bisect_left(plain, address)
        if address in plain[at : at + 1]:
            found.remove(address)
            del plain[at]
        elif step % 1000 < 700:  # grow, then shrink
            found.add(address)
            insort(plain, address)
        probe = rng.randrange(-1, 401)
        place = bisect_right(plain, probe)
        assert found.at_or_before(probe) == (plain[place - 1] if place else -1)
        if step % 50 == 0:
            assert list(found.at_or_after(max(probe, 0))) == plain[bisect_left(plain, max(probe, 0)) :]
    assert list(found.at_or_after(0)) == plain
