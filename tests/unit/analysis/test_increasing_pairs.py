"""The longest selection of pairs that ascends in both, against all selections."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.analysis.alignment import aligned_pair_indices, increasing, shared


def longest(values):
    for length in range(len(values), 0, -1):
        if any(list(some) == sorted(set(some)) for some in combinations(values, length)):
            return length
    return 0


@given(st.lists(st.integers(0, 20), max_size=9), st.randoms(use_true_random=False))
def test_no_selection_is_longer(values, random):
    pairs = list(enumerate(values))
    random.shuffle(pairs)
    a, b = increasing(*(np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1)))
    assert len(a) == longest(values)
    assert set(zip(a.tolist(), b.tolist(), strict=True)) <= set(pairs)
    assert (np.diff(a) > 0).all()
    assert (np.diff(b) > 0).all()


@given(st.integers(0, 300), st.integers(1, 40))
def test_even_indices_end_with_the_last_one(count, most):
    found = aligned_pair_indices(count, most)
    assert len(found) == min(count, most)
    assert found.tolist() == sorted(set(found.tolist()))
    if count:
        assert found[-1] == count - 1
        assert found[0] >= 0


def test_shared_values_are_found_in_both():
    a, b = np.array([5, 1, 9], np.int64), np.array([9, 2, 5, 7], np.int64)
    first, second = shared(a, b)
    assert (a[first].tolist(), b[second].tolist()) == ([5, 9], [5, 9])
