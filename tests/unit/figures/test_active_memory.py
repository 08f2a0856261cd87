import numpy as np
import pytest
from heap_strategies import run, seeded_operations
from hypothesis import given
from shared import sample_trace
from unit.figures.drawn import active_memory, address_time, region_map
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace, trace_of
from unit.model.one_pass import find

import bfcviz
from bfcviz.events.schema import EVENT
from bfcviz.events.trace import Trace
from bfcviz.figures import active_memory as module
from bfcviz.figures.active_memory import (
    MOST_AREAS,
    active_memory_panel,
    active_memory_window,
    allocation_at,
    stack,
)
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import LIGHT, contrasting, mixed, translucent
from bfcviz.figures.view_options import FADE, Look, Selected
from bfcviz.model import Model, timeline
from bfcviz.model.grouping import HolderChoice
from bfcviz.model.lifetimes import LIFETIME

# ------------------------------------------------------------------------------
# Outlines of the bands of a picture, and a trace of three bands.


def three_steps():
    """a, b and c on one another; a goes first, then c."""
    heap = PlainHeap(64 * MiB)
    a, _, c = heap.allocate(3 * MiB, "a"), heap.allocate(2 * MiB, "b"), heap.allocate(MiB, "c")
    heap.free(a)
    heap.free(c)
    return heap.trace()


def polygons(panel):
    """Every band's outline, (points, 2), in axis units."""
    found = []
    for trace in panel.traces:
        if trace.get("fill") == "toself" and trace["mode"] == "lines":
            points = np.column_stack([trace["x"], trace["y"]])
            ends = np.flatnonzero(np.isnan(points[:, 0]))
            found += [part[~np.isnan(part[:, 0])] for part in np.split(points, ends)]
    return [part for part in found if len(part)]


def area(outline):
    x, y = outline[:, 0], outline[:, 1]
    return abs(float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))) / 2


EMPTY = trace_of(np.zeros(0, EVENT))


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


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


# ------------------------------------------------------------------------------
# Bands: their outlines, names and hover texts.


def test_a_band_comes_down_when_one_below_it_ends():
    trace = three_steps()
    lived = find(trace).lifetimes
    heights = {}
    for outline in polygons(active_memory_panel(active_memory_window(trace), None, Look())):
        heights[round(outline[:, 0].min())] = outline
    born = {trace.labels.name(int(life["label"])): int(life["born"]) + 1 for life in lived}
    a_ends = int(lived["died"][0]) + 1
    c = heights[born["c"]]
    before, after = c[c[:, 0] < a_ends], c[c[:, 0] > a_ends]
    assert before[:, 1].min() / after[:, 1].min() == pytest.approx(5 / 2)


def test_each_band_covers_its_bytes_for_as_long_as_it_lived(trace):
    seen = active_memory_window(trace)
    drawn = sorted(area(outline) * seen.divisor for outline in polygons(active_memory_panel(seen, 5, Look())))
    every = find(trace, largest=module.LARGEST).lifetimes
    lived = np.minimum(every["died"].astype(float) + 1, len(trace)) - every["born"].astype(float) - 1
    covered = np.sort(every["size"] * lived)
    assert np.allclose(drawn, covered)


def test_only_the_largest_have_a_band_and_the_caption_says_so(trace, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 20)
    seen = active_memory_window(trace)
    panel = active_memory_panel(seen, None, Look())
    count = len(find(trace).lifetimes)
    assert f"{count - 20:,} smaller" in panel.caption
    assert "the 20 largest allocations" in panel.caption
    assert len(polygons(panel)) == 20
    assert max(panel.traces[0]["y"]) * seen.divisor == timeline(trace)["bytes_in_use_max"].max()


