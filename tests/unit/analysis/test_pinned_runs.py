"""The best runs of chunks for a request, against every window tried one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.analysis.pinned_runs import best_runs
from bfcviz.model.model import CHUNK


def chunks_of(regions, gap=1000):
    """Regions of (size, in_use) pieces, with a gap between regions (0: they touch)."""
    rows, address = [], 4096
    for slot, pieces in enumerate(regions):
        for size, in_use in pieces:
            rows.append((address, size, slot, in_use))
            address += size
        address += gap
    found = np.zeros(len(rows), CHUNK)
    for row, (address, size, slot, in_use) in zip(found, rows, strict=True):
        row["address"], row["size"], row["region"], row["in_use"] = address, size, slot, in_use
    return found


def every_window(chunks, wanted):
    """(bytes in use, chunks in use, first, stop) of each window of one region that is long enough."""
    for first in range(len(chunks)):
        for stop in range(first + 1, len(chunks) + 1):
            window = chunks[first:stop]
            if len(set(window["region"].tolist())) == 1 and window["size"].sum() >= wanted:
                used = window[window["in_use"]]
                yield int(used["size"].sum()), len(used), first, stop


PIECES = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=7)


@given(
    st.lists(PIECES, min_size=1, max_size=3), st.integers(1, 40), st.integers(1, 4), st.sampled_from((0, 50))
)
def test_runs_are_the_best_of_all_windows(regions, wanted, most, gap):
    chunks = chunks_of(regions, gap)
    runs = best_runs(chunks, wanted, most)
    left = list(every_window(chunks, wanted))
    for run in runs:
        assert (run.bytes_in_use, run.chunks_in_use) == min(window[:2] for window in left)
        left = [each for each in left if each[3] <= run.first or each[2] >= run.stop]
    assert len(runs) == most or not left


@given(st.lists(PIECES, min_size=1, max_size=3), st.integers(1, 40))
def test_a_run_says_what_its_chunks_say(regions, wanted):
    chunks = chunks_of(regions)
    for run in best_runs(chunks, wanted, 3):
        inside = chunks[run.first : run.stop]
        assert set(inside["region"].tolist()) == {run.region}
        assert (run.address, run.size) == (inside["address"][0], inside["size"].sum())
        used = inside[inside["in_use"]]
        assert (run.bytes_in_use, run.chunks_in_use) == (used["size"].sum(), len(used))
        for beside in (run.first - 1, run.stop):  # the free chunks on both sides belong to it
            if 0 <= beside < len(chunks) and chunks["region"][beside] == run.region:
                assert chunks["in_use"][beside]


@pytest.mark.parametrize("wanted", [8, 13])
def test_the_picture_of_the_module(wanted):
    chunks = chunks_of([[(4, False), (1, True), (3, False), (9, True), (6, False)]])
    best = best_runs(chunks, wanted, 2)[0]
    assert (best.bytes_in_use, best.size) == {8: (1, 8), 13: (9, 18)}[wanted]


def test_nothing_holds_a_request_larger_than_every_region():
    assert best_runs(chunks_of([[(4, False)], [(4, True)]]), 5, 3) == []
    assert best_runs(np.zeros(0, CHUNK), 5, 3) == []


def test_a_million_chunks():
    random = np.random.default_rng(0)
    chunks = np.zeros(1_000_000, CHUNK)
    chunks["size"] = random.integers(1, 1000, len(chunks)) * 256
    chunks["address"] = np.cumsum(chunks["size"]) - chunks["size"]
    chunks["in_use"] = random.random(len(chunks)) < 0.5
    chunks["region"] = np.arange(len(chunks)) // 10_000
    runs = best_runs(chunks, 1 << 30, 3)
    assert [run.size >= 1 << 30 for run in runs] == [True] * 3
    assert [run.bytes_in_use for run in runs] == sorted(run.bytes_in_use for run in runs)
