import base64
import struct
import zlib

import numpy as np
import pytest
from processes import sized
from unit.figures.drawn import BY_STATE
from unit.figures.drawn_map import at_step, live_map_at
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures import map_image
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.figures.map_cells import CellBytes
from bfcviz.figures.map_image import (
    LINES,
    RasterGrid,
    cell_bytes,
    data_uri,
    encode_png,
    live_map_chunks,
    lone_raster_cells,
)
from bfcviz.figures.map_rows import lay_out
from bfcviz.figures.region_map import moving_map_panel, region_panel
from bfcviz.figures.theme import LIGHT, rgb
from bfcviz.figures.view_options import Look, MapWindow
from bfcviz.model import CHUNK, REGION

BASE = 1 << 30


def heap(sizes, in_use, requested, regions):
    """Chunks side by side in regions of the given sizes, a gap of 4096 bytes between regions."""
    table = np.zeros(len(regions), REGION)
    table["size"] = regions
    table["address"] = BASE + np.concatenate([[0], np.cumsum(np.array(regions[:-1], int) + 4096)])
    chunks = np.zeros(len(sizes), CHUNK)
    chunks["size"], chunks["in_use"] = sizes, in_use
    chunks["requested"] = np.where(in_use, requested, 0)
    flat = np.concatenate([[0], np.cumsum(sizes[:-1])])
    region = np.searchsorted(np.cumsum(regions), flat, side="right")
    chunks["address"] = BASE + flat + region * 4096
    return chunks, table


STATES = [LIGHT.in_use.fill]


def paint(held, theme, fills=STATES, **options):
    """The lines of the picture as a page gets them."""
    picture = map_image.raster_image(held, fills, theme, **options)
    lines = decode(base64.b64decode(picture.data_uri().partition(",")[2]))
    assert len(lines) == len(picture)
    return lines


def measured(chunks, rows, columns, window=None):
    grid = RasterGrid(rows, rows.part(window), columns)
    return cell_bytes(chunks, (np.arange(len(chunks)) % 3).astype(np.uint8), 3, grid)


def counted(chunks, table, rows, columns):
    """The same shares, byte by byte."""
    found = np.zeros((3, len(rows), columns))
    width = rows.width / columns
    for region, record in enumerate(table):
        for byte in range(int(record["size"])):
            address = int(record["address"]) + byte
            chunk = chunks[np.searchsorted(chunks["address"], address, side="right") - 1]
            row, column = rows.first[region] + byte // rows.width, int(byte % rows.width // width)
            found[2, row, column] += 1
            found[0, row, column] += chunk["in_use"]
            found[1, row, column] += chunk["in_use"] and address >= chunk["address"] + chunk["requested"]
    return found


def test_shares_are_what_a_count_of_bytes_finds():
    chunks, table = heap(
        [256, 512, 768, 512, 1024, 256], [1, 0, 1, 1, 0, 1], [100, 0, 768, 257, 0, 1], [2048, 1280]
    )
    rows = lay_out(table, wrapped_rows=6)
    held = measured(chunks, rows, 16)
    expected = counted(chunks, table, rows, 16)
    assert np.allclose([held.in_use, held.waste, held.region], expected)


def test_many_chunks_keep_their_totals():
    random = np.random.default_rng(3)
    sizes = random.integers(1, 40, 100_000) * 256
    in_use = random.random(100_000) < 0.6
    requested = np.maximum(sizes - random.integers(0, 256, 100_000), 1)
    total = int(sizes.sum())
    chunks, table = heap(sizes, in_use, requested, [total])
    held = measured(chunks, lay_out(table), 1600)
    assert held.region.sum() == pytest.approx(total)
    assert held.in_use.sum() == pytest.approx(sizes[in_use].sum())
    assert held.waste.sum() == pytest.approx((sizes - requested)[in_use].sum())
    of_classes = [sizes[n::3][in_use[n::3]].sum() for n in range(3)]
    assert held.by_class.sum(axis=(1, 2)) == pytest.approx(of_classes)
    assert np.allclose(held.by_class.sum(axis=0), held.in_use)


