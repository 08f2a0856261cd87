import pyarrow as pa
import pytest

from bfcviz.figures.export import export
from bfcviz.figures.sweep_heat_map import MOST_COLUMNS, MOST_ROWS, sweep_heat_map
from bfcviz.figures.view_options import Look

MiB = 1 << 20
GROUPS = {"fits": (0, 1), "fails": (1, 2), "error": (2, 3)}


def point(trace="a/one.parquet", policy="bfc", limit=8 * MiB, **numbers):
    known = {
        "trace": trace,
        "policy": policy,
        "limit": "none" if limit is None else str(limit),
        "limit_bytes": limit,
        "requests": 10,
        "served": 10,
        "failures": 0,
        "first_failure": None,
        "first_failure_bytes": None,
        "peak_requested": 4 * MiB,
        "peak_in_use": 5 * MiB,
        "peak_reserved": 6 * MiB,
        "reserved_not_in_use": 0.1,
        "notes": "",
        "error": "",
    }
    return {**known, **numbers}


def failing(**numbers):
    return point(failures=3, first_failure=7, first_failure_bytes=MiB, **numbers)


def refused(**numbers):
    return point(error="this cannot be <b>served</b>", **numbers)


def drawn(points, look=Look(), remarks=()):  # noqa: B008
    picture = sweep_heat_map(pa.Table.from_pylist(points), look, remarks)
    heat = picture.data[0]
    return picture, [list(line) for line in heat.z], [list(line) for line in heat.text]


def group(level):
    return next(name for name, (low, high) in GROUPS.items() if low <= level < high)


def test_of_many_traces_a_cell_has_the_smallest_limit_that_fits():
    points = [
        failing(limit=4 * MiB),
        point(limit=8 * MiB),
        failing(policy="torch", limit=4 * MiB),
        failing(policy="torch", limit=8 * MiB),
        point(trace="b/two.parquet", limit=4 * MiB),
        point(trace="b/two.parquet", limit=8 * MiB),
        refused(trace="b/two.parquet", policy="torch", limit=4 * MiB),
        refused(trace="b/two.parquet", policy="torch", limit=8 * MiB),
    ]
    picture, levels, texts = drawn(points)
    assert texts == [["8.0 MiB", "3 fail"], ["4.0 MiB", "error"]]
    assert [[group(level) for level in line] for line in levels] == [["fits", "fails"], ["fits", "error"]]
    assert levels[1][0] < levels[0][0]  # all that any rules need, and twice that
    assert list(picture.layout.yaxis.ticktext) == ["one.parquet", "two.parquet"]
    assert list(picture.layout.xaxis.ticktext) == ["bfc", "torch"]


def test_a_cell_is_no_failure_before_all_its_limits_are_tried():
    points = [
        failing(limit=4 * MiB),
        failing(limit=8 * MiB),
        failing(trace="two", limit=4 * MiB),
        point(trace="three", limit=8 * MiB),
    ]
    _, levels, texts = drawn(points)
    assert group(levels[0][0]) == "fails"
    assert levels[1] == [None]
    assert texts[2] == ["≤ 8.0 MiB"]


def test_of_one_trace_limits_are_columns_from_small_to_large():
    points = [
        point(limit=None),
        point(limit=16 * MiB),
        failing(limit=4 * MiB),
        point(policy="torch", limit=None),
    ]
    picture, levels, texts = drawn(points)
    assert list(picture.layout.xaxis.ticktext) == ["4.0 MiB", "16.0 MiB", "no limit"]
    assert texts == [["3 fail", "6.0 MiB", "6.0 MiB"], ["", "", "6.0 MiB"]]
    assert levels[1][:2] == [None, None]  # no result yet


def test_without_limits_a_cell_has_the_most_reserved():
    _, _, texts = drawn([point(limit=None), point(trace="two", limit=None)])
    assert texts == [["6.0 MiB"], ["6.0 MiB"]]


def test_texts_from_files_are_escaped():
    picture, _, _ = drawn([refused(trace="<img src=x>"), refused(trace="two")])
    assert "<img" not in picture.to_json()
    assert "<b>served" not in picture.to_json()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_large_and_empty_sweeps_are_drawn(theme):
    points = [
        point(trace=f"t{row}", policy=f"p{column}:a=1,b=2,c=3,d=4,e=5")
        for row in range(50)
        for column in range(30)
    ]
    picture, levels, _ = drawn(points, Look(theme=theme))
    assert (len(levels), len(levels[0])) == (MOST_ROWS, MOST_COLUMNS)
    assert picture.table.num_rows == len(points)
    empty = pa.Table.from_pylist([point()]).slice(0, 0)
    assert list(sweep_heat_map(empty, Look(theme=theme)).data[0].z) == []


def test_its_numbers_are_exported(tmp_path):
    picture, _, _ = drawn([point()])
    export(picture, tmp_path / "sweep.csv")
    assert "peak_reserved" in (tmp_path / "sweep.csv").read_text()


def test_the_caption_has_the_remarks():
    told = drawn([point()], remarks=["not compared with a real allocator: xla"])[0].layout.annotations
    assert any("not compared with a real allocator: xla" in each.text for each in told)
