"""The holders that explain a difference."""

from hypothesis import given
from hypothesis import strategies as st

from bfcviz.model.comparison.main_parts import main_parts

paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)


def parts(changes, most=3):
    found, left = main_parts(list(changes), list(changes.values()), most)
    return {"/".join(map(str, part.path)): part.bytes for part in found}, left


def test_one_leaf_is_named_whole_and_siblings_by_what_is_around_them():
    most_of_it = {("model", "attention", "scores"): 90, ("model", "mlp"): 5}
    assert parts(most_of_it) == ({"model/attention/scores": 90}, 5)
    assert parts({("model", str(number)): 10 for number in range(8)}) == ({"model": 80}, 0)


def test_parts_that_cancel_out_are_named_apart():
    assert parts({("model", "old"): -100, ("model", "new"): 110, ("model", "rest"): 1}) == (
        {"model/new": 110, "model/old": -100, "model/rest": 1},
        0,
    )


def test_what_is_not_named_is_left():
    changes = {(str(number),): 10 * number for number in range(1, 6)}
    assert parts(changes, most=2) == ({"5": 50, "4": 40}, 60)
    assert parts({("a",): 0, ("b",): 0}) == ({}, 0)
    assert parts({}) == ({}, 0)


@given(st.dictionaries(paths, st.integers(-100, 100), max_size=12), st.integers(1, 4))
def test_named_parts_and_the_rest_are_the_whole_difference(changes, most):
    found, left = main_parts(list(changes), list(changes.values()), most)
    assert sum(part.bytes for part in found) + left == sum(changes.values())
    assert len(found) <= most
