"""`bfcviz.sql`: its tables are the model's, and a query reads nothing else."""

import csv
import json
import sys

import numpy as np
import pytest
from shared import sample_trace
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.analysis.failures import all_failures
from bfcviz.cli import main
from bfcviz.errors import InvalidRequest, MissingExtra
from bfcviz.events.schema import EVENT
from bfcviz.exporters import sql as tables
from bfcviz.model.find_steps import failed_steps

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install 'bfcviz[sql]'")


@pytest.fixture(scope="module")
def trace():
    return sample_trace("lstm")


@pytest.fixture(scope="module")
def small():
    return busy_trace(60)


def only(trace, query, **options):
    """The one row of the answer."""
    (row,) = bfcviz.sql(trace, query, **options).to_pylist()
    return tuple(row.values())


def test_events_are_those_of_the_trace(trace):
    found = bfcviz.sql(trace, "select * from events order by seq")
    saved = trace.to_arrow()
    assert found.column_names == saved.column_names
    for name in EVENT.names:
        assert np.array_equal(found[name].to_numpy(), saved[name].to_numpy())


@pytest.mark.parametrize("at", [None, "peak", 4321])
def test_chunks_and_holders_are_those_of_the_model(trace, at):
    step = bfcviz.peak(trace) if at in {None, "peak"} else at
    model = bfcviz.Model(trace)
    model.seek(step)
    stats = model.stats()
    sums = (
        "count(*), sum(size) filter (in_use), sum(size) filter (not in_use), sum(requested), any_value(step)"
    )
    free = stats.pool_bytes - stats.bytes_in_use
    used = stats.bytes_in_use, free, stats.requested_bytes_in_use, step
    assert only(trace, f"from chunks select {sums}", step=at) == (len(model.chunks()), *used)
    query = "select max(bytes), sum(own_bytes), sum(requested) filter (parent is null) from holders"
    assert only(trace, query, step=at, by="thread") == (used[0], used[0], used[2])


def test_allocations_alive_at_a_step_are_the_chunks_in_use_there(trace):
    query = "select sum(size), count(*) from allocations where born < 4321 and (died is null or died >= 4321)"
    model = bfcviz.Model(trace)
    model.seek(4321)
    stats = model.stats()
    assert only(trace, query) == (stats.bytes_in_use, stats.chunks_in_use)
    assert only(trace, "select count(*) from allocations where died_time < born_time") == (0,)


def test_timelines_have_the_extremes(trace):
    model = bfcviz.Model(trace)
    model.seek(len(trace))
    stats = model.stats()
    query = (
        "select max(bytes_in_use_max), max(pool_bytes_max), sum(events), max(external_fragmentation_max) "
        "from timelines"
    )
    peak, pool, events, worst = only(trace, query)
    assert (peak, pool, events) == (stats.peak_bytes_in_use, stats.peak_pool_bytes, len(trace))
    model.seek(bfcviz.worst_fragmentation(trace))
    stats = model.stats()
    assert worst == pytest.approx(1 - stats.largest_free_chunk / stats.free_bytes)


def test_a_failure_is_a_row_and_what_its_file_lacks_is_null():
    failed = sample_trace("oom_log")
    (row,) = bfcviz.sql(failed, "from failures").to_pylist()
    (known,) = all_failures(failed)
    assert (row["event"], row["requested_bytes"], row["free_bytes"]) == (
        known.event,
        known.requested,
        known.free_bytes,
    )
    assert row["verdict"] == "cached_fragmentation"
    assert row["answer"] == known.unwrapped[0]
    assert only(failed, "select count(requested), any_value(step) from chunks") == (
        0,
        failed_steps(failed)[0],
    )
    assert only(
        failed, "select count(requested_bytes_in_use_max), count(pool_bytes_max) > 0 from timelines"
    ) == (0, True)


def test_every_column_has_a_unit_and_a_meaning_and_is_there(small):
    known = bfcviz.sql(
        small,
        'select "table", list("column") as names, min(length(meaning)) as least from columns group by 1',
    )
    named = {row["table"]: (row["names"], row["least"]) for row in known.to_pylist()}
    assert named.keys() == tables.TABLES.keys()
    for name, (columns, least) in named.items():
        assert bfcviz.sql(small, f"from {name} limit 0").column_names == columns
        assert least > 3


