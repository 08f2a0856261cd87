"""Plans of offsets, the search for the lowest one, and the policies of both: the plan and the lower bound."""

import math
import sys
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minimalloc import CAPACITY, instance
from shared import sample_trace
from unit.whatif.streams import LIMIT, numbered_stream, streams

from bfcviz.errors import BrokenInvariant, InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.whatif import planner
from bfcviz.whatif.packing import FOUND, IMPOSSIBLE, SEARCHING, CanonicalSearch, PackingProblem
from bfcviz.whatif.planner import (
    Lifetimes,
    PackedPolicy,
    PackingPlan,
    check_plan,
    kept_plan,
    pack,
    plan_table,
)
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream, requests_of


def random_blocks(number, seed):
    """Start, stop and size of blocks."""
    start, length, size = np.random.default_rng(seed).integers([[0], [1], [1]], [[9], [7], [7]], (3, number))
    return start, start + length, size


def blocks(most=6):
    return st.builds(random_blocks, st.integers(1, most), st.integers(0, 1 << 32))


def least_height(start, stop, size):
    """Of all orders in which blocks can be put one above the other, the lowest."""
    found = int(size.sum())
    for order in permutations(range(len(size))):
        top = [0] * int(stop.max())
        for block in order:
            span = slice(start[block], stop[block])
            top[span] = [max(top[span]) + int(size[block])] * (stop[block] - start[block])
        found = min(found, max(top))
    return found


@given(blocks(12))
def test_blocks_that_share_time_are_neighbours(problem):
    start, stop, _ = problem
    found = PackingProblem(*problem)
    for block in range(len(start)):
        others = np.flatnonzero((start < stop[block]) & (stop > start[block]))
        at = slice(found.neighbours_at[block], found.neighbours_at[block + 1])
        assert list(found.neighbours[at]) == [other for other in others if other != block]
    for section, total in enumerate(found.totals):
        members = found.members[found.members_at[section] : found.members_at[section + 1]]
        assert list(members) == list(np.flatnonzero((found.first <= section) & (found.last > section)))
        assert total == found.size[members].sum()


def searched(problem, height, order, by_total=True, steps=10_000):
    search = CanonicalSearch(PackingProblem(*problem), order, by_total, height)
    state = SEARCHING
    while state == SEARCHING:
        state = search.run(steps)
    assert search.run(steps) == state
    return state, np.array(search.offset)


def assert_valid(start, stop, size, offset, height):
    assert (offset >= 0).all()
    assert (offset + size).max() <= height
    for a in range(len(size)):
        for b in range(a):
            apart = stop[a] <= start[b] or stop[b] <= start[a]
            assert apart or offset[a] + size[a] <= offset[b] or offset[b] + size[b] <= offset[a]


@given(problem=blocks(), by_total=st.booleans(), backwards=st.booleans(), steps=st.integers(1, 5))
def test_the_least_height_is_found_and_the_one_below_is_impossible(problem, by_total, backwards, steps):
    least = least_height(*problem)
    order = np.arange(len(problem[2]))[:: -1 if backwards else 1]
    state, offset = searched(problem, least, order, by_total, steps)
    assert state == FOUND
    assert_valid(*problem, offset, least)
    assert searched(problem, least - 1, order, by_total, steps)[0] == IMPOSSIBLE


def test_no_blocks_need_nothing():
    none = np.zeros(0, np.int64)
    assert searched((none, none, none), 0, none)[0] == FOUND


@settings(deadline=None, max_examples=30)
@given(problem=blocks(most=20), seconds=st.just(60))
def test_a_plan_is_the_lowest_or_says_how_far_it_can_be_off(problem, seconds):
    start, stop, size = problem
    rows = [(start, ALLOCATE, block) for block, start in enumerate(start.tolist())]
    rows += [(stop, FREE, block) for block, stop in enumerate(stop.tolist())]
    requests = [
        (kind, block, int(size[block]) << 8 if kind == ALLOCATE else 0)
        for _, kind, block in sorted(rows, key=lambda row: (row[0], -row[1]))
    ]
    plan = pack(numbered_stream(requests), seconds)
    assert plan.height <= plan.least * (1 + planner.ENOUGH)


@pytest.mark.skipif("bfcviz._packing" not in sys.modules, reason="plain Python takes minutes")
@pytest.mark.parametrize("name", ["B", "C", "H"])
def test_hard_instances_fit_into_their_capacity(name):
    stream = instance(name)
    greedy, plan = pack(stream, 0), pack(stream, 60)
    assert plan.height == plan.least <= CAPACITY < greedy.height
    assert greedy.least <= plan.least
    assert policy_of("packed:seconds=60").serve(stream, CAPACITY).fits


