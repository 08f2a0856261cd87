"""Region maps of several heaps side by side."""

import numpy as np
import pytest
from unit.whatif.labelled_streams import MiB, stream_of

from bfcviz.figures.policy_comparison import MOST_ROWS, PolicyHeap, policy_maps_figure
from bfcviz.figures.view_options import Look
from bfcviz.whatif.outcome import RecordedOutcome
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE

REQUESTS = [
    *((ALLOCATE, block, (block % 7 + 1) * MiB) for block in range(40)),
    *((FREE, block, 0) for block in range(0, 40, 3)),
]
NAMES = ["bfc:allow_growth=true", "torch", "exact_size", "first_fit"]


@pytest.fixture(scope="module")
def heaps():
    stream = stream_of(REQUESTS)
    found = []
    for name in NAMES:
        recorded = RecordedOutcome(policy_of(name).serve(stream, record=True))
        found.append((PolicyHeap(name, recorded.trace, recorded.step_after(len(REQUESTS) - 1)), recorded))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_table_has_the_chunks_of_each(heaps, theme):
    picture = policy_maps_figure([heap for heap, _ in heaps], "the end", Look(theme=theme, colour="holder"))
    table = picture.table.to_pandas()
    for heap, recorded in heaps:
        mine = table[table["policy"] == heap.name]
        assert mine["size"].sum() == recorded.outcome.reserved[-1]
        assert mine["size"][mine["state"] == "in use"].sum() == recorded.outcome.in_use[-1]


def test_all_maps_have_the_same_scale_and_colours(heaps):
    picture = policy_maps_figure([heap for heap, _ in heaps], "the end")
    ranges = {axis.range for axis in (picture.layout.xaxis, picture.layout.xaxis2, picture.layout.xaxis4)}
    assert len(ranges) == 1
    rows = picture.layout.yaxis.range[0]
    assert rows <= MOST_ROWS
    each = len(picture.data) // len(heaps)
    fills = [
        [trace.fillcolor for trace in picture.data[start : start + each] if trace.type == "scatter"]
        for start in range(0, len(picture.data), each)
    ]
    assert all(colours == fills[0] for colours in fills)


def test_the_area_of_free_chunks_is_their_bytes(heaps):
    heap, recorded = heaps[0]
    picture = policy_maps_figure([heap], "the end")
    free = next(trace for trace in picture.data if trace.name == "free")
    x, y = free.x, free.y
    area = sum(abs(x[at + 3] - x[at]) for at in range(len(x) - 3) if y[at] > y[at + 1] and x[at] == x[at + 1])
    expected = int(recorded.outcome.reserved[-1]) - int(recorded.outcome.in_use[-1])
    assert area * MiB == expected


def test_a_heap_without_a_region_says_so():
    stream = stream_of([(ALLOCATE, 0, MiB)])
    recorded = RecordedOutcome(policy_of("first_fit").serve(stream, record=True))
    picture = policy_maps_figure([PolicyHeap("first_fit", recorded.trace, 0)], "the start")
    assert "no region at this step" in [text for trace in picture.data for text in trace.text or ()]


def test_regions_narrower_than_their_frame_have_none():
    tiny = stream_of([*((ALLOCATE, block, 512) for block in range(30)), (ALLOCATE, 30, 8 * MiB)])
    recorded = RecordedOutcome(policy_of("exact_size").serve(tiny, record=True))
    picture = policy_maps_figure(
        [PolicyHeap("exact_size", recorded.trace, recorded.step_after(30))], "the end"
    )
    frames = [trace for trace in picture.data if trace.name == "region"][-1]
    assert recorded.regions.max() == 30
    gaps = int(np.isnan(np.array(frames.x, float)).sum())  # between the frames of pieces
    assert gaps < 30
