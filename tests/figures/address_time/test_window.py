"""The window of the address-time map: clicks in it, and what a next window reuses."""

import numpy as np
import pytest
from figures.synthetic import busy_trace

from bfcviz.figures.address_time.figure import (
    address_time_window,
    chunk_at_time,
)
from bfcviz.figures.style.view_options import Look, Selected
from bfcviz.model import Model


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_click_selects_the_chunk_there_at_that_step(trace, axis):
    look = Look(axis=axis)
    seen = address_time_window(trace, 0, look)
    model = Model(trace)
    for step in (2, 150, 300, 600):
        model.seek(step)
        for chunk in model.chunks()[::7]:
            (low,) = seen.layout.position(np.array([chunk["address"]]))
            where = (low + int(chunk["size"]) / 2) / seen.divisor
            born = int(chunk["born"]) if chunk["in_use"] else None
            assert chunk_at_time(seen, seen.step_axis.position(step), where) == Selected(
                int(chunk["address"]), born
            )
    assert chunk_at_time(seen, 1.0, -1.0) is None
    assert axis == "time" or chunk_at_time(seen, 0.0, 1.0) is None


def test_a_window_reuses_layout_and_model_of_the_one_before(trace):
    first = address_time_window(trace)
    second = address_time_window(trace, 0, Look(steps=(5, 50)), before=first)
    assert second.layout is first.layout
    assert second.reader is first.reader
