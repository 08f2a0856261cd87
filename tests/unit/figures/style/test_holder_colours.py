"""The colouring by holder: who gets the hues and shades, and that they stay from step to step."""

import numpy as np
import pytest
from shared import sample_trace
from unit.figures.synthetic import KiB, MiB, PlainHeap

import bfcviz
from bfcviz.events.labels import Labels
from bfcviz.figures.colouring import (
    HUES,
    OTHER,
    ROOT,
    SHADES,
    HolderChooser,
    HolderPalette,
    colour_path,
    colour_tree,
    colouring,
)
from bfcviz.figures.theme import LIGHT
from bfcviz.model import Model


def chooser(held, usual=None):
    """A chooser for labels with these bytes by name; `usual`: those times steps, where they differ."""
    labels = Labels()
    numbers = [labels.intern(name) for name in held]
    tree = colour_tree(labels, numbers)
    weights = np.zeros(len(labels))
    weights[numbers] = list((usual or held).values())
    now = np.zeros(len(labels))
    now[numbers] = list(held.values())
    return HolderChooser(tree, weights), now, labels


def shares(held, usual=None):
    """Name -> class, and the share of the bytes in the class of others."""
    made, now, labels = chooser(held, usual)
    classes = made.at(now).by_label()
    other = now[classes[: len(now)] == OTHER].sum() / now.sum()
    return {name: int(classes[number]) for number, name in enumerate(labels.names) if name in held}, other