def test_wide_bands_carry_their_names_and_points_tell_the_rest():
    heap = PlainHeap(64 * MiB)
    heap.allocate(3 * MiB, "a/very/long/name/of/an/operation/layer_1/MatMul")
    heap.allocate(2 * MiB, "<b>b</b>")
    panel = active_memory_panel(active_memory_window(heap.trace()), None, Look())
    (names,) = [trace for trace in panel.traces if trace.get("mode") == "text"]
    assert names["text"] == ["a/very/long/name/of/an/operation/layer_1/MatMul"]
    (points,) = [trace for trace in panel.traces if trace.get("mode") == "none" and "hovertext" in trace]
    assert any("size 3.0 MiB (3,145,728 B)" in text for text in points["hovertext"])
    assert "<b>b</b>" not in str(names) + str(points["hovertext"]).replace("<b>&lt;b&gt;", "")


def test_a_name_stays_on_the_longest_level_of_its_band():
    # The band comes down when the one below it ends: at its middle no name has room on either side.
    heap = PlainHeap(64 * MiB)
    below = heap.allocate(8 * MiB)
    heap.allocate(4 * MiB, "layer_1/MatMul")
    begin = len(heap.trace())
    for _ in range(11):
        heap.free(heap.allocate(256))
    heap.free(below)
    step = len(heap.trace())
    for _ in range(12):
        heap.free(heap.allocate(256))
    trace = heap.trace()
    seen = active_memory_window(trace)
    (names,) = [each for each in active_memory_panel(seen, None, Look()).traces if each.get("mode") == "text"]
    assert names["text"] == ["layer_1/MatMul"]
    half = len("layer_1/MatMul") * module._LETTER * len(trace) / 2
    assert begin < step < names["x"][0] - half < names["x"][0] + half < len(trace)
    assert names["y"][0] * seen.divisor == 2 * MiB


@given(seeded_operations())
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


# ------------------------------------------------------------------------------
# The areas of the smaller allocations.


def areas(window):
    """Colour -> outline, (points, 2), in axis units."""
    traces = active_memory_panel(window, None, Look()).traces[1 : 1 + MOST_AREAS]
    found = {}
    for trace in traces:
        points = np.column_stack([trace["x"], trace["y"]]).astype(float)
        if not np.isnan(points).any():
            found[trace["fillcolor"]] = points
    return found


@pytest.fixture
def few_bands(monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 2)


def two_holders():
    """Two large allocations, and many small ones of two labels, the second from the middle on."""
    heap = PlainHeap(64 * MiB)
    for name in ("large_a", "large_b"):
        heap.allocate(8 * MiB, name)
    for name in ("x/small", "y/small"):
        for _ in range(50):
            heap.allocate(64 * KiB, name)
    return heap.trace()


def lived(trace, lives):
    """Bytes times steps."""
    ends = np.minimum(lives["died"].astype(float) + 1, len(trace))
    return float((lives["size"] * (ends - lives["born"].astype(float) - 1)).sum())


def test_areas_cover_the_bytes_that_have_no_band(trace, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 20)
    seen = active_memory_window(trace)
    without_band = lived(trace, find(trace).lifetimes) - lived(trace, find(trace, largest=20).lifetimes)
    drawn = sum(area(outline) for outline in areas(seen).values()) * seen.divisor
    assert drawn == pytest.approx(without_band, rel=1e-3)


def test_each_holder_has_an_area_of_its_colour_above_the_bands(few_bands):
    trace = two_holders()
    colours = colouring(trace, 0, "holder", LIGHT)
    seen = active_memory_window(trace, 0, Look(colour="holder"), colours)
    found = areas(seen)
    for name in ("x", "y"):
        outline = found[colours.paints[colours.holders.of_path((name, "small"))].fill]
        right = outline[outline[:, 0] == outline[:, 0].max()] * seen.divisor
        assert np.ptp(right[:, 1]) == pytest.approx(50 * 64 * KiB, rel=0.05)
        assert right[:, 1].min() >= 16 * MiB