def test_a_window_is_the_same_picture_nearer():
    chunks, table = heap(
        [256, 512, 768, 512, 1024, 256], [1, 0, 1, 1, 0, 1], [100, 0, 768, 257, 0, 1], [2048, 1280]
    )
    rows = lay_out(table, wrapped_rows=6)
    width = rows.width
    near = measured(chunks, rows, 8, MapWindow((width / 4, width * 3 / 4), (1, len(rows) - 1)))
    whole = measured(chunks, rows, 16)
    for name in ("in_use", "waste", "region", "by_class"):
        assert np.allclose(getattr(near, name), getattr(whole, name)[..., 1:-1, 4:12])


def test_chunks_out_of_sight_may_be_left_out():
    chunks, table = heap([256] * 64, [1, 0] * 32, [200, 0] * 32, [64 * 256])
    rows = lay_out(table, wrapped_rows=4)
    window = MapWindow((300, rows.width - 300), (1.5, 2.5))
    seen, pieces = rows.chunks_in(chunks["address"], rows.part(window))
    assert pieces == len(seen) < len(chunks)
    whole, some = measured(chunks, rows, 50, window), measured(chunks[seen], rows, 50, window)
    assert np.allclose(whole.in_use, some.in_use)
    assert np.allclose(whole.waste, some.waste)


def test_no_pixel_has_a_colour_that_is_not_one_of_its_classes_and_each_class_has_its_share():
    """Chunks of two classes by turns, three of one for one of the other, many in each pixel."""
    chunks, table = heap([768, 256] * 2048, [1, 1] * 2048, [768, 256] * 2048, [1024 * 2048])
    rows = lay_out(table, wrapped_rows=16)
    grid = RasterGrid(rows, rows.part(None), 32)
    held = cell_bytes(chunks, np.array([0, 1] * 2048, np.uint8), 2, grid)
    picture = map_image.raster_image(held, ["#000000", "#6496C8"], LIGHT, waste=False)
    colours, count = np.unique(picture.pixels.reshape(-1, 4), axis=0, return_counts=True)
    assert colours.tolist() == [[0, 0, 0, 255], [100, 150, 200, 255]]
    assert count[0] == 3 * count[1]


def test_waste_has_its_share_of_the_pixels():
    chunks, table = heap([1024] * 2048, [1] * 2048, [768] * 2048, [1024 * 2048])
    rows = lay_out(table, wrapped_rows=16)
    held = cell_bytes(chunks, np.zeros(2048, np.uint8), 1, RasterGrid(rows, rows.part(None), 32))
    colours, count = np.unique(
        map_image.raster_image(held, STATES, LIGHT).pixels.reshape(-1, 4), axis=0, return_counts=True
    )
    expected = {(*rgb(LIGHT.in_use.fill), 255): 3, (*rgb(LIGHT.waste.fill), 255): 1}
    assert {
        tuple(colour): n // count.min() for colour, n in zip(colours.tolist(), count, strict=True)
    } == expected


def test_lone_cells_are_those_with_free_space_around():
    used = np.zeros((2, 40))
    used[0, [3, 20, 22]] = used[1, [0, 39]] = 256.0
    used[1, 20] = 4096.0  # wide enough to be seen
    held = CellBytes(used, np.zeros((2, 40)), np.full((2, 40), 4096.0), used[None])
    row, column = lone_raster_cells(held, 5)
    assert list(zip(row.tolist(), column.tolist(), strict=True)) == [(0, 3), (1, 0), (1, 39)]


def one_pixel(in_use, waste, region):
    sums = [np.array([[float(value)]]) for value in (in_use, waste, region)]
    return CellBytes(*sums, by_class=sums[0][None])


@pytest.mark.parametrize(
    ("held", "colour"),
    [
        (one_pixel(0, 0, 100), LIGHT.free.fill),
        (one_pixel(100, 0, 100), LIGHT.in_use.fill),
        (one_pixel(100, 100, 100), LIGHT.waste.fill),
    ],
)
def test_a_pixel_of_one_state_has_its_colour(held, colour):
    (middle,) = paint(held, LIGHT)[5]
    assert tuple(middle) == (*rgb(colour), 255)


def test_a_tiny_chunk_in_use_is_never_blended_away():
    alone = paint(one_pixel(256, 0, 1 << 36), LIGHT)[5, 0].astype(int)
    free = np.array([*rgb(LIGHT.free.fill), 255])
    assert np.abs(alone - free).max() > 25


