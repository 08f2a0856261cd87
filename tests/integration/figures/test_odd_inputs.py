"""Every figure draws odd traces: empty, damaged, huge, with hostile labels."""

import pytest
from unit.figures.odd_traces import ODD, assert_drawable, many_regions

from bfcviz.figures import FIGURES
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.figures.export import rendered
from bfcviz.figures.view_options import Look, MapWindow, Selected
from bfcviz.model import Model


def pictures(trace, look, pool=0, steps=()):
    """Every figure at these steps, or at the end."""
    model = Model(trace, pool)
    for step in steps or [len(trace)]:
        model.seek(step)
        for kind in FIGURES.values():
            yield kind.draw(model, look)


def assert_is_drawable(picture):
    assert_drawable([picture._data, picture._layout])  # to_dict() would copy and encode it


@pytest.mark.parametrize("axis", ["step", "time"])
@pytest.mark.parametrize("name", ODD)
def test_every_figure_is_drawn(name, axis):
    trace = ODD[name]()
    steps = sorted({0, len(trace) // 2, len(trace)} if axis == "step" else {0, len(trace)})
    for pool in range(len(trace.origin.pools)):
        for picture in pictures(trace, Look(axis=axis, wanted=1 << 20), pool, () if pool else steps):
            assert_is_drawable(picture)
            assert picture.table is not None


@pytest.mark.parametrize("colour", COLOURINGS)
@pytest.mark.parametrize("name", ["odd_labels", "no_addresses", "one_chunk_in_a_tebibyte"])
def test_every_colouring_is_drawn(name, colour):
    for picture in pictures(ODD[name](), Look(colour=colour, theme="dark")):
        assert_is_drawable(picture)


def test_thousands_of_regions_are_drawn():
    for picture in pictures(many_regions(), Look()):
        assert_is_drawable(picture)


FAR = (
    Look(map_window=MapWindow((-1e20, -1e19), (1e6, 1e9))),
    Look(map_window=MapWindow((0.0, 1e20), (-1e9, 1e9))),
    Look(map_window=MapWindow((5.0, 5.0), (0.0, 0.0))),
    Look(steps=(10**15, 10**16), addresses=(1e18, 1e20)),
    Look(steps=(0, 0), addresses=(7.0, 7.0), axis="time"),
    Look(selected=Selected(0, 0)),
    Look(selected=Selected((1 << 64) - 1, None)),
)


@pytest.mark.parametrize("look", FAR)
@pytest.mark.parametrize("name", ["empty", "odd_labels"])
def test_windows_far_outside_are_drawn(name, look):
    for picture in pictures(ODD[name](), look):
        assert_is_drawable(picture)


@pytest.mark.parametrize("suffix", [".html", ".csv", ".parquet"])
def test_odd_labels_are_exported(suffix):
    for picture in pictures(ODD["odd_labels"](), Look(colour="label")):
        assert rendered(picture, suffix)
