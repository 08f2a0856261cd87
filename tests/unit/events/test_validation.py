"""Reading finds invalid events."""

import numpy as np
import pytest
from unit.events.fabricate import fabricate, fabricate_labels

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Status
from bfcviz.events.schema import Kind
from bfcviz.events.trace import BLOCK, Trace

COUNT = BLOCK + 100


def damaged(step, count=COUNT, **fields):
    events = fabricate(count)
    for name, value in fields.items():
        events[name][step] = value
    return Trace.from_events(events, fabricate_labels(), Origin())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"seq": 7}, "has seq 7"),
        ({"kind": 9}, "is of kind 9"),
        ({"kind": 0}, "is empty"),
        ({"pool": 1}, "of pool 1, of 1 pools"),
        ({"bin": 21}, "bin 21"),
        ({"bin": -2}, "bin -2"),
    ],
)
@pytest.mark.parametrize("step", [0, BLOCK + 3, COUNT - 1])
def test_an_event_that_cannot_be_right_is_named_when_it_is_read(step, fields, why):
    trace = damaged(step, **fields)
    for _ in range(2):
        with pytest.raises(TraceError, match=f"event {step} .*{why}"):
            trace.read(0, COUNT)
    assert trace.read(0, step)["seq"].tolist() == list(range(step))


def test_bins_and_kinds_at_their_ends_are_right():
    events = fabricate(64)
    events["bin"][:2] = -1, 20
    events["kind"][:2] = min(Kind), max(Kind)
    assert len(Trace.from_events(events, fabricate_labels(), Origin()).read(0, 64)) == 64


def test_an_unknown_label_is_forgotten_and_said():
    events = fabricate(64)
    events["label"] = np.arange(64)
    labels = Labels()
    labels.intern("only")
    trace = Trace.from_events(events, labels, Origin())
    assert trace.read(0, 64)["label"].tolist() == [0, 1] + [0] * 62
    assert trace.origin.status is Status.DEGRADED
    assert "label" in trace.origin.reasons[0]
    assert events["label"][5] == 5
