"""`bfcviz holders`: text for people, JSON for programs."""

import json
from itertools import cycle

import pytest
from shared import SHARED, needs_shared, sample_file, sample_trace, snapshot_trace

import bfcviz
from bfcviz.cli import main
from bfcviz.errors import TraceError
from bfcviz.model.grouping import UNNAMED


@pytest.fixture(scope="module")
def trace():
    return sample_trace("transformer")


@pytest.fixture(scope="module")
def file():
    return str(sample_file("transformer"))


@pytest.fixture
def said(file, capsys):
    """What the command prints with these words."""

    def said(*words):
        assert main(["holders", file, *map(str, words)]) == 0
        return capsys.readouterr().out

    return said


def test_the_text_is_a_tree_at_the_peak(trace, said):
    head, titles, whole, first, *_ = said().splitlines()
    assert head.endswith(f"at step {bfcviz.peak(trace):,} of {len(trace):,}, by op")
    assert titles.split() == ["bytes", "share", "chunks"]
    assert whole.split() == ["11.7", "MiB", "100.0", "%", "1,127", "in", "use"]
    assert first.split()[-1] == "functional_1"


@pytest.mark.parametrize(
    ("by", "step"), [*zip(UNNAMED, cycle(["peak", "end", "worst", "1,234"]), strict=False)]
)
def test_the_object_has_all_rows(by, step, trace, said):
    found = json.loads(said("--by", by.replace("_", "-"), "--step", step, "--json"))
    model = bfcviz.Model(trace)
    model.seek(found["step"])
    stats = model.stats()
    assert (found["bytes_in_use"], found["chunks_in_use"]) == (stats.bytes_in_use, stats.chunks_in_use)
    assert sum(row["own_bytes"] for row in found["holders"]) == stats.bytes_in_use
    assert [row["id"] for row in found["holders"]] == list(range(len(found["holders"])))
    assert found["holders"][0]["parent"] is None


def test_leaks_as_text_and_as_an_object(said):
    text = said("--leaks")
    assert "compared the ends of 5 equal steps" in text
    assert "not freed by step" in text
    found = json.loads(said("--leaks", "--json", "--events", "0", "55638"))
    assert (found["events"], found["growth"]["compared"]) == ([0, 55638], [315, 316, 317, 318, 319])
    assert sum(row["bytes"] for row in found["holders"]) == found["bytes"]
    first = found["holders"][0]
    assert sum(chunk["size"] for chunk in first["listed"]) == first["bytes"]


def test_an_unknown_phase_and_an_unknown_grouping(file, capsys):
    assert main(["holders", file, "--leaks", "--phase", "forward"]) == 1
    assert "has no phase 'forward'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["holders", file, "--by", "colour"])
    assert "data_type" in capsys.readouterr().err


def test_what_grew_since_a_step(trace, said):
    found = json.loads(said("--since", "1000", "--step", "peak", "--json", "--by", "shape"))
    assert (found["first"], found["last"]) == (1000, bfcviz.peak(trace))
    by_hand = bfcviz.holders(trace, "peak").bytes_in_use - bfcviz.holders(trace, 1000).bytes_in_use
    assert sum(row["grew"] for row in found["holders"]) == by_hand
    assert json.loads(said("--since", "1000", "--json"))["last"] == len(trace)  # as in Python
    assert said("--since", "1000").splitlines()[1].split()[:3] == ["grew", "new", "gone"]


@needs_shared
def test_the_heap_that_failed_is_shown_and_a_name_chooses_another(tmp_path, capsys):
    file = str(snapshot_trace("torch_code_location_2.6M").save(tmp_path / "code.parquet"))
    assert main(["holders", file]) == 0
    assert capsys.readouterr().out.startswith("cuda:1 at step")
    assert bfcviz.holders(file).pool == 1
    for words in (["--pool", "cuda:0"], ["--pool", "0"]):
        assert main(["holders", file, *words]) == 0
        assert capsys.readouterr().out.startswith("cuda:0 at step")


@needs_shared
def test_of_a_heap_that_is_not_in_the_file_nothing_is_told():
    file = SHARED / "real" / "logs" / "jax_2024-05_16_001.log"
    for asked in (bfcviz.holders, lambda log: bfcviz.compare_recordings(log, log)):
        with pytest.raises(TraceError, match="GPU_0_bfc"):
            asked(file)
    assert main(["holders", str(file)]) == 1


@needs_shared
def test_each_stack_is_a_line_of_whole_frames(capsys):
    file = str(SHARED / "real" / "snapshots" / "torch_oom_snapshot_llminf.pickle")
    assert main(["holders", file, "--by", "stack"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for caller in (507, 319, 171):
        assert f"init_weight (flex_opt.py:{caller}) > init_weight_list (flex_opt.py:125) > allocate" in said
