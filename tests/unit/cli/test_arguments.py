"""Arguments that several commands share: the requests of the allocator that failed, or that was asked for."""

import argparse
import json

import numpy as np
import pytest
from unit.analysis.built import MIB, save_job, state
from unit.figures.synthetic import KiB, MiB, PlainHeap

import bfcviz
from bfcviz.cli import main
from bfcviz.cli.arguments import add_request_arguments, asked_requests
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.policy_comparison import compare_policies
from bfcviz.whatif.requests import stream_of
from bfcviz.whatif.sweep import sweep


@pytest.fixture
def two_heaps(tmp_path):
    """A file with two allocators; a request of the second one fails."""
    heap = PlainHeap(MiB)
    heap.free(heap.allocate(KiB, "a"))
    events = heap.trace().read(0, len(heap.events)).copy()
    other = PlainHeap(MiB)
    held = other.allocate(64 * KiB, "b")
    other.allocate(4 * MiB, "too large")
    other.free(held)
    second = other.trace().read(0, len(other.events)).copy()
    second["pool"], second["label"] = 1, 0
    joined = Trace.from_events(
        _renumbered(events, second), heap.labels, Origin(pools=(Pool("cuda:0", MiB), Pool("cuda:1", MiB)))
    )
    return joined.save(tmp_path / "two.parquet")


def _renumbered(first, second):
    frees = second["other"].copy()
    second["other"] = frees + len(first)
    joined = np.concatenate([first, second])
    joined["seq"] = np.arange(len(joined))
    return joined


def asked(path, *words, with_failed=True):
    parser = argparse.ArgumentParser()
    add_request_arguments(parser, with_failed=with_failed)
    return asked_requests(parser.parse_args([str(path), *words]))


def test_every_way_to_ask_takes_the_heap_that_failed(two_heaps):
    failing = asked(two_heaps)
    assert failing.live_bytes.max() == 4 * MiB + 64 * KiB
    assert (stream_of(two_heaps).rows == failing.rows).all()
    (point,) = sweep(two_heaps, "first_fit", "1MiB").points
    assert (point.pool, point.failures) == ("", 1)
    (first,) = sweep(two_heaps, "first_fit", "1MiB", pool="cuda:0").points
    assert (first.pool, first.failures) == ("cuda:0", 0)
    found = compare_policies(two_heaps, "first_fit", MiB)
    assert not found.outcome("first_fit").fits
    for step in (6, None):
        other, same = (bfcviz.draw("region_map", two_heaps, step, pool=pool).facts for pool in (0, 1))
        assert bfcviz.draw("region_map", two_heaps, step).facts == same != other


def test_another_heap_and_without_the_failed_request(two_heaps):
    assert asked(two_heaps, "--pool", "cuda:0").live_bytes.max() == KiB
    assert asked(two_heaps, "--pool", "0").live_bytes.max() == KiB
    assert asked(two_heaps, "--without-failed").live_bytes.max() == 64 * KiB


def test_what_failed_is_served_or_left_out_by_default(two_heaps):
    left_out = asked(two_heaps, with_failed=False)
    assert left_out.live_bytes.max() == 64 * KiB
    assert any("failed" in note for note in left_out.notes)
    assert asked(two_heaps, "--with-failed", with_failed=False).live_bytes.max() > 4 * MiB


# ------------------------------------------------------------------------------
# Several files on the command line: the ranks of one job in `why`, `info`, `holders`, `report`, `compare`, `view`.


@pytest.fixture
def job(tmp_path):
    return save_job(tmp_path / "job")


