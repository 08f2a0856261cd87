import numpy as np
import pytest
from shared import sample_trace
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace, trace_of

import bfcviz
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.colouring import (
    COLOURINGS,
    FEW_CLASSES,
    FREE,
    HUES,
    MOST_CLASSES,
    OTHER,
    ROOT,
    SHADES,
    HolderChooser,
    HolderPalette,
    colour_path,
    colour_tree,
    colouring,
    known_colourings,
)
from bfcviz.figures.theme import DARK, LIGHT
from bfcviz.model import CHUNK, Model


def used(**fields):
    """Chunks in use, one for each value given."""
    length = max(len(values) for values in fields.values())
    chunks = np.zeros(length, CHUNK)
    chunks["in_use"], chunks["size"] = True, 256
    for name, values in fields.items():
        chunks[name] = values
    return chunks


def named(trace, name, chunks, step=0):
    made = colouring(trace, 0, name, LIGHT)
    return [made.names[number] for number in made.classes(chunks, step)]


@pytest.mark.parametrize("name", COLOURINGS)
@pytest.mark.parametrize("trace", [busy_trace(), trace_of(np.empty(0, EVENT))], ids=["busy", "empty"])
def test_every_chunk_at_every_step_has_a_class_with_a_name_and_a_paint(name, trace):
    made = colouring(trace, 0, name, DARK)
    assert 1 <= len(made.names) == len(made.paints) <= MOST_CLASSES
    named = [each for each in made.names if each]
    assert len(set(named)) == len(named)
    assert len({paint.fill for paint in made.paints}) == len(made.paints)
    model = Model(trace)
    for step in range(0, len(trace) + 1, 97):
        model.seek(step)
        chunks = model.chunks()
        classes = made.classes(chunks, step)
        assert ((classes == FREE) == ~chunks["in_use"]).all()
        assert (classes[chunks["in_use"]] < len(made.names)).all()


def test_an_unknown_colouring_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="state, bin, age"):
        colouring(busy_trace(), 0, "mood", LIGHT)


def test_records_without_a_state_are_all_in_use():
    records = np.zeros(3, [("size", "<u8"), ("requested", "<u8")])
    assert colouring(busy_trace(), 0, "state", LIGHT).classes(records, 0).tolist() == [0, 0, 0]


def test_labels_that_held_the_most_the_longest_are_named_and_the_rest_are_others():
    heap = PlainHeap(64 * MiB)
    for number in reversed(range(9)):
        heap.allocate((number + 1) * 64 * KiB, f"op {number}", shape=f"[{number}]")
    heap.allocate(32 * KiB, "op 0", shape="[again]")  # the same name with other details: 96 KiB in all
    trace = heap.trace()
    made = colouring(trace, 0, "label", LIGHT)
    assert list(made.names) == [f"op {number}" for number in range(8, 1, -1)] + ["other"]
    assert named(trace, "label", used(label=[1, 9, 8, 10, 0])) == ["op 8", *["other"] * 4]


def test_few_bytes_for_long_count_more_than_many_bytes_for_a_moment():
    heap = PlainHeap(64 * MiB)
    heap.allocate(64 * KiB, "kept")
    for _ in range(100):
        heap.free(heap.allocate(MiB, "scratch"))
        heap.free(heap.allocate(256, "other work"))
    assert list(colouring(heap.trace(), 0, "label", LIGHT).names)[:2] == ["scratch", "kept"]
    for _ in range(4000):
        heap.free(heap.allocate(256, "other work"))
    assert colouring(heap.trace(), 0, "label", LIGHT).names[0] == "kept"


def test_a_label_keeps_its_class_at_every_step():
    trace = busy_trace()
    made = colouring(trace, 0, "label", LIGHT)
    chunks = used(label=list(range(len(trace.labels))))
    assert (made.classes(chunks, 1) == made.classes(chunks, len(trace))).all()


