"""The colours of the bands: by holder as in the map, faded outside of one, names that contrast."""

import numpy as np
from shared import sample_trace
from unit.figures.active_memory.outlines import area
from unit.figures.drawn import active_memory, address_time, region_map
from unit.figures.synthetic import MiB, PlainHeap

import bfcviz
from bfcviz.figures.active_memory import active_memory_panel, active_memory_window
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import LIGHT, contrasting, translucent
from bfcviz.figures.view_options import FADE, Look
from bfcviz.model import Model
from bfcviz.model.grouping import HolderChoice


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


def test_other_colours_need_no_new_outlines_and_texts():
    trace = three_holders()
    first = active_memory_window(trace)
    again = active_memory_window(trace, 0, Look(holder=HolderChoice("op", ("b",))), before=first)
    assert again.bands is first.bands
    assert again.static_traces[-1] is first.static_traces[-1]
    assert "hovertext" in first.static_traces[-1]
    assert active_memory_window(trace, 0, Look(steps=(0, 3)), before=first).bands is not first.bands
