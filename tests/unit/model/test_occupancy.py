import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given
from hypothesis import strategies as st
from unit.figures.synthetic import busy_trace
from unit.model.one_pass import occupancy

from bfcviz.model import Model
from bfcviz.model import occupancy as module
from bfcviz.model.address_layout import Layout
from bfcviz.model.occupancy import Classes


def overlap(low, high, edges):
    """How much of [low, high) lies between each pair of neighbouring edges."""
    return np.maximum(np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1]), 0.0)


def averaged(heap, pool, *, layout, grid, moment):
    """Bytes in use and in the pool of each cell, state by state; `moment` is where a step begins."""
    start, stop, lines, columns, width = grid.start, grid.stop, grid.lines, grid.columns, grid.width
    rows = np.linspace(grid.low, grid.high, lines + 1)
    cuts = moment(start) + width * np.arange(columns + 1)
    found = np.zeros((2, lines, columns))
    for step in range(start, stop + 1):
        until = cuts[-1] if step == stop else moment(step + 1)
        share = overlap(moment(step), until, cuts) / width
        state = heap.states[step][pool]
        spans = [(chunk[0], chunk[1], chunk[-1]) for chunk in state["chunks"]]
        for address, size, in_use in spans:
            (low,) = layout.position(np.array([address], np.uint64))
            held = np.outer(overlap(low, low + size, rows), share)
            found[1] += held
            found[0] += held * in_use
    return found


@given(
    steps=seeded_operations(),
    places=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    window=st.tuples(st.floats(0, 1), st.floats(0.01, 1)),
    axis=st.sampled_from(["step", "time"]),
    sparse=st.booleans(),
)
def test_cells_are_averages_over_every_state(steps, places, shape, window, *, axis, sparse):
    heap = run(steps)
    trace = heap.trace()
    layout = Layout.of(trace, 1)
    start, stop = sorted(place % (len(heap.records) + 1) for place in places)
    low = window[0] * layout.total
    positions = (low, low + window[1] * layout.total)

    def moment(step):
        return step if axis == "step" else heap.records[max(step - 1, 0)]["time"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SPARSE", 0 if sparse else 10**9)
        patch.setattr(module, "_BATCH", 5)
        size = {"columns": shape[1], "lines": shape[0]}
        found = occupancy(trace, 1, start=start, stop=stop, positions=positions, axis=axis, **size)
    grid = found.grid
    span = moment(stop) - moment(start)
    assert grid.columns == max(-(-span // grid.width), 1) <= shape[1]
    assert grid.width == 1 or -(-span // (grid.width // 2)) > shape[1]
    in_use, pool = averaged(heap, 1, layout=layout, grid=grid, moment=moment)
    cell = found.grid.cell
    assert np.allclose(found.pool, pool, atol=1e-9 * cell, rtol=1e-6)
    assert np.allclose(found.in_use, in_use, atol=1e-9 * cell, rtol=1e-6)


def test_a_window_without_time_shows_the_state():
    trace = busy_trace()
    model = Model(trace)
    model.seek(300)
    found = occupancy(trace, start=300, stop=300, columns=3, lines=7)
    assert found.grid.columns == 1
    assert found.in_use.sum(axis=0) == pytest.approx(model.stats().bytes_in_use)
    assert found.pool.sum(axis=0) == pytest.approx(model.stats().pool_bytes)


def test_classes_share_out_the_bytes_in_use():
    trace = busy_trace()
    labels = len(trace.labels)
    plain = occupancy(trace, start=100, columns=30, lines=20)
    classified = occupancy(
        trace, start=100, columns=30, lines=20, classes=Classes(labels, lambda lives: lives["label"])
    )
    assert classified.by_class.shape == (labels, 20, classified.grid.columns)
    assert np.allclose(classified.in_use, plain.in_use, atol=1e-3)
    born = occupancy(
        trace, start=100, columns=30, lines=20, classes=Classes(2, lambda lives: lives["born"] >= 100)
    )
    assert (born.by_class[0].sum(axis=0)[:-1] >= born.by_class[0].sum(axis=0)[1:] - 1e-3).all()
