"""Made-up places: they never overlap, and those of gone arrays are used again."""

import random
from itertools import pairwise

from bfcviz.live.jax import FIRST, MadeUpAddresses


def test_places_never_overlap_and_stay_few():
    chance = random.Random(5)
    addresses, there, most = MadeUpAddresses(), {}, 0
    for _ in range(4000):
        if there and chance.random() < 0.5:
            start = chance.choice(list(there))
            addresses.give_back(start, there.pop(start))
        else:
            size = chance.choice([1, 4, 100, 4096, 5000])
            there[addresses.take(size)] = size
        most = max(most, sum(there.values()))
        ends = sorted((start, start + size) for start, size in there.items())
        assert all(stop <= start for (_, stop), (start, _) in pairwise(ends))
    assert ends[0][0] >= FIRST
    assert ends[-1][1] - FIRST <= 2 * most
    for start, size in there.items():
        addresses.give_back(start, size)
    assert addresses.take(1 << 40) == FIRST


def test_the_smallest_gap_that_fits_is_taken():
    addresses = MadeUpAddresses()
    starts = [addresses.take(size) for size in (100, 1, 50, 1, 70, 1)]
    assert starts == [FIRST + at for at in (0, 100, 101, 151, 152, 222)]
    for at, size in ((0, 100), (2, 50), (4, 70)):
        addresses.give_back(starts[at], size)
    assert addresses.take(60) == starts[4]
    assert addresses.take(101) == FIRST + 223
    addresses.give_back(starts[1], 1)  # joins the gaps beside it
    assert addresses.take(151) == FIRST
