"""The holders that explain a difference."""

from hypothesis import given
from hypothesis import strategies as st

from bfcviz.analysis.comparison import main_parts, spread_parts

paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)


def parts(changes, most=3):
    found, left = main_parts(list(changes), list(changes.values()), "/".join, most)
    return {part.holder: part.bytes for part in found}, left


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
    found, left = main_parts(list(changes), list(changes.values()), "/".join, most)
    assert sum(part.bytes for part in found) + left == sum(changes.values())
    assert len(found) <= most


def spread(changes, most):
    found, left = spread_parts(list(changes), list(changes.values()), "/".join, most)
    return {part.holder: (part.bytes, part.holders) for part in found}, left


def test_a_picture_has_as_many_parts_as_fit():
    changes = {(f"layer_{number}", name): 10 for number in range(3) for name in ("MatMul", "Relu")}
    assert spread(changes, 2) == ({"layer_0": (20, 2), "layer_1": (20, 2)}, 20)
    assert spread(changes, 3)[0].keys() == {"layer_0", "layer_1", "layer_2"}
    assert spread(changes, 6)[0] == {"/".join(path): (10, 1) for path in changes}


def test_small_parts_and_those_of_many_small_ones_are_not_taken_apart():
    changes = {("large",): 1000, ("many", "first"): 30, ("tiny",): 5}
    changes |= {("many", str(number)): 1 for number in range(200)}
    found, left = spread(changes, 10)
    assert found == {"large": (1000, 1), "many": (230, 201)}
    assert left == 5


def test_memory_of_a_holder_itself_stays_beside_that_below_it():
    assert spread({("layer",): 60, ("layer", "Relu"): 40}, 5) == (
        {"layer": (60, 1), "layer/Relu": (40, 1)},
        0,
    )


@given(st.dictionaries(paths, st.integers(-100, 100), max_size=12), st.integers(1, 6))
def test_drawn_parts_and_the_rest_are_the_whole_difference(changes, most):
    found, left = spread_parts(list(changes), list(changes.values()), "/".join, most)
    assert sum(part.bytes for part in found) + left == sum(changes.values())
    assert len(found) <= most
