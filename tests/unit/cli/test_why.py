"""`bfcviz why`: its object, and the same as text."""

import html
import io
import json
import sys
from pathlib import Path

import pytest
from heaps import new_heap
from unit.analysis.built import BASE, MIB, state

import bfcviz
from bfcviz.analysis.diagnosis import Verdict
from bfcviz.cli import main
from bfcviz.cli.info import info
from bfcviz.exporters.report import advice, report_of
from bfcviz.model.trace_from_source import trace_of


@pytest.fixture
def failed(tmp_path):
    """A file with a request of 5 MiB that fails because of one chunk of 1 MiB."""
    trace = state([[-2, 3, -3, 1, -2]], 5, 11, options={"allocator_name": "GPU_0_bfc", "dump": 2})
    return trace.save(tmp_path / "failed.parquet")


@pytest.fixture
def quiet(tmp_path):
    """A file without a failure: 4 MiB free in two chunks."""
    return state([[4, -3, 1, -1]], limit=9).save(tmp_path / "quiet.parquet")


def answers(capsys, *words):
    assert main(["why", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["failures"]


def test_json_has_the_verdict_and_its_numbers(failed, capsys):
    (found,) = answers(capsys, failed)
    assert (found["heap_verdict"], found["requested_bytes"], found["rounded_bytes"]) == (
        "fragmentation",
        5 * MIB,
        5 * MIB,
    )
    assert (found["free_bytes"], found["largest_free_chunk"]) == (7 * MIB, 3 * MIB)
    assert found["external_fragmentation"] == pytest.approx(4 / 7)
    (pin,) = found["pinned_by"]
    assert (pin["address"], pin["size"], pin["label"]) == (BASE + 8 * MIB, MIB, "op3")
    assert found["runs"][0]["pinned_by"] == [pin]
    assert found["verdict"] == "cached_fragmentation"
    assert (found["facts"]["requested"], found["facts"]["limit"]) == (5 * MIB, 11 * MIB)
    assert {"kind", "own_kind", "text", "numbers"} == set(found["advice"][0])
    assert (found["bytes_limit"], found["pool_bytes"], found["bytes_in_use"]) == (11 * MIB, 11 * MIB, 4 * MIB)


def test_the_text_has_the_same_numbers(failed, capsys):
    assert main(["why", str(failed)]) == 0
    text = capsys.readouterr().out
    for fact in (
        "asker failed to allocate 5.0 MiB",
        "fragmentation",
        "7.0 MiB in 3 chunks",
        "0.571",
        "op3",
        "0x7f0000800000",
    ):
        assert fact in text


def test_would_it_fit(quiet, capsys):
    (yes,) = answers(capsys, quiet, "--size", "3MiB")
    (no,) = answers(capsys, quiet, "--size", "4MiB")
    (early,) = answers(capsys, quiet, "--size", "9MiB", "--step", "1")
    assert [each["heap_verdict"] for each in (yes, no, early)] == [
        "no_failure",
        "fragmentation",
        "no_failure",
    ]
    assert (yes["event"], early["step"], no["pinned_by"][0]["label"]) == (None, 1, "op2")


def test_a_file_without_a_failure(quiet, capsys):
    (found,) = answers(capsys, quiet)
    assert (found["verdict"], found["requested_bytes"], found["free_bytes"]) == ("no_failure", 0, 4 * MIB)
    assert main(["why", str(quiet)]) == 0
    assert "whether a request failed" in capsys.readouterr().out  # it holds one state and no history


def test_numbers_without_the_heap_are_null(tmp_path, capsys):
    path = state([[-2]], 5, 8, has_heap=False).save(tmp_path / "a.parquet")
    (found,) = answers(capsys, path)
    assert (found["verdict"], found["free_bytes"], found["pool_bytes"], found["bytes_limit"]) == (
        "unknown",
        None,
        None,
        8 * MIB,
    )
    assert any("TF_CPP_MIN_LOG_LEVEL=0" in each["text"] for each in found["advice"])


@pytest.mark.parametrize("word", ["GPU_0_bfc", "0"])
def test_one_allocator_by_name_or_number(failed, capsys, word):
    assert len(answers(capsys, failed, "--pool", word)) == 1


def test_a_wrong_allocator_or_step(failed, capsys):
    for words, part in (
        (["--pool", "GPU_1_bfc"], "no allocator 'GPU_1_bfc'; it has 0: GPU_0_bfc"),
        (["--pool", "1"], "no allocator '1'"),
        (["--step", "1"], "give the size"),
        (["--step", "99", "--size", "1"], "step 99 does not exist"),
    ):
        assert main(["why", str(failed), *words]) == 1
        assert part in capsys.readouterr().err
    for words in (["--size", "x"], ["--size", "0"], ["--step", "x"]):
        with pytest.raises(SystemExit):
            main(["why", str(failed), *words])


def test_info_names_the_failed_request_and_its_allocator(failed, capsys):
    found = info(bfcviz.open(failed))
    assert [(each["heap_verdict"], each["requested_bytes"]) for each in found["failures"]] == [
        ("fragmentation", 5 * MIB)
    ]
    told = answers(capsys, failed)
    for name in ("verdict", "heap_verdict"):
        assert [each[name] for each in found["failures"]] == [each[name] for each in told]
    assert (found["allocators"][0]["name"], found["allocators"][0]["dump"]) == ("GPU_0_bfc", 2)
    assert main(["info", str(failed)]) == 0
    text = capsys.readouterr().out
    assert "GPU_0_bfc (dump 2) after the last event" in text
    (line,) = [line for line in text.splitlines() if line.startswith("  failed request")]
    assert all(fact in line for fact in ("5.0 MiB", "3.0 MiB", "7.0 MiB", "fragmented"))


def test_why_in_python(failed, quiet):
    found = bfcviz.why(failed)
    assert (found.verdict, found.event) == (Verdict.FRAGMENTATION, bfcviz.why(failed, found.event).event)
    assert str(found).startswith("asker failed to allocate 5.0 MiB")
    assert bfcviz.why(quiet).verdict is Verdict.NO_FAILURE
    assert bfcviz.why(str(quiet), size="3MiB").verdict is Verdict.NO_FAILURE
    assert bfcviz.why(Path(quiet), size="4MiB", step=len(bfcviz.open(quiet))).verdict is Verdict.FRAGMENTATION
    for wrong in ({"step": 1}, {"event": 1, "size": 1}, {"size": 0}):
        with pytest.raises(ValueError, match="give"):
            bfcviz.why(quiet, **wrong)


def test_info_numbers_the_dumps_only_where_there_are_several(tmp_path, capsys):
    path = state([[2]], options={"allocator_name": "GPU_0_bfc", "dump": 1}).save(tmp_path / "one.parquet")
    assert main(["info", str(path)]) == 0
    assert "GPU_0_bfc after the last event" in capsys.readouterr().out


def test_failures_beyond_the_limit_are_counted(failed, capsys, monkeypatch):
    monkeypatch.setattr("bfcviz.model.find_steps.MOST_FAILURES", 0)
    assert main(["why", str(failed), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failures_left_out"] == 1
    assert main(["why", str(failed)]) == 0
    assert "1 more OOM events follow" in capsys.readouterr().out
    assert main(["info", str(failed)]) == 0
    assert "1 more OOM events follow" in capsys.readouterr().out


MESSAGE = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "8.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 7.00 GiB memory in use. Of the "
    "allocated memory 6.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)


def test_a_message_in_a_file_from_standard_input_and_as_it_is(tmp_path, capsys, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text(f"step 1\n{MESSAGE}\nstep 2\n")
    for word in (str(path), "-", MESSAGE):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MESSAGE.encode())))
        (found,) = answers(capsys, word)
        assert found["verdict"] == "capacity"
        assert found["facts"]["requested"] == 2 << 30
        assert found["advice"][0]["kind"] == "smaller_request_or_batch"
    assert main(["why", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2.00 GiB: capacity" in lines[0]
    assert any(line.strip().startswith("To do: ") for line in lines[:4])


def test_all_views_of_a_failure_advise_the_same(tmp_path, capsys):
    heap = new_heap(150 * MIB, allow_growth=True, garbage_collection=True)
    for _ in range(30):
        heap.allocate(2 * MIB, label="stays")
    heap.free(heap.allocate(MIB))
    assert heap.try_allocate(100 * MIB, label="last") is None
    trace = trace_of(heap)
    file = trace.save(tmp_path / "failed.parquet")
    (found,) = answers(capsys, file)
    assert {each["own_kind"] for each in found["advice"]} >= {"larger_limit"}
    texts = [each["text"] for each in found["advice"]]
    assert [each.text for each in bfcviz.why(file).advice] == texts == advice(report_of(trace))
    assert main(["why", str(file)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(text in printed for text in texts)
    assert main(["report", str(file), "-o", str(tmp_path / "failed.html")]) == 0
    page = " ".join((tmp_path / "failed.html").read_text().split())
    assert all(html.escape(text) in page for text in texts)


def test_the_same_in_python(tmp_path):
    answer = bfcviz.why(MESSAGE)
    assert answer.failures[0].judgement.cause == "capacity"
    path = tmp_path / "out.txt"
    path.write_text(MESSAGE)
    assert str(bfcviz.why(path)) == str(bfcviz.why(str(path)))
    assert "<pre" in answer._repr_html_()


def test_what_is_neither_a_file_nor_a_message(capsys):
    assert main(["why", "missing.log"]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main(["why", "my model is slow"]) == 1
    assert "no message about memory" in capsys.readouterr().err


def test_a_text_that_says_nothing_of_memory(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text("all is well\n")
    assert main(["why", str(path)]) == 1
    assert "this is a text file" in capsys.readouterr().err


def test_where_the_rest_of_the_device_went(failed, tmp_path, capsys):
    """GPU 0: 30 MiB, 2 MiB free, and a pool of 8 MiB; 20 MiB are held by others."""
    trace = state([[4, -4]], 5, 8, device_free=2 * MIB, device_total=30 * MIB)
    path = trace.save(tmp_path / "device.parquet")
    (found,) = answers(capsys, path)
    account = found["account"]
    assert (account["total_bytes"], account["free_bytes"]) == (30 * MIB, 2 * MIB)
    assert account["pools"] == [
        {"allocator": "GPU_0_bfc", "pool_bytes": 8 * MIB, "in_use_bytes": 4 * MIB, "cached_bytes": 4 * MIB}
    ]
    assert account["not_accounted_for_bytes"] == 20 * MIB
    assert main(["why", str(path)]) == 0
    text = capsys.readouterr().out
    assert all(fact in text for fact in ("2.0 MiB of 30.0 MiB free", "not accounted for", "20.0 MiB"))
    assert bfcviz.account(path).devices[0].to_json() == account
    assert answers(capsys, failed)[0]["account"] is None
