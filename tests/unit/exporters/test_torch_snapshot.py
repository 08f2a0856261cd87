"""A PyTorch snapshot: its segments and entries, what PyTorch says of it, and back through our importer."""

import json
import pickle

import numpy as np
import pytest
from shared import SHARED, needs_shared, sample_trace
from unit.exporters.snapshots import chunks_at, heap_with_everything, loaded
from unit.figures.synthetic import KiB, MiB, PlainHeap, busy_trace

from bfcviz.events.origin import HISTORY_BEGINS, Status
from bfcviz.events.schema import Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.exporters import torch_snapshot
from bfcviz.exporters.convert import convert
from bfcviz.formats.torch import BLOCK_SIZE
from bfcviz.importers.open_trace import open_trace


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    trace = heap_with_everything()
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.pickle"
    return trace, path, convert(trace, path)


def test_blocks_are_the_chunks_and_fill_their_segments(written):
    trace, path, _ = written
    segments = loaded(path)["segments"]
    blocks = [block for segment in segments for block in segment["blocks"]]
    states = {"active_allocated": True, "inactive": False}
    assert [
        (each["address"], each["size"], each["requested_size"], states[each["state"]]) for each in blocks
    ] == chunks_at(trace, len(trace))
    for segment in segments:
        in_use = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        assert sum(block["size"] for block in in_use) == segment["allocated_size"] == segment["active_size"]
        assert sum(block["requested_size"] for block in in_use) == segment["requested_size"]


def test_entries_are_the_events_that_pytorch_has(written):
    _, path, _ = written
    (entries,) = loaded(path)["device_traces"]
    assert [entry["action"] for entry in entries] == [
        "segment_alloc", "alloc", "alloc", "free_requested", "free_completed", "alloc", "free_requested",
        "free_completed", "segment_alloc", "alloc", "oom",
    ]  # fmt: skip
    assert entries[1]["size"] == 2 * MiB
    assert entries[1]["frames"] == [
        {"name": "relu", "filename": "/home/me/net.py", "line": 12},
        {"name": "main", "filename": "run.py", "line": 3},
    ]
    assert entries[2]["frames"] == [{"name": "conv", "filename": "??", "line": 0}]
    assert (entries[-1]["size"], entries[-1]["device_free"]) == (1 << 40, 0)
    assert "addr" not in entries[-1]


def test_phases_and_marks_are_annotations(written):
    _, path, _ = written
    found = loaded(path)["external_annotations"]
    assert [(each["stage"], each["name"]) for each in found] == [
        ("START", "forward"),
        ("END", "forward"),
        ("START", "epoch"),
        ("END", "epoch"),
    ]


def test_what_has_no_place_is_said(written):
    trace, _, notes = written
    said = "\n".join(notes)
    events = trace.read(0, len(trace))
    cut = int(np.isin(events["kind"], [Kind.SPLIT, Kind.MERGE]).sum())
    assert f"{cut:,} SPLIT and MERGE events are left out" in said
    assert "1 oom entries have device_free 0" in said
    assert "details of labels are left out: shape" in said
    assert "device 0 is the heap pool 0; its name, its limit of 536,870,912 bytes" in said


def test_only_the_last_entries_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(torch_snapshot, "MOST", 10)
    trace = busy_trace(100)
    notes = convert(trace, tmp_path / "s.pickle")
    found = loaded(tmp_path / "s.pickle")
    assert len(found["device_traces"][0]) == 10
    assert any("entries are left out; choose other steps" in note for note in notes)


def test_a_region_that_grew_is_an_expandable_segment(tmp_path):
    heap = PlainHeap(MiB, 2)
    heap.allocate(900 * KiB, "a")
    heap.allocate(900 * KiB, "b")
    events = np.array(heap.events)
    (second,) = np.flatnonzero(events["kind"] == Kind.EXTEND)[1:]
    events["flags"][second] = Flag.GREW
    events["region"] = 0
    convert(Trace.from_events(events, heap.labels, heap.trace().origin), tmp_path / "s.pickle")
    found = loaded(tmp_path / "s.pickle")
    assert [segment["is_expandable"] for segment in found["segments"]] == [True]
    assert [entry["action"] for entry in found["device_traces"][0] if "segment" in entry["action"]] == [
        "segment_alloc",
        "segment_map",
    ]


