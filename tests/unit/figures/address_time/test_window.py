"""The window of the address-time map: clicks in it, and what a next window reuses."""

import numpy as np
import pytest
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.events.trace import Trace
from bfcviz.figures import address_time
from bfcviz.figures.address_time import address_time_window, chunk_at_time
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import LIGHT, Paint
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model
from bfcviz.model.grouping import HolderChoice
from bfcviz.model.model import model_chunks_in_use
from bfcviz.model.occupancy import Occupancy, OccupancyGrid


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


def test_no_pixel_of_two_holders_has_a_colour_that_is_not_one_of_theirs():
    """Cyan and yellow mixed would be a green near that of free memory."""
    shares = np.array([[0.5, 0.25, 1.0, 0.0], [0.5, 0.75, 0.0, 0.0]])  # of two classes
    by_class = np.repeat(np.repeat(shares[:, None], 8, axis=1), 16, axis=2)
    grid = OccupancyGrid(0, 64, 0.0, 8.0, columns=64, lines=8)
    paints = [Paint("#00FFFF", "#000000"), Paint("#FFFF00", "#000000")]
    pixels = address_time.paint(Occupancy(grid, by_class, np.ones((8, 64))), paints, LIGHT)
    cyan, yellow = ((pixels[..., :3] == colour).all(axis=2) for colour in ([0, 255, 255], [255, 255, 0]))
    parts = [slice(begin, begin + 16) for begin in range(0, 64, 16)]
    assert [cyan[:, part].mean() for part in parts] == [0.5, 0.25, 1.0, 0.0]
    assert [yellow[:, part].mean() for part in parts] == [0.5, 0.75, 0.0, 0.0]


@pytest.mark.parametrize("choice", [None, HolderChoice("op", ("layer_1",))])
def test_other_colours_of_holders_read_no_event_again(monkeypatch, choice):
    """Two phases, each with its own holders: the colours change, what was counted does not."""
    monkeypatch.setattr(address_time, "EXACT_LIFETIMES", 10)
    heap = PlainHeap(64 * MiB)
    steps = []
    for phase in range(2):
        held = [heap.allocate(MiB, f"layer_{phase}/op_{number % 6}") for number in range(24)]
        steps.append(len(heap.events))
        for address in held:
            heap.free(address)
    trace = heap.trace()
    look = Look(colour="holder", holder=choice)
    colours = [colouring(trace, 0, "holder", LIGHT, model_chunks_in_use(trace, 0, step)) for step in steps]
    counted = []
    blocks = Trace.blocks
    monkeypatch.setattr(Trace, "blocks", lambda *of: counted.extend(each := list(blocks(*of))) or each)
    seen = None
    for step in range(2):
        counted.clear()
        seen = address_time_window(trace, 0, look, colours[step], before=seen)
        assert seen.image is not None
        assert (sum(map(len, counted)) == 0) == (step == 1)
    assert colours[0].holders is not colours[1].holders
    groups = seen.image_colours.paints
    for number in range(6):
        label = f"layer_1/op_{number}"
        paint = colours[1].paints[colours[1].holders.of_path(("layer_1", f"op_{number}"))]
        record = np.zeros(1, [("label", "<u4")])
        record["label"] = trace.labels.intern(label)
        assert groups[int(colours[1].for_images.classify(record, 0)[0])] == paint


def test_a_window_reuses_layout_and_model_of_the_one_before(trace):
    first = address_time_window(trace)
    second = address_time_window(trace, 0, Look(steps=(5, 50)), before=first)
    assert second.layout is first.layout
    assert second.reader is first.reader


def _texts(window):
    (found,) = (each for each in window.static_traces if "hovertext" in each)
    return found


@pytest.mark.parametrize("exact", [True, False])
def test_other_colours_need_no_new_hover_texts_other_places_do(trace, exact, monkeypatch):
    if not exact:
        monkeypatch.setattr(address_time, "EXACT_LIFETIMES", 10)
    first = address_time_window(trace)
    again = address_time_window(trace, 0, Look(colour="holder"), before=first)
    assert (again.image is None) == exact
    assert again.colours.name != first.colours.name
    assert _texts(again) is _texts(first)
    for look in (Look(steps=(5, 50)), Look(axis="time"), Look(addresses=(0.0, MiB))):
        moved, fresh = address_time_window(trace, 0, look, before=first), address_time_window(trace, 0, look)
        assert list(_texts(moved)["x"]) == list(_texts(fresh)["x"])
        assert _texts(moved)["hovertext"] == _texts(fresh)["hovertext"]
