import base64

import numpy as np
import pytest
from unit.figures.style.test_raster_image import decode
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.colouring import COLOURINGS, colouring
from bfcviz.figures.raster_image import LiveMap, live_map_chunks
from bfcviz.figures.region_map import moving_map_panel, region_panel
from bfcviz.figures.theme import LIGHT, rgb
from bfcviz.figures.view_options import PLAIN, Look, MapWindow
from bfcviz.model import Model


def at_step(trace, step):
    model = Model(trace)
    model.seek(step)
    return model


def live_map_at(trace, step, name="state"):
    return LiveMap(at_step(trace, step), colouring(trace, 0, name, LIGHT), LIGHT)


def pixels(image):
    return decode(base64.b64decode(image["source"].partition(",")[2]))


@pytest.mark.parametrize("name", [name for name in COLOURINGS if name != "age"])
def test_going_on_over_events_is_the_same_as_beginning_there(name):
    trace = busy_trace()
    first = 100
    live_map = live_map_at(trace, first, name)
    assert live_map.moves
    regions = len(at_step(trace, first).regions())
    for stop in (first + 1, first + 40, first + 41, first + 200):
        live_map.take(trace.read(live_map.step, stop))
        assert live_map.step == stop
        if len(at_step(trace, stop).regions()) == regions:
            assert live_map.image() == live_map_at(trace, stop, name).image()


def test_a_chunk_is_where_it_is():
    heap = PlainHeap(64 * MiB)
    for _ in range(2):
        heap.allocate(16 * MiB)
    live_map = live_map_at(heap.trace(), len(heap.events))
    row, *_ = np.flatnonzero(pixels(live_map.image())[:, 0, 3])  # the first is a gap
    picture = pixels(live_map.image())
    used, free = (np.rint(rgb(paint.fill)) for paint in (LIGHT.in_use, LIGHT.free))
    lines = len(picture) // len(live_map.rows)
    shown = picture[row::lines, :, :3].reshape(-1, 3)
    half = len(shown) // 2
    assert (shown[:half] == used).all()
    assert (shown[half:] == free).all()


def test_a_heap_without_a_region_has_no_image():
    live_map = live_map_at(busy_trace(), 0)
    live_map.take(busy_trace().read(0, 300))
    assert live_map.image() == {"visible": False}


@pytest.mark.parametrize("step", [0, 1, 400])
def test_the_moving_map_has_the_traces_of_the_one_at_rest(step):
    trace = busy_trace()
    rest = region_panel(at_step(trace, step), None, PLAIN)
    look = Look(map_window=MapWindow((0.0, 4096.0), (0.0, 1.0)))
    moving = moving_map_panel(live_map_at(trace, step), trace.labels, look)
    assert [each["type"] for each in moving.traces] == [each["type"] for each in rest.traces]
    assert [each.get("name") for each in moving.traces] == [each.get("name") for each in rest.traces]
    assert moving.xaxis["range"] == rest.xaxis["range"]
    assert moving.yaxis == rest.yaxis
    assert moving.traces[0]["visible"] is (step > 0)
    assert not any(len(each.get("hovertemplate", "")) for each in moving.traces)


def test_the_birth_of_a_freed_chunk_is_exact_past_two_to_the_32():
    events = np.zeros(3, EVENT)
    events["kind"] = [Kind.ALLOCATE, Kind.FREE, Kind.FREE]
    events["seq"] = [(1 << 32) + 5, (1 << 32) + 9, (1 << 32) + 9]
    events["other"] = [0, 5, 0xFFFF_FFF0]
    assert live_map_chunks(events)["born"].tolist() == [(1 << 32) + 5, (1 << 32) + 5, 0xFFFF_FFF0]
