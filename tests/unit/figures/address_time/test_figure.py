import base64

import numpy as np
import pytest
from unit.figures.drawn import address_time
from unit.figures.style.test_raster_image import decode
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of
from unit.model.one_pass import find, occupancy

from bfcviz.events.schema import EVENT
from bfcviz.figures import address_time as module
from bfcviz.figures.address_time import address_time_panel, address_time_window
from bfcviz.figures.theme import LIGHT, rgb, translucent
from bfcviz.figures.view_options import FADE, Look, Selected
from bfcviz.model import Model
from bfcviz.model.grouping import HolderChoice

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
    seen = address_time_window(trace)
    drawn = boxes(named(address_time_panel(seen, 5, Look()), "in use"))
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
    look = Look(steps=(200, 300), addresses=(100_000.0, 900_000.0))
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
    panel = address_time_panel(address_time_window(trace), 5, Look())
    image, picture = panel.traces[0], pixels(panel)
    assert image["visible"]
    assert "a pixel has the colour of one" in panel.caption
    assert len(boxes(named(panel, "in use"))) == 0
    assert image["dx"] * picture.shape[1] == pytest.approx(len(trace))
    assert image["dy"] * picture.shape[0] == pytest.approx(panel.yaxis["range"][1])
    assert image["x0"] == image["dx"] / 2
    assert len(panel.traces) == len(address_time_panel(address_time_window(EMPTY), None, Look()).traces)


def test_a_pixel_is_free_in_use_or_no_region_at_all(trace, as_image):
    seen = address_time_window(trace)
    panel = address_time_panel(seen, None, Look())
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
    seen = address_time_window(trace)
    one = address_time_panel(seen, 5, Look())
    life = find(trace).lifetimes[7]
    look = Look(selected=Selected(int(life["address"]), int(life["born"])))
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
        t for t in address_time_window(trace).static_traces if t.get("mode") == "none" and "fill" not in t
    ]
    assert len(points["x"]) == len(points["hovertext"]) > 100
    assert all("% in use" in text for text in points["hovertext"])


def test_labels_cannot_inject_anything():
    heap = PlainHeap(64 * MiB)
    heap.allocate(1000, "<script>alert(1)</script>")
    text = str(address_time(heap.trace(), look=Look(colour="label")).to_dict())
    assert "<script" not in text


@pytest.mark.parametrize("axis", ["step", "time"])
def test_no_event_and_one_event_are_drawn(axis):
    look = Look(theme="dark", axis=axis)
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
    panel = address_time_panel(address_time_window(huge.trace()), None, Look())
    assert panel.yaxis["range"][1] * panel.y_unit == 1 << 40
    many = PlainHeap(4096, regions=1000, gap=4096)
    for _ in range(1000):
        many.allocate(3000)
    panel = address_time_panel(address_time_window(many.trace()), None, Look())
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
    seen = address_time_window(trace, 0, Look(hovered=choice))
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
