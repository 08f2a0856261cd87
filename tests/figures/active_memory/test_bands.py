import numpy as np
from figures.synthetic import busy_trace
from heap_strategies import operations, run
from hypothesis import given

from bfcviz.figures.active_memory.bands import stack
from bfcviz.model.lifetimes.lifetimes import LIFETIME, find


@given(operations())
def test_every_lifetime_lies_on_those_that_began_before_it(steps):
    lives = find(run(steps).trace(), 0).lifetimes
    found = stack(lives)
    for number, life in enumerate(lives):
        for at in range(found.first[number], found.last[number]):
            moment = found.moments[at]
            alive = (lives["born"] <= moment) & (moment < lives["died"])
            assert found.below[number, at] == lives["size"][:number][alive[:number]].sum()
        assert found.moments[found.first[number]] == life["born"]
        assert found.moments[found.last[number]] == life["died"]


def test_turns_are_where_the_height_changes():
    lives = find(busy_trace()).lifetimes
    found = stack(lives)
    for number in range(len(lives)):
        heights = found.below[number, found.turns(number)]
        assert (np.diff(heights) < 0).all()


def test_no_lifetimes_make_no_stack():
    assert stack(np.zeros(0, LIFETIME)).below.shape == (0, 0)
