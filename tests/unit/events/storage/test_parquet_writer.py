import base64
import errno
import os
import zlib

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.events.fabricate import fabricate, fabricate_labels, fabricate_trace

from bfcviz.errors import FileError, TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.schema import EVENT, NUM_BINS, Kind
from bfcviz.events.storage import label_file, parquet
from bfcviz.events.trace import BLOCK, Trace

COUNT = 2 * BLOCK + 100
ORIGIN = Origin(
    format="xplane",
    source="host.xplane.pb",
    status=Status.DEGRADED,
    reasons=("one", "two"),
    pools=(Pool("a", 1 << 34, {"growth": True}), Pool("b")),
    details={"numbers": [1, 2]},
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    trace = Trace.from_events(fabricate(COUNT), fabricate_labels(), ORIGIN)
    return trace.save(tmp_path_factory.mktemp("packed") / "trace.parquet")


def stamps(size):
    """Distinct keyframes, each of `size` bytes."""
    return lambda _, steps: (str(step).encode().ljust(size) for step in steps)


def test_round_trip(packed):
    trace, labels = Trace.open(packed), fabricate_labels()
    assert len(trace) == COUNT
    assert trace.origin == ORIGIN
    assert [trace.labels[i] for i in range(len(trace.labels))] == [labels[i] for i in range(len(labels))]
    assert np.array_equal(trace.read(0, COUNT), fabricate(COUNT))


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (BLOCK - 1, BLOCK + 1), (BLOCK, 2 * BLOCK), (5, 2 * BLOCK + 9), (COUNT - 1, COUNT), (9, 9)],
)
def test_any_range_is_what_it_was(packed, start, stop):
    events = Trace.open(packed).read(start, stop)
    assert np.array_equal(events, fabricate(COUNT)[start:stop])
    if start < stop:
        with pytest.raises(ValueError, match="read-only"):
            events["size"] = 1


def test_blocks_stream_more_than_the_cache_holds(packed, monkeypatch):
    monkeypatch.setattr("bfcviz.events.event_source.CACHED_BYTES", 2 * BLOCK * EVENT.itemsize)
    trace = Trace.open(packed)
    for _ in range(2):
        joined = np.concatenate(list(trace.blocks(7)))
        assert np.array_equal(joined, fabricate(COUNT)[7:])
    assert BLOCK * EVENT.itemsize < trace.source.cached_bytes <= 2 * BLOCK * EVENT.itemsize


def test_check_finds_nothing_wrong(packed):
    trace = Trace.open(packed, check=True)
    assert (len(trace), trace.origin) == (COUNT, ORIGIN)


