"""Model: where it can go, what it costs, what it says; the states themselves are checked in properties/."""

import numpy as np
import pytest
from both_ways import COMPILED, small_steps
from heap_strategies import run, seeded_operations
from hypothesis import given
from naive_heap import NaiveHeap
from processes import sized

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Kind, bin_of
from bfcviz.events.storage import parquet
from bfcviz.events.trace import Origin, Pool, Trace
from bfcviz.model import CHUNK, REGION, TIMELINE, Model, keyframes, pool_state, timeline
from bfcviz.model.state_snapshots import Snapshots


def test_a_model_begins_at_the_empty_heap(trace):
    model = Model(trace)
    assert model.step == 0
    assert len(model.chunks()) == len(model.regions()) == 0
    assert model.chunks().dtype == CHUNK
    assert model.regions().dtype == REGION
    stats = model.stats()
    assert stats.bytes_limit == 1 << 22
    assert (stats.pool_bytes, stats.largest_free_chunk, stats.num_allocs) == (0, 0, 0)


@pytest.mark.parametrize("step", [-1, 10_000])
def test_steps_outside_the_trace_are_refused(trace, step):
    model = Model(trace)
    model.seek(5)
    with pytest.raises(TraceError, match=f"step {step} .* 0 to {len(trace)}"):
        model.seek(step)
    with pytest.raises(TraceError):
        model.back(6)
    assert model.step == 5


@pytest.mark.parametrize("pool", [-1, 1])
def test_pools_the_trace_does_not_have_are_refused(trace, pool):
    with pytest.raises(TraceError, match=f"pool {pool} .* 0 to 0"):
        Model(trace, pool)


def test_chunks_are_made_once_a_step_and_anew_after_moving(trace, heap):
    model = Model(trace)
    model.seek(10)
    first = model.chunks()
    assert model.chunks() is first
    model.seek(50)
    model.seek(10)
    assert np.array_equal(model.chunks(), first)
    model.forward()
    assert model.chunks().tolist() == heap.states[11][0]["chunks"]


def test_visiting_comes_back_also_after_an_error(trace):
    model = Model(trace)
    model.seek(7)
    with model.visiting(100) as there:
        assert there.step == 100
    assert model.step == 7

    def fail():
        with model.visiting(3):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert model.step == 7


def test_a_contradiction_leaves_the_model_at_the_last_right_step(heap, labels):
    events = heap.events()
    events["size"][200] += 1
    model = Model(Trace.from_events(events, labels, Origin()))
    with pytest.raises(TraceError, match="event 200"):
        model.seek(len(events))
    assert model.step == 200
    assert model.chunks().tolist() == heap.states[200][0]["chunks"]


def test_a_stored_keyframe_saves_the_way_there(heap, monkeypatch):
    trace = heap.trace()
    at = len(trace) // 2
    (trace.keyframes[at],) = keyframes(trace, [at])
    read = []
    monkeypatch.setattr(trace, "read", lambda a, b: (read.append((a, b)), trace.events[a:b])[1])
    with small_steps(pool_state.PoolState, block=16):
        model = Model(trace)
        model.seek(at + 5)
        stats = model.stats()
    assert min(start for start, _ in read) >= at
    assert stats.peak_bytes_in_use == heap.states[at + 5][0]["peak_bytes_in_use"]
    assert stats.num_allocs == heap.states[at + 5][0]["num_allocs"]


def test_a_stored_keyframe_that_is_damaged_is_an_error(heap):
    trace = heap.trace()
    trace.keyframes[100] = b"BFCK rubbish that is long enough to be a header"
    with small_steps(pool_state.PoolState, block=16), pytest.raises(TraceError, match="stored for step 100"):
        Model(trace).seek(110)


def test_a_packed_trace_shows_the_same_with_and_without_keyframes(trace, heap, tmp_path):
    plain, keyed = tmp_path / "plain.parquet", tmp_path / "keyed.parquet"
    trace.save(plain)
    trace.save(keyed, keyframes=keyframes)
    for path in (plain, keyed):
        model = Model(Trace.open(path))
        for step in (len(trace), 17, 200):
            model.seek(step)
            assert model.chunks().tolist() == heap.states[step][0]["chunks"]


