import numpy as np
import pytest
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace, trace_of

from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.colouring import COLOURINGS, FEW_CLASSES, FREE, MOST_CLASSES, colouring
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
