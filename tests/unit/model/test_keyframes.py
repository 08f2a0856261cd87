"""Keyframes from a hostile file: every impossible value is refused, and nothing large is unpacked."""

import struct
import zlib

import numpy as np
import pytest
from naive_heap import NaiveHeap

from bfcviz.errors import TraceError
from bfcviz.model import keyframe_bytes, keyframes
from bfcviz.model.keyframe_bytes import COUNTS, HEADER, decode

# Where the columns of the one heap here begin: 2 regions, then 4 chunks of which 2 are in use.
ADDRESS, SIZE, SLOT, CHUNK_SIZE, HANDLE, IN_USE, WASTE, AGE = np.cumsum([0, 16, 16, 4, 32, 16, 1, 16])
STEP = 7


@pytest.fixture
def keyframe():
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, 0x1000, 4096, 0)
    heap.extend(0, 0x10000, 1024, 1)
    heap.allocate(0, 300)
    heap.allocate(0, 2000, label=9)
    heap.mark()
    trace = heap.trace()
    assert len(trace) == STEP
    return next(keyframes(trace, [STEP]))


def changed(keyframe, place, value):
    """The keyframe with one byte of its unpacked columns changed."""
    begin = HEADER.size + COUNTS.size
    columns = bytearray(zlib.decompress(keyframe[begin:]))
    columns[place] = value
    return keyframe[:begin] + zlib.compress(bytes(columns))


def counted(keyframe, place, value):
    """The keyframe with one of its counts changed."""
    counts = list(COUNTS.unpack_from(keyframe, HEADER.size))
    counts[place] = value
    return keyframe[: HEADER.size] + COUNTS.pack(*counts) + keyframe[HEADER.size + COUNTS.size :]


def test_a_correct_keyframe_is_read(keyframe):
    snapshot = decode(keyframe, STEP, 0, 1)
    assert sorted(snapshot.chunk_rows["size"].tolist()) == [512, 512, 2048, 2048]
    assert snapshot.pool_bytes == 5120
    assert snapshot.bytes_in_use == 2560


@pytest.mark.parametrize(
    ("place", "value", "fact"),
    [
        (ADDRESS + 2, 0xFF, "do not ascend"),  # the first region past the second
        (SIZE + 4, 0xFF, "overlap"),
        (SLOT, 1, "same slot"),
        (CHUNK_SIZE + 4, 3, "do not fill"),  # the second bytes of the sizes
        (HANDLE, 3, "handles"),
        (HANDLE, 200, "handles"),
        (IN_USE, 0xFF, "4 chunks .* 2"),
        (WASTE + 2, 0xFF, "requested size"),
        (AGE, 0, "allocation step"),
        (AGE, STEP + 1, "allocation step"),
    ],
)
def test_impossible_columns_are_refused(keyframe, place, value, fact):
    with pytest.raises(TraceError, match=fact):
        decode(changed(keyframe, place, value), STEP, 0, 1)


@pytest.mark.parametrize(
    ("place", "value", "fact"),
    [
        (0, 9, "impossible"),
        (1, 1 << 40, "impossible"),
        (2, 5, "impossible"),
        (1, 5, "145 bytes"),
        (3, 1, "allocations"),
        (3, 8, "allocations"),
        (4, 8, "OOMs"),
        (5, 2559, "peak of bytes_in_use"),
        (6, 5119, "peak of pool_bytes"),
        (7, 2047, "largest_alloc_size"),
    ],
)
def test_impossible_counts_are_refused(keyframe, place, value, fact):
    with pytest.raises(TraceError, match=fact):
        decode(counted(keyframe, place, value), STEP, 0, 1)


@pytest.mark.parametrize(
    "header", [(b"NOPE", 1, 1, STEP), (b"BFCK", 2, 1, STEP), (b"BFCK", 1, 2, STEP), (b"BFCK", 1, 1, 8)]
)
def test_headers_of_something_else(keyframe, header):
    with pytest.raises(TraceError, match=f"{STEP} is damaged"):
        decode(HEADER.pack(*header) + keyframe[HEADER.size :], STEP, 0, 1)


def test_ends_missing_or_too_many(keyframe):
    for cut in range(len(keyframe)):
        with pytest.raises(TraceError):
            decode(keyframe[:cut], STEP, 0, 1)
    begin = HEADER.size + COUNTS.size
    longer = keyframe[:begin] + zlib.compress(zlib.decompress(keyframe[begin:]) + bytes(1))
    with pytest.raises(TraceError, match="columns"):
        decode(longer, STEP, 0, 1)


def test_a_bomb_is_not_unpacked(keyframe):
    begin = HEADER.size + COUNTS.size
    bomb = keyframe[:begin] + zlib.compress(bytes(20 << 20), 1)
    with pytest.raises(TraceError, match="columns"):
        decode(bomb, STEP, 0, 1)


def test_counts_that_need_too_much_memory_are_refused(keyframe):
    """At a late step so many chunks are possible."""
    step = 1 << 61
    late = HEADER.pack(b"BFCK", 1, 1, step) + keyframe[HEADER.size :]
    for chunks in (1 << 23, 1 << 60):
        with pytest.raises(TraceError, match="too many"):
            decode(counted(late, 1, chunks), step, 0, 1)


def test_a_regular_heap_is_packed_less_tightly(monkeypatch):
    monkeypatch.setattr(keyframe_bytes, "LEAST_UNPACKED", 1 << 10)
    for columns in (bytes(1 << 20), bytes(range(256)) * 4096, b"short"):
        packed = keyframe_bytes._deflated_keyframe(columns)
        assert zlib.decompress(packed) == columns
        assert len(columns) <= keyframe_bytes._most_keyframe_bytes(len(packed))


def test_sizes_that_wrap_around_memory(keyframe):
    """Two chunks whose sizes add up to the region's only modulo 2^64."""
    begin = HEADER.size + COUNTS.size
    columns = bytearray(zlib.decompress(keyframe[begin:]))
    sizes = np.frombuffer(columns, np.uint8, 32, CHUNK_SIZE).reshape(8, 4).T.copy().view("<u8").ravel()
    sizes[0] += np.uint64(1 << 63)
    sizes[1] += np.uint64(1 << 63)
    columns[CHUNK_SIZE : CHUNK_SIZE + 32] = sizes.view(np.uint8).reshape(4, 8).T.tobytes()
    with pytest.raises(TraceError, match="larger than memory"):
        decode(keyframe[:begin] + zlib.compress(bytes(columns)), STEP, 0, 1)


def test_the_layout_is_the_documented_one(keyframe):
    assert HEADER.unpack_from(keyframe) == (b"BFCK", 1, 1, STEP)
    assert struct.calcsize(HEADER.format) == 16
    regions, chunks, in_use, *_ = COUNTS.unpack_from(keyframe, HEADER.size)
    assert (regions, chunks, in_use) == (2, 4, 2)
    columns = zlib.decompress(keyframe[HEADER.size + COUNTS.size :])
    assert len(columns) == AGE + 16 + 2 * (4 + 2 + 2)