def test_a_report_that_returns_false_ends_the_search():
    told = []
    plan = pack(instance("D"), 60, lambda plan: told.append(plan) or len(told) < 3)
    assert len(told) == 3
    assert plan is told[-1]
    assert [each.height for each in told] == sorted((each.height for each in told), reverse=True)


def test_more_pairs_than_the_search_can_handle_leave_the_greedy_plan(monkeypatch):
    monkeypatch.setattr(planner, "MOST_PAIRS", 100)
    stream = instance("B")
    plan, greedy = pack(stream, 60), pack(stream, 0)
    assert plan.height == greedy.height
    assert "100" in plan.not_searched
    assert not greedy.not_searched
    assert policy_of("packed:seconds=61").serve(stream).note  # plans of 60 s are kept
    assert not policy_of("packed").serve(stream).note
    no_gap = numbered_stream([(ALLOCATE, block, 256) for block in range(20)])
    assert not pack(no_gap, 60).not_searched  # no plan needs less


def test_plans_are_kept_by_the_seconds_that_they_may_take():
    stream = instance("C")
    assert kept_plan(stream, 0) is kept_plan(stream, 0)
    assert kept_plan(stream, 0) is not kept_plan(stream, 60)


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_a_time_that_no_search_can_take_is_refused(seconds):
    with pytest.raises(InvalidRequest):
        PackedPolicy({"seconds": seconds})


@settings(deadline=None, max_examples=30)
@given(stream=streams())
def test_the_table_of_a_plan_has_the_place_of_each_allocation(stream):
    plan = pack(stream, 0)
    rows = plan_table(plan, stream).to_pylist()
    assert [row["allocation"] for row in rows] == list(range(stream.allocations))
    for row in rows:
        asked = stream.rows[row["request"]]
        assert (asked["kind"], asked["size"]) == (ALLOCATE, row["requested"])
        assert row["offset"] == plan.offset[asked["block"]]
        assert row["requested"] <= row["size"] == plan.lifetimes.size[asked["block"]]
        if row["freed_at"] is not None:
            freed = stream.rows[row["freed_at"]]
            assert (freed["kind"], freed["block"]) == (FREE, asked["block"])


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
    plan = pack(numbered_stream(requests))
    assert plan.height == 3 * MiB
    by_start = replace(plan, offset=planner._offsets_by_start(numbered_stream(requests)))
    assert by_start.height == 4 * MiB
    assert plan.offset[1] == 2 * MiB


def test_the_plans_used_last_are_kept(monkeypatch):
    packed = []
    monkeypatch.setattr(planner, "_plans", {})
    monkeypatch.setattr(
        planner, "pack", lambda stream, seconds: packed.append(stream) or pack(stream, seconds)
    )
    streams = [numbered_stream([(ALLOCATE, 0, (number + 1) * MiB)]) for number in range(planner._MOST_PLANS)]
    first, *_ = [kept_plan(stream) for stream in streams]
    assert kept_plan(streams[0]) is first
    kept_plan(numbered_stream([(ALLOCATE, 0, 99 * MiB)]))  # in place of the second
    assert kept_plan(streams[0]) is first
    assert len(packed) == len(streams) + 1
    kept_plan(streams[1])
    assert len(packed) == len(streams) + 2


@pytest.mark.parametrize("name", ["conv", "lstm"])
def test_samples_need_two_percent_more_than_their_live_bytes_at_most(name):
    plan = pack(requests_of(sample_trace(name)))
    assert plan.height <= 1.02 * plan.lifetimes.live.max()


def test_lifetimes_span_from_the_allocation_to_the_free():
    stream = numbered_stream([(ALLOCATE, 0, 300), (ALLOCATE, 1, 1), (FREE, 0, 0)])
    lifetimes = Lifetimes.of(stream)
    assert lifetimes.start.tolist() == [0, 1]
    assert lifetimes.stop.tolist() == [2, 3]
    assert lifetimes.size.tolist() == [512, 256]
    assert lifetimes.live.tolist() == [512, 768, 256]
    assert replace(lifetimes, stop=lifetimes.start + 1).duration.tolist() == [1, 1]


def test_an_empty_stream_needs_nothing():
    assert pack(numbered_stream([])).height == 0


