"""`bfcviz convert`: its formats, its range, what it says, and its errors."""

import csv
import re

import pytest
from shared import sample_file, sample_trace

import bfcviz
from bfcviz.cli import main
from bfcviz.exporters.convert import SUFFIXES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    assert main(["convert", str(sample_file("lstm")), "-o", str(folder / "whole.parquet")]) == 0
    return folder


def convert(folder, out, *words):
    return main(["convert", str(folder / "whole.parquet"), "-o", str(out), *words])


def test_parquet_and_blocks_hold_the_same_events(folder, tmp_path):
    assert convert(folder, tmp_path / "whole.bfc") == 0
    one = sample_trace("lstm")
    for path in (folder / "whole.parquet", tmp_path / "whole.bfc"):
        other = bfcviz.open(path)
        assert (one.read(0, len(one)) == other.read(0, len(other))).all()
    assert (tmp_path / "whole.bfc").stat().st_size < 6 * len(one)


def test_csv_has_a_row_an_event_with_names(folder, tmp_path):
    assert convert(folder, tmp_path / "part.csv", "--range", "100:200") == 0
    trace = bfcviz.open(folder / "whole.parquet")
    rows = list(csv.DictReader((tmp_path / "part.csv").read_text().splitlines()))
    events = trace.read(100, 200)
    assert [int(row["size"]) for row in rows] == events["size"].tolist()
    assert [row["label_name"] for row in rows] == [trace.labels.name(label) for label in events["label"]]
    assert {row["kind_name"] for row in rows} >= {"ALLOCATE", "FREE"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_written_and_said(suffix, folder, tmp_path, capsys):
    out = tmp_path / f"out{suffix}"
    assert convert(folder, out, "--range", ":300") == 0
    assert out.stat().st_size > 0
    assert capsys.readouterr().out.startswith(f"{out}: steps 0 to 300 of ")
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_time_is_a_range(folder, tmp_path, capsys):
    assert convert(folder, tmp_path / "part.csv", "--time", "0:1ms") == 0
    times = [int(row["time"]) for row in csv.DictReader((tmp_path / "part.csv").read_text().splitlines())]
    whole = bfcviz.open(folder / "whole.parquet").to_arrow()["time"].to_pylist()
    assert times == [time for time in whole if time - whole[0] <= 1_000_000]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("out", "words", "message"),
    [
        ("x.txt", (), "names no format: its name must end in .parquet, .bfc, .csv, .json, .pickle"),
        ("x.csv", ("--range", "5:99999999"), "--range 5:99999999 is not in the trace: it has steps 0 to"),
        ("x.csv", ("--time", "9999s:"), "no event lies in that --time: the trace lasts"),
        ("no/folder/x.csv", (), "its folder does not exist"),
        ("whole.parquet", (), "is the file to read and would be overwritten"),
        ("there.csv", (), "exists already; choose another path with -o, or give --force"),
    ],
)
def test_errors_say_what_to_do(out, words, message, folder, capsys):
    (folder / "there.csv").write_text("mine")
    assert convert(folder, folder / out, *words) == 1
    assert message in capsys.readouterr().err
    assert (folder / "there.csv").read_text() == "mine"


@pytest.mark.parametrize("text", ["5", "a:b", "9:5", "1:2:3", "-1:4"])
def test_a_wrong_range_is_a_usage_error(text, folder, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        convert(folder, tmp_path / "x.csv", f"--range={text}")
    assert ended.value.code == 2
    assert re.search("is not a range: give two steps, such as 1000:2000", capsys.readouterr().err)


def test_an_interrupt_leaves_no_file(folder, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bfcviz.events.storage.parquet.parquet_table", interrupted)
    assert convert(folder, tmp_path / "x.csv") == 130
    assert not any(tmp_path.iterdir())
