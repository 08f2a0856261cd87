"""Parquet files of other programs, truncated or damaged: one clear FileError each, for any damage."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.events.fabricate import alike, fabricate, fabricate_labels, fabricate_trace, read_all, repacked

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.events import event_source
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Status
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.storage import label_file, parquet
from bfcviz.events.storage.parquet import LABELS_KEY, ORIGIN_KEY
from bfcviz.events.trace import BLOCK, Trace
from bfcviz.importers.open_trace import open_trace

COUNT, FEW = BLOCK + 500, 300


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return fabricate_trace(COUNT).save(tmp_path_factory.mktemp("good") / "good.parquet")


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A file of FEW events."""
    return fabricate_trace(FEW).save(tmp_path_factory.mktemp("few") / "few.parquet")


def rewritten(good, path, *, table=None, origin=None, labels=None):
    """A copy of `good` with another table or other entries in its footer."""
    old = pq.ParquetFile(good)
    entries = {
        ORIGIN_KEY: old.metadata.metadata[ORIGIN_KEY.encode()],
        LABELS_KEY: old.metadata.metadata[LABELS_KEY.encode()],
    }
    entries |= {ORIGIN_KEY: origin} if origin is not None else {}
    entries |= {LABELS_KEY: labels} if labels is not None else {}
    table = old.read() if table is None else table
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table, row_group_size=BLOCK)
        writer.add_key_value_metadata(entries)
    return path


def test_every_cut_is_one_error(good, tmp_path):
    data = good.read_bytes()
    path = tmp_path / "cut.parquet"
    for size in [
        0,
        1,
        4,
        12,
        1000,
        len(data) // 2,
        len(data) - 9,
        len(data) - 8,
        len(data) - 4,
        len(data) - 1,
    ]:
        path.write_bytes(data[:size])
        with pytest.raises(FileError, match=r"cut\.parquet"):
            Trace.open(path)


def test_damaged_rows_are_left_out_when_asked(good, tmp_path):
    meta = pq.ParquetFile(good).metadata
    data = bytearray(good.read_bytes())
    column = meta.row_group(1).column(2)
    data[column.data_page_offset + 200] ^= 0xFF
    path = tmp_path / "bent.parquet"
    path.write_bytes(data)
    trace = Trace.open(path)
    assert np.array_equal(trace.read(0, BLOCK), fabricate(COUNT)[:BLOCK])
    with pytest.raises(FileError, match="row group 1"):
        trace.read(BLOCK, COUNT)
    checked = Trace.open(path, check=True)
    assert (len(checked), checked.origin.status) == (BLOCK, Status.DEGRADED)
    assert f"({COUNT - BLOCK})" in checked.origin.reasons[0]
    assert np.array_equal(checked.read(0, BLOCK), fabricate(COUNT)[:BLOCK])


def test_other_files(tmp_path):
    path = tmp_path / "x.parquet"
    for content in (b"", b"PAR1", b"PAR1" * 100, b"\0" * 4096, b'{"a": 1}', os.urandom(5000)):
        path.write_bytes(content)
        with pytest.raises(FileError, match=r"x\.parquet"):
            Trace.open(path)


def test_a_parquet_file_of_someone_else(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "x.parquet")
    with pytest.raises(FileError, match=r"Trace\.save"):
        Trace.open(tmp_path / "x.parquet")


@pytest.mark.timeout(20)
def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "x.parquet")
    with pytest.raises(FileError, match="is not a file"):
        Trace.open(tmp_path / "x.parquet")


def test_columns_that_are_missing_or_of_another_type(few, tmp_path):
    table = pq.read_table(few)
    for wrong in (table.drop_columns(["size"]), table.set_column(0, "seq", table["seq"].cast(pa.int64()))):
        with pytest.raises(FileError, match="has no column"):
            Trace.open(rewritten(few, tmp_path / "x.parquet", table=wrong))


def test_values_that_are_missing(good, tmp_path):
    table = pq.read_table(good)
    holed = pa.array([None, *range(1, COUNT)], pa.uint64())
    path = rewritten(good, tmp_path / "x.parquet", table=table.set_column(0, "seq", holed))
    with pytest.raises(FileError, match="column seq has missing values"):
        read_all(path)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("seq", 4, "has seq 4"), ("kind", 200, "of kind 200"), ("pool", 3, "of pool 3")],
)
def test_events_that_cannot_be_right(good, tmp_path, name, value, why):
    table = pq.read_table(good)
    column = table[name].to_numpy().copy()
    column[BLOCK + 7] = value
    bent = table.set_column(table.column_names.index(name), name, pa.array(column))
    path = rewritten(good, tmp_path / "x.parquet", table=bent)
    with pytest.raises(FileError, match=rf"event {BLOCK + 7}: .*{why}.*check=True"):
        read_all(path)
    assert len(Trace.open(path, check=True)) == BLOCK + 7


