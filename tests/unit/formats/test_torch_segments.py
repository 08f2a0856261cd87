"""Segments: parts of expandable segments come and go. SegmentRewind: blocks before some entries of the history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.live.torch.histories import MIB, assert_model_agrees, chunks, entry, mark, observed, read

from bfcviz.formats.torch import Rules
from bfcviz.formats.torch_segments import BLOCK_CHANGE, SegmentRewind


def remapped(*changes):
    """20 MiB are mapped, then parts are unmapped ("-") and mapped ("+"): kind, start, stop in MiB."""
    taken, settings = observed(), {"expandable_segments": True}
    read(taken, [], [], settings, is_still=True)
    trace = [mark([]), entry("segment_map", 0, 20 * MIB)]
    for kind, start, stop in changes:
        action = "segment_map" if kind == "+" else "segment_unmap"
        trace.append(entry(action, start * MIB, (stop - start) * MIB, time_us=len(trace)))
    read(taken, [*trace, entry("oom", size=64 * MIB, device_free=0)], [], settings)
    return taken


@pytest.mark.parametrize(
    ("changes", "unmapped", "pool"),
    [
        (["-4:12"], 8, 20),
        (["-4:12", "+4:8"], 4, 20),  # a part of what was unmapped comes back
        (["-4:12", "+6:8"], 6, 20),
        (["-4:12", "+2:14"], 0, 20),
        (["-4:12", "-8:16"], 12, 20),  # both tell of 8 to 12
        (["-4:8", "-8:12", "+4:12"], 0, 20),
        (["-0:12", "-12:20"], 0, 0),  # all of it is gone, piece by piece
        (["-0:12", "-12:20", "+4:8"], 0, 4),
        (["-16:24"], 4, 20),  # more than there was
    ],
)
def test_parts_of_an_expandable_segment_come_and_go(changes, unmapped, pool):
    taken = remapped(*((change[0], *map(int, change[1:].split(":"))) for change in changes))
    assert (taken.unmapped, taken.heap.stats().pool_bytes) == (unmapped * MIB, pool * MIB)
    error = taken.out_of_memory
    assert error.free_bytes == error.pool_bytes == (pool - unmapped) * MIB
    assert taken.heap.inconsistencies.words() == ""
    assert_model_agrees(taken.heap)


def test_a_block_in_use_is_mapped_whatever_was_told():
    taken = observed()
    settings = {"expandable_segments": True}
    read(taken, [], [], settings, is_still=True)
    trace = [mark([]), entry("segment_map", 0, 20 * MIB), entry("segment_unmap", 0, 12 * MIB)]
    read(taken, [*trace, entry("alloc", 8 * MIB, 12 * MIB)], [], settings)
    assert taken.unmapped == 8 * MIB


def segment(at, size, *, used=0, expandable=False):
    """A segment whose first `used` MiB are a block; in MiB."""
    block = {"size": used * MIB, "requested_size": used * MIB, "state": "active_allocated"}
    free = {"size": (size - used) * MIB, "state": "inactive"}
    return {
        "address": 0x7000_0000 + at * MIB,
        "total_size": size * MIB,
        "stream": 0,
        "is_expandable": expandable,
        "blocks": [tile for tile in (block, free) if tile["size"]],
    }


def state_of(taken):
    found = taken.heap.moment().regions
    pieces = sorted(((int(each["address"]) - 0x7000_0000) // MIB, int(each["size"]) // MIB) for each in found)
    return pieces, [size // MIB for _, size, _ in chunks(taken.heap)]


def test_what_is_unmapped_is_corrected_by_the_state():
    taken, settings = observed(), {"expandable_segments": True}
    whole, part, apart = (segment(*each, expandable=True) for each in ((0, 20), (0, 4), (14, 6)))
    for number, (segments, unmapped) in enumerate((([whole], 0), ([part, apart], 10), ([whole], 0))):
        trace = [entry("oom", size=1, time_us=number)]  # nothing of the reading before: it was lost
        read(taken, trace, segments, settings, is_still=True, is_whole=False)
        assert taken.unmapped == unmapped * MIB
        assert taken.heap.stats().pool_bytes == 20 * MIB


@pytest.mark.parametrize(
    ("before", "now", "regions", "blocks"),
    [
        ([(0, 20, 9)], [(0, 2, 1)], [(0, 2)], [1]),
        ([(0, 20, 9)], [(0, 2, 1), (2, 8, 8)], [(0, 2), (2, 8)], [1, 8]),
        ([(0, 2), (2, 2)], [(0, 20, 20)], [(0, 20)], [20]),
        ([(0, 2, 2), (2, 2, 1)], [(1, 2, 2)], [(1, 2)], [2]),
        ([(0, 20, 9)], [], [], []),
    ],
)
def test_after_a_loss_the_segments_of_the_state_are_the_regions(before, now, regions, blocks):
    taken = observed()
    for segments in (before, now):
        rows = [segment(at, size, used=sum(used)) for at, size, *used in segments]
        read(taken, [], rows, is_still=True, is_whole=False)
    assert state_of(taken) == (regions, blocks)
    assert taken.heap.inconsistencies.words() == ""
    assert_model_agrees(taken.heap)


def test_after_a_loss_an_expandable_segment_that_grew_downwards_is_one_region():
    taken, settings = observed(), {"expandable_segments": True}
    for at, size, used in ((8, 4, 4), (0, 12, 12)):
        rows = [segment(at, size, used=used, expandable=True)]
        read(taken, [], rows, settings, is_still=True, is_whole=False)
        assert state_of(taken) == ([(at, size)], [used])


def undone(changes, blocks):
    """Undo entries one by one, the last first: what was in use before, the sizes of allocations, impossible entries."""
    blocks, sizes, impossible = dict(blocks), [0] * len(changes), 0
    for row, allocates, address, size in reversed(changes):
        if allocates:
            impossible += address not in blocks
            sizes[row] = max(blocks.pop(address, 0), 0)
        else:
            impossible += address in blocks
            blocks[address] = -size  # only the requested size is known
    return blocks, sizes, impossible


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 7), st.integers(1, 512))),
    st.sets(st.integers(0, 7)),
    st.integers(0, 3),
)
def test_rewinding_blocks_is_undoing_one_entry_after_the_other(entries, used, first):
    base, size = 1 << 40, 512
    changes = [
        (first + row, allocates, base + place * size, asked)
        for row, (allocates, place, asked) in enumerate(entries)
    ]
    there = [
        {"size": size, "state": "active_allocated" if place in used else "inactive"} for place in range(8)
    ]
    whole = {"address": base, "total_size": 8 * size, "blocks": there}
    rows = range(first, first + len(entries))
    found = SegmentRewind(
        np.array([(*each, 0) for each in changes], BLOCK_CHANGE), [], [whole], Rules(), rows
    )
    before, sizes, impossible = undone(
        [(row - first, *rest) for row, *rest in changes], {base + place * size: size for place in used}
    )
    assert found.impossible == impossible
    assert found.sizes.tolist() == sizes
    assert {at: block.requested if block.block is None else 0 for at, block in found.blocks.items()} == {
        at: max(-size, 0) for at, size in before.items()
    }
    assert all(block.row in rows for block in found.blocks.values() if block.block is None)
