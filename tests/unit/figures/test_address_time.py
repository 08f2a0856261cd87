import base64

import numpy as np
import pytest
from unit.figures.drawn import BY_STATE, address_time
from unit.figures.synthetic import BASE, MiB, PlainHeap, busy_trace, trace_of
from unit.figures.test_map_image import decode
from unit.model.one_pass import find, occupancy

from bfcviz.events.schema import EVENT
from bfcviz.events.trace import Trace
from bfcviz.figures import address_time as module
from bfcviz.figures.address_time import address_time_panel, address_time_window, chunk_at_time
from bfcviz.figures.colouring import colouring
from bfcviz.figures.theme import DARK, LIGHT, Paint, rgb, translucent
from bfcviz.figures.view_options import FADE, Look, Selected
from bfcviz.model import Model
from bfcviz.model.grouping import HolderChoice
from bfcviz.model.model import model_chunks_in_use
from bfcviz.model.occupancy import Occupancy, OccupancyGrid

EMPTY = trace_of(np.zeros(0, EVENT))


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


@pytest.fixture
def as_image(monkeypatch):
    monkeypatch.setattr(module, "EXACT_LIFETIMES", 20)


def boxes(trace):
    """(n, 4) of left, right, bottom, top."""
    x, y = np.asarray(trace["x"]), np.asarray(trace["y"])
    if len(x) == 1:
        return np.zeros((0, 4))
    x, y = x.reshape(-1, 6), y.reshape(-1, 6)
    return np.column_stack([x[:, 0], x[:, 1], y[:, 0], y[:, 2]])


def named(panel, name):
    (trace,) = [trace for trace in panel.traces if trace.get("name") == name]
    return trace


def pixels(panel):
    return decode(base64.b64decode(panel.traces[0]["source"].partition(",")[2]))


def test_rectangles_are_the_lifetimes(trace):
    seen = address_time_window(trace, 0, BY_STATE)
    drawn = boxes(named(address_time_panel(seen, 5, BY_STATE), "in use"))
    lives = find(trace).lifetimes
    low = seen.layout.position(lives["address"])
    expected = np.column_stack(
        [
            lives["born"].astype(float) + 1,
            np.minimum(lives["died"].astype(float) + 1, len(trace)),
            low / seen.divisor,
            (low + lives["size"]) / seen.divisor,
        ]
    )
    assert np.allclose(drawn, expected)


def test_a_window_cuts_what_reaches_over_its_edges(trace):
    look = Look(colour="state", steps=(200, 300), addresses=(100_000.0, 900_000.0))
    seen = address_time_window(trace, 0, look)
    panel = address_time_panel(seen, 250, look)
    assert list(panel.xaxis["range"]) == [200, 300]
    assert [end * panel.y_unit for end in panel.yaxis["range"]] == [100_000, 900_000]
    drawn = boxes(named(panel, "in use"))
    assert len(drawn)
    assert drawn[:, 0].min() >= 200
    assert drawn[:, 1].max() <= 300
    assert drawn[:, 2].min() * seen.divisor >= 100_000
    assert drawn[:, 3].max() * seen.divisor <= 900_000 + 1e-6


def test_many_lifetimes_become_an_image_of_the_same_place(trace, as_image):
    panel = address_time_panel(address_time_window(trace, 0, BY_STATE), 5, BY_STATE)
    image, picture = panel.traces[0], pixels(panel)
    assert image["visible"]
    assert "a pixel has the colour of one" in panel.caption
    assert len(boxes(named(panel, "in use"))) == 0
    assert image["dx"] * picture.shape[1] == pytest.approx(len(trace))
    assert image["dy"] * picture.shape[0] == pytest.approx(panel.yaxis["range"][1])
    assert image["x0"] == image["dx"] / 2
    assert len(panel.traces) == len(
        address_time_panel(address_time_window(EMPTY, 0, BY_STATE), None, BY_STATE).traces
    )


