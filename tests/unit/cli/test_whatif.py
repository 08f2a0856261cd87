"""`bfcviz whatif`: a table for people, JSON for programs, a figure in a file."""

import json

import numpy as np
import pytest
from heaps import new_heap
from shared import short_file
from unit.cli.test_tune import torch_file
from unit.figures.synthetic import PlainHeap

import bfcviz
from bfcviz import policy_comparison
from bfcviz.cli import main
from bfcviz.cli.arguments import pool_number
from bfcviz.events.marks import packed_value
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import failing_pool
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif import tie_breaking
from bfcviz.whatif.own_rules import AS_RECORDED, USUAL
from bfcviz.whatif.policy_replay import replay
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.tuning import setting_line

MiB = 1 << 20


@pytest.fixture(autouse=True)
def few_orders(monkeypatch):
    """The other orders of ties have tests of their own."""
    monkeypatch.setattr(tie_breaking, "MOST_REQUESTS", 20_000)


@pytest.fixture(scope="module")
def file():
    return str(short_file("lstm"))


@pytest.fixture
def said(file, capsys):
    """What the command prints with these words as JSON."""

    def said(*words, status=0):
        assert main(["whatif", file, *words, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    return said


def test_the_rows_are_the_outcomes_of_the_policies(file, said):
    names = ["bfc:allow_growth=true", "first_fit:granule=1MiB", "bfc"]
    found = said("--limit", "5MiB", *(word for name in names for word in ("--policy", name)))
    rows = {row["policy"]: row for row in found["policies"] if row["kind"] == "allocator"}
    assert list(rows) == names
    for name in names:
        outcome = replay(file, name, "5MiB", stop_at_failure=True)
        expected = (outcome.fits, outcome.peak_reserved, outcome.peak_in_use)
        assert (rows[name]["fits"], rows[name]["peak_reserved"], rows[name]["peak_in_use"]) == expected
    assert found["limit_bytes"] == 5 * MiB
    assert found["lower_bound_bytes"] == bfcviz.requests_of(file).live_bytes.max()


def test_the_usual_policies_and_the_limit_of_the_file_are_the_default(file, said):
    found = said()
    own, *others = [row for row in found["policies"] if row["kind"] == "allocator"]
    assert own["role"] == AS_RECORDED
    assert found["rules_of_the_job"]["policy"] == own["policy"]
    assert said("--policy", "torch")["rules_of_the_job"] is None
    assert tuple(row["policy"] for row in others) == USUAL
    assert found["limit_bytes"] == bfcviz.requests_of(file).limit


def test_a_policy_that_cannot_serve_is_a_row_with_its_message(said):
    words = ("--limit", "none", "--policy", "bfc")
    rows = said(*words, "--policy", "bfc:allow_growth=true")["policies"]
    assert [bool(row["message"]) for row in rows if row["kind"] == "allocator"] == [True, False]
    assert "allow_growth" in rows[0]["message"]
    assert said(*words, status=1)["policies"][0]["message"] == rows[0]["message"]


def test_the_text_has_a_row_for_each_policy(file, capsys):
    assert main(["whatif", file, "--policy", "bfc", "--policy", "first_fit", "--limit", "700KiB"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines() if line.endswith("out of memory")] == [
        "bfc",
        "first_fit",
    ]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--policy", "worst_fit"], "worst_fit"),
        (["--policy", "bfc:allow_growth=perhaps"], "perhaps"),
        (["--policy", "first_fit:granule=0"], "granule"),
        (["--limit", "much"], "much"),
        (["--limit", "0"], "0"),
        (["--limit=-5"], "-5"),
        (["--pool", "7"], "7"),
        (["--output", "figure.txt"], "figure.txt"),
    ],
)
def test_what_is_wrong_is_one_line(file, words, named, capsys):
    assert main(["whatif", file, *words]) == 1
    said = capsys.readouterr()
    assert named in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("sample", ["oom_dump", "oom_log"])
def test_a_file_without_frees_says_what_it_has(sample, capsys):
    assert main(["whatif", str(bfcviz.sample(sample)), "--limit", "1GiB"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_an_empty_trace_says_so(tmp_path, capsys):
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "4MiB")
    path = tmp_path / "empty.parquet"
    trace_of(heap).save(path)
    for command in ("whatif", "fit"):
        assert main([command, str(path)]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_the_figure_is_written_once(file, tmp_path, capsys):
    out = tmp_path / "comparison.html"
    words = ["whatif", file, "--policy", "bfc", "--policy", "first_fit", "-o", str(out)]
    assert main(words) == 0
    assert str(out) in capsys.readouterr().out
    text = out.read_text()
    assert "first_fit" in text
    assert main(words) == 1
    assert main([*words, "--force", "--theme", "dark"]) == 0
    assert out.read_text() != text


@pytest.mark.parametrize("name", POLICIES)
def test_numbers_that_are_no_values_of_options_are_refused(name, file, capsys):
    for option, default in POLICIES[name].options.items():
        if type(default) in (int, float) or default is None:
            for value in ("-1", str(1 << 80)):
                assert main(["whatif", file, "--policy", f"{name}:{option}={value}", "--limit", "8MiB"]) == 1
                assert option in capsys.readouterr().err


def test_the_heap_with_a_failed_request_is_asked_about():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "a")
    heap.record(Kind.OOM, requested=128 * MiB)
    pools = (Pool("cuda:0"), Pool("cuda:1"))
    for failed in (0, 1):
        heap.events[-1]["pool"] = failed
        trace = Trace.from_events(np.stack(heap.events), heap.labels, Origin(pools=pools))
        assert failing_pool(trace) == failed
        assert pool_number(trace, "cuda:0") == 0
    heap.events.pop()
    assert failing_pool(Trace.from_events(np.stack(heap.events), heap.labels, Origin(pools=pools))) == 0


def test_the_list_has_every_policy_with_its_options_and_defaults(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["whatif", "--list"])
    assert ended.value.code == 0
    parts = dict(part.split(": ", 1) for part in capsys.readouterr().out.split("\n\n")[1:])
    assert list(parts) == list(POLICIES)
    for name, entry in POLICIES.items():
        what, *options = parts[name].strip().splitlines()
        assert what == entry.what
        assert [line.split("=")[0].strip() for line in options] == list(entry.options)
        given = ",".join(line.split()[0] for line in options if "(empty)" not in line)
        assert all(line.partition("=")[2].split(maxsplit=1)[1:] for line in options), options
        defaults = {key: value for key, value in entry.options.items() if value != ""}
        assert policy_of(f"{name}:{given}").options == defaults


def test_ctrl_c_says_what_is_done(file, capsys, monkeypatch):
    serve, done = policy_comparison._compared_policy_result, []

    def stopped_at_the_second(asked, stream):
        if done:
            raise KeyboardInterrupt
        done.append(asked.name)
        return serve(asked, stream)

    monkeypatch.setattr(policy_comparison, "_compared_policy_result", stopped_at_the_second)
    assert main(["whatif", file, "--policy", "first_fit", "--policy", "torch", "--json"]) == 130
    rows = json.loads(capsys.readouterr().out)["policies"]
    assert [bool(row["message"]) for row in rows if row["kind"] == "allocator"] == [False, True]
    assert "stopped" in rows[1]["message"]


def test_settings_that_the_allocator_refuses_are_an_error_before_the_file_is_read(capsys):
    assert main(["whatif", "there is no such file", "--policy", "torch:max_split_size=1MiB"]) == 1
    assert "20 MiB" in capsys.readouterr().err


def test_the_legend_is_behind_explain_and_the_last_lines_say_what_to_do(file, capsys):
    assert main(["whatif", file]) == 0
    plain = capsys.readouterr().out
    assert main(["whatif", file, "--explain"]) == 0
    explained = capsys.readouterr().out
    assert len(explained.splitlines()) > len(plain.splitlines()) + 10
    assert all("bfcviz tune" in text.splitlines()[-1] for text in (plain, explained))


def test_the_last_lines_set_what_needs_less_memory_than_the_job_had(tmp_path, capsys):
    growing = torch_file(tmp_path / "growing.parquet", range(30, 300, 13))
    less = replay(growing, "torch", expandable_segments=True)
    assert less.peak_reserved < replay(growing, "torch").peak_reserved
    assert main(["whatif", growing]) == 0
    *_, line, _, tune = capsys.readouterr().out.splitlines()
    assert line == setting_line(policy_of("torch:expandable_segments=true"), "torch")
    assert tune == f"bfcviz tune {growing}"
    # Under a limit as tight, PyTorch returns what it cached: nothing saves enough.
    assert main(["whatif", growing, "--limit", str(less.peak_reserved)]) == 0
    assert "export" not in capsys.readouterr().out


def test_both_meanings_of_a_limit(file, capsys, said):
    found = said("--device", "8MB", "--fraction", "0.5", "--policy", "torch")
    assert found["limit_bytes"] == 4_000_000
    assert found["policies"][0]["policy"] == "torch:device=8000000"
    assert main(["whatif", file, "--device", "8MB", "--limit", "8MB"]) == 1
    captured = capsys.readouterr()
    assert "7.6 MiB" in captured.err


def test_the_first_line_says_how_many_failed_requests_are_not_served(tmp_path, capsys):
    trace = tmp_path / "failed.parquet"
    heap = new_heap(8 * MiB)
    held = [heap.allocate(MiB) for _ in range(8)]
    assert heap.try_allocate(MiB) is None
    heap.free(held.pop())
    trace_of(heap).save(trace)
    for words, is_said in (([], True), (["--with-failed"], False)):
        assert main(["whatif", str(trace), "--policy", "bfc", *words]) == 0
        assert ("without the 1 that failed" in " ".join(capsys.readouterr().out.split())) == is_said


def test_a_loss_that_is_no_number_before_a_failure_is_null(tmp_path, capsys):
    heap = new_heap(64 * MiB)
    size, details = packed_value(float("nan"))
    heap.mark(heap.labels.intern("loss", **details), size)
    heap.free(heap.allocate(8 * MiB))
    path = trace_of(heap).save(tmp_path / "nan.parquet")
    main(["whatif", str(path), "--policy", "bfc", "--limit", "4MiB", "--json"])
    (row, *_) = json.loads(capsys.readouterr().out)["policies"]
    assert row["failed_after_mark"] == "loss"
    assert row["failed_after_mark_value"] is None
