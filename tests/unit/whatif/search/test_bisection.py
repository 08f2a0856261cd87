import pytest

from bfcviz.whatif.search.trial import bisect_trials, expected_steps


@pytest.mark.parametrize("threshold", [1, 2, 500, 999, 1000])
def test_neighbours_are_found_in_both_directions(threshold):
    tried = []

    def works(number):
        tried.append(number)
        return number >= threshold

    assert bisect_trials(0, 1000, works) == (threshold - 1, threshold)
    assert len(tried) <= expected_steps(0, 1000) == 10
    assert bisect_trials(1001, 0, lambda number: number <= threshold) == (threshold + 1, threshold)


def test_nothing_is_tried_between_neighbours():
    assert bisect_trials(7, 8, None) == (7, 8)
    assert expected_steps(7, 8) == 0
