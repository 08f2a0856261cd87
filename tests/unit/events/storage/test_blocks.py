"""Blocks of events: every record comes back bit for bit, and damage stays where it is."""

import os
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import sized
from shared import ROOT
from unit.events.fabricate import fabricate
from unit.events.storage.block_sections import packed, unpacked, written

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import Operations, Replay
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import BfcvizError
from bfcviz.events.log import EventLog
from bfcviz.events.schema import EVENT, Kind
from bfcviz.events.storage import blocks
from bfcviz.events.storage.block_codec import MOST_EVENTS, DamagedBlock, EventCodec
from bfcviz.events.storage.files import OpenFile

GOLDEN = sorted((ROOT / "tests" / "data" / "golden").glob("*.npz"))


def heap_events(*columns, limit=1 << 30, **options):
    """The events of a heap that ran these operations."""
    log = EventLog(1 << 17)
    options = AllocatorOptions(allow_growth=True, **options)
    heap = BFCAllocator(SimulatedSubAllocator(capacity=limit), limit, options, log=log)
    Replay(heap.heap, Operations(*columns)).run()
    return log.copy(0, log.head)


def golden_events(path):
    """The events of a recorded run of TensorFlow's heap."""
    z = np.load(path)
    count = sized(1 << 30, 300)
    return heap_events(*(z[name][:count] for name in ("op", "id", "size")), limit=1 << 36)


def assert_comes_back(events, size=MOST_EVENTS):
    codec = EventCodec()
    for start in range(0, len(events), size):
        part = np.ascontiguousarray(events[start : start + size])
        rows, masks, residuals, checksum = codec.encode(part)
        kept = [residual.copy() for residual in residuals]
        assert codec.decode(rows, masks, kept, checksum).tobytes() == part.tobytes()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_the_events_of_a_heap_come_back_in_few_bytes(tmp_path, path):
    events = golden_events(path)
    file = written(tmp_path, packed(events))
    (found,) = blocks.sections_of(file)
    assert unpacked(file, found).tobytes() == events.tobytes()
    assert found.end < 6 * len(events)
    assert_comes_back(events, 1000)


operations = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 1 << 22)), max_size=60)


@given(operations, st.sampled_from([1 << 20, 1 << 24]), st.booleans(), st.sampled_from([3, 17, 100]))
def test_any_heap_comes_back(made, limit, timestamps, size):
    kinds, ids, sizes = (
        (np.array(column, np.int64) for column in zip(*made, strict=True)) if made else [[]] * 3
    )
    assert_comes_back(heap_events(kinds, ids, sizes, limit=limit, timestamps=timestamps), size)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 8, 60]), st.integers(1, 80))
def test_any_records_come_back(seed, bits, count):
    """Few bits: records that agree with each other here and there; all: noise."""
    rng = np.random.default_rng(seed)
    events = np.frombuffer(rng.bytes(count * EVENT.itemsize), EVENT).copy()
    if bits < 60:
        for name in EVENT.names:
            events[name] = rng.integers(0, min(1 << bits, 100), count)
    assert_comes_back(events)


def test_the_format_stays_as_it_is():
    """Plain code predicts as compiled code does, and old files can be read: other guesses need a new magic."""
    z = np.load(GOLDEN[0])
    events = heap_events(*(z[name][:300] for name in ("op", "id", "size")), limit=1 << 36)
    events["time"] = np.arange(len(events)) * 100
    events["thread"] = events["by"] = 1
    rows, masks, residuals, checksum = EventCodec().encode(events)
    coded = zlib.crc32(b"".join([masks.tobytes(), *(part.tobytes() for part in residuals)]))
    assert (len(events), rows, coded, checksum) == (596, 64, 3001445679, 5722588869841708965)


def test_events_with_other_orders_come_back():
    assert_comes_back(fabricate(sized(20_000, 500)))
    assert_comes_back(fabricate(sized(20_000, 500))[::-1].copy())


