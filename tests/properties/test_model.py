"""The model against a heap that knows its state after every event: either way, seeks, peaks, keyframes."""

from dataclasses import asdict

from both_ways import both_ways, small_steps
from heap_strategies import operations, run
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.errors import TraceError
from bfcviz.model import Model, keyframes
from bfcviz.model.keyframe_bytes import decode, encode


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
