"""Files of blocks that are damaged anywhere: the right events or one error, and other blocks lose nothing."""

from random import Random

import numpy as np
import pytest
from processes import sized
from shared import write_anew
from unit.events.fabricate import fabricate, fabricate_trace
from unit.events.storage.block_sections import describe, packed, unpacked, written
from unit.figures.synthetic import busy_trace

from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.storage import blocks
from bfcviz.events.storage.block_codec import DamagedBlock, EventCodec
from bfcviz.events.trace import Trace
from bfcviz.model import Model, trace_index
from bfcviz.model.trace_index import IndexBuilder, index_of

SIZE = sized(1000, 60)
COUNT = 4 * SIZE + 7


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_EVENTS", SIZE)
    return fabricate_trace(COUNT, source="job").save(tmp_path / "job.bfc", describe=describe)


def test_any_damage_is_one_error_or_none(saved):
    """Every read gives the right events or a FileError."""
    random, whole = Random(2), saved.read_bytes()
    refused = 0
    for _ in range(sized(150, 10)):
        data = bytearray(whole)
        for _ in range(random.choice([1, 1, 3])):
            data[random.randrange(len(data))] = random.randrange(256)
        write_anew(saved, data[: random.randrange(len(data))] if random.random() < 0.2 else data)
        try:
            trace = Trace.open(saved)
        except FileError:
            refused += 1
            continue
        trace.keyframe_before(len(trace))
        for start in range(0, len(trace), SIZE):
            stop = min(start + SIZE, len(trace))
            try:
                events = trace.read(start, stop)
            except FileError:
                continue
            assert np.array_equal(events["size"], fabricate(COUNT)[start:stop]["size"])
    assert refused


def test_damage_stays_in_its_block(tmp_path):
    events = fabricate(sized(5000, 200))
    size = len(events) // 5
    good = packed(events, size)
    ends = np.cumsum([len(part) for part in good])
    whole, random, refused = b"".join(good), Random(1), 0
    codec = EventCodec()
    for _ in range(sized(60, 10)):
        data, place = bytearray(whole), random.randrange(len(whole))
        data[place] ^= 1 << random.randrange(8)
        file = written(tmp_path, [bytes(data)])
        hit = int(np.searchsorted(ends, place, "right"))
        back = set()
        for found in blocks.sections_of(file):
            try:
                part = unpacked(file, found, codec)
            except DamagedBlock:
                assert found.first // size == hit
                refused += 1
                continue
            assert part.tobytes() == events[found.first : found.stop].tobytes()
            back.add(found.first // size)
        assert {*range(5)} - {hit} <= back
    assert refused


def test_forged_headers_and_entries_are_one_error_or_none(tmp_path, monkeypatch):
    """Bytes of an entry, a state and a payload are changed, or numbers of a header, which is signed again."""
    monkeypatch.setattr(blocks, "MOST_EVENTS", 300)
    monkeypatch.setattr(trace_index, "LEAST_EVENTS", 1)
    monkeypatch.setattr(trace_index, "_ALWAYS_STORED", 1)
    random, path = Random(5), busy_trace().save(tmp_path / "trace.bfc", describe=IndexBuilder(1))
    whole, found = path.read_bytes(), list(blocks.sections_of(blocks.OpenFile(path)))
    outcomes = set()
    for _ in range(sized(60, 10)):
        hit, data = random.choice(found), bytearray(whole)
        for _ in range(random.choice([0, 1, 5])):
            data[random.randrange(hit.index_at, hit.end)] = random.randrange(256)
        name = random.choice(blocks.Section._fields[2:])
        value = random.choice([getattr(hit, name), 0, 1, 300, 1 << 18, 1 << 31, (1 << 32) - 1])
        data[hit.start : hit.index_at] = blocks._section_header(hit._replace(**{name: value}))
        write_anew(path, data)
        try:
            trace = Trace.open(path)
            index_of(trace)
            model = Model(trace)
            model.seek(len(trace))
            model.seek(400)
        except BfcvizError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
    assert outcomes == {"refused", "read"}
