"""`bfcviz plan`: its numbers are those of the plan, and its file holds a place for each allocation."""

import json

import pyarrow.parquet as pq
import pytest
from shared import short_file

from bfcviz.cli import main, plan
from bfcviz.whatif.planner import pack
from bfcviz.whatif.policy_replay import replay


def test_the_plan_is_written_with_what_it_saves(tmp_path, capsys):
    out = tmp_path / "plan.parquet"
    assert main(["plan", str(short_file("lstm")), "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    table = pq.read_table(out).to_pandas()
    assert found["plan_bytes"] == (table["offset"] + table["size"]).max()
    assert found["allocations"] == len(table)
    assert found["least_bytes"] <= found["plan_bytes"] < found["reserved_bytes"]
    own = replay(short_file("lstm"), "bfc:allow_growth=true")
    assert found["reserved_bytes"] == own.peak_reserved
    assert found["complete"]
    assert main(["plan", str(short_file("lstm")), "-o", str(out)]) == 1
    assert "--force" in capsys.readouterr().err


def test_after_an_interrupt_the_best_plan_so_far_is_kept(tmp_path, monkeypatch, capsys):
    def interrupted(stream, seconds, report):
        report(pack(stream, 0))
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "pack", interrupted)
    out = tmp_path / "plan.parquet"
    assert main(["plan", str(short_file("lstm")), "-o", str(out), "--json"]) == 130
    assert not json.loads(capsys.readouterr().out)["complete"]
    assert pq.read_table(out).num_rows


@pytest.mark.parametrize(
    "words",
    [
        ("--seconds", "-1"),
        ("--seconds", "inf"),
        ("--seconds", "1e+306"),
        ("--seconds", "nan"),
        ("-o", "plan.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_the_file_is_read(words, capsys):
    assert main(["plan", "there is no such file", *words]) == 1
    assert words[1].lstrip("-") in capsys.readouterr().err