def test_areas_outside_of_the_chosen_holder_are_faded(few_bands):
    trace = two_holders()
    colours = colouring(trace, 0, "holder", LIGHT)
    look = Look(colour="holder", holder=HolderChoice("op", ("x",)))
    fills = areas(active_memory_window(trace, 0, look, colours))
    of_x, of_y = (colours.paints[colours.holders.of_path((name, "small"))].fill for name in ("x", "y"))
    assert set(fills) == {of_x, mixed(of_y, LIGHT.paper, FADE)}


def test_without_smaller_allocations_nothing_is_read_and_no_area_is_drawn():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "a")
    seen = active_memory_window(heap.trace())
    assert seen.by_class is None
    assert areas(seen) == {}


@pytest.mark.parametrize("axis", ["step", "time"])
def test_other_colours_and_a_longer_trace_read_only_new_events(few_bands, monkeypatch, axis):
    trace = two_holders()
    look = Look(colour="holder", axis=axis, steps=(0, 120))
    seen = active_memory_window(trace, 0, look)
    read = []
    blocks = Trace.blocks
    monkeypatch.setattr(Trace, "blocks", lambda *of: read.extend(each := list(blocks(*of))) or each)
    again = seen.class_reader.read((0, 120), seen.step_axis, seen.colours.for_images)
    assert sum(map(len, read)) == 0
    assert (again.held == seen.by_class.held).all()
    longer = seen.class_reader.read((0, len(trace)), seen.step_axis, seen.colours.for_images)
    assert sum(map(len, read)) == len(trace) - 120
    fresh = active_memory_window(trace, 0, Look(colour="holder", axis=axis))
    assert np.allclose(longer.held, fresh.by_class.held)


# ------------------------------------------------------------------------------
# The colours of the bands: by holder as in the map, faded outside of one, names that contrast.


def three_holders():
    heap = PlainHeap(64 * MiB)
    for label, size in (("a/x", 8), ("a/y", 4), ("b", 6)):
        heap.allocate(size * MiB, label)
    heap.allocate(256, "b")  # the bands of the others have a width
    return heap.trace()


def covered(trace):
    """Axis units of y times x under the closed outlines of a trace."""
    points = np.column_stack([trace["x"], trace["y"]])
    parts = np.split(points, np.flatnonzero(np.isnan(points[:, 0])))
    return sum(area(part[~np.isnan(part[:, 0])]) for part in parts if len(part) > 1)


def fade(panel):
    (found,) = (each for each in panel.traces if each.get("fillcolor") == translucent(LIGHT.paper, FADE))
    return found


def test_a_band_has_the_colour_of_its_chunk_in_the_map():
    trace = three_holders()
    model = Model(trace)
    model.seek(len(trace))
    chunks = model.chunks()
    made = colouring(trace, 0, "holder", LIGHT, chunks)
    panel = active_memory_panel(active_memory_window(trace, 0, Look(colour="holder"), made), None, Look())
    filled = {each["fillcolor"] for each in panel.traces if each.get("fill") == "toself" and covered(each)}
    in_map = {
        made.paints[number].fill for number in made.classes(chunks, model.step) if number < len(made.paints)
    }
    assert filled == in_map
    assert len(filled) == 3


def test_a_figure_with_a_step_has_the_colours_of_the_map_there():
    trace = sample_trace("conv")
    step = bfcviz.peak(trace)
    model = Model(trace)
    model.seek(step)
    shown = region_map(model, look=Look(colour="holder")).select_traces({"type": "scatter"})
    in_map = {each.name: each.fillcolor for each in shown}
    for draw in (active_memory, address_time):
        figure = draw(trace, step, look=Look(colour="holder", steps=(step - 50, step + 50)))
        drawn = {
            each.name: each.fillcolor
            for each in figure.select_traces({"fill": "toself"})
            if each.fill == "toself" and each.name
        }
        drawn.pop("free", None)
        assert len(drawn) > 5
        assert drawn.items() <= in_map.items()


