"""`bfcviz plan`: its numbers are those of the plan, and its file holds a place for each allocation."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from heaps import new_heap
from shared import SHARED, needs_shared, short_file, snapshot_trace
from unit.figures.synthetic import MiB

import bfcviz
from bfcviz.cli import main, plan
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif import planner
from bfcviz.whatif.planner import pack
from bfcviz.whatif.policy_replay import replay
from bfcviz.whatif.requests import stream_of


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


@needs_shared
def test_the_saving_is_beside_the_job_under_its_own_limit(capsys):
    path = str(SHARED / "real" / "snapshots" / "torch_code_location_2.6M.pickle")
    assert main(["plan", path, "--seconds", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    stream = stream_of(snapshot_trace("torch_code_location_2.6M"), with_failed=False)
    own = replay(stream, "torch:expandable_segments=true", stream.limit)
    assert own.fits
    assert (
        found["reserved_bytes"] == own.peak_reserved < replay(stream, own.policy, **own.options).peak_reserved
    )
    assert found["saved_bytes"] == own.peak_reserved - found["plan_bytes"] < 1 << 28
    assert found["reserved_under_limit_bytes"] == stream.limit
    assert (found["failed_requests_left_out"], tuple(found["notes"])) == (1, stream.notes)
    assert main(["tune", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["now"]["peak_reserved_bytes"] == found["reserved_bytes"]


@pytest.mark.parametrize("grows", [True, False])
def test_a_job_that_fails_under_its_limit_is_simulated_without_one(tmp_path, capsys, grows):
    heap = new_heap(8 * MiB, allow_growth=grows)
    held = [heap.allocate(MiB) for _ in range(6)]
    assert heap.try_allocate(4 * MiB) is None
    heap.free(held.pop())
    path = str(trace_of(heap).save(tmp_path / "failed.parquet"))
    for words, limit in (((), 8 * MiB), (("--with-failed",), None)):
        assert main(["plan", path, "--seconds", "0", "--json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["reserved_under_limit_bytes"] == limit
        if grows or limit is not None:
            assert (found["reserved_bytes"] > 8 * MiB) is (limit is None)
        else:  # these rules take their whole limit at once
            assert found["reserved_bytes"] is None


def test_after_an_interrupt_the_best_plan_so_far_is_kept(tmp_path, monkeypatch, capsys):
    def interrupted(stream, seconds, report):
        report(pack(stream, 0))
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "pack", interrupted)
    out = tmp_path / "plan.parquet"
    assert main(["plan", str(short_file("lstm")), "-o", str(out), "--json"]) == 130
    assert not json.loads(capsys.readouterr().out)["complete"]
    assert pq.read_table(out).num_rows


def test_a_search_that_is_not_made_is_said(tmp_path, capsys):
    heap = new_heap(64 * MiB)
    rng = np.random.default_rng(0)
    held = []
    for size in rng.integers(256, 20_000, 4500).tolist():
        held.append(heap.allocate(size))
        if len(held) > 1500:
            heap.free(held.pop(int(rng.integers(len(held)))))
    path = str(trace_of(heap).save(tmp_path / "crowded.parquet"))
    found = []
    for seconds in ("0", "600"):
        assert main(["plan", path, "--seconds", seconds, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["plan_bytes"] == found[1]["plan_bytes"] > found[1]["least_bytes"]
    assert (bool(found[0]["not_searched"]), bool(found[1]["not_searched"])) == (False, True)
    assert main(["plan", path, "--seconds", "600"]) == 0
    assert f"{planner.MOST_PAIRS:,}" in capsys.readouterr().out
    compared = bfcviz.compare_policies(path, ["packed:seconds=600"])
    assert f"{planner.MOST_PAIRS:,}" in compared.comparison.results[0].outcome.note
    assert f"{planner.MOST_PAIRS:,}" in str(compared)


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
