"""The bars of the region map: columns show exactly the share that is in use."""

import numpy as np
import pytest

from bfcviz.report.html.region_bars import _covered, _shaded


@pytest.mark.parametrize("seed", range(20))
def test_columns_count_what_covers_them(seed):
    random = np.random.default_rng(seed)
    ends = np.sort(random.choice(40 * 16, 2 * int(random.integers(1, 60)), replace=False)) / 16
    left, right = ends[::2], ends[1::2]
    expected = [
        sum(max(0.0, min(b, column + 1) - max(a, column)) for a, b in zip(left, right, strict=True))
        for column in range(40)
    ]
    assert _covered(left, right, 40) == pytest.approx(expected)


def test_nothing_covers_nothing():
    assert _covered(np.zeros(0), np.zeros(0), 5).tolist() == [0.0] * 5


def test_a_little_is_never_drawn_as_nothing_or_as_full():
    (path,) = _shaded(np.array([0.01]), np.array([0.02]), 10.0, 10)
    assert 'fill-opacity="0.17" d="M0.00 0h1.00' in path
    (path,) = _shaded(np.array([0.0]), np.array([9.99]), 10.0, 1)
    assert 'fill-opacity="0.83"' in path
