"""Traces made to exhaust memory or time, or to say what cannot be: each is one FileError, at opening."""

import base64
import json
import os
import socket
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from events.fabricate import fabricate, fabricate_labels, fabricate_trace

from bfcviz.cli.info import info
from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import Origin, Status
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.storage import parquet_reader
from bfcviz.events.storage.arrow import LabelNames, table_of
from bfcviz.events.storage.parquet_writer import LABELS_KEY, ORIGIN_KEY
from bfcviz.events.storage.wait_for_recording import await_recording
from bfcviz.events.trace import BLOCK, Trace
from bfcviz.importers.open_trace import open_trace

WRONG_DETAILS = [
    {"facts": 5},
    {"facts": ["x"]},
    {"facts": [{"bytes_in_use": "many"}]},
    {"facts": [{"bytes_in_use": 10**300}]},
    {"facts": [{"bytes_in_use": -1}]},
    {"facts": [{"bytes_in_use": 1.5}]},
    {"facts": [{"external_fragmentation": 7}]},
    {"facts": [{}, {}]},
    {"checks": [{"checked": "all", "differing": 0, "pool": "a"}]},
    {"checks": [{"checked": 5}]},
    {"checks": [{"checked": 5, "differing": 0, "pool": None}]},
    {"threads": ["main"]},
    {"threads": {"1": None}},
]


def repacked(path, rows, *, labels=None, group=BLOCK, **changes):
    """A Parquet file of these events, packed by a stranger: `changes` replace what its origin says."""
    labels = fabricate_labels() if labels is None else labels
    origin = json.loads(Origin().to_json(events=len(rows), labels=len(labels), keyframes=[]))
    table = table_of(rows, LabelNames(fabricate_labels()))
    with pq.ParquetWriter(path, table.schema, use_dictionary=True) as writer:
        writer.write_table(table, row_group_size=group)
        packed = base64.b64encode(zlib.compress(labels.to_json().encode())).decode()
        writer.add_key_value_metadata({ORIGIN_KEY: json.dumps({**origin, **changes}), LABELS_KEY: packed})
    return path


def alike(count):
    """Events that need next to no room in a file."""
    events = np.zeros(count, EVENT)
    events["seq"] = np.arange(count)
    events["kind"] = Kind.MARK
    return events


def test_a_row_group_larger_than_memory_should_hold_is_refused(tmp_path):
    path = repacked(
        tmp_path / "t.parquet", alike(parquet_reader.MAX_GROUP + 1), group=parquet_reader.MAX_GROUP + 1
    )
    with pytest.raises(FileError, match="impossible sizes") as caught:
        open_trace(path)
    assert f"{parquet_reader.MAX_GROUP:,}" in str(caught.value)