def test_the_children_of_one_holder_have_shades_of_its_hue():
    held = {
        f"{parent}/{child}": size for parent in "abcdef" for child, size in (("x", 9), ("y", 6), ("z", 1))
    }
    classes, other = shares(held)
    assert other == 0
    for parent in "abcdef":
        mine = [classes[f"{parent}/{child}"] for child in "xyz"]
        assert len(set(mine)) == 3
        assert len({number // SHADES for number in mine}) == 1
    assert len({number // SHADES for number in classes.values()}) == 6


def test_a_label_named_by_its_place_in_the_code_is_named_once():
    labels, stack = Labels(), "step (/home/me/train.py:4)\n<module> (/home/me/train.py:9)"
    paths = [colour_path(labels, labels.intern(name, stack=stack)) for name in ("train.py:4 step", "weights")]
    assert paths == [("train.py:4 step",), ("weights", "train.py:4 step")]


def test_one_that_holds_nearly_all_is_split():
    held = {f"model/layer_{number}/MatMul": 20 for number in range(4)} | {"rest": 5}
    classes, other = shares(held)
    assert other == 0
    assert len({number // SHADES for number in classes.values()}) == 5


def test_a_crowd_of_small_ones_is_grouped_by_their_parent_and_by_their_names_without_numbers():
    held = {f"adam/Mul_{number}": 1 for number in range(50)} | {
        f"adam/Add_{number}": 1 for number in range(50)
    }
    held |= {f"layer_{number}/x": 100 for number in range(4)}
    classes, other = shares(held)
    assert other == 0
    muls = {number for name, number in classes.items() if "Mul" in name}
    adds = {number for name, number in classes.items() if "Add" in name}
    assert len(muls) == len(adds) == 1
    assert muls.isdisjoint(adds)


def test_many_without_slashes_leave_the_small_ones_to_others():
    classes, other = shares({f"op{chr(97 + number)}": 2.0 ** (20 - number) for number in range(20)})
    assert sorted({number for number in classes.values() if number != OTHER}) == [
        hue * SHADES for hue in range(len(set(classes.values())) - 1)
    ]
    assert 0 < other < 0.05


def test_usual_holders_keep_their_hues_where_they_say_enough():
    usual = {"a/x": 50, "b/x": 30, "c/x": 20}
    first, _ = shares(usual)
    later, _ = shares({"a/x": 20, "b/x": 50, "c/x": 30}, usual)
    assert first == later


def test_usual_holders_keep_their_hues_where_no_others_say_more():
    usual = {f"op{chr(97 + number)}": 100 + number for number in range(20)}
    first, before = shares(usual)
    later, other = shares({name: 120 - number for number, name in enumerate(usual)}, usual)
    assert first == later
    assert before > 0.5
    assert other > 0.5


def test_a_newcomer_takes_a_hue_that_is_free():
    usual = {f"usual_{letter}/x": 100 for letter in "abcdefg"} | {"new/x": 1}
    now = {f"usual_{letter}/x": 10 for letter in "abcdefg"} | {"new/x": 100}
    first, before = shares(usual)
    later, other = shares(now, usual)
    assert before <= 0.01
    assert other <= 0.1
    kept = [name for name in usual if later[name] != OTHER and name != "new/x"]
    assert len(kept) == HUES - 1
    assert all(first[name] == later[name] for name in kept)
    assert later["new/x"] not in {later[name] for name in kept}


def test_a_newcomer_keeps_the_hue_in_which_it_was_first_seen():
    usual = {f"usual_{letter}/x": 100 for letter in "abcdef"} | {"new/x": 1}
    made, now, labels = chooser(usual)
    new = labels.names.index("new/x")
    found = []
    for absent in ("usual_a/x", "usual_c/x", "usual_f/x"):
        held = np.where(now == 1, 100.0, now / 10)
        held[labels.names.index(absent)] = 0
        found.append(int(made.at(held).by_label()[new]))
    assert found[0] != OTHER
    assert set(found) == {found[0]}


def test_a_holder_of_a_growing_heap_keeps_its_colour():
    heap = PlainHeap(64 * MiB)
    sizes = {f"layer_{number}/x": (number + 1) * KiB for number in range(7)}
    for name, size in sizes.items():
        heap.allocate(size, name)
    seen, palette = {}, None
    for turn in range(5):
        for number in range(7 * (turn > 0)):  # the smallest become the largest
            heap.allocate((8 - number) * 100 * KiB, f"layer_{number}/x")
        palette = HolderPalette(heap.trace(), 0, palette)
        for number, name in palette.classes(None).names():
            assert seen.setdefault(name, number) == number


def test_paths_of_labels():
    labels = Labels()
    stack = "forward (/home/me/train.py:41)\nmain (/home/me/train.py:90)"
    paths = [
        colour_path(labels, number)
        for number in (
            labels.intern("layer/MatMul"),
            labels.intern("", stack=stack),
            labels.intern("batch", stack=stack),
            labels.intern("layer/MatMul", stack=stack),
            labels.intern("plain"),
            0,
        )
    ]
    assert paths[0] == paths[3] == ("layer", "MatMul")
    assert len(paths[1]) == 1
    assert "train.py:41" in paths[1][0]
    assert paths[2] == ("batch", *paths[1])
    assert paths[4:] == [("plain",), (None,)]


def test_the_tree_sums_what_is_below_and_leaves_out_single_parents():
    labels = Labels()
    numbers = [labels.intern(name) for name in ("a/b/c", "a/b/d", "a", "e/f")]
    tree = colour_tree(labels, numbers)
    by_label = np.zeros(len(labels))
    by_label[numbers] = [1, 2, 4, 8]
    sums = tree.sums(by_label)
    assert sums[ROOT] == 15
    assert [sums[tree.nodes[path]] for path in (("a",), ("a", "b"), ("a", "b", "c"), ("e",))] == [7, 3, 1, 8]
    assert tree.nodes["e",] == tree.nodes["e", "f"]


def test_a_path_has_the_colour_of_its_chunks_or_none_if_they_have_several():
    heap = PlainHeap(64 * MiB)
    for label, size in (("a/x", 8), ("a/y", 8), ("b", 4)):
        heap.allocate(size * MiB, label)
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    chunks = model.chunks()
    made = colouring(trace, 0, "holder", LIGHT, chunks)
    classes = made.classes(chunks, len(trace))
    for chunk, number in zip(chunks[chunks["in_use"]], classes[chunks["in_use"]], strict=True):
        path = tuple(trace.labels.name(int(chunk["label"])).split("/"))
        assert made.holders.of_path(path) == number
    assert made.holders.of_path(("unknown",)) is None
    assert made.holders.of_path(()) is None


@pytest.mark.parametrize("find", [bfcviz.peak, bfcviz.worst_fragmentation])
@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_at_most_a_fifth_of_each_sample_is_other_at_its_peak_and_at_its_worst(name, find):
    trace = sample_trace(name)
    model = Model(trace)
    model.seek(find(trace))
    chunks = model.chunks()
    made = colouring(trace, 0, "holder", LIGHT, chunks)
    held = np.bincount(made.classes(chunks, model.step), chunks["size"] * chunks["in_use"], OTHER + 1)
    assert held[OTHER] <= 0.2 * held[: OTHER + 1].sum()
    assert held[: OTHER + 1].sum() == model.stats().bytes_in_use


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_most_bytes_keep_their_hue_from_step_to_step(name):
    trace = sample_trace(name)
    model, kept, before = Model(trace), [], None
    for step in range(len(trace) // 2, len(trace) // 2 + 100):
        model.seek(step)
        chunks = model.in_use()
        made = colouring(trace, 0, "holder", LIGHT, chunks)
        if before is not None:
            same = made.classes(chunks, step) // SHADES == before.classes(chunks, step) // SHADES
            kept.append(chunks["size"][same].sum() / chunks["size"].sum())
        before = made
    assert np.mean(kept) > 0.98


def test_a_colouring_is_made_again_only_when_other_holders_get_the_colours():
    heap = PlainHeap(64 * MiB)
    for number in range(8):
        heap.allocate(MiB, f"layer_{number % 4}/x")
    trace = heap.trace()
    model = Model(trace)
    made = []
    for step in (len(trace) - 1, len(trace)):
        model.seek(step)
        made.append(colouring(trace, 0, "holder", LIGHT, model.chunks()))
    assert made[0] is made[1]
    assert colouring(trace, 0, "holder", LIGHT, model.in_use()) is made[1]


def test_labels_that_a_trace_gets_later_are_others_until_they_hold_much():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "early/x")
    trace = heap.trace()
    known = colouring(trace, 0, "holder", LIGHT)
    records = np.zeros(1, [("label", "<u4"), ("size", "<u8")])
    records["label"], records["size"] = 99, KiB
    assert known.classes(records, 0).tolist() == [OTHER]
