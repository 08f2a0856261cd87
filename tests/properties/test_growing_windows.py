"""Windows of a trace that grows: what is read bit by bit equals what is read at once."""

from dataclasses import replace

import numpy as np
import pytest
from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st
from properties.growing_trace import cuts, lengths
from unit.model.one_pass import find

from bfcviz.figures import active_memory, address_time
from bfcviz.figures.active_memory import active_memory_window
from bfcviz.figures.address_time import address_time_window
from bfcviz.figures.colouring import colouring
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.address_layout import NEVER
from bfcviz.model.lifetimes import Ends

looks = st.builds(
    Look,
    axis=st.sampled_from(["step", "time"]),
    steps=st.sampled_from([None, (0, 10), (3, 50), (40, 10_000)]),
    addresses=st.sampled_from([None, (0.0, 3000.0), (1000.0, 1e6)]),
    colour=st.sampled_from(["state", "size", "label", "age"]),
)
"""Windows that the end of the trace moves through, and colours that depend on it."""


def growing_trace(steps):
    """A trace of these operations that may grow."""
    trace = run(steps).trace(["", "a", "b", "c"])
    trace.following = True
    return trace


def within(look, length):
    """The look, whose window ends at the end of the trace at most."""
    return (
        look if look.steps is None else replace(look, steps=tuple(min(step, length) for step in look.steps))
    )


def same_traces(some, others):
    """Whether two panels draw the same; images may differ in the last bit of a colour."""
    for one, other in zip(some, others, strict=True):
        assert one.keys() == other.keys()
        for key in one.keys() - {"source", "hovertext"}:
            np.testing.assert_array_equal(one[key], other[key])


@given(operations(), cuts, looks, st.sampled_from([0, 3, 3000]))
def test_the_address_time_map_is_as_if_read_at_once(steps, cuts, look, most):
    trace = growing_trace(steps)
    colours, model, known = colouring(trace, 1, look.colour, look.paints), Model(trace, 1), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(address_time, "EXACT_LIFETIMES", most)
        patch.setattr(address_time, "PIXELS", (7, 5))
        patch.setattr(address_time, "COARSER", (6, 5))
        for length in lengths(trace, cuts):
            seen = within(look, length)
            known = address_time_window(trace, 1, seen, colours, model=model, before=known)
            fresh = address_time_window(trace, 1, seen, colours)
            assert np.array_equal(known.layout.grants, fresh.layout.grants)
            assert np.array_equal(known.lifetimes, fresh.lifetimes)
            assert (known.image is None) == (fresh.image is None)
            if known.image is not None and fresh.image is not None:
                assert known.image.grid == fresh.image.grid
                close = {"atol": 1e-9 * fresh.image.grid.cell, "rtol": 1e-9}
                np.testing.assert_allclose(known.image.by_class, fresh.image.by_class, **close)
                np.testing.assert_allclose(known.image.pool, fresh.image.pool, **close)
            same_traces(known.static_traces, fresh.static_traces)


@given(operations(), cuts, looks, st.sampled_from([1, 5, 200]))
def test_active_memory_is_as_if_read_at_once(steps, cuts, look, largest):
    trace = growing_trace(steps)
    colours, model, known = colouring(trace, 1, "label", look.paints), Model(trace, 1), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_memory, "LARGEST", largest)
        for length in lengths(trace, cuts):
            seen = within(look, length)
            known = active_memory_window(trace, 1, seen, colours, model=model, before=known)
            fresh = active_memory_window(trace, 1, seen, colours)
            assert np.array_equal(known.bands.lifetimes, fresh.bands.lifetimes)
            assert known.others == fresh.others
            same_traces(known.static_traces, fresh.static_traces)


@given(operations(), cuts)
def test_ends_are_found_once_they_are_there(steps, cuts):
    heap = run(steps)
    trace = heap.trace()
    ends = Ends(trace, 1)
    for length in lengths(trace, cuts):
        for life in find(trace, 1).lifetimes:
            assert ends.end_of(int(life["born"]), length) == life["died"]
            assert ends.end_of(int(life["born"]), int(life["born"]) + 1) == NEVER
