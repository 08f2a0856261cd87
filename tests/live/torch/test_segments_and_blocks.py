"""Segments: parts of expandable segments come and go."""

import pytest
from live.torch.histories import MIB, assert_model_agrees, entry, mark, observed


def remapped(*changes):
    """20 MiB are mapped, then parts are unmapped ("-") and mapped ("+"): kind, start, stop in MiB."""
    taken = observed()
    taken.read([], [], {"expandable_segments": True})
    trace = [mark([]), entry("segment_map", 0, 20 * MIB)]
    for kind, start, stop in changes:
        action = "segment_map" if kind == "+" else "segment_unmap"
        trace.append(entry(action, start * MIB, (stop - start) * MIB, time_us=len(trace)))
    taken.read([*trace, entry("oom", size=64 * MIB, device_free=0)], [], {"expandable_segments": True})
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
    taken.read([], [], settings)
    trace = [mark([]), entry("segment_map", 0, 20 * MIB), entry("segment_unmap", 0, 12 * MIB)]
    taken.read([*trace, entry("alloc", 8 * MIB, 12 * MIB)], [], settings)
    assert taken.unmapped == 8 * MIB


def test_what_is_unmapped_is_corrected_by_the_state():
    taken, settings = observed(), {"expandable_segments": True}
    whole, part = (
        {"address": 0x7000_0000, "total_size": size * MIB, "stream": 0, "blocks": []} for size in (20, 4)
    )
    apart = {**part, "address": 0x7000_0000 + 14 * MIB}
    for segments, unmapped in (([whole], 0), ([part, apart], 12), ([whole], 0)):
        taken.read(
            [entry("oom", size=unmapped)], segments, settings
        )  # nothing of the reading before: it was lost
        assert taken.unmapped == unmapped * MIB
