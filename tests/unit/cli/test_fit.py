"""`bfcviz fit`: text for people, JSON for programs; failures are one line and exit status 1."""

import json

import pytest
from heaps import MIB, new_heap
from shared import short_file

import bfcviz
from bfcviz.cli import main, progress_bar
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.policy_replay import replay


@pytest.fixture(scope="module")
def file():
    return str(short_file("lstm"))


def test_the_object_has_a_limit_that_fits_and_one_that_fails(file, capsys):
    assert main(["fit", file, "--policy", "bfc:allow_growth=true", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["policy"], found["options"], found["complete"]) == ("bfc", {"allow_growth": True}, True)
    outcomes = [
        replay(file, "bfc:allow_growth=true", found[name]) for name in ("limit_bytes", "next_smaller_bytes")
    ]
    assert [each.fits for each in outcomes] == [True, False]
    row = outcomes[1].stream.rows[outcomes[1].failures[0]]
    assert found["next_smaller_fails_at_event"] == row["event"]
    assert found["failed_size_bytes"] == row["size"]
    assert found["limit_bytes"] == found["lower_bound_bytes"] + found["added_bytes"]


def test_the_text_has_the_same_numbers_and_a_cache_remembers_them(file, tmp_path, capsys):
    words = ["fit", file, "--policy", "bfc", "--granule", "64KiB", "--cache", str(tmp_path / "cache")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["replays"] == len(found["tried"]) > 1
    assert found["limit_bytes"] % (64 << 10) == 0
    assert main(words) == 0
    text = capsys.readouterr().out
    for name in ("limit_bytes", "next_smaller_bytes", "next_smaller_fails_at_event"):
        assert f"{found[name]:,}" in text
    bfcviz.smallest_limit(file, "bfc", cache=tmp_path / "cache", granule="64KiB")
    assert len(list((tmp_path / "cache").iterdir())) == found["replays"]


def test_the_rules_of_the_job_are_the_default_and_are_said(file, capsys):
    assert main(["fit", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert bfcviz.smallest_limit(file).limit_bytes == found["limit_bytes"]
    assert (found["policy"], found["options"]["allow_growth"]) == ("bfc", True)
    assert found["policy_chosen_because"]
    assert main(["fit", file]) == 0
    assert found["policy_chosen_because"] in capsys.readouterr().out
    assert main(["fit", file, "--policy", "bfc", "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    assert (given["options"], given["policy_chosen_because"]) == ({}, None)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--policy", "worst_fit"], "worst_fit"),
        (["--policy", "bfc:colour=red"], "colour"),
        (["--at-most", "512KiB"], "512.0 KiB"),
        (["--at-most", "much"], "much"),
        (["--granule", "0"], "0"),
        (["--pool", "gpu"], "gpu"),
    ],
)
def test_what_is_wrong_is_one_line(file, words, named, capsys):
    assert main(["fit", file, *words]) == 1
    said = capsys.readouterr()
    assert named in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("sample", ["oom_dump", "oom_log"])
def test_a_file_without_frees_says_what_it_has(sample, capsys):
    assert main(["fit", str(bfcviz.sample(sample))]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_job_that_dies_before_its_first_free_is_served(tmp_path, capsys):
    """The second request of 64 MiB fails under 100 MiB; the regions that grow are of 32, 64 and 64 MiB."""
    heap = new_heap(100 * MIB, allow_growth=True, exact_growth=True)
    assert heap.allocate(20 * MIB)
    assert heap.allocate(64 * MIB)
    assert heap.try_allocate(64 * MIB) is None
    file = str(trace_of(heap).save(tmp_path / "died.parquet"))
    assert main(["fit", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limit_bytes"] == 160 * MIB
    assert found["lower_bound_bytes"] == 148 * MIB
    assert any("is freed" in note for note in found["notes"])
    assert main(["plan", file]) == 1  # with nothing freed there is nothing to place otherwise


def test_a_terminal_shows_the_progress_and_nothing_remains(file, monkeypatch, capsys):
    drawn = []

    class Bar(progress_bar.ProgressBar):
        def __init__(self, *_):
            self.share = None
            drawn.append(self)

        def draw(self):
            return None

        def erase(self):
            drawn.append("erased")

    monkeypatch.setattr(progress_bar, "ProgressBar", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress_bar.search_control("x") as control:
        bfcviz.smallest_limit(file, control=control, cache=None)
    assert 0 < drawn[0].share <= 1
    assert drawn[1:] == ["erased"]


def test_an_interrupted_search_prints_what_it_knows(file, monkeypatch, capsys):
    def interrupt(control, done, total, text):
        if done == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("bfcviz.whatif.search.SearchControl.report", interrupt)
    assert main(["fit", file, "--json", "--granule", "512"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert (found["complete"], len(found["tried"])) == (False, 5)
    assert found["limit_bytes"] is None or found["limit_bytes"] > found["lower_bound_bytes"]


def test_one_policy_is_searched_for(file, capsys):
    assert main(["fit", file, "--policy", "bfc", "--policy", "torch"]) == 1
    assert "2 times" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--at-most", "--granule"])
def test_what_is_no_size_is_named_as_it_was_given(file, option, capsys):
    assert main(["fit", file, option, "foo"]) == 1
    assert option in capsys.readouterr().err
