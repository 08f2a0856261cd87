import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.figures.map_rows import WRAPPED_ROWS, VisibleRows, lay_out
from bfcviz.figures.view_options import MapWindow
from bfcviz.model import REGION


def regions_of(sizes, first=0x7F00_0000_0000, gap=256):
    regions = np.zeros(len(sizes), REGION)
    regions["size"] = sizes
    regions["address"] = first + np.concatenate([[0], np.cumsum(np.array(sizes[:-1], np.uint64) + gap)])
    regions["slot"] = np.arange(len(sizes))
    return regions


sizes = st.lists(st.integers(1, 1 << 24).map(lambda units: 256 * units), min_size=1, max_size=40)


@given(sizes)
def test_rows_show_every_byte_of_every_region_once(sizes):
    rows = lay_out(regions_of(sizes))
    pieces = rows.of_regions()
    assert len(pieces) == len(rows) == pieces.row[-1] + 1
    assert sorted(set(pieces.row.tolist())) == list(range(len(rows)))
    held = np.bincount(pieces.source, weights=pieces.right - pieces.left, minlength=len(sizes))
    assert held.tolist() == sizes
    assert (pieces.left == 0).all()
    assert (pieces.right <= rows.width).all()


@given(sizes, st.data())
def test_a_chunk_is_cut_only_at_the_ends_of_rows(sizes, data):
    regions = regions_of(sizes)
    rows = lay_out(regions)
    at = data.draw(st.integers(0, len(sizes) - 1))
    begin = data.draw(st.integers(0, sizes[at] // 256 - 1)) * 256
    size = data.draw(st.integers(1, (sizes[at] - begin) // 256)) * 256
    address = regions["address"][at : at + 1] + np.uint64(begin)
    pieces = rows.pieces(address, np.array([size], np.uint64))
    assert (pieces.right - pieces.left).sum() == size
    assert np.diff(pieces.row).tolist() == [1] * (len(pieces) - 1)
    assert (pieces.left[1:] == 0).all()
    assert (pieces.right[:-1] == rows.width).all()
    assert pieces.row[0] * rows.width + pieces.left[0] == rows.first[at] * rows.width + begin


@given(sizes)
def test_there_are_no_more_rows_than_can_be_seen(sizes):
    rows = lay_out(regions_of(sizes))
    assert len(rows) <= max(WRAPPED_ROWS, len(sizes) + WRAPPED_ROWS)
    assert rows.width & (rows.width - 1) == 0
    assert rows.width >= 256


def test_one_region_fills_its_rows():
    rows = lay_out(regions_of([64 << 20]))
    assert (len(rows), rows.width) == (16, 4 << 20)


def test_a_terabyte_and_addresses_at_the_top_of_memory_stay_exact():
    regions = regions_of([1 << 40], first=(1 << 64) - (1 << 40))
    rows = lay_out(regions)
    pieces = rows.pieces(np.array([(1 << 64) - 256], np.uint64), np.array([256], np.uint64))
    assert pieces.row.tolist() == [15]
    assert (pieces.left[0], pieces.right[0]) == (rows.width - 256, rows.width)


def test_no_regions_no_rows():
    assert len(lay_out(np.zeros(0, REGION))) == 0


def test_a_part_is_the_window_cut_to_what_there_is():
    rows = lay_out(regions_of([4096, 4096]), wrapped_rows=8)
    width = float(rows.width)
    assert rows.part(None) == VisibleRows(0.0, width, 0, len(rows))
    assert rows.part(MapWindow((-5.0, width * 2), (-1.0, 99.0))) == rows.part(None)
    assert rows.part(MapWindow((30.0, 10.0), (2.5, 1.5))) == VisibleRows(10.0, 30.0, 1, 3)
    assert len(rows.part(MapWindow((width, width + 1), (0.0, 1.0)))) == 0
    assert len(rows.part(MapWindow((0.0, 1.0), (98.0, 99.0)))) == 0


def test_what_is_seen_is_what_has_pieces_in_the_part():
    random = np.random.default_rng(1)
    table = regions_of([8192, 5120, 2048])
    rows = lay_out(table, wrapped_rows=16)
    address = np.concatenate(
        [base + np.arange(0, size, 256) for base, size in zip(table["address"], table["size"], strict=True)]
    ).astype(np.uint64)
    size = np.full(len(address), 256, np.uint64)
    for _ in range(200):
        left, right = np.sort(random.uniform(-0.2, 1.2, 2)) * rows.width
        top, bottom = np.sort(random.uniform(-1, len(rows) + 1, 2))
        part = rows.part(MapWindow((left, right), (top, bottom)))
        seen, pieces = rows.chunks_in(address, part)
        found = rows.pieces(address, size).within(part)
        assert set(found.source) <= set(seen.tolist())
        assert len(found) <= pieces
        # A fraction of a byte at either end may bring a neighbour in.
        assert len(seen) <= len(set(found.source)) + 2 * max(len(part), 0)
        assert (np.diff(seen) > 0).all()


def test_where_nothing_is_nothing_is_seen():
    rows = lay_out(np.zeros(0, REGION))
    seen, pieces = rows.chunks_in(np.empty(0, np.uint64), rows.part(None))
    assert (len(seen), pieces, len(rows.part(None))) == (0, 0, 0)


@given(sizes, st.data())
def test_rows_by_size_hold_the_same_chunks_and_begin_with_the_largest(sizes, data):
    regions = regions_of(sizes)
    plain, rows = lay_out(regions), lay_out(regions, by_size=True)
    assert (len(rows), rows.width) == (len(plain), plain.width)
    in_order = rows.size[rows.region_of(np.arange(len(rows)))]
    assert (np.diff(in_order.astype(np.int64)) <= 0).all()
    # The chunks are halves of regions.
    half = regions["size"] // 512 * 256
    address = np.unique(np.concatenate([regions["address"], regions["address"] + half]))
    size = np.diff(np.append(address, regions["address"][-1] + regions["size"][-1]))
    ends = regions["address"] + regions["size"]
    size = np.minimum(size, ends[np.searchsorted(regions["address"], address, side="right") - 1] - address)
    top = data.draw(st.floats(0, len(rows)))
    part = rows.part(
        MapWindow((0, data.draw(st.floats(1, rows.width))), (top, data.draw(st.floats(top, len(rows)))))
    )
    seen, pieces = rows.chunks_in(address, part)
    shown = rows.pieces(address, size).within(part)
    assert set(shown.source.tolist()) <= set(seen.tolist())
    assert np.diff(seen).min(initial=1) > 0
    assert len(shown) <= pieces
