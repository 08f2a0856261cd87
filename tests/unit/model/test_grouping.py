import numpy as np
import pytest
from heaps import KIB
from shared import sample_trace
from unit.figures.synthetic import MiB, PlainHeap

import bfcviz
from bfcviz.events.schema import Kind
from bfcviz.figures.colouring import colouring
from bfcviz.figures.holder_list import HolderCounts
from bfcviz.figures.theme import LIGHT
from bfcviz.model import Model
from bfcviz.model.grouping import Grouping, HolderChoice, grouping, members, op_path, stack_path
from bfcviz.model.holders import holders
from bfcviz.stack_frames import place_in_code

# ------------------------------------------------------------------------------
# HolderChoice: which chunks belong to a holder.


def _grouping() -> tuple[Grouping, np.ndarray]:
    trace = sample_trace("conv")
    how = grouping(trace, 0, "op")
    records = np.zeros(len(trace.labels), [("label", "<u4")])
    records["label"] = np.arange(len(records))
    return how, records


def test_the_empty_path_holds_everything() -> None:
    how, records = _grouping()
    assert members(how, HolderChoice("op", ()))(records).all()


def test_a_holder_has_the_chunks_of_the_holders_below_it_and_no_others() -> None:
    how, records = _grouping()
    first = next(path for path in map(how.path, range(1, len(records))) if len(path) > 1)
    belongs = members(how, HolderChoice("op", first[:1]))(records)
    expected = [how.path(number)[:1] == first[:1] for number in range(len(records))]
    assert belongs.tolist() == expected
    assert 0 < belongs.sum() < len(records)


def test_no_records() -> None:
    how, records = _grouping()
    assert len(members(how, HolderChoice("op", ("a",)))(records[:0])) == 0


# ------------------------------------------------------------------------------
# Paths of op names and stacks, and places in the code.


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("", (None,)),
        ("MatMul", ("MatMul",)),
        ("layer_4/attention/Softmax", ("layer_4", "attention", "Softmax")),
        ("jit(train)/transpose(jvp(a/b))/dot", ("jit(train)", "transpose(jvp(a/b))", "dot")),
        ("half(open/dot", ("half(open", "dot")),
        ("/home/me/pool.cpp:12", ("home", "me", "pool.cpp:12")),
        ("a//b/", ("a", "b")),
        ("/", ("/",)),
    ],
)
def test_op_paths(name, path):
    assert op_path(name) == path


def test_a_stack_begins_at_its_outermost_frame():
    assert stack_path("inner (a.py:1)\nouter (b.py:2)") == ("outer (b.py:2)", "inner (a.py:1)")
    assert stack_path("") == (None,)


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ("", ""),
        (
            "relu (/usr/lib/python3.11/site-packages/torch/nn.py:7)\nstep (/home/me/train.py:42)",
            "train.py:42 step",
        ),
        ("relu (C:\\py\\site-packages\\torch\\nn.py:7)\nstep (C:\\me\\train.py:42)", "train.py:42 step"),
        ("relu (/opt/site-packages/torch/nn.py:7)", "torch: nn.py:7 relu"),
        ("tensorflow::Tensor::Tensor()\nmain", "tensorflow::Tensor::Tensor()"),
    ],
)
def test_the_place_in_the_code(stack, place):
    assert place_in_code(stack) == place


# ------------------------------------------------------------------------------
# Holders by lifetime: in steps of the program where marks tell them, else in events.


def trained():
    """A run of 14 steps, and where all its arrays are in use: they live to the end of step 0, or to a later one."""
    with bfcviz.watch(numpy=True, limit="16MiB", dashboard=False, capture="nothing") as w:
        for step in range(14):
            bfcviz.mark("step", step)
            if step == 0:
                soon = np.empty(KIB)
                kept = {until: np.empty(KIB) for until in (1, 2, 10, 11, 99)}
                del soon
            kept.pop(step, None)
    trace = w.trace
    allocated = np.flatnonzero(trace.read(0, len(trace))["kind"] == Kind.ALLOCATE)
    return trace, int(allocated[-1]) + 1


def lives(trace, step):
    """How long -> chunks, at a step."""
    model = Model(trace)
    model.seek(step)
    found = holders(model, "lifetime")
    first = [
        (name, values) for name, values in zip(found.names, found.rows, strict=True) if values["depth"] == 1
    ]
    return {name: int(values["chunks"]) for name, values in first}


def test_with_marks_lifetimes_are_steps_of_the_program():
    found = lives(*trained())
    assert sorted(found.values()) == [1, 1, 1, 1, 2]
    assert [chunks for name, chunks in found.items() if "2 to 10 steps" in name] == [2]
    assert sum("until" in name for name in found) == 1


@pytest.mark.parametrize("events", [1, 99, 100, 5000])
def test_without_marks_they_are_events(events):
    heap = PlainHeap(MiB)
    first = heap.allocate(KIB)
    heap.allocate(KIB)
    before = len(heap.events)
    while len(heap.events) < before + events:
        heap.free(heap.allocate(2 * KIB))
    heap.free(first)
    trace = heap.trace()
    found = lives(trace, before)
    limit = "100 " if events < 95 else "1,000 " if events < 995 else "10,000 "
    assert {name: chunks for name, chunks in found.items() if limit in name} == {
        next(n for n in found if limit in n): 1
    }
    assert sum(found.values()) == 2


def test_a_group_is_chosen_with_all_its_sizes():
    heap = PlainHeap(MiB)
    kept = [heap.allocate(size) for size in (KIB, 2 * KIB, 4 * KIB)]
    step = len(heap.events)
    heap.free(kept[0])
    trace = heap.trace()
    model = Model(trace)
    model.seek(step)
    how = grouping(trace, 0, "lifetime")
    chunks = model.in_use()
    (until_the_end,) = {
        how.path(code)[0] for code in how.codes(chunks[chunks["address"] == kept[1]]).tolist()
    }
    mine = chunks[members(how, HolderChoice("lifetime", (until_the_end,)))(chunks)]
    assert sorted(mine["address"].tolist()) == sorted(kept[1:])


def offered(trace, *steps):
    """What the pane offers to find holders by, after it has shown these steps."""
    model, counts = Model(trace), HolderCounts(trace, 0)
    for step in steps:
        model.seek(step)
        counts.count(model, None, colouring(trace, 0, "state", LIGHT))
    return counts.groupings.names


def test_the_pane_offers_it_where_nothing_shown_has_a_name():
    heap = PlainHeap(MiB)
    heap.allocate(KIB)
    heap.allocate(KIB, "layer")
    trace = heap.trace()
    unnamed = len(trace) - 2
    assert offered(trace, unnamed)[:2] == ["size", "lifetime"]
    assert offered(trace, len(trace), unnamed) == ["op"]
    assert offered(*trained())[:2] == ["size", "lifetime"]  # its marks have names, its memory has none
