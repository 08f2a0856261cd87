"""Kinds of memory: from rules of one's own, frames, annotations, lifetimes and sizes; unknown where nothing decides."""

import json
from time import perf_counter

import pytest
from shared import SHARED, needs_shared
from unit.figures.synthetic import KiB, PlainHeap

import bfcviz
from bfcviz.cli import main
from bfcviz.errors import BfcvizError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import FEW_CLASSES, colouring
from bfcviz.figures.theme import LIGHT
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.memory_kinds import KINDS, SOON, UNKNOWN, KindRules, MemoryKinds, use_rules
from bfcviz.model.model import Model

SNAPSHOTS = SHARED / "real" / "snapshots"
STACKS = {
    "parameters": "__init__ (/home/me/net.py:8)\n<module> (/home/me/train.py:3)",
    "gradients": "torch::autograd::generated::MulBackward0_apply_functional() (Functions.cpp:0)",
    "optimizer state": "step (/home/me/opt.py:8)\nwrapper (/v/site-packages/torch/optim/optimizer.py:493)",
    "activations": "gelu (/home/me/ops.py:4)\nforward (/home/me/net.py:22)\n<module> (/home/me/train.py:9)",
    "inputs": "get_batch (/home/me/data.py:5)\n<module> (/home/me/train.py:8)",
    "KV cache": "update (/v/site-packages/transformers/cache_utils.py:101)\nforward (/home/me/net.py:22)",
    "workspace": "at::cuda::getNewWorkspace() (CUDABlas.cpp:0)\nforward (/home/me/net.py:22)",
    UNKNOWN: "main (/home/me/train.py:9)",
}


def heap_of(stacks=STACKS):
    heap = PlainHeap(8192 * KiB, 2, Labels())
    for number, stack in enumerate(stacks.values()):
        heap.allocate((4 + number) * KiB, f"line {number}", stack=stack)
    return heap


def kinds_at_end(trace):
    model = Model(trace)
    model.seek(len(trace))
    kinds, chunks = MemoryKinds(trace, 0), model.in_use()
    return [kinds.names[number] for number in kinds.of(chunks).tolist()]


def test_frames_decide():
    assert sorted(kinds_at_end(heap_of().trace())) == sorted(STACKS)


@pytest.mark.parametrize("kind", ["activations", "gradients"])
def test_what_is_freed_soon_is_workspace(kind):
    heap = PlainHeap(8192 * KiB, 2, Labels())
    soon = heap.allocate(4 * KiB, "a", stack=STACKS[kind])
    late = heap.allocate(4 * KiB, "a", stack=STACKS[kind])
    heap.free(soon)
    for _ in range(SOON):
        heap.mark("step")
    heap.free(late)
    trace = heap.trace()
    model, kinds = Model(trace), MemoryKinds(trace, 0)
    model.seek(5)  # EXTEND, and twice SPLIT and ALLOCATE
    found = [kinds.names[number] for number in kinds.of(model.in_use()).tolist()]
    assert sorted(found) == sorted([kind, "workspace"])


def test_rules_of_ones_own_come_first():
    trace = heap_of().trace()
    use_rules(trace, KindRules.of({"experts": r"get_batch", "parameters": "line 7"}))
    found = kinds_at_end(trace)
    assert found.count("experts") == 1
    assert found.count("parameters") == 2
    assert "inputs" not in found


@pytest.mark.parametrize("text", ["experts", "a: (", ": x", "a:"])
def test_a_rule_that_is_none_is_refused(text):
    with pytest.raises(BfcvizError):
        KindRules.of_text(f"# rules\n\n{text}\n")


def test_the_command_and_the_function_agree(tmp_path, capsys):
    path = heap_of().trace().save(tmp_path / "kinds.parquet")
    rules = tmp_path / "rules"
    rules.write_text("# mine\nexperts: get_batch\n")
    assert main(["holders", str(path), "--by", "kind", "--kinds", str(rules), "--step", "end", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    found = bfcviz.holders(path, by="kind", kinds={"experts": "get_batch"})
    assert [row["name"] for row in answer["holders"]] == list(found.names)
    assert {"experts", "KV cache", "unknown kind"} <= set(found.names)
    assert main(["holders", str(path), "--by", "kind", "--kinds", str(tmp_path / "no")]) != 0


def test_the_map_is_coloured_by_kind():
    trace = heap_of().trace()
    found = colouring(trace, 0, "kind", LIGHT)
    assert set(found.names) == {*KINDS, "other or unknown"}
    model = Model(trace)
    model.seek(len(trace))
    classes = found.classes(model.chunks(), len(trace))
    assert set(classes[model.chunks()["in_use"]].tolist()) == set(range(FEW_CLASSES))


def test_an_empty_trace_has_no_kinds():
    trace = Trace.from_events(
        heap_of().trace().read(0, 0),
        Labels(),
        Origin("bfcviz", "", Status.COMPLETE, (), (Pool("a", None, {}),), {}),
    )
    assert len(bfcviz.holders(trace, by="kind")) == 1


@needs_shared
def test_a_training_step_of_adamw():
    """Two tensors of state a parameter, and one gradient: the sizes of all three agree."""
    trace = open_trace(SNAPSHOTS / "torch_cs336_ctx128_fullstep.pickle")
    found = bfcviz.holders(trace, "peak", by="kind")
    held = dict(zip(found.names, found.rows["requested"].tolist(), strict=True))
    assert held["optimizer state"] == 2 * held["parameters"]
    assert held["gradients"] == pytest.approx(held["parameters"], rel=0.02)
    assert held["parameters"] > 12 << 30
    plain = bfcviz.holders(trace, "peak")
    assert "no label" not in plain.names
    assert not any("gather" in name or "wrapper_CUDA" in name for name in plain.names)


@pytest.mark.parametrize(
    "word",
    ["a", "get_", "collate", "softmax", "Optimizer", "Sliding", "load_x_", "forward", ".", "/datasets"],
)
def test_a_name_of_any_length_is_read_at_once(word):
    heap = PlainHeap(8192 * KiB, 2, Labels())
    for number in range(10):
        heap.allocate(KiB, f"{number}", stack=f"{word * (6000 // len(word))} (/home/me/a.py:{number})")
    began = perf_counter()
    bfcviz.holders(heap.trace(), by="kind")
    assert perf_counter() - began < 2