@pytest.mark.parametrize("start", [0, 10, None])
def test_our_importer_reads_the_same_chunks(start, written, tmp_path):
    trace, _, _ = written
    path = tmp_path / "s.pickle"
    convert(trace, path, len(trace) if start is None else start)
    back = open_trace(path)
    assert chunks_at(back, len(back)) == chunks_at(trace, len(trace))


def blocks_of(trace):
    """Kind, address, size and requested size of each allocation and free."""
    events = trace.read(trace.first, len(trace))
    events = events[np.isin(events["kind"], [Kind.ALLOCATE, Kind.FREE])]
    return [*zip(*(events[name].tolist() for name in ("kind", "address", "size", "requested")), strict=True)]


@pytest.mark.parametrize("start", [0, 2000])
def test_a_heap_with_other_rules_than_pytorch_comes_back_whole(start, tmp_path):
    """Its chunks are multiples of 256 bytes and larger than its requests; PyTorch's rules would round to 512."""
    trace = sample_trace("lstm")
    convert(trace, tmp_path / "s.pickle", start, 5000)
    back = open_trace(tmp_path / "s.pickle")
    assert (back.origin.status, back.origin.reasons) == (Status.COMPLETE, ())
    (begins,) = [number for number, label in enumerate(back.labels.names) if label == HISTORY_BEGINS]
    events = back.read(0, len(back))
    first = int(np.flatnonzero((events["kind"] == Kind.MARK) & (events["label"] == begins))[0])
    assert chunks_at(back, first) == chunks_at(trace, start)
    before = int(np.isin(events["kind"][:first], [Kind.ALLOCATE]).sum())
    mine = blocks_of(Trace.from_events(trace.read(0, 5000), trace.labels, trace.origin))
    assert blocks_of(back)[before:] == mine[-len(blocks_of(back)) + before :]
    assert chunks_at(back, len(back)) == chunks_at(trace, 5000)


def test_without_the_sizes_of_blocks_a_heap_with_other_rules_comes_back_at_its_end(tmp_path):
    """Its chunks are multiples of 256 bytes: our importer rounds to 512 on the way, and corrects that at the end."""
    trace, path = sample_trace("lstm"), tmp_path / "s.pickle"
    convert(trace, path, 0, 5000)
    written = loaded(path)
    for entry in written["device_traces"][0]:
        entry.pop(BLOCK_SIZE, None)
    path.write_bytes(pickle.dumps(written, torch_snapshot.PROTOCOL))
    back = open_trace(path)
    assert chunks_at(back, len(back)) == chunks_at(trace, 5000)
    assert any("were corrected there" in reason for reason in back.origin.reasons)


@needs_shared
@pytest.mark.parametrize("name", ["torch_oom_snapshot_llminf.pickle", "torch_octree_nca_67k.pickle"])
def test_a_real_snapshot_comes_back(name, tmp_path):
    first = open_trace(SHARED / "real" / "snapshots" / name)
    convert(first, tmp_path / "s.pickle")
    again = open_trace(tmp_path / "s.pickle")
    assert len(again.origin.pools) == len(first.origin.pools)
    for pool in range(len(first.origin.pools)):
        assert chunks_at(again, len(again), pool) == chunks_at(first, len(first), pool)


def test_pytorch_reads_it(written):
    """PyTorch's own `segsum` checks that the sums agree, and `trace` that no key is missing."""
    viz = pytest.importorskip("torch.cuda._memory_viz")
    trace, path, _ = written
    found = loaded(path)
    total = sum(size for _, size, _, _ in chunks_at(trace, len(trace)))
    assert f"total_reserved: {viz.Bytes(total)}" in viz.segsum(found)
    assert "raise OutOfMemoryError() # 1.0TiB requested" in viz.trace(found)
    assert "Active Memory Timeline" in viz.trace_plot(found)
    json.dumps(found)  # plain values only
