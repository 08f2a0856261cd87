import sys

import numpy as np
import pytest
from events.fabricate import fabricate, fabricate_labels, fabricate_trace

from bfcviz.errors import FileError, MissingExtra, TraceError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.trace import BLOCK, Trace

COUNT = 2 * BLOCK + 100


@pytest.fixture(scope="module")
def trace():
    return fabricate_trace(COUNT)


def damaged(step, count=COUNT, **fields):
    events = fabricate(count)
    for name, value in fields.items():
        events[name][step] = value
    return Trace.from_events(events, fabricate_labels(), Origin())


def test_reading_is_a_view_that_cannot_be_written(trace):
    events = trace.read(BLOCK - 5, BLOCK + 5)
    assert events.dtype == EVENT
    assert events["seq"].tolist() == list(range(BLOCK - 5, BLOCK + 5))
    assert np.shares_memory(events, trace.read(0, COUNT))
    with pytest.raises(ValueError, match="read-only"):
        events["size"] = 1


def test_any_range_inside_and_none_outside(trace):
    assert len(trace) == COUNT
    assert len(trace.read(0, 0)) == len(trace.read(COUNT, COUNT)) == 0
    for start, stop in ((-1, 1), (5, 4), (0, COUNT + 1), (COUNT + 1, COUNT + 1)):
        with pytest.raises(TraceError, match=rf"\[{start}, {stop}\).*{COUNT} events"):
            trace.read(start, stop)


@pytest.mark.parametrize(("start", "stop"), [(0, None), (3, COUNT - 3), (BLOCK, 2 * BLOCK), (7, 7)])
def test_blocks_are_bounded_and_join_to_the_range(trace, start, stop):
    blocks = list(trace.blocks(start, stop))
    assert all(0 < len(block) <= BLOCK for block in blocks)
    joined = [seq for block in blocks for seq in block["seq"].tolist()]
    assert joined == list(range(start, COUNT if stop is None else stop))


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
    assert "label that is not there" in trace.origin.reasons[0]
    assert events["label"][5] == 5


def test_events_are_an_array_of_events():
    for wrong in (np.zeros(3), np.zeros((2, 2), EVENT)):
        with pytest.raises(TraceError, match="dtype EVENT"):
            Trace.from_events(wrong, Labels(), Origin())


def test_an_empty_trace():
    trace = fabricate_trace(0)
    assert len(trace) == len(trace.read(0, 0)) == len(list(trace.blocks())) == len(trace.to_pandas()) == 0
    assert trace.keyframe_before(0) is None
    assert trace.refresh() == 0


def test_a_mapped_array_will_do(tmp_path):
    fabricate(100).tofile(tmp_path / "events")
    mapped = np.memmap(tmp_path / "events", EVENT, "r")
    trace = Trace.from_events(mapped, fabricate_labels(), Origin())
    assert np.array_equal(trace.read(0, 100), fabricate(100))
    assert type(trace.read(0, 100)) is np.ndarray


def test_the_table_has_the_fields_and_the_names(trace):
    table, events = trace.to_arrow(), fabricate(COUNT)
    assert table.column_names == [*EVENT.names, "kind_name", "label_name"]
    assert all(np.array_equal(table.column(name).to_numpy(), events[name]) for name in EVENT.names)
    sample = slice(BLOCK - 50, BLOCK + 50)
    names = [Kind(kind).name for kind in events["kind"][sample].tolist()]
    assert table.column("kind_name").slice(BLOCK - 50, 100).to_pylist() == names
    labels = [trace.labels.name(label) or None for label in events["label"][sample].tolist()]
    assert table.column("label_name").slice(BLOCK - 50, 100).to_pylist() == labels


def test_pandas_takes_labels_that_share_a_name():
    labels = Labels()
    numbers = [0, labels.intern("a", shape="1"), labels.intern("a", shape="2"), labels.intern("b")]
    events = fabricate(4)
    events["label"] = numbers
    frame = Trace.from_events(events, labels, Origin()).to_pandas()
    assert frame["label_name"].cat.categories.tolist() == ["a", "b"]
    assert frame["label_name"].isna().tolist() == [True, False, False, False]
    assert frame["label_name"][1:].tolist() == ["a", "a", "b"]


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bfcviz\[lab\]'"):
        fabricate_trace(5).to_pandas()


def test_it_says_what_it_is():
    trace = fabricate_trace(5, source="run.xplane.pb", pools=(Pool("a"), Pool("b")))
    assert repr(trace) == "<Trace of run.xplane.pb: 5 events, complete>"


def test_opening_nothing(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        Trace.open(tmp_path / "nothing")