def test_differences_are_negative_numbers(trace):
    assert only(trace, "select min(requested - size) < 0 from allocations") == (True,)


HOSTILE = [
    "select * from read_text('{there}')",
    "select * from '{there}'",
    "select * from read_csv('{there}')",
    "select * from glob('{folder}/*')",
    "select * from parquet_scan('{there}')",
    "select * from sniff_csv('{there}')",
    "copy (select 1) to '{new}'",
    "copy events to '{new}'",
    "attach '{new}'",
    "export database '{new}'",
    "create table t as select 1",
    "set enable_external_access = true",
    "reset lock_configuration",
    "pragma profiling_output = '{new}'",
    "call enable_logging(storage = 'file', storage_path = '{new}')",
    "explain analyze copy (select 1) to '{new}'",
    "install httpfs",
    "load httpfs",
    "select 1; copy (select 1) to '{new}'",
    "select * from query('copy (select 1) to ''{new}''')",
    "select * from arrow_scan(1, 2, 3)",
    "",
    "select nothing from events",
    "selekt",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_query_reads_and_writes_nothing_else(query, small, tmp_path):
    there, new = tmp_path / "there.csv", tmp_path / "new"
    there.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidRequest, match="columns"):
        bfcviz.sql(small, query.format(there=there, folder=tmp_path, new=new))
    assert list(tmp_path.iterdir()) == [there]


def test_duckdb_writes_no_temporary_files(small):
    assert only(small, "select current_setting('temp_directory')") == ("",)


def test_without_duckdb_the_command_names_the_extra(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bfcviz\[sql\]'"):
        bfcviz.sql(trace, "select 1")


@pytest.fixture
def said(small, tmp_path, capsys):
    """What the command prints with these words."""
    file = str(small.save(tmp_path / "small.parquet"))

    def said(*words):
        assert main(["sql", file, *map(str, words)]) == 0
        return capsys.readouterr().out

    return said


def test_the_command_prints_a_table_csv_or_json(said, small):
    query = "select kind_name, count(*) as n from events group by all order by n desc"
    counts = small.to_pandas()["kind_name"].value_counts()
    rows = [(name, int(number)) for name, number in counts.items() if number]
    assert [(row["kind_name"], row["n"]) for row in json.loads(said(query, "--json"))] == rows
    assert [
        (row["kind_name"], int(row["n"])) for row in csv.DictReader(said(query, "--csv").splitlines())
    ] == rows
    head, *lines = said(query, "--most", 2).splitlines()
    assert head.split() == ["kind_name", "n"]
    assert [tuple(line.split()) for line in lines[:2]] == [(name, str(number)) for name, number in rows[:2]]
    assert lines[2].startswith(f"... and {len(rows) - 2} more rows")


def test_rows_wider_than_a_terminal_have_a_line_for_each_column(said, small):
    first, second = said("from events limit 2").split("\n\n")
    names = bfcviz.sql(small, "from events limit 0").column_names
    assert [line.split()[0] for line in first.splitlines()] == names
    assert [line.split()[0] for line in second.splitlines()] == names


def test_the_command_alone_describes_the_tables(said):
    lines = said().splitlines()
    for name, (purpose, schema) in tables.TABLES.items():
        at = lines.index(f"{name}: {purpose}") + 1
        assert [line.split()[0] for line in lines[at : at + len(schema)]] == schema.names


def test_values_that_json_lacks_are_text_and_names_cannot_move_the_cursor(said):
    query = r"select date '2026-01-02' as d, 'nan'::double as x, [1, 2] as l, chr(27) || '[2J' as t"
    assert json.loads(said(query, "--json")) == [{"d": "2026-01-02", "x": None, "l": [1, 2], "t": "\x1b[2J"}]
    assert "\x1b" not in said(query)


@pytest.mark.parametrize(("name", "asked"), [("oom_log", 0), ("oom_dump", 1)])
def test_numbers_of_chunks_that_a_file_does_not_have_are_null(name, asked):
    counts = "count(size) > 0, count(requested) > 0, count(born), count(thread), count(stream)"
    for table in ("chunks", "allocations"):
        assert only(sample_trace(name), f"from {table} select {counts}") == (True, bool(asked), 0, 0, 0)
