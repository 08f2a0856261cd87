"""The model against a heap that knows its state after every event: either way, seeks, peaks, keyframes."""

from dataclasses import asdict

import numpy as np
import pytest
from both_ways import COMPILED, PLAIN, both_ways, is_compiled, small_steps
from heap_strategies import damaged, operations, run
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.errors import TraceError
from bfcviz.events.schema import bin_of
from bfcviz.model import Model, keyframes
from bfcviz.model.seeking.keyframes import decode, encode
from bfcviz.model.seeking.snapshots import Snapshots, snapshot_of


def state_of(model):
    stats = asdict(model.stats())
    stats.pop("bytes_limit")
    chunks, regions = model.chunks().tolist(), model.regions().tolist()
    return {"chunks": [(*c[:-1], c[-1]) for c in chunks], "regions": regions, **stats}


@both_ways
@given(operations())
def test_forward_and_back_agree_with_the_heap_at_every_step(table_class, steps):
    heap = run(steps)
    trace = heap.trace()
    with small_steps(table_class):
        for pool in range(2):
            model = Model(trace, pool)
            assert state_of(model) == heap.states[0][pool]
            for step in range(1, len(trace) + 1):
                model.forward()
                assert state_of(model) == heap.states[step][pool]
            for step in range(len(trace) - 1, -1, -1):
                model.back()
                assert state_of(model) == heap.states[step][pool]


@both_ways
@given(operations(), st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_seeks_agree_with_the_heap_whatever_way_they_take(table_class, steps, places, stored):
    heap = run(steps)
    trace = heap.trace()
    if stored:
        at = range(0, len(trace), 3)
        trace.keyframes = dict(zip(at, keyframes(trace, at), strict=True))
    with small_steps(table_class):
        model = Model(trace, 1)
        for place in places:
            step = place % (len(trace) + 1)
            model.seek(step)
            assert model.step == step
            assert state_of(model) == heap.states[step][1]


@both_ways
@given(operations())
def test_whole_blocks_agree_with_single_events(table_class, steps):
    heap = run(steps)
    events = heap.events()
    table = table_class(0, 2)
    table.apply(events)
    at_end = heap.states[-1][0]
    assert (table.bytes_in_use, table.largest_free_chunk) == (
        at_end["bytes_in_use"],
        at_end["largest_free_chunk"],
    )
    table.undo(events)
    assert table.step == table.pool_bytes == table.largest_free_chunk == len(table.chunk_rows()) == 0


@given(operations())
def test_bins_count_every_chunk_once_in_the_bin_of_its_size(steps):
    heap = run(steps)
    model = Model(heap.trace(), 0)
    model.seek(len(heap.records))
    bins = model.bins()
    for state, pieces in (("free", heap.pools[0].free()), ("in_use", heap.pools[0].in_use())):
        for number in range(21):
            sizes = [piece.size for piece in pieces if bin_of(piece.size) == number]
            assert bins[number][f"{state}_chunks"] == len(sizes)
            assert bins[number][f"{state}_bytes"] == sum(sizes)


@given(operations(), st.integers(0, 10_000))
def test_keyframes_come_back_as_they_were(steps, place):
    heap = run(steps)
    trace = heap.trace()
    step = place % (len(trace) + 1)
    data = next(keyframes(trace, [step]))
    for pool in range(2):
        model = Model(trace, pool)
        model.table.restore(decode(data, step, pool, 2))
        assert state_of(model) == heap.states[step][pool]
    assert encode([decode(data, step, pool, 2) for pool in range(2)]) == data


@given(operations(), st.data())
def test_damaged_keyframes_are_refused_or_describe_a_heap(steps, data):
    heap = run(steps)
    trace = heap.trace()
    keyframe = bytearray(next(keyframes(trace, [len(trace)])))
    for _ in range(data.draw(st.integers(1, 4))):
        keyframe[data.draw(st.integers(0, len(keyframe) - 1))] = data.draw(st.integers(0, 255))
    keyframe = bytes(keyframe[: data.draw(st.integers(len(keyframe) // 2, len(keyframe)))])
    try:
        snapshot = decode(keyframe, len(trace), 0, 2)
    except TraceError as error:
        assert f"step {len(trace)}" in str(error)  # noqa: PT017  either way is right
        return
    model = Model(trace, 0)
    model.table.restore(snapshot)
    chunks, regions = model.chunks(), model.regions()
    assert model.stats().pool_bytes == int(regions["size"].sum()) == int(chunks["size"].sum())
    assert model.stats().free_bytes == int(chunks["size"][~chunks["in_use"]].sum())


@is_compiled
@given(operations(max_size=25).filter(bool), st.data())
def test_a_damaged_event_is_refused_alike_and_leaves_a_right_step(steps, data):
    heap = run(steps)
    events = data.draw(damaged(heap.events()))
    outcomes = []
    for table_class in (COMPILED, PLAIN):
        table = table_class(0, 2)
        message = ""
        try:
            table.apply(events)
        except TraceError as error:
            message = str(error)
            assert message.startswith(f"event {table.step} (")
        rows = np.sort(table.chunk_rows(), order="address")
        outcomes.append((table.step, message, rows.tolist(), table.largest_free_chunk))
        table.undo(events[: table.step])
        assert (table.pool_bytes, table.free_bytes, table.num_allocs, len(table.chunk_rows())) == (0, 0, 0, 0)
    assert outcomes[0] == outcomes[1]


@is_compiled
@given(operations(max_size=25), st.data())
def test_undoing_other_events_is_refused_alike(steps, data):
    heap = run(steps)
    events = heap.events()
    wrong = data.draw(damaged(events))
    outcomes = []
    for table_class in (COMPILED, PLAIN):
        table = table_class(0, 2)
        table.apply(events)
        message = ""
        try:
            table.undo(wrong)
        except TraceError as error:
            message = str(error)
        outcomes.append((table.step, message, table.bytes_in_use, table.pool_bytes, table.largest_free_chunk))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("budget", [0, 20_000, 1 << 30])
def test_snapshots_stay_within_their_budget(budget):
    heap = run([("allocate", i % 5, i, 0) for i in range(200)])
    kept = Snapshots(budget)
    kept.spacing = 2
    table = COMPILED(0, 2)
    events = heap.events()
    for at in range(0, len(events) - 1, 2):
        table.apply(events[at : at + 2])
        if kept.wants(table.step):
            kept.add(snapshot_of(table))
        assert kept.nbytes <= budget
        assert kept.before(table.step).step <= table.step
    steps = [kept.before(step).step for step in range(table.step + 1)]
    assert steps == sorted(steps)
    assert kept.before(0).step == 0
    if budget == 1 << 30:
        assert max(step - start for step, start in enumerate(steps)) < 2