def test_the_smallest_block_and_too_large_ones(tmp_path):
    file = written(tmp_path, packed(fabricate(1)))
    (found,) = blocks.sections_of(file)
    assert (found.first, found.stop, file.read_at(found.index_at, 5)) == (0, 1, b"index")
    assert file.read_at(found.keyframe_at, found.keyframe_bytes) == b"keyframe"
    assert unpacked(file, found).tobytes() == fabricate(1).tobytes()
    with pytest.raises(BfcvizError):
        EventCodec().encode(np.zeros(MOST_EVENTS + 1, EVENT))


def test_every_cut_keeps_the_blocks_before_it(tmp_path):
    good = packed(fabricate(60), 20)
    whole = b"".join(good)
    for cut in range(0, len(whole), 7):
        file = written(tmp_path, [whole[:cut]])
        complete = sum(cut >= end for end in np.cumsum([len(part) for part in good]))
        assert [found.first for found in blocks.sections_of(file)] == [0, 20, 40][:complete]


@given(st.integers(0, 2**32))
def test_forged_payloads_are_refused_or_decoded_but_nothing_else(seed):
    """A payload whose residuals and masks are noise, as an attacker can write it."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 50))
    masks = rng.integers(0, 1 << 16, count).astype(np.uint16)
    residuals = [
        rng.integers(0, 1 << 63, int(rng.integers(0, count + 1))).astype(np.uint64) for _ in range(16)
    ]
    with pytest.raises(DamagedBlock):
        EventCodec().decode(1 << int(rng.integers(0, 19)), masks, residuals, 0)
    with pytest.raises(DamagedBlock):
        EventCodec().decode(3, masks, residuals, 0)


EVENT_SECTION = blocks.Section(0, blocks.EVENTS, 1, 0, 1000, 0, 0, 0, 2000)


@pytest.mark.parametrize(
    "claimed",
    [
        {"payload_bytes": 100},
        {"payload_bytes": 1 << 20},
        {"index_bytes": 1 << 25},
        {"keyframe_bytes": 1 << 11},
        {"events": 0},
        {"kind": blocks.LABELS},
        {"kind": blocks.LABELS, "events": 0, "payload_bytes": 1 << 26},
        {"kind": blocks.ORIGIN, "events": 0, "payload_bytes": 1 << 25},
        {"kind": blocks.ORIGIN, "events": 0, "keyframe_bytes": 1},
        {"kind": 9},
    ],
)
def test_a_header_that_claims_impossible_sizes_is_damaged(tmp_path, monkeypatch, claimed):
    """The file has holes, so that what the header claims is there."""
    monkeypatch.setattr(blocks, "_MOST_KEYFRAME", 1 << 10)
    for expected, found in ((1, EVENT_SECTION), (0, EVENT_SECTION._replace(**claimed))):
        file = written(tmp_path, [blocks._section_header(found)])
        os.truncate(tmp_path / "events", found.end)
        assert len(list(blocks.sections_of(file))) == expected


def test_damage_before_every_block_is_read_a_few_times_only(tmp_path, monkeypatch):
    parts = [b"x" + part for part in packed(fabricate(2000), 20)]
    file, read = written(tmp_path, parts), []
    read_at = OpenFile.read_at
    monkeypatch.setattr(
        OpenFile, "read_at", lambda self, start, count: read.append(count) or read_at(self, start, count)
    )
    assert [found.first for found in blocks.sections_of(file)] == list(range(0, 2000, 20))
    assert sum(read) < 10 * sum(map(len, parts))


def test_an_impossible_payload_is_one_error(tmp_path):
    file = written(tmp_path, packed(fabricate(10)))
    (found,) = blocks.sections_of(file)
    with pytest.raises(DamagedBlock) as caught:
        unpacked(file, found._replace(events=9))
    assert caught.value.__cause__ is None


def test_a_state_that_no_reader_takes_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_MOST_KEYFRAME", 4)
    (found,) = blocks.sections_of(written(tmp_path, packed(fabricate(10))))
    assert (found.events, found.keyframe_bytes) == (10, 0)


def test_marks_need_almost_no_room():
    events = np.zeros(sized(MOST_EVENTS, 2000), EVENT)
    events["seq"] = np.arange(len(events))
    events["kind"] = Kind.MARK
    (section,) = packed(events)
    assert len(section) < 1000 + len(events) // 100