def test_labels_that_are_not_there(few, tmp_path):
    origin = (
        pq.ParquetFile(few).metadata.metadata[ORIGIN_KEY.encode()].replace(b'"labels": 200', b'"labels": 100')
    )
    labels = label_file.pack_labels(fabricate_labels(100))
    trace = read_all(rewritten(few, tmp_path / "x.parquet", labels=labels, origin=origin))
    assert trace.origin.status is Status.DEGRADED
    assert 50 < trace.read(0, FEW)["label"].max() < 100
    assert len(trace.to_pandas()) == FEW


@pytest.mark.parametrize(
    "labels", ["", "not base64!", "AAAA", label_file.pack_labels(fabricate_labels())[:-40]]
)
def test_a_label_table_that_cannot_be_unpacked(few, tmp_path, labels):
    with pytest.raises(FileError, match="labels"):
        read_all(rewritten(few, tmp_path / "x.parquet", labels=labels))


def test_a_label_table_that_would_fill_the_memory(good, monkeypatch):
    monkeypatch.setattr(label_file, "MAX_UNPACKED_LABELS", 1000)
    with pytest.raises(FileError, match="more than 1000 bytes"):
        read_all(good)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"labels": 200', '"labels": 9'),
        ('"labels": 200', '"labels": -1'),
        ('"labels": 200', '"labels": "many"'),
        (f'"events": {FEW}', '"events": 5'),
        ('"keyframes": []', '"keyframes": [-1]'),
        ('"keyframes": []', f'"keyframes": [{1 << 70}]'),
        ('"keyframes": []', '"keyframes": {}'),
        ('"bfcviz": 1', '"bfcviz": 9'),
        ('"pools": [', '"pools": [4, '),
    ],
)
def test_a_footer_that_contradicts_itself(few, tmp_path, old, new):
    text = pq.ParquetFile(few).metadata.metadata[ORIGIN_KEY.encode()].decode()
    assert old in text
    with pytest.raises(FileError):
        read_all(rewritten(few, tmp_path / "x.parquet", origin=text.replace(old, new)))


def test_a_keyframe_that_is_not_there(few, tmp_path):
    text = pq.ParquetFile(few).metadata.metadata[ORIGIN_KEY.encode()].decode()
    path = rewritten(few, tmp_path / "x.parquet", origin=text.replace('"keyframes": []', '"keyframes": [5]'))
    assert Trace.open(path).keyframe_before(9) is None


def test_row_groups_of_other_sizes_do(good, tmp_path):
    old = pq.ParquetFile(good)
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, old.schema_arrow) as writer:
        writer.write_table(old.read(), row_group_size=1000)
        writer.add_key_value_metadata({k: v for k, v in old.metadata.metadata.items() if b"bfcviz" in k})
    trace = Trace.open(path)
    assert np.array_equal(trace.read(0, COUNT), fabricate(COUNT))


def test_packing_says_where_it_could_not_write(tmp_path):
    (tmp_path / "x.parquet").mkdir()
    trace = fabricate_trace(3)
    with pytest.raises(FileError, match="cannot be written"):
        trace.save(tmp_path / "x.parquet", overwrite=True)


def test_decoded_row_groups_are_kept_by_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(event_source, "CACHED_BYTES", BLOCK * EVENT.itemsize)
    trace = Trace.open(repacked(tmp_path / "t.parquet", alike(4 * BLOCK), group=BLOCK // 2))
    for _ in trace.blocks():
        assert trace.source.cached_bytes <= BLOCK * EVENT.itemsize
    assert trace.source.cached_bytes == BLOCK * EVENT.itemsize


def test_more_events_than_the_file_can_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "FEW_EVENTS", 1000)
    monkeypatch.setattr(parquet, "EVENTS_A_BYTE", 0.01)
    with pytest.raises(FileError, match="2,000 events"):
        open_trace(repacked(tmp_path / "t.parquet", alike(2000)))


@pytest.mark.parametrize(
    "change", [{"events": True}, {"events": 1.0}, {"keyframes": ["0"]}, {"keyframes": [0.0]}]
)
def test_counts_of_wrong_types_are_refused(tmp_path, change):
    with pytest.raises(FileError):
        open_trace(repacked(tmp_path / "t.parquet", alike(1), **change))


@pytest.mark.parametrize(
    "text",
    ['{"names": ["", null], "details": {}}', "null", '{"names": ["", "a"], "details": {"1": {"a": null}}}'],
)
def test_labels_that_are_none_are_refused_at_opening(tmp_path, text):
    labels = fabricate_labels(2)
    labels.to_json = lambda: text
    with pytest.raises(FileError, match="labels"):
        open_trace(repacked(tmp_path / "t.parquet", alike(3), labels=labels))


def test_info_says_that_labels_are_missing_which_reading_found(tmp_path):
    events = fabricate(3)
    events["kind"], events["label"] = Kind.MARK, 150
    found = info(open_trace(repacked(tmp_path / "t.parquet", events, labels=Labels())))
    assert found["status"] == Status.DEGRADED
    assert found["reasons"]