def test_decoded_row_groups_are_kept_by_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_reader, "CACHED_BYTES", BLOCK * EVENT.itemsize)
    trace = Trace.open(repacked(tmp_path / "t.parquet", alike(4 * BLOCK), group=BLOCK // 2))
    for _ in trace.blocks():
        assert trace.source.cached_bytes <= BLOCK * EVENT.itemsize
    assert trace.source.cached_bytes == BLOCK * EVENT.itemsize


def test_many_tiny_row_groups_are_refused(tmp_path):
    path = repacked(tmp_path / "t.parquet", alike(2000), group=1)
    with pytest.raises(FileError, match="2,000 row groups"):
        open_trace(path)


def test_more_events_than_the_file_can_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_reader, "FEW_EVENTS", 1000)
    monkeypatch.setattr(parquet_reader, "EVENTS_A_BYTE", 0.01)
    with pytest.raises(FileError, match="events a byte"):
        open_trace(repacked(tmp_path / "t.parquet", alike(2000)))


@pytest.mark.parametrize("details", WRONG_DETAILS, ids=str)
def test_wrong_details_are_refused_in_files_and_folders(folder, tmp_path, details):
    for status in ("degraded", "complete"):
        path = repacked(tmp_path / "t.parquet", fabricate(100), details=details, status=status)
        with pytest.raises(FileError):
            open_trace(path)
    origin = json.loads((folder / "origin.json").read_text())
    (folder / "origin.json").write_text(json.dumps({**origin, "details": details}))
    with pytest.raises(FileError, match=r"origin\.json"):
        open_trace(folder)


def test_facts_of_a_complete_trace_are_refused(tmp_path):
    facts = {"facts": [{"bytes_in_use": 5}]}
    with pytest.raises(FileError, match="facts"):
        open_trace(repacked(tmp_path / "t.parquet", fabricate(9), details=facts))
    assert (
        len(open_trace(repacked(tmp_path / "t.parquet", fabricate(9), details=facts, status="degraded"))) == 9
    )


@pytest.mark.parametrize("fraction", ["x", None, 1e308, -1, [], True])
def test_wrong_options_are_refused(tmp_path, fraction):
    pools = [{"name": "bfc", "bytes_limit": 1 << 30, "options": {"fragmentation_fraction": fraction}}]
    with pytest.raises(FileError, match="fragmentation_fraction"):
        open_trace(repacked(tmp_path / "t.parquet", fabricate(9), pools=pools))


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


def test_labels_that_unpack_to_much_are_refused(tmp_path):
    labels = fabricate_labels(2)
    labels.to_json = lambda: '{"names":["",' + '"aa",' * 3_000_000 + '"b"],"details":{}}'
    with pytest.raises(FileError, match="labels"):
        open_trace(repacked(tmp_path / "t.parquet", alike(3), labels=labels))


def test_an_origin_of_many_values_is_refused(tmp_path):
    path = repacked(tmp_path / "t.parquet", alike(3), details={"x": [[]] * 2_000_000})
    with pytest.raises(FileError, match="values"):
        open_trace(path)


def test_numbers_without_end_are_refused(folder):
    text = (folder / "origin.json").read_text()
    (folder / "origin.json").write_text(text.replace('"details": {', '"details": {"x": 1e999'))
    with pytest.raises(FileError, match="no JSON number"):
        open_trace(folder)


def test_info_says_that_labels_are_missing_which_reading_found(tmp_path):
    events = fabricate(3)
    events["kind"], events["label"] = Kind.MARK, 700
    found = info(open_trace(repacked(tmp_path / "t.parquet", events, labels=Labels())))
    assert found["status"] == Status.DEGRADED
    assert found["reasons"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["origin.json", "events.bin", "labels.jsonl"])
@pytest.mark.parametrize("what", ["/proc/self/mem", "/proc/kmsg", "/dev/zero", "socket", "nowhere", "loop"])
def test_special_files_of_a_folder_are_never_complete(folder, tmp_path, name, what):
    (folder / name).unlink()
    if what == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(folder / name))
    else:
        target = {"nowhere": tmp_path / "nothing", "loop": folder / name}.get(what, what)
        (folder / name).symlink_to(target)
    assert status_of(folder, name) in (Status.TRUNCATED, Status.DEGRADED, "FileError")


def status_of(folder, name):
    """How the folder opens; an error must name the file."""
    try:
        return Trace.open(folder).origin.status
    except FileError as error:
        return "FileError" if name in error.path else str(error)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "make", ["fifo", "socket", "nowhere", "loop", "long", "nul", "/dev/zero", "/proc/kmsg"]
)
def test_special_files_in_place_of_a_trace_are_one_error(tmp_path, make):
    path = tmp_path / "x.parquet"
    if make == "fifo":
        os.mkfifo(path)
    elif make == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif make in ("long", "nul"):
        path = tmp_path / ("x" * 5000 if make == "long" else "a\0b")
    else:
        path.symlink_to({"nowhere": tmp_path / "nothing", "loop": path}.get(make, make))
    for opened in (open_trace, Trace.open):
        with pytest.raises(FileError):
            opened(path)
    if make not in ("loop", "nul"):
        with pytest.raises(FileError):
            await_recording(path, 0)


def test_bent_footers_raise_nothing_but_our_errors(tmp_path):
    data = fabricate_trace(300).save(tmp_path / "good.parquet").read_bytes()
    rng = np.random.default_rng(7)
    path = tmp_path / "bent.parquet"
    for _ in range(150):
        bent = bytearray(data)
        for place in rng.integers(0, len(data), int(rng.integers(1, 6))):
            bent[place] = rng.integers(256)
        path.write_bytes(bent)
        try:
            trace = open_trace(path)
            trace.read(0, len(trace))
            json.dumps(info(trace), allow_nan=False)
        except BfcvizError:
            continue