def test_labels_in_the_legend_cannot_inject_anything():
    heap = PlainHeap(64 * MiB)
    heap.allocate(1000, "<script>alert(1)</script>")
    heap.allocate(2000, "\u062a\u0633\u0645\u200f<b>")
    heap.allocate(500)
    names = colouring(heap.trace(), 0, "label", LIGHT).names
    assert not any("<" in name for name in names)
    assert names[0].startswith("\u2068")  # isolated: it does not turn its neighbours round
    assert names[2] == "no label"


def test_bytes_of_other_heaps_and_of_other_events_do_not_count():
    events = np.zeros(3, EVENT)
    events["seq"] = range(3)
    events["kind"] = [Kind.ALLOCATE, Kind.ALLOCATE, Kind.MARK]
    events["pool"], events["stream"] = [0, 1, 0], [3, 5, 7]
    events["size"], events["requested"] = [256, 1 << 30, 9], 1
    trace = trace_of(events, pools=2)
    assert list(colouring(trace, 0, "stream", LIGHT).names) == ["stream 3"]
    assert list(colouring(trace, 0, "size", LIGHT).names) == ["under 1 KiB"]


def test_sizes_and_bins_that_occur_are_named_with_their_unit():
    heap = PlainHeap(1 << 40)
    for size in (256, 20 * KiB, 2 * MiB):
        heap.allocate(size)
    trace = heap.trace()
    chunks = used(size=[256, 16 * KiB, 256 * KiB - 256, 256 * KiB])
    assert named(trace, "size", chunks) == ["under 1 KiB", "16-256 KiB", "16-256 KiB", "256 KiB-4 MiB"]
    assert named(trace, "bin", chunks) == [
        "bins 0-1 (256 B-1 KiB)",
        "bins 6-7 (16-64 KiB)",
        "bins 8-9 (64-256 KiB)",
        "bins 10-11 (256 KiB-1 MiB)",
    ]


def test_the_last_bin_has_no_end():
    heap = PlainHeap(1 << 40)
    heap.allocate(1 << 39)
    assert list(colouring(heap.trace(), 0, "bin", LIGHT).names) == ["bin 20 (256 MiB+)"]


def test_ages_go_by_powers_of_ten_as_far_as_the_trace_is_long():
    trace = busy_trace()
    assert list(colouring(trace, 0, "age", LIGHT).names) == ["under 10 steps", "10+", "100+"]
    born = used(born=[600, 591, 590, 501, 500, 0])
    assert named(trace, "age", born, 600) == [*["under 10 steps"] * 2, *["10+"] * 2, *["100+"] * 2]
    assert named(trace, "age", born, 500)[0] == "under 10 steps"  # not born yet


def test_steps_are_equal_parts_of_the_trace():
    trace = busy_trace()
    made = colouring(trace, 0, "step", LIGHT)
    classes = made.classes(used(born=np.arange(len(trace))), len(trace))
    assert set(np.bincount(classes)) <= {len(trace) // FEW_CLASSES, len(trace) // FEW_CLASSES + 1}
    assert made.names[0] == f"0-{int((classes == 0).sum()) - 1}"


def test_waste_is_one_minus_requested_by_size():
    chunks = used(size=[1000] * 5, requested=[1000, 999, 990, 500, 2000])
    assert named(busy_trace(), "waste", chunks) == [
        "no waste",
        "under 1 %",
        "1-5 %",
        "50 % or more",
        "no waste",
    ]


# ------------------------------------------------------------------------------
# The colouring by holder: who gets the hues and shades, and that they stay from step to step.


def chooser(held, usual=None):
    """A chooser for labels with these bytes by name; `usual`: those times steps, where they differ."""
    labels = Labels()
    numbers = [labels.intern(name) for name in held]
    tree = colour_tree(labels, numbers)
    weights = np.zeros(len(labels))
    weights[numbers] = list((usual or held).values())
    now = np.zeros(len(labels))
    now[numbers] = list(held.values())
    return HolderChooser(tree, weights, now[None]), now, labels


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
        hue * SHADES
        for hue in (0, 1, 2, 3, 5, 6)  # green, 4, is the last
    ]
    assert 0 < other < 0.05