KiB = 1 << 10


@given(stream=streams())
def test_live_bytes_are_those_of_the_stream_and_no_policy_needs_less(stream):
    exact = policy_of("live_bytes").serve(stream)
    assert exact.in_use.tolist() == exact.reserved.tolist() == stream.live_bytes.tolist()
    rounded = policy_of("live_bytes:unit=256").serve(stream)
    assert exact.peak_reserved <= policy_of("exact_size:unit=1").serve(stream).peak_reserved
    for name in ("bfc", "xla", "first_fit", "buddy", "packed"):
        outcome = policy_of(name).serve(stream, 1 << 40)
        assert outcome.fits
        assert exact.peak_reserved <= rounded.peak_reserved <= outcome.peak_in_use <= outcome.peak_reserved


def test_live_bytes_fail_only_where_the_live_bytes_exceed_the_limit():
    requests = [
        (ALLOCATE, 0, 3 * KiB),
        (ALLOCATE, 1, 2 * KiB),
        (FREE, 0, 0),
        (FREE, 1, 0),
        (ALLOCATE, 2, 4 * KiB),
    ]
    outcome = policy_of("live_bytes").serve(numbered_stream(requests), 4 * KiB)
    assert outcome.failures.tolist() == [1]
    assert outcome.in_use.tolist() == [3 * KiB, 3 * KiB, 0, 0, 4 * KiB]


def test_a_plan_reserves_its_height_once():
    requests = [
        (ALLOCATE, 0, MiB),
        (ALLOCATE, 1, MiB),
        (FREE, 0, 0),
        (ALLOCATE, 2, 2 * MiB),
    ]
    outcome = policy_of("packed").serve(numbered_stream(requests), 3 * MiB)
    assert outcome.fits
    assert outcome.reserved.tolist() == [3 * MiB] * 4
    assert outcome.driver_calls == (1, 0, 0)
    tight = policy_of("packed").serve(numbered_stream(requests), 3 * MiB - 1)
    assert len(tight.failures) == 1
    assert tight.peak_reserved <= 3 * MiB - 1


def test_what_exceeds_the_limit_alone_displaces_nothing():
    requests = [(ALLOCATE, 0, LIMIT + 1), (ALLOCATE, 1, LIMIT)]
    outcome = policy_of("packed").serve(numbered_stream(requests), LIMIT)
    assert outcome.failures.tolist() == [0]


def test_bound_and_plan_stand_below_the_real_heap_of_a_sample():
    stream = requests_of(sample_trace("lstm"))
    live, packed, bfc = (
        policy_of(text).serve(stream, stream.limit).peak_reserved
        for text in ("live_bytes", "packed", "bfc:allow_growth=true")
    )
    assert live <= packed < bfc


def test_too_many_blocks_for_a_trace_are_named():
    rows = np.zeros(65_536, STREAM_ROW)
    rows["kind"], rows["size"], rows["block"] = ALLOCATE, 1, np.arange(len(rows))
    requests = RequestStream(rows, Labels())
    assert policy_of("live_bytes").serve(requests).peak_in_use == 65_536
    with pytest.raises(InvalidRequest, match="65,536"):
        policy_of("live_bytes").serve(requests, record=True)


def test_sizes_beyond_all_addresses_are_refused():
    requests = numbered_stream([(ALLOCATE, at, 1 << 61) for at in range(3)])
    with pytest.raises(InvalidRequest, match="addresses"):
        policy_of("live_bytes").serve(requests)
    with pytest.raises(InvalidRequest):
        policy_of("packed").serve(requests)


def test_a_unit_below_one_byte_is_refused():
    with pytest.raises(InvalidRequest, match="unit"):
        policy_of("live_bytes:unit=0")


def test_all_limits_of_a_stream_are_planned_once(monkeypatch):
    planned = []
    plain = planner.pack
    monkeypatch.setattr(planner, "_plans", {})
    monkeypatch.setattr(
        planner, "pack", lambda stream, seconds: planned.append(stream) or plain(stream, seconds)
    )
    stream = requests_of(sample_trace("lstm"))
    policy = policy_of("packed")
    peaks = {policy.serve(stream, limit).peak_reserved for limit in (None, 1 << 30, 1 << 28)}
    assert planned == [stream]
    assert len(peaks) == 1
    largest = int(stream.block_sizes.max())
    assert not policy.serve(stream, largest - 1).fits
    assert planned[-1] is not stream