def answer(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_why_tells_one_failure_once(job, capsys):
    found = answer(capsys, "why", job)
    (failure,) = found["failures"]
    assert (failure["verdict"], failure["requested_bytes"]) == ("cached_fragmentation", 5 * MIB)
    assert (failure["ranks"], failure["count"]) == (["rank 1", "rank 2"], 2)
    assert failure["advice"]
    assert [(rank["rank"], rank["verdict"]) for rank in found["ranks"]] == [
        (1, "cached_fragmentation"),
        (2, "cached_fragmentation"),
        (0, "no_failure"),
    ]


@pytest.mark.parametrize("form", ["folder", "pattern", "list"])
def test_a_folder_a_pattern_and_a_list_are_the_same(job, capsys, form):
    words = {
        "folder": [job],
        "pattern": [job / "*.parquet"],
        "list": [job / f"rank{rank}.parquet" for rank in range(3)],
    }[form]
    found = answer(capsys, "info", *words)
    assert [rank["file"] for rank in found["ranks"]] == [str(job / f"rank{n}.parquet") for n in (1, 2, 0)]
    assert main(["info", *map(str, words)]) == 0
    assert main(["why", *map(str, words)]) == 0
    text = capsys.readouterr().out
    assert "2 of 3 ranks" in text
    assert "What would help" in text


def test_why_of_a_size_asks_the_worst_rank(job, capsys):
    (found,) = answer(capsys, "why", job, "--size", "1MiB")["failures"]
    assert (found["verdict"], found["ranks"]) == ("no_failure", ["rank 1"])


def test_holders_over_all_ranks(job, capsys):
    found = answer(capsys, "holders", job, "--step", "end")
    rows = {row["name"]: row for row in found["holders"]}
    assert (rows["op2"]["most"], rows["op2"]["rank"], rows["op2"]["ranks"]) == (4 * MIB, "rank 0", 1)
    assert (rows["op1"]["least"], rows["op1"]["ranks"]) == (MIB, 3)
    assert [each["holder"] for each in found["only_one_rank"]] == ["op2", "op0"]
    assert main(["holders", str(job), "--by", "stack"]) == 0
    assert "rank 1" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_a_report_has_the_ranks_and_the_worst(job, tmp_path, form):
    out = tmp_path / f"report.{form}"
    assert main(["report", str(job), "-o", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    for rank in range(3):
        assert f"rank {rank}" in text
    if form == "json":
        assert json.loads(text)["ranks"]["ranks"][0]["rank"] == 1
        assert json.loads(text)["shown"]["verdict"] == "cached_fragmentation"


def test_compare_of_one_set_and_of_two(job, tmp_path, capsys):
    found = answer(capsys, "compare", job)
    assert (found["a"]["name"], found["b"]["name"]) == ("rank0.parquet", "rank1.parquet")
    assert len(found["ranks"]["ranks"]) == 3
    after = tmp_path / "after"
    after.mkdir()
    state([[3, 1, 5]], limit=11).save(after / "rank0.parquet")
    state([[-2, 3, -3, 1, -2]], 5, 11).save(after / "rank1.parquet")
    pairs = answer(capsys, "compare", job, after)
    assert [pair["b"]["rank"] for pair in pairs["ranks"]["pairs"]] == [0, 1]
    assert pairs["totals"]["peak_bytes_in_use"]["change"] == MIB
    assert main(["compare", str(job), str(after / "rank1.parquet")]) == 0
    assert "rank 1" in capsys.readouterr().out
    assert main(["compare", str(after / "rank1.parquet")]) == 1
    assert "one recording" in capsys.readouterr().err


def test_a_damaged_rank_is_a_line_and_only_damaged_ranks_an_error(job, capsys):
    (job / "rank3.parquet").write_bytes(b"PAR1 and nothing more")
    assert main(["why", str(job)]) == 0
    assert "rank3.parquet" in capsys.readouterr().out
    for rank in range(3):
        (job / f"rank{rank}.parquet").write_bytes(b"PAR1 and nothing more")
    assert main(["info", str(job / "*.parquet")]) == 1
    assert "rank0.parquet" in capsys.readouterr().err


def test_an_interrupt_tells_what_was_read(job, monkeypatch, capsys):
    monkeypatch.setattr("bfcviz.public_functions._rank_of_opened_file", _interrupted_at("rank1.parquet"))
    assert main(["info", str(job), "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert (len(found["ranks"]), found["files_not_read"]) == (1, 2)


def _interrupted_at(name):
    from bfcviz.public_functions import _rank_of_opened_file  # noqa: PLC0415  before it is replaced

    def summary(place, *told, **options):
        if place.file.name == name:
            raise KeyboardInterrupt
        return _rank_of_opened_file(place, *told, **options)

    return summary


# -- texts -----------------------------------------------------------------------------------------------------


def refused(rank, free):
    """What a rank writes when PyTorch refuses a request: 8 of 10 GiB are tensors."""
    return (
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU {rank} has a total "
        f"capacity of 10.00 GiB of which {free}.00 MiB is free. Including non-PyTorch memory, this process has 9.00 "
        "GiB memory in use. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 64.00 MiB is reserved by "
        "PyTorch but unallocated.\n"
    )


@pytest.fixture
def logs(tmp_path):
    """The folder of torchrun: ranks 1 and 2 ran out of memory, rank 0 only waited for them."""
    for rank, text in enumerate(["no answer of rank 1\n", refused(1, 500), refused(2, 400)]):
        folder = tmp_path / "logs" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text)
        (folder / "stdout.log").write_text("epoch 1\n")
    return tmp_path / "logs"


def test_logs_with_a_message_are_ranks(logs, capsys):
    found = answer(capsys, "why", logs)
    (failure,) = found["failures"]
    assert (failure["verdict"], failure["ranks"], failure["count"]) == ("capacity", ["rank 1", "rank 2"], 2)
    assert failure["advice"]
    assert failure["account"]["total_bytes"] == 10 << 30
    verdicts = [(rank["rank"], rank["verdict"]) for rank in found["ranks"]]
    assert verdicts == [(1, "capacity"), (2, "capacity"), (0, "no_failure")]
    assert found["other_files"] == 3
    assert bfcviz.why(logs).failures[0].stated.facts["requested"] == 1 << 30
    assert main(["why", str(logs)]) == 0
    assert "rank 1" in capsys.readouterr().out


def test_ranks_of_texts_have_no_heap_to_show(logs, capsys):
    assert main(["holders", str(logs)]) == 1
    assert "bfcviz why" in capsys.readouterr().err


def test_a_text_beside_recordings(job, capsys):
    (job / "rank7.log").write_text(refused(7, 500))
    found = answer(capsys, "why", job)
    assert sorted(failure["ranks"] for failure in found["failures"]) == [["rank 1", "rank 2"], ["rank 7"]]
    holders = answer(capsys, "holders", job)
    assert "rank 7" not in {each["rank"] for each in holders["holders"]}
    assert answer(capsys, "why", job, "--size", "1MiB")["failures"][0]["ranks"] == ["rank 1"]


def test_the_lines_of_several_ranks_in_one_log(tmp_path, capsys):
    log = tmp_path / "train.log"
    lines = [refused(rank, 500 - rank).splitlines() for rank in range(4)]
    log.write_text("".join(f"{line}\n" for several in zip(*lines, strict=True) for line in several))
    (failure,) = answer(capsys, "why", log)["failures"]
    assert (failure["verdict"], failure["ranks"], failure["count"]) == ("capacity", [0, 1, 2, 3], 4)
    assert failure["facts"]["device_free"] == 500 << 20
