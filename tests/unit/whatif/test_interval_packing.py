from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.whatif.labelled_streams import stream_of, streams

from bfcviz.errors import BrokenInvariant
from bfcviz.whatif import planner
from bfcviz.whatif.planner import Lifetimes, PackingPlan, check_plan, kept_plan, pack
from bfcviz.whatif.requests import ALLOCATE, FREE, requests_of

MiB = 1 << 20


def overlaps(plan):
    """Whether two blocks share bytes at a time, by comparing all pairs."""
    lifetimes, low = plan.lifetimes, plan.offset
    for a in range(len(low)):
        for b in range(a):
            in_time = lifetimes.start[a] < lifetimes.stop[b] and lifetimes.start[b] < lifetimes.stop[a]
            in_space = low[a] < low[b] + lifetimes.size[b] and low[b] < low[a] + lifetimes.size[a]
            if in_time and in_space and lifetimes.size[a] and lifetimes.size[b]:
                return True
    return False


@pytest.mark.parametrize("most_exact", [0, 3, 4096])
@given(stream=streams())
def test_no_two_blocks_overlap_and_the_height_is_possible(most_exact, stream):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "MOST_EXACT", most_exact)
        patch.setattr(planner, "LIMIT_EXACT", most_exact)
        plan = pack(stream)
    assert not overlaps(plan)
    assert plan.lifetimes.live.max(initial=0) <= plan.height <= plan.lifetimes.size.sum()


@given(stream=streams(), seed=st.integers(0, 1 << 32))
def test_the_check_finds_every_overlap(stream, seed):
    lifetimes = Lifetimes.of(stream)
    moves = np.random.default_rng(seed).integers(0, 40 * MiB, len(lifetimes.size))
    plan = PackingPlan(lifetimes, moves, "moved")
    if overlaps(plan):
        with pytest.raises(BrokenInvariant):
            check_plan(plan)
    else:
        check_plan(plan)


def test_a_plan_that_knows_the_future_beats_the_order_of_time():
    requests = [(ALLOCATE, 0, MiB), (ALLOCATE, 1, MiB), (FREE, 0, 0), (ALLOCATE, 2, 2 * MiB)]
    plan = pack(stream_of(requests))
    assert plan.height == 3 * MiB
    by_start = replace(plan, offset=planner._offsets_by_start(stream_of(requests)))
    assert by_start.height == 4 * MiB
    assert plan.offset[1] == 2 * MiB


def test_the_plans_used_last_are_kept(monkeypatch):
    packed = []
    monkeypatch.setattr(planner, "_plans", {})
    monkeypatch.setattr(
        planner, "pack", lambda stream, seconds: packed.append(stream) or pack(stream, seconds)
    )
    streams = [stream_of([(ALLOCATE, 0, (number + 1) * MiB)]) for number in range(planner._MOST_PLANS)]
    first, *_ = [kept_plan(stream) for stream in streams]
    assert kept_plan(streams[0]) is first
    kept_plan(stream_of([(ALLOCATE, 0, 99 * MiB)]))  # in place of the second
    assert kept_plan(streams[0]) is first
    assert len(packed) == len(streams) + 1
    kept_plan(streams[1])
    assert len(packed) == len(streams) + 2


@pytest.mark.parametrize("name", ["conv", "lstm"])
def test_samples_need_two_percent_more_than_their_live_bytes_at_most(name):
    plan = pack(requests_of(sample_trace(name)))
    assert plan.height <= 1.02 * plan.lifetimes.live.max()


def test_lifetimes_span_from_the_allocation_to_the_free():
    stream = stream_of([(ALLOCATE, 0, 300), (ALLOCATE, 1, 1), (FREE, 0, 0)])
    lifetimes = Lifetimes.of(stream)
    assert lifetimes.start.tolist() == [0, 1]
    assert lifetimes.stop.tolist() == [2, 3]
    assert lifetimes.size.tolist() == [512, 256]
    assert lifetimes.live.tolist() == [512, 768, 256]
    assert replace(lifetimes, stop=lifetimes.start + 1).duration.tolist() == [1, 1]


def test_an_empty_stream_needs_nothing():
    assert pack(stream_of([])).height == 0
