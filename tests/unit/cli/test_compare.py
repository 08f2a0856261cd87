"""`bfcviz compare`: text for people, JSON for programs, a page to keep."""

import json

import pytest
from unit.analysis.programs import LEAK, Training

import bfcviz
from bfcviz.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two traces: the second leaks."""
    folder = tmp_path_factory.mktemp("compare")
    traces = {"before": Training(), "after": Training(leak=True)}
    return [str(training.trace().save(folder / f"{name}.parquet")) for name, training in traces.items()]


@pytest.fixture
def said(files, capsys):
    """What the command prints with these words."""

    def said(*words):
        assert main(["compare", *files, *map(str, words)]) == 0
        return capsys.readouterr().out

    return said


def test_the_text_is_that_of_the_comparison(files, said):
    found = bfcviz.compare_recordings(*files)
    assert said().splitlines() == str(found).splitlines()
    assert "history/append" in found.headline


def test_the_object_has_the_tables(files, said):
    found = json.loads(said("--json"))
    expected = bfcviz.compare_recordings(*files)
    assert found["headline"] == expected.headline
    assert (found["a"]["name"], found["b"]["name"]) == ("before.parquet", "after.parquet")
    assert found["totals"]["peak_bytes_in_use"]["change"] == 12 * LEAK
    assert found["alignment"]["by"] == "marks"
    assert found["moments"] == expected.moments.to_pylist()
    assert {row["holder"] for row in found["holders"] if row["moment"] == "end"} == {"history/append"}
    assert found["growth"]["holders"][0]["b_bytes_a_step"] == LEAK
    assert found["peak_parts"] == [{"holder": "history/append", "bytes_change": 12 * LEAK}]


def test_grouping_alignment_and_pools_can_be_chosen(said):
    found = json.loads(said("--json", "--by", "data-type", "--align", "share", "--pool", "0:0"))
    assert (found["by"], found["alignment"]["by"]) == ("data_type", "share")


def test_a_page_is_written_with_the_answer(files, said, tmp_path):
    out = tmp_path / "compared.html"
    assert str(out) in said("--output", out)
    page = out.read_text()
    assert "48.0 KiB more" in page
    assert "before.parquet" in page
    table = tmp_path / "compared.csv"
    said("--output", table, "--json")
    assert table.read_text().count("\n") == 1 + bfcviz.compare_recordings(*files).holders_at("peak").num_rows


def test_a_picture_is_replaced_only_with_force(files, said, tmp_path, capsys):
    out = tmp_path / "compared.csv"
    out.write_text("mine")
    assert main(["compare", *files, "-o", str(out)]) == 1
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    said("-o", out, "--force")
    assert out.read_text() != "mine"


def test_what_cannot_be_compared_is_an_error(files, tmp_path, capsys):
    for words, reason in (
        ([files[0], str(tmp_path / "none")], "no such file"),
        ([*files, "--pool", "3"], "heap 3 of recording A"),
        ([*files, "--mark", "epoch"], "'epoch'"),
        ([*files, "--output", files[1]], "would be overwritten"),
        ([*files, "--force", "--output", files[0]], "would be overwritten"),
    ):
        assert main(["compare", *words]) == 1
        assert reason in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", *files, "--pool", "x"])
    assert "0:1" in capsys.readouterr().err


def test_a_comment_for_a_pull_request(said):
    text = said("--markdown")
    assert text.startswith("**B needs ")
    rows = [line for line in text.splitlines() if line.startswith("| peak bytes in use |")]
    assert len(rows) == 1
    assert rows[0].endswith("| +48.0 KiB |")
    assert text.count("<details>") == text.count("</details>") == 1
    assert all(line.count("|") == 5 for line in text.splitlines() if line.startswith("| ") and "KiB" in line)
