import numpy as np
import pytest
from unit.figures.active_memory.outlines import polygons, three_steps
from unit.figures.drawn import active_memory
from unit.figures.synthetic import MiB, PlainHeap, trace_of
from unit.model.one_pass import find

from bfcviz.events.schema import EVENT
from bfcviz.figures import active_memory as module
from bfcviz.figures.active_memory import active_memory_panel, active_memory_window, allocation_at
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import LIGHT
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model, timeline

EMPTY = trace_of(np.zeros(0, EVENT))


def test_what_all_hold_is_the_bytes_in_use_of_the_model(trace):
    seen = active_memory_window(trace)
    model = Model(trace)
    line = seen.static_traces[0]
    for step in (1, 77, 300, 609):
        model.seek(step)
        assert line["x"][step - 1] == step
        assert line["y"][step - 1] * seen.divisor == model.stats().bytes_in_use


def test_a_click_finds_the_band_and_none_above_them():
    trace = three_steps()
    seen = active_memory_window(trace)
    a, b, c = find(trace).lifetimes
    x = seen.step_axis.position(int(c["born"]) + 1)
    for life, megabytes in ((a, 1), (b, 4), (c, 5.5)):
        found = allocation_at(seen, x, megabytes * MiB / seen.divisor)
        assert found == Selected(int(life["address"]), int(life["born"]))
    assert allocation_at(seen, x, 7 * MiB / seen.divisor) is None
    assert allocation_at(seen, -5.0, 1.0) is None
    assert allocation_at(active_memory_window(EMPTY), 0.0, 0.5) is None


def test_the_selected_band_is_outlined_and_the_step_marked(trace):
    seen = active_memory_window(trace)
    life = find(trace).lifetimes[3]
    look = Look(selected=Selected(int(life["address"]), int(life["born"])))
    still, moved = active_memory_panel(seen, None, Look()), active_memory_panel(seen, 300, look)
    assert all(a is b for a, b in zip(still.traces[:-2], moved.traces[:-2], strict=True))
    assert np.isnan(still.traces[-2]["x"]).all()
    assert np.nanmin(moved.traces[-2]["x"]) == int(life["born"]) + 1
    assert list(moved.traces[-1]["x"]) == [300, 300]


def test_a_window_cuts_bands_at_its_edges(trace):
    look = Look(steps=(200, 300))
    panel = active_memory_panel(active_memory_window(trace, 0, look), 250, look)
    assert list(panel.xaxis["range"]) == [200, 300]
    every = np.concatenate(polygons(panel))
    assert every[:, 0].min() == 200
    assert every[:, 0].max() == 300


def test_without_another_colouring_bands_are_coloured_by_holder(trace):
    seen = active_memory_window(trace, 0, Look(), colouring(trace, 0, "state", LIGHT))
    assert seen.colours.name == "holder"
    assert active_memory_window(trace, 0, Look(colour="size")).colours.name == "size"


def test_series_at_hand_are_taken(trace):
    series = timeline(trace, points=50)
    assert active_memory_window(trace, series=series).series is series


@pytest.mark.parametrize("axis", ["step", "time"])
def test_no_event_and_one_event_are_drawn(axis):
    look = Look(theme="dark", axis=axis)
    assert active_memory(EMPTY, 0, look=look).table.num_rows == 0
    one = PlainHeap(MiB)
    one.extend(256)
    assert active_memory(one.trace(), 1, look=look).table.num_rows == 0


def test_the_table_has_the_largest_first(trace):
    sizes = active_memory(trace).table["size"].to_pylist()
    assert sizes == sorted(find(trace).lifetimes["size"].tolist(), reverse=True)[: module.LARGEST]