records = st.binary(max_size=64 * 60).map(
    lambda data: np.frombuffer(data[: len(data) // 64 * 64], EVENT).copy()
)


@given(events=records, names=st.lists(st.text(), max_size=5), pools=st.integers(1, 256))
def test_any_events_round_trip(tmp_path_factory, events, names, pools):
    labels = Labels()
    for name in names:
        labels.intern(name, twice=name)
    events["seq"] = np.arange(len(events))
    events["kind"] = events["kind"] % len(Kind) + 1
    events["bin"] = events["bin"] % (NUM_BINS + 1) - 1
    events["label"] %= len(labels)
    events["pool"] %= min(pools, 255)
    path = tmp_path_factory.mktemp("any") / "trace.parquet"
    origin = Origin(pools=tuple(Pool(str(i)) for i in range(pools)))
    Trace.from_events(events, labels, origin).save(path)
    again = Trace.open(path)
    assert again.read(0, len(again)).tobytes() == events.tobytes()
    assert again.labels.names == labels.names
    assert again.origin == origin
    assert len(again.to_pandas()) == len(events)


def test_other_readers_see_columns_and_names(packed):
    frame, events = pd.read_parquet(packed), fabricate(COUNT)
    assert list(frame.columns) == [*EVENT.names, "kind_name", "label_name", "keyframe"]
    assert all(np.array_equal(frame[name], events[name]) for name in EVENT.names)
    labels = fabricate_labels()
    names = frame["label_name"].astype(object)
    step = int(np.flatnonzero(events["label"])[-1])
    assert names[step] == labels.name(int(events["label"][step]))
    assert names.isna().sum() == (events["label"] == 0).sum()
    assert frame["kind_name"][step] == Kind(events["kind"][step]).name


def test_keyframes_stand_at_row_groups_and_are_found_from_any_step(tmp_path):
    path = fabricate_trace(COUNT).save(tmp_path / "t.parquet", keyframes=stamps(50))
    trace = Trace.open(path)
    expected = {BLOCK - 1: None, BLOCK: BLOCK, 2 * BLOCK - 1: BLOCK, COUNT - 1: 2 * BLOCK, COUNT: 2 * BLOCK}
    for step, at in expected.items():
        found = trace.keyframe_before(step)
        assert found == (None if at is None else (at, str(at).encode().ljust(50)))
    column = pq.read_table(path, columns=["keyframe"]).column(0)
    assert column.null_count == COUNT - 2


def test_large_keyframes_are_stored_less_often(tmp_path):
    size = BLOCK * EVENT.itemsize // parquet.KEYFRAME_SHARE
    trace = Trace.open(fabricate_trace(COUNT).save(tmp_path / "t.parquet", keyframes=stamps(size + 1)))
    assert trace.keyframe_before(2 * BLOCK - 1) is None
    assert trace.keyframe_before(COUNT)[0] == 2 * BLOCK


def test_keyframes_are_kept_when_a_packed_trace_is_packed_again(tmp_path):
    first = fabricate_trace(COUNT).save(tmp_path / "a.parquet", keyframes=stamps(9))
    second = Trace.open(Trace.open(first).save(tmp_path / "b.parquet"))
    assert second.keyframe_before(COUNT) == (2 * BLOCK, str(2 * BLOCK).encode().ljust(9))


def test_files_of_larger_row_groups_open(tmp_path, monkeypatch):
    """A file with other row groups than 65,536 events, as an older version wrote it."""
    monkeypatch.setattr(parquet, "BLOCK", 2 * BLOCK)
    path = fabricate_trace(COUNT).save(tmp_path / "t.parquet", keyframes=stamps(50))
    monkeypatch.undo()
    trace = Trace.open(path, check=True)
    assert pq.ParquetFile(path).num_row_groups == 2
    assert trace.keyframe_before(COUNT) == (2 * BLOCK, str(2 * BLOCK).encode().ljust(50))
    assert trace.keyframe_before(2 * BLOCK - 1) is None
    assert np.array_equal(np.concatenate(list(trace.blocks(5))), fabricate(COUNT)[5:])
    again = Trace.open(trace.save(tmp_path / "again.parquet"))
    assert again.keyframe_before(COUNT) == trace.keyframe_before(COUNT)


def test_an_empty_trace_round_trips(tmp_path):
    trace = Trace.open(fabricate_trace(0).save(tmp_path / "t.parquet"), check=True)
    assert (len(trace), len(trace.read(0, 0)), trace.keyframe_before(0)) == (0, 0, None)


def test_an_existing_file_is_overwritten_only_when_told(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("precious")
    with pytest.raises(FileError, match="overwrite=True"):
        fabricate_trace(10).save(path)
    assert path.read_text() == "precious"
    fabricate_trace(10).save(path, overwrite=True)
    assert len(Trace.open(path)) == 10


def test_a_trace_can_take_the_place_of_its_own_file(tmp_path):
    path = fabricate_trace(BLOCK + 9).save(tmp_path / "t.parquet")
    trace = Trace.open(path)
    trace.save(path, overwrite=True)
    for either in (trace, Trace.open(path)):
        assert np.array_equal(either.read(0, BLOCK + 9), fabricate(BLOCK + 9))


def failing(_, steps):
    yield from (b"x" for _ in steps[:1])
    raise ZeroDivisionError


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("keyframes", "error"), [(failing, ZeroDivisionError), (full_disk, FileError)])
def test_a_failure_leaves_what_was_there(tmp_path, keyframes, error):
    path = tmp_path / "t.parquet"
    path.write_text("precious")
    with pytest.raises(error):
        fabricate_trace(COUNT).save(path, overwrite=True, keyframes=keyframes)
    assert [file.name for file in tmp_path.iterdir()] == ["t.parquet"]
    assert path.read_text() == "precious"


def test_events_that_cannot_be_right_are_not_packed(tmp_path):
    events = fabricate(COUNT)
    events["kind"][COUNT - 1] = 77
    with pytest.raises(TraceError, match="of kind 77"):
        Trace.from_events(events, fabricate_labels(), Origin()).save(tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_comes_meanwhile_is_kept(tmp_path):
    path = tmp_path / "t.parquet"

    def meanwhile(_, steps):
        path.write_text("precious")
        return (b"" for _ in steps)

    with pytest.raises(FileError, match="exists"):
        fabricate_trace(COUNT).save(path, keyframes=meanwhile)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("name", ["trace", "trace.csv"])
def test_the_ending_is_parquet(tmp_path, name):
    with pytest.raises(FileError, match=r"\.parquet"):
        fabricate_trace(1).save(tmp_path / name)


def test_no_folder_to_save_into(tmp_path):
    with pytest.raises(FileError, match="cannot be written: No such file"):
        fabricate_trace(1).save(tmp_path / "none" / "t.parquet")


def test_labels_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(label_file, "MAX_LABELS_TEXT", 100)
    with pytest.raises(TraceError, match="200 labels pack to"):
        fabricate_trace(1).save(tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []


def test_labels_larger_than_a_file_holds_are_refused_when_it_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(label_file, "MAX_UNPACKED_LABELS", 1000)
    with pytest.raises(TraceError, match="a file holds 1000"):
        fabricate_trace(1).save(tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []


def saved_again(path, labels):
    """Save labels and read them back."""
    Trace.from_events(fabricate(10), labels, Origin()).save(path)
    again = Trace.open(path).labels
    return [again[number] for number in range(len(again))]


def test_names_full_of_commas_and_brackets_are_no_reason_to_refuse_a_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(label_file, "MAX_JSON_VALUES", 20_000)
    monkeypatch.setattr(label_file, "VALUES_A_BYTE", 0)
    labels = fabricate_labels()
    for number in range(2000):
        labels.intern(f"tuple.{number}=(" + ",".join(["f32[128,1024]{1,0}"] * 30) + ')"\\')
    assert labels.to_json().count(",") > 20_000
    assert saved_again(tmp_path / "t.parquet", labels) == [labels[number] for number in range(len(labels))]


def test_stacks_that_pack_very_tightly_are_opened_again(tmp_path, monkeypatch):
    monkeypatch.setattr(label_file, "LEAST_UNPACKED", 1 << 16)
    monkeypatch.setattr(label_file, "UNPACKED_A_BYTE", 100)  # as zlib gives 165 here
    labels = fabricate_labels()
    for number in range(40):
        labels.intern(f"op{number}", stack="/home/user/walk.py:12 in walk\n" * (2000 + number))
    table = labels.to_json().encode()
    tight = base64.b64encode(zlib.compress(table))
    assert saved_again(tmp_path / "t.parquet", labels) == [labels[number] for number in range(len(labels))]
    with pytest.raises(ValueError, match="needs more than"):
        label_file.unpack_labels(tight)