def test_a_pixel_is_free_in_use_or_no_region_at_all(trace, as_image):
    seen = address_time_window(trace, 0, BY_STATE)
    panel = address_time_panel(seen, None, BY_STATE)
    picture = pixels(panel)
    image = seen.image
    assert image is not None
    cell = image.grid.cell
    whole = image.pool > cell * (1 - 1e-9)
    assert (picture[whole & (image.in_use > cell * (1 - 1e-9))][:, :3] == rgb(LIGHT.in_use.fill)).all()
    assert (picture[whole & (image.in_use < cell * 1e-9)][:, :3] == rgb(LIGHT.free.fill)).all()
    assert (picture[image.pool == 0][:, 3] == 0).all()
    assert (image.pool == 0).any()


def test_an_image_is_coloured_by_class(trace, as_image):
    look = Look(colour="label")
    seen = address_time_window(trace, 0, look)
    assert seen.image is not None
    assert len(seen.image.by_class) == len(seen.colours.names) == 7
    columns, lines = module.COARSER
    again = occupancy(trace, columns=columns, lines=lines)
    assert np.allclose(seen.image.in_use, again.in_use, atol=1e-3)


def test_only_the_last_two_traces_follow_step_and_selection(trace):
    seen = address_time_window(trace, 0, BY_STATE)
    one = address_time_panel(seen, 5, BY_STATE)
    life = find(trace).lifetimes[7]
    look = Look(colour="state", selected=Selected(int(life["address"]), int(life["born"])))
    other = address_time_panel(seen, 300, look)
    assert all(a is b for a, b in zip(one.traces[:-2], other.traces[:-2], strict=True))
    assert list(other.traces[-1]["x"]) == [300, 300]
    (outline,) = boxes(named(other, "selected"))
    assert outline[0] == int(life["born"]) + 1
    assert outline[1] == int(life["died"]) + 1
    assert len(boxes(named(one, "selected"))) == 0


@pytest.mark.parametrize("colour", ["state", "label"])
def test_hover_texts_show_the_allocation_there(trace, colour):
    look = Look(colour=colour)
    seen = address_time_window(trace, 0, look)
    (points,) = [t for t in seen.static_traces if t.get("mode") == "none" and "fill" not in t]
    model = Model(trace)
    for x, y, text in list(zip(points["x"], points["y"], points["hovertext"], strict=True))[::9]:
        model.seek(int(x))
        address = seen.layout.address(y * seen.divisor)
        chunks = model.chunks()
        chunk = chunks[np.searchsorted(chunks["address"], np.uint64(address), side="right") - 1]
        assert f"{int(chunk['address']):#x}" in text
        assert f"allocated at step {int(chunk['born']) + 1:,}" in text


def test_hover_texts_of_an_image_show_the_share_in_use(trace, as_image):
    (points,) = [
        t
        for t in address_time_window(trace, 0, BY_STATE).static_traces
        if t.get("mode") == "none" and "fill" not in t
    ]
    assert len(points["x"]) == len(points["hovertext"]) > 100
    assert all("% in use" in text for text in points["hovertext"])


@pytest.mark.parametrize("axis", ["step", "time"])
def test_no_event_and_one_event_are_drawn(axis):
    look = Look(colour="state", theme="dark", axis=axis)
    empty = address_time(EMPTY, 0, look=look)
    assert [list(t.text) for t in empty.data if t.type == "scatter" and t.mode == "text"] == [
        ["no region in this trace"]
    ]
    one = PlainHeap(MiB)
    one.extend(256)
    assert address_time(one.trace(), 1, look=look).table.num_rows == 0


def test_thousands_of_regions_and_a_terabyte_are_drawn():
    huge = PlainHeap(1 << 40)
    huge.allocate(1)
    panel = address_time_panel(address_time_window(huge.trace(), 0, BY_STATE), None, BY_STATE)
    assert panel.yaxis["range"][1] * panel.y_unit == 1 << 40
    many = PlainHeap(4096, regions=1000, gap=4096)
    for _ in range(1000):
        many.allocate(3000)
    panel = address_time_panel(address_time_window(many.trace(), 0, BY_STATE), None, BY_STATE)
    assert len(boxes(named(panel, "region"))) == 0
    assert len(boxes(named(panel, "free"))) == 1000


