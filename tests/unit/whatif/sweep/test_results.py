from dataclasses import fields

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.whatif.sweep.streams import MiB, random_stream

import bfcviz
from bfcviz.errors import FileError
from bfcviz.whatif.sweep.point import PointResult
from bfcviz.whatif.sweep.sweep import SweepResults


def point(trace="a/one.parquet", policy="bfc", limit=8 * MiB, **numbers):
    known = {"limit_bytes": limit, "requests": 10, "served": 10, "failures": 0, "peak_reserved": 4 * MiB}
    return PointResult(trace, "v", "0", policy, str(limit), stop_at_failure=False, **{**known, **numbers})


def failed(**numbers):
    return point(failures=2, first_failure=7, first_failure_bytes=99, **numbers)


def results():
    error = PointResult(
        "a/two.parquet", "", "", "bfc", "none", stop_at_failure=False, error="there is no file"
    )
    return SweepResults([failed(limit=2 * MiB), point(limit=8 * MiB), point(limit=4 * MiB), error], asked=5)


def test_the_smallest_limit_that_fits():
    assert results().smallest_limits() == {("a/one.parquet", "bfc"): 4 * MiB}
    assert SweepResults([failed()]).smallest_limits() == {("a/one.parquet", "bfc"): None}
    stopped = point(served=5)
    assert (stopped.outcome, SweepResults([stopped]).smallest_limits()) == (
        "fails",
        {("a/one.parquet", "bfc"): None},
    )


def test_complete_and_errors():
    assert not results().complete
    assert [key.trace for key in results().errors] == ["a/two.parquet"]


def test_the_table_has_a_column_for_each_number_and_survives_a_file(tmp_path):
    path = tmp_path / "results.parquet"
    results().save(path)
    assert SweepResults.load(path).points == results().points
    table = results().to_arrow()
    assert table.column_names == [each.name for each in fields(PointResult)]
    assert table["failures"].to_pylist() == [2, 0, 0, None]
    frame = results().to_pandas()
    assert frame["limit_bytes"].dropna().tolist() == [2 * MiB, 8 * MiB, 4 * MiB]


def test_the_text_names_every_trace_and_policy_once():
    text = str(results())
    assert "one.parquet" in text
    assert "there is no file" in text
    assert "4.0 MiB" in text
    assert [text.count(name) for name in ("one.parquet", "two.parquet")] == [1, 1]
    assert len(text.splitlines()) == 2 + 1 + 2 + 3  # summary, titles, two traces, their rows and the message
    many = SweepResults([point(trace=f"trace_{number}") for number in range(100)])
    assert len(str(many).splitlines()) < 130
    assert "40 more" in str(many)


def test_the_text_is_at_most_80_columns_wide():
    policy = "bfc:allow_growth=true,garbage_collection=true,fragmentation_fraction=0.25"
    text = str(SweepResults([point(policy=policy, error="a cause " * 30), point(), failed()]))
    assert max(map(len, text.splitlines())) <= 80
    assert policy in text


def test_names_of_files_cannot_control_a_terminal():
    text = str(SweepResults([point(trace="a\x1b[31m"), failed(error="b\x1b[2J")], asked=3, reason="c\x1b[0m"))
    assert text.replace("\n", "").isprintable()


def test_what_fits_only_without_a_limit_says_so():
    none = str(SweepResults([failed()]))
    unlimited = str(SweepResults([failed(), point(limit=None)]))
    assert ("none of them" in none, "no limit only" in none) == (True, False)
    assert ("none of them" in unlimited, "no limit only" in unlimited) == (False, True)


def test_files_that_are_no_results_are_refused(tmp_path):
    damaged, other = tmp_path / "damaged.parquet", tmp_path / "other.parquet"
    damaged.write_bytes(b"PAR1" + bytes(50))
    pq.write_table(pa.table({"trace": ["a"]}), other)
    for path in (damaged, other, tmp_path / "missing", tmp_path):
        with pytest.raises(FileError):
            SweepResults.load(path)


def test_results_of_a_sweep_are_the_same_after_loading(tmp_path):
    made = bfcviz.sweep(random_stream(1), ["bfc", "first_fit"], ["90%", None])
    made.save(tmp_path / "results.parquet")
    assert SweepResults.load(tmp_path / "results.parquet").points == made.points
