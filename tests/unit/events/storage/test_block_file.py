"""Traces as .bfc files: what was saved comes back; damage is one error, and loses nothing of other blocks."""

import numpy as np
import pytest
from processes import sized
from unit.events.fabricate import fabricate, fabricate_labels, fabricate_trace
from unit.events.storage.block_sections import describe

from bfcviz.errors import FileError
from bfcviz.events.origin import Origin, Pool, Status
from bfcviz.events.storage import blocks
from bfcviz.events.storage.block_codec import EventCodec
from bfcviz.events.trace import Trace
from bfcviz.importers.file_format import Format, detect_format
from bfcviz.importers.open_trace import open_trace

SIZE = sized(1000, 60)
COUNT = 4 * SIZE + 7


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "MOST_EVENTS", SIZE)


@pytest.fixture
def saved(tmp_path):
    return fabricate_trace(COUNT, source="job").save(tmp_path / "job.bfc", describe=describe)


def test_what_was_saved_comes_back(saved):
    trace = open_trace(saved)
    assert detect_format(saved) is Format.BLOCKS
    assert (len(trace), trace.first, trace.origin) == (COUNT, 0, Origin(source="job"))
    assert trace.labels.to_json() == fabricate_labels().to_json()
    assert np.array_equal(trace.read(0, COUNT), fabricate(COUNT))
    assert np.array_equal(trace.read(SIZE - 1, 2 * SIZE + 1), fabricate(COUNT)[SIZE - 1 : 2 * SIZE + 1])
    assert trace.index_entries() == [b"index of %d" % (i * SIZE) for i in range(5)]
    assert trace.keyframe_before(SIZE - 1) is None
    assert trace.keyframe_before(COUNT) == (4 * SIZE, b"state at %d" % (4 * SIZE))
    assert trace.keyframe_before(2 * SIZE) == (2 * SIZE, b"state at %d" % (2 * SIZE))


def test_saving_again_keeps_events_and_states(saved, tmp_path):
    again = Trace.open(Trace.open(saved).save(tmp_path / "again.bfc"))
    assert np.array_equal(again.read(0, COUNT), fabricate(COUNT))
    assert again.keyframe_before(SIZE) == (SIZE, b"state at %d" % SIZE)
    assert again.index_entries() is None
    with pytest.raises(FileError):
        again.save(saved)


def test_an_empty_one(tmp_path):
    empty = Trace.from_events(fabricate(0), fabricate_labels(), Origin(pools=(Pool("a"), Pool("b"))))
    trace = Trace.open(empty.save(tmp_path / "empty.bfc"))
    assert (len(trace), len(trace.origin.pools), trace.read(0, 0).size) == (0, 2, 0)


def sections(path):
    return list(blocks.sections_of(blocks.OpenFile(path)))


@pytest.mark.parametrize("place", ["header", "payload"])
def test_a_damaged_block_loses_nothing_of_the_others(saved, place):
    hit = sections(saved)[2]
    data = bytearray(saved.read_bytes())
    data[hit.start + 20 if place == "header" else hit.payload_at + hit.payload_bytes // 2] ^= 0x41
    saved.write_bytes(data)
    trace = Trace.open(saved)
    assert len(trace) == COUNT
    assert np.array_equal(trace.read(0, 2 * SIZE), fabricate(COUNT)[: 2 * SIZE])
    assert np.array_equal(trace.read(3 * SIZE, COUNT), fabricate(COUNT)[3 * SIZE :])
    with pytest.raises(FileError):
        trace.read(2 * SIZE, 2 * SIZE + 1)
    if place == "header":
        assert trace.origin.status is Status.DEGRADED
        assert trace.index_entries() is None
    checked = Trace.open(saved, check=True)
    assert len(checked) == 2 * SIZE


def test_too_many_small_blocks_are_refused(saved, monkeypatch):
    monkeypatch.setattr(blocks, "MANY_BLOCKS", 3)
    monkeypatch.setattr(blocks, "LEAST_BLOCK", SIZE)
    with pytest.raises(FileError):
        Trace.open(saved)


def test_a_trace_may_begin_at_a_state(tmp_path):
    """As what a recording keeps of its newest part."""
    stop = 2 * SIZE
    events, origin = fabricate(COUNT)[SIZE:stop], Origin().to_json(events=stop, labels=1, first=SIZE)
    parts = [
        blocks.event_section(EventCodec(), events, b"", b"state"),
        blocks.section(blocks.ORIGIN, origin.encode()),
    ]
    path = tmp_path / "newest.bfc"
    path.write_bytes(b"".join(parts))
    trace = Trace.open(path)
    assert (trace.first, len(trace), trace.keyframe_before(SIZE)) == (SIZE, stop, (SIZE, b"state"))
    assert trace.read(SIZE, stop)["seq"].tolist() == list(range(SIZE, stop))
    checked = Trace.open(path, check=True)
    assert (len(checked), checked.origin.status) == (stop, Status.COMPLETE)
    parts[0] = parts[0][:-9] + bytes(9)
    path.write_bytes(b"".join(parts))
    assert len(Trace.open(path, check=True)) == SIZE


def test_a_recording_with_too_many_small_blocks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MANY_BLOCKS", 3)
    path, codec, events = tmp_path / "events", EventCodec(), fabricate(4)
    parts = [blocks.event_section(codec, events[i : i + 1]) for i in range(4)]
    path.write_bytes(b"".join(parts[:3]))
    file = blocks.BlockFile(path)
    assert file.stop == 3
    path.write_bytes(b"".join(parts))
    with pytest.raises(FileError):
        file.refresh()


def test_indexes_that_are_too_large_are_not_read(saved, monkeypatch):
    monkeypatch.setattr(blocks, "_MOST_INDEXES", 20)
    assert Trace.open(saved).index_entries() is None
    assert blocks.BlockFile(saved).index_entries() is None