def test_the_table_has_a_row_for_each_allocation_or_pixel(trace, monkeypatch):
    table = address_time(trace).table
    lives = find(trace).lifetimes
    assert table["address"].to_pylist() == lives["address"].tolist()
    assert table["freed_at_step"].null_count == (lives["died"] > len(trace)).sum()
    monkeypatch.setattr(module, "EXACT_LIFETIMES", 20)
    image = address_time(trace).table
    assert image.num_rows == len(trace) * module.PIXELS[1]  # so few steps have a column each


def test_rectangles_outside_of_the_holder_are_faded(trace):
    label = next(name for name in trace.labels.names if "/" in name)
    choice = HolderChoice("op", tuple(label.split("/")))
    seen = address_time_window(trace, 0, Look(colour="state", hovered=choice))
    (faded,) = [t for t in seen.static_traces if t.get("fillcolor") == translucent(LIGHT.paper, FADE)]
    lives = find(trace).lifetimes
    outside = [trace.labels.name(number) != label for number in lives["label"].tolist()]
    assert 0 < len(boxes(faded)) == np.count_nonzero(outside) < len(lives)


def test_an_image_has_faded_colours_outside_of_the_holder(trace, as_image):
    choice = HolderChoice("op", ("nothing",))
    plain, pale = (
        pixels(address_time_panel(address_time_window(trace, 0, look), None, look)).astype(int)
        for look in (Look(colour="holder"), Look(colour="holder", hovered=choice))
    )
    drawn = plain[..., 3] > 0
    paper = np.array(rgb(LIGHT.paper))
    away = [np.abs(each[drawn][:, :3] - paper).sum(axis=1).mean() for each in (plain, pale)]
    assert away[1] < away[0]
    every = Look(colour="holder", hovered=HolderChoice("op", ()))
    same = pixels(address_time_panel(address_time_window(trace, 0, every), None, every))
    assert (same == plain).all()


# ------------------------------------------------------------------------------
# Lines around rectangles: none around those that are about as thin as the line; the legend names what is shown.


def edges(panel):
    (found,) = (
        boxes(each) for each in panel.traces if each.get("line", {}).get("color") in {LIGHT.edge, DARK.edge}
    )
    return found


def many_regions(sizes, label="only"):
    heap = PlainHeap(0)
    heap.room = [(BASE + (number << 30), size) for number, size in enumerate(sizes)]
    for size in sizes:
        heap.allocate(size, label)
    for _ in range(40):
        heap.allocate(1)  # fails: events after the last allocation, which so has a width
    return heap.trace()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_thin_rectangles_have_the_colour_of_their_holder_up_to_their_edges(theme):
    trace = many_regions([MiB] * 400 + [200 * MiB])  # 600 MiB: those of 1 MiB are below a pixel
    look = Look(theme=theme)
    panel = address_time_panel(address_time_window(trace, 0, look), None, look)
    filled = [each for each in panel.traces if each.get("fill") == "toself" and len(boxes(each))]
    for each in filled:
        assert each["line"]["color"] == each["fillcolor"] or each["line"]["width"] == 0
        assert each["line"]["simplify"] is False  # else plotly leaves out corners within a pixel
    assert sum(len(boxes(each)) for each in filled if each.get("name") == "only") == 401
    assert len(boxes(named(panel, "region"))) == 1
    assert len(edges(panel)) == 1
    assert edges(panel)[0, 3] - edges(panel)[0, 2] == 200
    assert not named(panel, "other")["showlegend"]