def test_holders_that_are_large_at_different_moments_can_have_one_hue_and_differ_where_they_meet():
    labels = Labels()
    numbers = [labels.intern(f"{letter}/x") for letter in "abcdefghijkl"]
    moments = np.zeros((2, len(labels)))
    moments[0, numbers[:6]] = moments[1, numbers[6:]] = 100
    made = HolderChooser(colour_tree(labels, numbers), moments.sum(axis=0), moments)
    for moment in moments:
        shown = made.at(moment)
        classes = shown.by_label()[np.flatnonzero(moment)]
        assert len({number // SHADES for number in classes.tolist()}) == 6
        assert {name for number, name in shown.names() if number in classes} == {
            labels.name(number) for number in np.flatnonzero(moment).tolist()
        }


def test_more_large_holders_than_hues_are_told_apart_by_shades():
    usual = {f"usual_{letter}/x": 100 for letter in "abcdefg"} | {"new/x": 1}
    now = {f"usual_{letter}/x": 10 for letter in "abcdefg"} | {"new/x": 100}
    classes, other = shares(now, usual)
    assert other == 0
    assert len(set(classes.values())) == HUES + 1


def test_no_holder_looks_like_free_memory():
    found, _ = shares({f"op{letter}/{part}": 10 for letter in "abcdefg" for part in "xyz"})
    assert "#94BD9F" in {paint.fill for paint in LIGHT.holders}  # the lighter green; free is #A9D8BA
    assert "#94BD9F" not in {LIGHT.holders[number].fill for number in found.values()}
    assert len({number // SHADES for number in found.values()}) == HUES


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_no_holder_changes_its_colour_from_step_to_step(name):
    trace = sample_trace(name)
    model, seen = Model(trace), {}
    last = range(len(trace) - 60, len(trace))
    for step in (*last, *reversed(last), *range(0, len(trace), len(trace) // 60)):
        model.seek(step)
        chunks = model.in_use()
        classes = colouring(trace, 0, "holder", LIGHT, chunks).classes(chunks, step)
        for label, number in zip(chunks["label"].tolist(), classes.tolist(), strict=True):
            assert seen.setdefault(label, number) == number


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_the_legend_names_the_classes_with_the_most_bytes_at_the_step(name):
    trace = sample_trace(name)
    model = Model(trace)
    for step in (bfcviz.peak(trace), len(trace) // 2, len(trace)):
        model.seek(step)
        chunks = model.in_use()
        made = colouring(trace, 0, "holder", LIGHT, chunks)
        held = np.bincount(made.classes(chunks, step), chunks["size"], minlength=OTHER + 1)[:OTHER]
        listed = np.array([bool(text) for text in made.names[:OTHER]])
        assert held[listed].min() >= held[~listed].max()
        texts = [text for text in made.names if text]
        assert len(set(texts)) == len(texts) > 7


def test_a_step_without_memory_has_the_legend_of_the_usual_holders():
    trace = sample_trace("conv")
    usual = colouring(trace, 0, "holder", LIGHT)
    empty = colouring(trace, 0, "holder", LIGHT, Model(trace).in_use())
    assert usual.names == empty.names
    assert sum(map(bool, usual.names)) > 7


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


def test_a_colouring_by_what_the_file_does_not_have_has_one_class():
    log, dump = sample_trace("oom_log"), sample_trace("oom_dump")
    for trace, number in ((log, 1), (dump, 7)):
        made = colouring(trace, 0, "waste", LIGHT)
        assert len(made.names) == len(made.paints) == number
        used = Model(trace)
        used.seek(len(trace))
        assert set(made.classes(used.in_use(), used.step).tolist()) <= set(range(number))
    assert set(known_colourings(sample_trace("lstm"))) == set(COLOURINGS)
    assert set(COLOURINGS) - set(known_colourings(log)) == {"waste", "age", "step", "thread", "stream"}
