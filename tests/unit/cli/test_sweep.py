"""`bfcviz sweep`: its numbers are those of replays; results are kept, and what cannot be is refused at once."""

import json

import pytest
from heaps import new_heap
from shared import short_file
from unit.figures.synthetic import MiB

from bfcviz.cli import main, sweep
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.policy_replay import replay
from bfcviz.whatif.sweep import SweepResults

POLICY = "bfc:allow_growth=true"


def test_each_point_has_the_numbers_of_a_replay_and_is_kept(tmp_path, capsys):
    path, out = str(short_file("lstm")), tmp_path / "results.parquet"
    words = [
        "sweep",
        path,
        "--policy",
        POLICY,
        "--limit",
        "none",
        "--limit",
        "110%",
        "--json",
        "-o",
        str(out),
    ]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    free, tight = found["points"]
    assert free["peak_reserved"] == replay(path, POLICY).peak_reserved
    own = replay(path, POLICY, tight["limit_bytes"])
    assert (tight["failures"], tight["peak_reserved"]) == (len(own.failures), own.peak_reserved)
    assert tight["limit_bytes"] == round(1.1 * tight["peak_requested"])
    assert main([*words, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == 2
    assert main(words) == 1
    assert "--force" in capsys.readouterr().err
    earlier = out.read_bytes()
    assert main(["sweep", "there is no such file", "--policy", POLICY, "-o", str(out), "--force"]) == 1
    assert out.read_bytes() == earlier
    assert main(["sweep", path, "--policy", POLICY, "-o", str(out), "--force"]) == 0
    assert len(SweepResults.load(out)) == 1


def test_a_point_is_the_same_as_in_whatif_also_of_a_job_that_went_on_after_a_failure(tmp_path, capsys):
    heap = new_heap(8 * MiB)
    held = [heap.allocate(MiB) for _ in range(8)]
    assert heap.try_allocate(MiB) is None
    heap.free(held.pop())
    path, out = str(trace_of(heap).save(tmp_path / "failed.parquet")), str(tmp_path / "results.parquet")

    def said(command, *words):
        main([command, path, "--policy", "bfc", "--limit", "8MiB", "--json", *words])
        return json.loads(capsys.readouterr().out)

    for word, fits in (("--without-failed", True), ("--with-failed", False)):
        row, *_ = said("whatif", word)["policies"]
        found = said("sweep", word, "-o", out, "--resume")
        (point,) = found["points"]
        assert found["resumed"] == 0
        assert (point["failures"] == 0) is row["fits"] is fits
        assert (point["peak_reserved"], point["with_failed"]) == (row["peak_reserved"], not fits)
        assert point["served"] + point["failures"] == point["requests"] == (9 if fits else 11)
    (point,) = said("sweep")["points"]
    assert point["with_failed"]


def test_an_interrupt_tells_what_is_known(monkeypatch, capsys):
    monkeypatch.setattr(sweep, "sweep", lambda *_, **__: SweepResults((), 2, reason="it was interrupted"))
    assert main(["sweep", "file"]) == 130
    assert "it was interrupted" in capsys.readouterr().out


def test_files_that_cannot_be_read_are_points_with_a_message(capsys):
    assert main(["sweep", "there is no such file", "--policy", POLICY]) == 1
    assert "there is no such file" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("--policy", "no_such_policy"),
        ("--limit", "much"),
        ("--processes", "0"),
        ("--resume",),
        ("-o", "results.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_a_file_is_read(words, capsys):
    assert main(["sweep", "there is no such file", *words]) == 1
    assert words[-1].lstrip("-") in capsys.readouterr().err


def test_a_file_to_read_is_not_replaced_by_the_results(tmp_path, capsys):
    path = tmp_path / "run.parquet"
    path.write_bytes(short_file("lstm").read_bytes())
    assert main(["sweep", str(path), "-o", str(path), "--force"]) == 1
    assert path.stat().st_size
    assert "overwritten" in capsys.readouterr().err
