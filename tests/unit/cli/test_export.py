"""`bfcviz export`: the step that it draws, its formats and its errors."""

import csv

import pytest
from heaps import new_heap
from shared import short_file, short_trace

import bfcviz
from bfcviz.cli import main
from bfcviz.figures import FIGURES
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.model.find_steps import NAMED_STEPS, peak, worst_fragmentation


@pytest.fixture(scope="module")
def trace():
    return short_trace("lstm", 2000)


def export(*words):
    return main(["export", str(short_file("lstm", 2000)), *map(str, words)])


def heap_in(path):
    """Bytes in use and the number of chunks of a region map's table."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    return sum(int(row["size"]) for row in rows if row["state"] == "in use"), len(rows)


def heap_at(trace, step):
    model = bfcviz.Model(trace)
    model.seek(step)
    return model.stats().bytes_in_use, len(model.chunks())


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ((), peak),  # no request failed
        (("--step", "worst"), worst_fragmentation),
        (("--step", "peak"), peak),
        (("--step", "last"), len),
        (("--step", "1,234"), lambda _: 1234),
        (("--step", "0"), lambda _: 0),
        (("--event", "1,233"), lambda _: 1234),
    ],
)
def test_it_draws_the_given_step(asked, meant, trace, tmp_path, capsys):
    path = tmp_path / "map.csv"
    assert export("--figure", "region_map", *asked, "--out", path) == 0
    assert heap_in(path) == heap_at(trace, meant(trace))
    assert capsys.readouterr().out == f"region map at step {meant(trace):,} of {len(trace):,}: {path}\n"


def test_without_the_name_of_a_figure_it_draws_the_region_map(tmp_path, capsys):
    path = tmp_path / "map.csv"
    assert export("-o", path) == 0
    assert capsys.readouterr().out.startswith("region map at step ")


def test_rules_of_ones_own_for_kinds(tmp_path, capsys):
    rules, path = tmp_path / "rules.txt", tmp_path / "map.html"
    rules.write_text("gate weights: .\n")
    words = ("--figure", "region_map", "--colour", "kind", "--out", path)
    assert export(*words, "--kinds", rules) == 0
    assert "gate weights" in path.read_text()
    assert export(*words) == 0
    assert "gate weights" not in path.read_text()
    rules.write_text("no rule\n")
    assert export(*words, "--kinds", rules) == 1
    assert "KIND: REGULAR EXPRESSION" in capsys.readouterr().err


def test_oom_is_the_step_after_the_first_failed_request(tmp_path, capsys):
    words = ["export", str(bfcviz.sample("oom_log")), "--figure", "ladder", "--step", "oom"]
    assert main([*words, "--out", str(tmp_path / "ladder.csv")]) == 0
    failed = bfcviz.why(bfcviz.sample("oom_log"))
    assert f"at step {failed.event + 1:,} of" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "ladder.csv").read_text().splitlines()))
    assert sum(int(row["size"]) for row in rows) == failed.free_bytes
    assert {row["takes"] for row in rows} == {"false"}


def test_chunks_have_the_asked_colouring(tmp_path):
    pages = {}
    for colour in ("state", "label"):
        path = tmp_path / f"{colour}.html"
        assert export("--figure", "region_map", "--colour", colour, "--out", path) == 0
        pages[colour] = path.read_text()
    assert "waste (size - requested)" in pages["state"]
    assert COLOURINGS["label"] in pages["label"]
    assert export("--figure", "region_map", "--out", tmp_path / "default.html") == 0
    assert COLOURINGS["holder"] in (tmp_path / "default.html").read_text()  # as a dashboard


def test_paper_needs_a_vector_and_a_width(tmp_path, capsys):
    for words, fact in (((tmp_path / "map.png",), ".svg"), ((tmp_path / "map.svg", "--width", 7), "84")):
        assert export("--figure", "region_map", "--style", "paper", "--out", *words) == 1
        assert fact in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_becomes_a_page(name, tmp_path):
    path = tmp_path / "figure.html"
    file = bfcviz.sample("oom_log") if name == "failure" else short_file("lstm", 2000)
    words = ["export", str(file), "--figure", name.replace("_", "-"), "--out", str(path), "--theme", "dark"]
    assert main(words) == 0
    assert path.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("step", ["worst", "last", "0"])
def test_the_figure_of_a_failed_request_is_drawn_at_its_step(step, tmp_path, capsys):
    file, path = bfcviz.sample("oom_log"), tmp_path / "failure.csv"
    assert main(["export", str(file), "--figure", "failure", "--step", step, "--out", str(path)]) == 0
    assert f"at step {bfcviz.why(file).event + 1:,} of" in capsys.readouterr().out


def test_there_is_no_figure_of_a_failed_request_where_none_failed(tmp_path, capsys):
    assert export("--figure", "failure", "--out", tmp_path / "failure.html") == 1
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_figure_is_a_usage_error_that_names_all(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        export("--figure", "pie", "--out", tmp_path / "pie.html")
    assert left.value.code == 2
    err = capsys.readouterr().err
    assert all(name in err for name in FIGURES)


@pytest.mark.parametrize("event", ["worst", "-1", "1.5", ""])
def test_an_event_is_an_index(event, tmp_path, capsys):
    with pytest.raises(SystemExit):
        export("--figure", "region_map", f"--event={event}", "--out", tmp_path / "map.csv")
    assert f"{event!r} is not" in capsys.readouterr().err


def test_a_step_and_an_event_exclude_each_other(tmp_path, capsys):
    with pytest.raises(SystemExit):
        export("--figure", "region_map", "--event", "3", "--step", "4", "--out", tmp_path / "map.csv")
    assert "--step" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["soon", "1.5", ""])
def test_a_step_is_a_number_or_a_name(step, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        export("--figure", "region_map", "--step", step, "--out", tmp_path / "map.csv")
    assert left.value.code == 2
    err = capsys.readouterr().err
    assert f"{step!r} is not a step" in err
    assert all(name in err for name in NAMED_STEPS)


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--step", "2001", "--out", "map.csv"), "step 2001 "),
        (("--step", "-1", "--out", "map.csv"), "step -1 "),
        (("--pool", "1", "--out", "map.csv"), "pool 1 "),
        (("--step", "0", "--pool", "-1", "--out", "map.csv"), "pool -1 "),
        (("--step", "oom", "--out", "map.csv"), "give the step peak"),
        (("--out", "map.txt"), ".html, .png, .svg, .pdf, .csv, .parquet"),
        (("--out", "nowhere/map.csv"), "cannot write"),
    ],
)
def test_a_picture_that_cannot_be_drawn_leaves_no_file(words, fact, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert export("--figure", "region_map", *words) == 1
    assert fact in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_never_replaced_by_its_own_numbers(tmp_path, capsys):
    packed = short_trace("lstm", 2000).save(tmp_path / "run.parquet")
    (tmp_path / "link.parquet").symlink_to(packed)
    before = packed.read_bytes()
    for out in (packed, tmp_path / "link.parquet"):
        words = ["export", str(packed), "--figure", "stats_timeline", "--out", str(out)]
        assert main(words) == 1
        assert str(out) in capsys.readouterr().err
    assert packed.read_bytes() == before
    missing = str(tmp_path / "none.parquet")
    assert main(["export", missing, "--figure", "stats_timeline", "--out", str(packed)]) == 1


def test_a_figure_of_marks_says_that_no_mark_has_a_value(tmp_path, capsys):
    words = ["--figure", "mark_values", "-o", str(tmp_path / "values.svg")]
    assert export(*words) == 0
    assert "no mark" in capsys.readouterr().err
    with bfcviz.Recording(tmp_path / "run") as recording:
        heap = new_heap(log=recording.log, labels=recording.labels)
        for number in range(3):
            heap.mark("loss", 7 * number % 4)
            heap.allocate(256)
    assert main(["export", str(tmp_path / "run"), *words]) == 0
    assert not capsys.readouterr().err
