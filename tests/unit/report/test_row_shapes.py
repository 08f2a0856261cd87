"""The rows of a map: columns show exactly the share that is in use, and the kind with most of it."""

import numpy as np
import pytest

from bfcviz.report.page import RowChunks, covered


@pytest.mark.parametrize("seed", range(20))
def test_columns_count_what_covers_them(seed):
    random = np.random.default_rng(seed)
    ends = np.sort(random.choice(40 * 16, 2 * int(random.integers(1, 60)), replace=False)) / 16
    left, right = ends[::2], ends[1::2]
    expected = [
        sum(max(0.0, min(b, column + 1) - max(a, column)) for a, b in zip(left, right, strict=True))
        for column in range(40)
    ]
    assert covered(left, right, 40) == pytest.approx(expected)


def test_nothing_covers_nothing():
    assert covered(np.zeros(0), np.zeros(0), 5).tolist() == [0.0] * 5


def row(*chunks, kinds=("in-use",)):
    """Chunks as (left, right, kind)."""
    left, right, kind = zip(*chunks, strict=True)
    return RowChunks(np.array(left, float), np.array(right, float), np.array(kind), kinds)


def test_a_little_is_never_drawn_as_nothing_or_as_full():
    (path,) = row((0.01, 0.02, 0)).shaded(10.0, 10)
    assert 'fill-opacity="0.17" d="M0.00 0h1.00' in path
    (path,) = row((0.0, 9.99, 0)).shaded(10.0, 1)
    assert 'fill-opacity="0.83"' in path


def test_a_column_has_the_kind_with_most_of_it_and_the_share_of_all():
    drawn = row((0, 0.3, 0), (0.3, 1, 1), (1, 2, 0), kinds=("a", "b")).shaded(2.0, 2)
    assert [
        ("b" in path.split("d=")[0], 'opacity="1.00"' in path, path.split('d="')[1]) for path in drawn
    ] == [
        (False, True, 'M1.00 0h1.00v20h-1.00z"/>'),
        (True, True, 'M0.00 0h1.00v20h-1.00z"/>'),
    ]


def test_exact_chunks_have_a_path_for_each_kind():
    drawn = row((0, 2, 1), (2, 4, 0), (4, 5, 1), kinds=("a", "b")).exact()
    assert [(path.split('"')[1], path.count("M")) for path in drawn] == [("a", 1), ("b", 2)]