@pytest.mark.parametrize("pixels", [40, 400, 4000])
def test_lines_depend_on_the_pixels_of_the_figure(pixels):
    sizes = [size * MiB for size in (1, 10, 100)]
    look = Look(map_pixels=(1000, pixels))
    panel = address_time_panel(address_time_window(many_regions(sizes), 0, look), None, look)
    assert len(edges(panel)) == {40: 1, 400: 2, 4000: 3}[pixels]
    assert len(boxes(named(panel, "region"))) == {40: 1, 400: 2, 4000: 3}[pixels]


def test_a_zoom_brings_the_lines_of_thin_rectangles():
    trace = many_regions([MiB] * 400)
    near = Look(addresses=(0.0, 4.0 * MiB))
    for look, some in ((Look(), False), (near, True)):
        panel = address_time_panel(address_time_window(trace, 0, look), None, look)
        assert bool(len(edges(panel))) == bool(len(boxes(named(panel, "region")))) == some


@pytest.mark.parametrize("exact", [True, False])
def test_the_legend_has_others_where_some_are_shown(monkeypatch, exact):
    if not exact:
        monkeypatch.setattr(module, "EXACT_LIFETIMES", 5)
    heap = PlainHeap(64 * MiB)
    for number in range(9):
        heap.allocate((9 - number) * MiB, f"x{chr(97 + number)}")
    heap.allocate(256, "y")  # too small for a colour of its own
    trace = heap.trace()
    for look, some in ((Look(), True), (Look(steps=(0, 5)), False)):
        panel = address_time_panel(address_time_window(trace, 0, look), None, look)
        assert named(panel, "other")["showlegend"] == some


# ------------------------------------------------------------------------------
# The window of the address-time map: clicks in it, and what a next window reuses.


@pytest.mark.parametrize("axis", ["step", "time"])
def test_a_click_selects_the_chunk_there_at_that_step(trace, axis):
    look = Look(colour="state", axis=axis)
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
    pixels = module._occupancy_pixels(Occupancy(grid, by_class, np.ones((8, 64))), paints, LIGHT)
    cyan, yellow = ((pixels[..., :3] == colour).all(axis=2) for colour in ([0, 255, 255], [255, 255, 0]))
    parts = [slice(begin, begin + 16) for begin in range(0, 64, 16)]
    assert [cyan[:, part].mean() for part in parts] == [0.5, 0.25, 1.0, 0.0]
    assert [yellow[:, part].mean() for part in parts] == [0.5, 0.75, 0.0, 0.0]


@pytest.mark.parametrize("choice", [None, HolderChoice("op", ("layer_1",))])
def test_other_colours_of_holders_read_no_event_again(monkeypatch, choice):
    """Two phases, each with its own holders: the colours change, what was counted does not."""
    monkeypatch.setattr(module, "EXACT_LIFETIMES", 10)
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
    first = address_time_window(trace, 0, BY_STATE)
    second = address_time_window(trace, 0, Look(colour="state", steps=(5, 50)), before=first)
    assert second.layout is first.layout
    assert second.reader is first.reader


def _texts(window):
    (found,) = (each for each in window.static_traces if "hovertext" in each)
    return found


@pytest.mark.parametrize("exact", [True, False])
def test_other_colours_need_no_new_hover_texts_other_places_do(trace, exact, monkeypatch):
    if not exact:
        monkeypatch.setattr(module, "EXACT_LIFETIMES", 10)
    first = address_time_window(trace, 0, BY_STATE)
    again = address_time_window(trace, 0, Look(colour="holder"), before=first)
    assert (again.image is None) == exact
    assert again.colours.name != first.colours.name
    assert _texts(again) is _texts(first)
    for look in (
        Look(colour="state", steps=(5, 50)),
        Look(colour="state", axis="time"),
        Look(colour="state", addresses=(0.0, MiB)),
    ):
        moved, fresh = address_time_window(trace, 0, look, before=first), address_time_window(trace, 0, look)
        assert list(_texts(moved)["x"]) == list(_texts(fresh)["x"])
        assert _texts(moved)["hovertext"] == _texts(fresh)["hovertext"]
