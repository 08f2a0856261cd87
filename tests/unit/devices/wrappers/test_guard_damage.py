"""Damage: where it is, and the two chunks whose owners may have written there."""

import ctypes

import pytest
from unit.devices.wrappers.guarded import poke, three

from bfcviz.errors import (
    AllocatorError,
    GuardOverrun,
)


def test_one_byte_past_the_end_names_the_chunk_and_the_next(guard):
    weights, bias, _ = three(guard)
    poke(weights + 100)
    with pytest.raises(GuardOverrun) as caught:
        guard.free(weights)
    (damage,) = caught.value.damages
    assert (damage.chunk.label, damage.chunk.address, damage.side) == ("weights", weights, "after")
    assert (damage.address, damage.num_bytes, damage.found) == (weights + 100, 1, b"\x5a")
    assert (damage.neighbour.label, damage.neighbour.address) == ("bias", bias)
    text = str(caught.value)
    for words in (f"'weights' (100 bytes at {weights:#x})", f"'bias' (100 bytes at {bias:#x})", "5a",
                  "0 bytes past its end"):  # fmt: skip
        assert words in text
    assert isinstance(caught.value, AllocatorError)


def test_one_byte_before_the_beginning_names_the_chunk_and_the_one_before(guard):
    _, bias, last = three(guard)
    poke(last - 1)
    with pytest.raises(GuardOverrun) as caught:
        guard.free(last)
    (damage,) = caught.value.damages
    assert (damage.chunk.label, damage.side, damage.address) == ("input", "before", last - 1)
    assert (damage.neighbour.label, damage.neighbour.address) == ("bias", bias)
    assert f"the end of 'bias' (100 bytes at {bias:#x}), {last - bias - 100} bytes before" in str(damage)
    assert "1 byte before its beginning" in str(damage)


def test_at_the_ends_of_the_heap_there_is_no_neighbour(guard):
    only = guard.allocate(100)
    poke(only - 1)
    poke(only + 100)
    before, after = guard.damages()
    assert before.neighbour is after.neighbour is None
    assert "no other chunk is in use before it" in str(before)
    assert "a chunk without a label" in str(after)


def test_a_write_across_two_chunks_is_seen_from_both(guard):
    weights, bias, _ = three(guard)
    ctypes.memset(weights + 100, 0, bias - weights - 100)
    after, before = guard.damages()
    assert (after.chunk.label, after.neighbour.label) == ("weights", "bias")
    assert (before.chunk.label, before.neighbour.label) == ("bias", "weights")
    assert after.num_bytes == before.num_bytes == guard.guard_bytes
