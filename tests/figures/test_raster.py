import numpy as np
import pytest

from bfcviz.figures.raster import LINES, Shares, paint, shares
from bfcviz.figures.rows import lay_out
from bfcviz.figures.theme import LIGHT, rgb
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
    held = shares(chunks, rows, 16)
    expected = counted(chunks, table, rows, 16)
    assert np.allclose([held.in_use, held.waste, held.region], expected)


def test_many_chunks_keep_their_totals():
    random = np.random.default_rng(3)
    sizes = random.integers(1, 40, 100_000) * 256
    in_use = random.random(100_000) < 0.6
    requested = np.maximum(sizes - random.integers(0, 256, 100_000), 1)
    total = int(sizes.sum())
    chunks, table = heap(sizes, in_use, requested, [total])
    held = shares(chunks, lay_out(table), 1600)
    assert held.region.sum() == pytest.approx(total)
    assert held.in_use.sum() == pytest.approx(sizes[in_use].sum())
    assert held.waste.sum() == pytest.approx((sizes - requested)[in_use].sum())


def one_pixel(in_use, waste, region):
    return Shares(*(np.array([[float(value)]]) for value in (in_use, waste, region)))


@pytest.mark.parametrize(
    ("held", "colour"),
    [
        (one_pixel(0, 0, 100), LIGHT.free.fill),
        (one_pixel(100, 0, 100), LIGHT.in_use.fill),
        (one_pixel(100, 100, 100), LIGHT.waste.fill),
    ],
)
def test_a_pixel_of_one_state_has_its_colour(held, colour):
    middle = paint(held, LIGHT)[LINES // 2, 0]
    assert tuple(middle) == (*rgb(colour), 255)


def test_a_tiny_chunk_in_use_is_never_blended_away():
    alone = paint(one_pixel(256, 0, 1 << 36), LIGHT)[LINES // 2, 0].astype(int)
    free = np.array([*rgb(LIGHT.free.fill), 255])
    assert np.abs(alone - free).max() > 25


def test_outside_of_regions_and_between_rows_it_is_clear():
    held = Shares(np.array([[1.0, 0.0]]), np.zeros((1, 2)), np.array([[1.0, 0.0]]))
    pixels = paint(held, LIGHT)
    assert pixels[LINES // 2, 1, 3] == 0
    assert not pixels[0, :, 3].any()


def test_more_rows_than_lines_share_them():
    rows = 4096
    held = Shares(np.ones((rows, 2)), np.zeros((rows, 2)), np.ones((rows, 2)))
    pixels = paint(held, LIGHT)
    assert pixels.shape == (LINES, 2, 4)
    assert (pixels == [*rgb(LIGHT.in_use.fill), 255]).all()