def test_outside_of_regions_and_between_rows_it_is_clear():
    one = np.array([[1.0, 0.0]])
    held = CellBytes(one, np.zeros((1, 2)), one, one[None])
    pixels = paint(held, LIGHT)
    assert pixels[len(pixels) // 2, 1, 3] == 0
    assert not pixels[0, :, 3].any()


def test_more_rows_than_lines_share_them():
    rows = 4096
    ones = np.ones((rows, 2))
    held = CellBytes(ones, np.zeros((rows, 2)), ones, ones[None])
    pixels = paint(held, LIGHT)
    assert pixels.shape == (LINES, 2, 4)
    assert (pixels == [*rgb(LIGHT.in_use.fill), 255]).all()


def test_a_lone_chunk_in_one_of_many_rows_shows():
    rows = 4096
    used = np.zeros((rows, 1))
    used[2000] = 256.0
    held = CellBytes(used, np.zeros((rows, 1)), np.full((rows, 1), 1e9), used[None])
    lines = paint(held, LIGHT)[:, 0].astype(int)
    assert (np.abs(lines - [*rgb(LIGHT.free.fill), 255]).max(axis=1) > 25).sum() == 1


def test_of_rows_that_share_lines_each_line_has_one_colour():
    """A row of one class, a row of the other, by turns, two in each line: no column cuts a line."""
    chunks, table = heap([4096] * 1920, [1] * 1920, [4096] * 1920, [4096] * 1920)
    rows = lay_out(table)
    held = cell_bytes(chunks, np.array([0, 1] * 960, np.uint8), 2, RasterGrid(rows, rows.part(None), 16))
    pixels = map_image.raster_image(held, ["#000000", "#6496C8"], LIGHT, waste=False).pixels
    assert (pixels == pixels[:, :1]).all()
    assert np.unique(pixels[:, 0, 0], return_counts=True)[1].tolist() == [240, 240]


def decode(body):
    """A PNG reader of its own, for what the writer may produce."""
    assert body[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(body):
        (length,) = struct.unpack(">I", body[at : at + 4])
        name, content = body[at + 4 : at + 8], body[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", body[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(name + content)
        chunks.append((name, content))
        at += 12 + length
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colours, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, colours, rest) == (8, 6, [0, 0, 0])
    lines = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 4 * width)
    pixels = lines[:, 1:].copy()
    for line in np.flatnonzero(lines[:, 0]):
        assert lines[line, 0] == 2
        pixels[line] += pixels[line - 1]
    return pixels.reshape(height, width, 4)


def test_every_pixel_comes_back():
    pixels = np.random.default_rng(1).integers(0, 256, (13, 7, 4), dtype=np.uint8)
    assert np.array_equal(decode(encode_png(pixels)), pixels)


def test_lines_that_repeat_cost_next_to_nothing():
    pixels = np.random.default_rng(1).integers(0, 256, (1, 300, 4), dtype=np.uint8)
    many = np.repeat(pixels, 100, axis=0)
    assert np.array_equal(decode(encode_png(many)), many)
    assert len(encode_png(many)) < 2 * len(encode_png(pixels))


def test_lines_can_be_some_high_with_clear_ones_around():
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 4), dtype=np.uint8)
    lines = np.repeat(pixels[:, None], 6, axis=1)
    lines[:, :2] = lines[:, -2:] = 0
    assert np.array_equal(decode(encode_png(pixels, 6, 2)), lines.reshape(30, 7, 4))


def test_data_uri_holds_the_png():
    pixels = np.zeros((2, 3, 4), np.uint8)
    head, body = data_uri(pixels).split(",", 1)
    assert head == "data:image/png;base64"
    assert np.array_equal(decode(base64.b64decode(body)), pixels)


def pixels(image):
    return decode(base64.b64decode(image["source"].partition(",")[2]))


@pytest.mark.parametrize("name", [name for name in COLOURINGS if name != "age"])
def test_going_on_over_events_is_the_same_as_beginning_there(name):
    trace = busy_trace()
    first = 100
    live_map = live_map_at(trace, first, name)
    assert live_map.moves
    regions = len(at_step(trace, first).regions())
    compared = 0
    for stop in sized((first + 1, first + 40, first + 41, first + 200), (first + 40,)):
        live_map.take(trace.read(live_map.step, stop))
        assert live_map.step == stop
        if len(at_step(trace, stop).regions()) == regions:
            compared += 1
            assert live_map.image() == live_map_at(trace, stop, name).image()
    assert compared


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
    rest = region_panel(at_step(trace, step), None, BY_STATE)
    look = Look(colour="state", map_window=MapWindow((0.0, 4096.0), (0.0, 1.0)))
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
