"""What a reader has to know: settings, missing parts, several heaps, lines that moved."""

import dataclasses

import pytest
from unit.analysis.programs import Training, common
from unit.figures.odd_traces import pools_without_events

from bfcviz.analysis.comparison import notes
from bfcviz.events.origin import Origin, Pool, Status


def with_origin(trace, **changes):
    return type(trace).from_events(
        trace.read(0, len(trace)), trace.labels, dataclasses.replace(trace.origin, **changes)
    )


def noted(a, b):
    return list(notes(*common(a, b)))


def test_ordinary_recordings_need_no_note():
    trace = Training().trace()
    assert noted(trace, trace) == []


def test_settings_that_both_say_and_that_differ_are_listed():
    trace = Training().trace()
    pools = [
        (Pool("pool 0", limit, {"allow_growth": grows, f"only_{limit}": 1}),)
        for limit, grows in (("1GiB", True), ("2GiB", False))
    ]  # fmt: skip
    (note,) = noted(*(with_origin(trace, pools=pool) for pool in pools))
    assert "limit 1.0 GiB -> 2.0 GiB" in note
    assert "allow_growth True -> False" in note
    assert "only_" not in note
    unknown = with_origin(trace, pools=(Pool("pool 0"),))
    assert noted(unknown, with_origin(trace, pools=pools[0])) == []


@pytest.mark.parametrize("status", [Status.RECORDING, Status.TRUNCATED, Status.DEGRADED])
def test_what_is_not_complete_is_said_with_its_reasons(status):
    trace = Training().trace()
    reasons = tuple(f"reason {number}" for number in range(5))
    (note,) = noted(trace, with_origin(trace, status=status, reasons=reasons))
    assert note.startswith("B is ")
    assert all(reason in note for reason in reasons[:3])
    assert "2 more" in note


def test_several_heaps_and_other_names_are_said():
    trace = pools_without_events()
    starts = [note[:13] for note in noted(trace, trace)]
    assert starts == ["A has no allo", "A has 3 heaps", "B has no allo", "B has 3 heaps"]
    other = with_origin(Training().trace(), pools=(Pool("gpu"),))
    assert "'gpu'" in noted(Training().trace(), other)[0]


def test_lines_that_moved_are_counted():
    (note,) = noted(Training(line=10).trace(), Training(line=20).trace())
    assert note.endswith("4")
    assert Origin().status is Status.COMPLETE