def test_a_long_trace_is_sought_either_way(tmp_path, monkeypatch):
    """Several row groups, with keyframes stored and snapshots kept."""
    block = sized(parquet.BLOCK, 1 << 12)
    monkeypatch.setattr(parquet, "BLOCK", block)
    once = busy_heap(40)
    period = len(once.events()) - 1
    for piece in once.pools[0].in_use():
        once.free(0, piece)
    events = once.events()
    period = len(events) - 1
    times = 9 * block // 2 // period
    long = np.concatenate([events[:1], *[events[1:]] * times])
    shift = np.repeat(np.arange(times, dtype=np.uint64) * np.uint64(period), period)
    long["seq"] = np.arange(len(long))
    long["other"][1:][long["kind"][1:] == Kind.FREE] += shift[long["kind"][1:] == Kind.FREE].astype(np.uint32)
    trace = Trace.from_events(long, Labels(), Origin())
    path = tmp_path / "long.parquet"
    with small_steps(pool_state.PoolState, 2 * block):
        trace.save(path, keyframes=keyframes)
    rng = np.random.default_rng(5)
    with small_steps(pool_state.PoolState, block):
        model, packed = Model(trace), Model(Trace.open(path))
        for step in [len(long), *rng.integers(0, len(long), 12).tolist()]:
            model.seek(step)
            packed.seek(step)
            assert np.array_equal(model.chunks(), packed.chunks())
            assert model.stats() == packed.stats()
            inside = (step - 1) % period + 1 if step else 0
            expected = once.states[inside][0]
            assert model.stats().bytes_in_use == expected["bytes_in_use"]
            assert model.stats().largest_free_chunk == expected["largest_free_chunk"]


def test_a_trace_that_grows_is_followed():
    heap = busy_heap(20)
    trace = heap.trace()
    whole = trace.events
    trace.events = whole[:10]
    model = Model(trace)
    model.seek(10)
    with pytest.raises(TraceError):
        model.forward()
    trace.events = whole
    model.seek(len(whole))
    assert model.chunks().tolist() == heap.states[-1][0]["chunks"]


def test_a_trace_without_events_has_one_step():
    trace = Trace.from_events(np.zeros(0, EVENT), Labels(), Origin())
    model = Model(trace)
    model.seek(0)
    assert model.bins()["free_chunks"].sum() == 0
    assert timeline(trace).dtype == TIMELINE
    assert len(timeline(trace)) == 0
    assert list(keyframes(trace, [])) == []


# ------------------------------------------------------------------------------
# Snapshots: their budget, and the way that they shorten.


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
            kept.add(table.snapshot())
        assert kept.nbytes <= budget
        assert kept.before(table.step).step <= table.step
    steps = [kept.before(step).step for step in range(table.step + 1)]
    assert steps == sorted(steps)
    assert kept.before(0).step == 0
    if budget == 1 << 30:
        assert max(step - start for step, start in enumerate(steps)) < 2


def test_snapshots_shorten_the_way_back(monkeypatch):
    heap = busy_heap()
    trace = heap.trace()
    with small_steps(pool_state.PoolState, block=16):
        model = Model(trace)
        model.seek(len(trace))
        read = []
        monkeypatch.setattr(trace, "read", lambda a, b: (read.append(b - a), trace.events[a:b])[1])
        model.seek(len(trace) // 2)
    assert 0 < sum(read) < 40
    assert model.chunks().tolist() == heap.states[model.step][0]["chunks"]


# ------------------------------------------------------------------------------
# A busy heap and its trace.


def busy_heap(count=300):
    heap = NaiveHeap()
    heap.extend(0, 1 << 30, 1 << 20, 0)
    held = []
    for number in range(count):
        held.append(heap.allocate(0, 100 * (number % 37) + 1, label=number % 5))
        if number % 3:
            heap.free(0, held.pop(number % len(held)))
    return heap


@pytest.fixture(scope="module")
def heap():
    return busy_heap()


@pytest.fixture
def labels():
    labels = Labels()
    for number in range(1, 5):
        labels.intern(f"op{number}")
    return labels


@pytest.fixture
def trace(heap, labels):
    return Trace.from_events(heap.events(), labels, Origin(pools=(Pool("gpu", 1 << 22),)))


# ------------------------------------------------------------------------------
# Chunks and bins of a model's step, against a heap that knows its state.


def test_chunks_cannot_be_changed_through_the_model(trace):
    model = Model(trace)
    model.seek(10)
    with pytest.raises(ValueError, match="read-only"):
        model.chunks()["size"] = 0


def test_chunks_are_by_address_from_wherever_one_comes(trace, heap):
    model = Model(trace)
    for step in np.random.default_rng(1).permutation(len(trace))[:100].tolist():
        model.seek(step)
        assert model.chunks().tolist() == heap.states[step][0]["chunks"]


@given(seeded_operations())
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
