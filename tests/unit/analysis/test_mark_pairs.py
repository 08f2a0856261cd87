"""Marks of two recordings: by number, by order, of phases, of several names."""

import pytest
from unit.figures.synthetic import KiB, MiB, PlainHeap

from bfcviz.analysis.alignment import mark_pairs
from bfcviz.events.mark_values import packed_value
from bfcviz.events.schema import Kind


def marked(*marks):
    """A trace with these marks: name and value; a phase's name and None is its begin and end."""
    heap = PlainHeap(MiB)
    for number, (name, value) in enumerate(marks):
        if value is None:
            heap.mark(f"{name} begins", 100 + number, begins=name)
        heap.free(heap.allocate(KiB, "op"))
        if value is None:
            heap.mark(f"{name} ends", 100 + number, ends=name)
        else:
            heap.mark(name, value)
    return heap.trace(), 0


def names(a, b, name=None):
    found = mark_pairs(a, b, name)
    return found.by_number, list(found.names)


def steps(*values):
    return [("step", value) for value in values]


def test_numbers_are_paired_where_half_of_them_agree():
    assert names(marked(*steps(0, 1, 2, 3)), marked(*steps(2, 3, 4, 5))) == (True, ["step 2", "step 3"])
    assert names(marked(*steps(0, 1, 2, 3)), marked(*steps(100, 101, 102, 103))) == (
        False,
        ["step 1", "step 2", "step 3", "step 4"],
    )


@pytest.mark.parametrize("name", ["step {}", "step#{}"])
def test_numbers_at_the_end_of_names_count(name):
    a, b = (marked(*((name.format(number), 0) for number in numbers)) for numbers in ((5, 6, 7), (6, 7, 8)))
    assert names(a, b) == (True, ["step 6", "step 7"])


def test_numbers_that_jump_back_are_left_out():
    a, b = marked(*steps(1, 2, 3, 4)), marked(*steps(1, 4, 2, 3))
    found = mark_pairs(a, b)
    assert list(found.names) == ["step 1", "step 2", "step 3"]
    assert found.left == (1, 1)
    assert (found.a[1:] > found.a[:-1]).all()
    assert (found.b[1:] > found.b[:-1]).all()


def test_measured_values_are_no_numbers_of_marks():
    def losses(*values):
        heap = PlainHeap(MiB)
        for value in values:
            heap.free(heap.allocate(KiB, "op"))
            size, details = packed_value(value)
            label = heap.labels.intern("loss", **details)
            heap.record(Kind.MARK, label=label, size=size)
        return heap.trace(), 0

    a, b = losses(0.5, 0.25, 0.125), losses(2.5, 0.5, 0.25)
    assert names(a, b) == (False, ["loss 1", "loss 2", "loss 3"])


def test_phases_are_paired_in_order_at_their_ends():
    a, b = (marked(*[("train", None)] * count) for count in (3, 3))
    assert names(a, b) == (False, ["train 1", "train 2", "train 3"])


def test_of_different_numbers_of_marks_those_after_equal_steps_are_paired():
    heaps = []
    for evaluations in (1, 3):
        heap = PlainHeap(8 * MiB)
        for step in range(12):
            for _ in range(100 if step % 12 < evaluations else 10):
                heap.free(heap.allocate(KiB, "op"))
            heap.mark("step")
        heaps.append((heap.trace(), 0))
    found = mark_pairs(*heaps)
    assert len(found.a) == 12
    heap.mark("step")
    shorter = heap.trace(), 0
    assert len(mark_pairs(heaps[0], shorter).a) == 9


def test_the_word_step_comes_before_other_marks_and_a_name_can_be_chosen():
    both = [("loaded", 0), ("step", 1), ("saved", 0), ("step", 2), ("saved", 0)]
    a = marked(*both)
    assert mark_pairs(a, a).name == "step"
    assert mark_pairs(a, a, "saved").names == ("saved 1", "saved 2")
    assert "'epoch'" in mark_pairs(a, a, "epoch").reason


def test_marks_of_all_names_are_used_where_no_name_says_step():
    a, b = marked(("loaded", 0), ("trained", 0)), marked(("trained", 0), ("loaded", 0))
    found = mark_pairs(a, a)
    assert (found.name, found.names) == ("", ("loaded", "trained"))
    # In the other order only one of them can be a pair, which is too few.
    assert "1 mark of both" in mark_pairs(a, b).reason


def test_no_common_marks_are_a_reason():
    assert mark_pairs(marked(("x", 1)), marked()).reason == "B has no marks"
    assert mark_pairs(marked(), marked()).reason == "A and B have no marks"
    alone = mark_pairs(marked(("x", 1)), marked(("x", 1)))
    assert (len(alone.a), "1 mark of both" in alone.reason) == (0, True)


def test_huge_numbers_are_paired():
    top = (1 << 64) - 1
    a = marked(("step", 5), ("step", top))
    assert names(a, a) == (True, ["step 5", f"step {top:,}"])
    digits = "7" * 5000
    b = marked((f"step {digits}", 0), (f"step 1{digits}", 0))
    assert len(mark_pairs(b, b).a) == 2
