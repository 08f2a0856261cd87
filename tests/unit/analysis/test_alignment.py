"""Which steps belong together: by marks, equal steps, labels or shares."""

import numpy as np
import pytest
from shared import sample_trace
from unit.analysis.programs import Training, common
from unit.figures.odd_traces import empty

from bfcviz.analysis.alignment import MOST, AlignedBy, align
from bfcviz.errors import TraceError
from bfcviz.events.schema import Kind
from bfcviz.model.navigation import events_of


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