def test_bands_outside_of_the_holder_fade_and_lose_their_names():
    trace = three_holders()
    a, b = HolderChoice("op", ("a",)), HolderChoice("op", ("b",))
    assert covered(fade(active_memory_panel(active_memory_window(trace), None, Look()))) == 0
    for look, kept in ((Look(holder=a), {"a/x", "a/y"}), (Look(holder=a, hovered=b), {"b"})):
        window = active_memory_window(trace, 0, look)
        panel = active_memory_panel(window, None, look)
        labels = [trace.labels.name(number) for number in window.bands.lifetimes["label"].tolist()]
        outside = np.flatnonzero([label not in kept for label in labels])
        x, y = window.bands.outlines(outside)
        assert covered(fade(panel)) == covered({"x": x, "y": y / window.divisor})
        (texts,) = (each for each in panel.traces if each.get("mode") == "text")
        assert set(texts["text"]) <= kept
    assert covered(fade(panel)) > 0


def test_names_contrast_with_their_bands():
    trace = three_holders()
    window = active_memory_window(trace)
    (texts,) = (
        each for each in active_memory_panel(window, None, Look()).traces if each.get("mode") == "text"
    )
    assert len(texts["text"]) > 0
    fills = dict(
        zip(
            (trace.labels.name(int(number)) for number in window.bands.lifetimes["label"]),
            (window.colours.paints[n].fill for n in window.colours.classes(window.bands.lifetimes, 0)),
            strict=True,
        )
    )
    assert list(texts["textfont"]["color"]) == [contrasting(fills[name]) for name in texts["text"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_thin_bands_have_the_colour_of_their_holder_up_to_their_edges(theme):
    heap = PlainHeap(1024 * MiB)
    for number in range(150):
        heap.allocate(MiB, f"thin_{number % 2}")
    heap.allocate(200 * MiB, "thick")
    for _ in range(9):
        heap.allocate(1, "thin_0")  # events after the thick one, which so has a width
    look = Look(theme=theme)
    window = active_memory_window(heap.trace(), 0, look)
    traces = active_memory_panel(window, None, look).traces
    for each in traces:
        if each.get("fill") == "toself" and each["mode"] == "lines":
            assert each["line"]["color"] == each["fillcolor"]
            assert each["line"]["simplify"] is False  # else plotly leaves out corners within a pixel
    (edges,) = (each for each in traces if each.get("line", {}).get("color") == look.paints.edge)
    x, y = window.bands.outlines(np.array([150]))
    assert np.array_equal(edges["x"], x, equal_nan=True)
    assert np.array_equal(edges["y"], y / window.divisor, equal_nan=True)


def test_the_legend_has_others_where_a_band_or_an_area_is_theirs(monkeypatch):
    heap = PlainHeap(64 * MiB)
    for number in range(9):
        heap.allocate((9 - number) * MiB, f"x{chr(97 + number)}")
    heap.allocate(256, "y")  # too small for a colour of its own
    trace = heap.trace()
    for bands in (200, 2):
        monkeypatch.setattr(module, "LARGEST", bands)
        for look, some in ((Look(), True), (Look(steps=(0, 5)), False)):
            panel = active_memory_panel(active_memory_window(trace, 0, look), None, look)
            (others,) = (each for each in panel.traces if each.get("name") == "other")
            assert others["showlegend"] == some


def test_other_colours_need_no_new_outlines_and_texts():
    trace = three_holders()
    first = active_memory_window(trace)
    again = active_memory_window(trace, 0, Look(holder=HolderChoice("op", ("b",))), before=first)
    assert again.bands is first.bands
    assert again.static_traces[-1] is first.static_traces[-1]
    assert "hovertext" in first.static_traces[-1]
    assert active_memory_window(trace, 0, Look(steps=(0, 3)), before=first).bands is not first.bands
