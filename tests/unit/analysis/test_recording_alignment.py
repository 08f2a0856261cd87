"""Which steps belong together: by marks, equal steps, labels or shares."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.analysis.programs import Training, common
from unit.figures.odd_traces import empty
from unit.figures.synthetic import KiB, MiB, PlainHeap

from bfcviz.analysis.recording_alignment import (
    MOST,
    AlignedBy,
    align,
    aligned_pair_indices,
    increasing,
    mark_pairs,
    shared,
)
from bfcviz.errors import TraceError
from bfcviz.events.marks import packed_value
from bfcviz.events.schema import Kind
from bfcviz.model import Model
from bfcviz.model.find_steps import events_of


def aligned(a, b, by=None, mark=None):
    return align(*common(a, b), by, mark)


def marks_of(trace):
    return events_of(trace, [Kind.MARK])["seq"].astype(int).tolist()


def test_marks_of_one_name_are_paired_by_number():
    a, b = Training(steps=6).trace(), Training(steps=8, first=2).trace()
    found = aligned(a, b)
    assert found.by is AlignedBy.MARKS
    assert [moment.name for moment in found.moments] == [f"step {number}" for number in (2, 3, 4, 5)]
    assert [moment.a for moment in found.moments] == marks_of(a)[2:]
    assert [moment.b for moment in found.moments] == marks_of(b)[:4]
    # The ends of the recordings are pairs, too.
    assert (found.a[0], found.b[0], found.a[-1], found.b[-1]) == (0, 0, len(a), len(b))


def test_many_marks_align_all_and_some_are_compared():
    trace = Training(steps=3 * MOST).trace()
    found = aligned(trace, trace)
    assert len(found.moments) == MOST
    assert found.moments[-1].a == marks_of(trace)[-1]
    assert len(found.a) == 3 * MOST + 2


def test_marks_of_different_names_leave_equal_steps():
    a, b = Training(mark="step").trace(), Training(mark="iteration").trace()
    found = aligned(a, b)
    assert found.by is AlignedBy.STEPS
    assert [(moment.a, moment.b) for moment in found.moments] == [
        *zip(marks_of(a)[1:], marks_of(b)[1:], strict=True)
    ]


def test_without_marks_labels_align_and_without_labels_shares():
    a, b = Training(mark=None).trace(), Training(mark=None, more={"forward/extra": 1024}).trace()
    found = aligned(a, b)
    assert found.by is AlignedBy.LABELS
    for moment in found.moments:
        names = [
            trace.labels.name(int(trace.read(step - 1, step)["label"][0]))
            for trace, step in ((a, moment.a), (b, moment.b))
        ]
        assert names[0] == names[1] != ""
    bare = Training(mark=None, labelled=False).trace()
    assert aligned(a, bare).by is AlignedBy.SHARE
    assert aligned(bare, bare).moments[9].a == len(bare) // 2


def test_labels_align_whatever_memory_is_grouped_by():
    a, b = Training(mark=None).trace(), Training(mark=None, steps=14).trace()
    found = align(*common(a, b, "thread"))
    assert (found.by, len(found.a)) == (AlignedBy.LABELS, 1 + 4 * 12 + 2)


def test_steps_of_b_lie_between_those_of_a():
    a, b = Training(steps=6).trace(), Training(steps=6, leak=True).trace()
    found = aligned(a, b)
    steps = np.array(marks_of(b))
    assert found.in_a(steps).tolist() == marks_of(a)
    between = found.in_a(steps[:-1] + 5)
    assert ((between > marks_of(a)[:-1]) & (between < marks_of(a)[1:])).all()


def test_a_way_can_be_asked_for_and_refused():
    a, b = Training(mark=None).trace(), Training().trace()
    assert aligned(b, b, "share").by is AlignedBy.SHARE
    with pytest.raises(TraceError, match="by marks: A has no marks"):
        aligned(a, b, "marks")
    with pytest.raises(TraceError, match="'epoch'"):
        aligned(b, b, mark="epoch")
    with pytest.raises(ValueError, match="share"):
        aligned(a, b, "time")


def test_steps_without_marks_are_not_called_unlike():
    whole = Training(mark="iteration").trace()
    said = []
    for other in (Training(mark=None).trace(), Training(mark="step", steps=2).trace()):
        with pytest.raises(TraceError) as error:
            aligned(whole, other, "steps")
        said.append(str(error.value))
    assert said[0] != said[1]
    assert "marks" in aligned(Training(mark=None).trace(), Training(mark=None).trace()).reason


def test_one_moment_cannot_be_aligned():
    state = sample_trace("oom_log")
    found = aligned(state, Training().trace())
    assert (found.by, len(found.moments)) == (AlignedBy.STATE, 0)
    assert "A holds the state of one moment" in found.reason
    with pytest.raises(TraceError, match="one moment"):
        aligned(state, state, "share")


def test_an_empty_trace_is_aligned_by_share():
    found = aligned(empty(), Training().trace())
    assert {moment.a for moment in found.moments} == {0}
    assert found.by is AlignedBy.SHARE


# ------------------------------------------------------------------------------
# The longest selection of pairs that ascends in both, against all selections.


def longest(values):
    for length in range(len(values), 0, -1):
        if any(list(some) == sorted(set(some)) for some in combinations(values, length)):
            return length
    return 0


@given(st.lists(st.integers(0, 20), max_size=9), st.randoms(use_true_random=False))
def test_no_selection_is_longer(values, random):
    pairs = list(enumerate(values))
    random.shuffle(pairs)
    a, b = increasing(*(np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1)))
    assert len(a) == longest(values)
    assert set(zip(a.tolist(), b.tolist(), strict=True)) <= set(pairs)
    assert (np.diff(a) > 0).all()
    assert (np.diff(b) > 0).all()


@given(st.integers(0, 300), st.integers(1, 40))
def test_even_indices_end_with_the_last_one(count, most):
    found = aligned_pair_indices(count, most)
    assert len(found) == min(count, most)
    assert found.tolist() == sorted(set(found.tolist()))
    if count:
        assert found[-1] == count - 1
        assert found[0] >= 0


def test_shared_values_are_found_in_both():
    a, b = np.array([5, 1, 9], np.int64), np.array([9, 2, 5, 7], np.int64)
    first, second = shared(a, b)
    assert (a[first].tolist(), b[second].tolist()) == ([5, 9], [5, 9])


# ------------------------------------------------------------------------------
# Marks of two recordings: by number, by order, of phases, of several names.


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


# ------------------------------------------------------------------------------
# Holders of two recordings in one list; lines of code that moved.


def names_of(holders, number):
    return {holders.names[row] for row in np.flatnonzero(holders.allocated[number])}


def test_a_row_stands_for_the_same_holder_in_both():
    a, b, holders = common(Training().trace(), Training(without=("forward/layer_0",), leak=True).trace())
    assert len(holders) == len(set(holders.names)) == 6
    assert names_of(holders, 0) - names_of(holders, 1) == {"forward/layer_0"}
    assert names_of(holders, 1) - names_of(holders, 0) == {"history/append"}
    for number, side in enumerate((a, b)):
        rows = holders.rows(number, side.allocations)
        labels = [side.trace.labels.name(label) for label in side.allocations["label"].tolist()]
        assert [holders.names[row] for row in rows.tolist()] == labels


def test_lines_that_moved_are_the_same_holder_named_as_in_b():
    _, _, holders = common(Training(line=10).trace(), Training(line=17).trace())
    assert holders.moved_lines == 4
    assert names_of(holders, 0) == names_of(holders, 1)
    assert set(holders.names) == {"weights", *(f"model.py:{line} forward" for line in range(17, 21))}
    assert holders.row_of("model.py:10 forward") == holders.row_of("model.py:17 forward")


def test_lines_that_overlap_are_the_same_line_first():
    _, _, holders = common(Training(line=10).trace(), Training(line=11).trace())
    # 11, 12 and 13 are in both; 10 of A and 14 of B are left.
    assert holders.moved_lines == 1
    assert holders.row_of("model.py:10 forward") == holders.row_of("model.py:14 forward")


def test_another_number_of_lines_is_not_paired():
    more = {f"forward/layer_{number}": 1024 for number in range(4, 6)}
    _, _, holders = common(Training(line=10).trace(), Training(line=30, more=more).trace())
    assert holders.moved_lines == 0
    assert len(holders) == 1 + 4 + 6


def test_chunks_in_use_have_the_rows_of_their_allocations():
    trace = Training(leak=True).trace()
    _, _, holders = common(trace, trace)
    model = Model(trace)
    model.seek(len(trace))
    rows = holders.rows(0, model.in_use())
    assert {holders.names[row] for row in rows.tolist()} == {"weights", "history/append"}
