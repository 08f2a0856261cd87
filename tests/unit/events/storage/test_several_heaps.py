"""Several heaps in one recording: each has a number, and all write to one log."""

import threading

import numpy as np
import pytest
from heaps import KIB, MIB, new_heap

import bfcviz
from bfcviz.errors import BfcvizError
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Pool, Status
from bfcviz.events.schema import MAX_POOLS, Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.live.heap_provider import logs_of_heaps
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.model import Model
from bfcviz.model.trace_from_source import trace_of


def work(heap, seed, operations=400):
    """Random allocations and frees; the last ones stay."""
    random, held = np.random.default_rng(seed), []
    for number in range(operations):
        if held and random.random() < 0.45:
            heap.free(held.pop(random.integers(len(held))))
        else:
            held.append(heap.allocate(int(random.integers(1, 8 * KIB)), label=f"op{number % 7} of {seed}"))


def chunks_of(heap):
    found = heap.moment().chunks
    return found[["address", "size", "in_use"]].tolist()


def test_heaps_of_several_threads_are_told_apart(tmp_path):
    with Recording(tmp_path / "run", [Pool("gpu")]) as recording:
        heaps = [new_heap(64 * MIB, log=recording.log, labels=recording.labels) for _ in range(3)]
        threads = [threading.Thread(target=work, args=(heap, seed)) for seed, heap in enumerate(heaps)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = [(chunks_of(heap), heap.stats()) for heap in heaps]
        heaps[0].close()
        heaps[1].mark("later")  # the log is closed with the recording, not with a heap
    trace = bfcviz.open(tmp_path / "run")
    trace.source.cut_at_damage()
    assert (trace.origin.status, trace.origin.reasons) == (Status.COMPLETE, ())
    assert [pool.name for pool in trace.origin.pools] == ["gpu", "bfc", "bfc"]
    for pool, (chunks, stats) in enumerate(expected):
        model = Model(trace, pool)
        model.seek(len(trace))
        assert model.chunks()[["address", "size", "in_use"]].tolist() == chunks
        found = model.stats()
        assert (found.bytes_in_use, found.peak_bytes_in_use) == (stats.bytes_in_use, stats.peak_bytes_in_use)
        names = bfcviz.holders(trace, pool=pool).names
        assert {name.partition(" of ")[2] for name in names if name.startswith("op")} == {str(pool)}
    events = trace.read(0, len(trace))
    assert np.array_equal(events["time"], np.maximum.accumulate(events["time"]))
    assert all(len({*events["by"][events["pool"] == pool].tolist()}) <= 2 for pool in range(3))


def test_a_heap_that_comes_while_others_watch(tmp_path):
    with Recording(tmp_path / "run", [Pool("cupy")]) as recording:
        first = new_heap(MIB, log=recording.log, labels=recording.labels)
        work(first, 0, 40)
        trace = Trace.open(tmp_path / "run")
        models = [Model(trace)]
        models[0].seek(len(trace))
        second = ObservedHeap(recording, name="cupy:1", limit=MIB)
        second.allocate(0x7000, 512, label="late")
        work(first, 1, 40)
        trace.refresh()
        assert [pool.name for pool in trace.origin.pools] == ["cupy", "cupy:1"]
        models.append(Model(trace, 1))
        for model, heap in zip(models, (first, second), strict=True):
            model.seek(len(trace))
            assert model.stats().bytes_in_use == heap.stats().bytes_in_use > 0
        models[0].seek(3)  # back to before there was a second heap


def test_a_failure_of_the_second_heap_is_found(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heaps = [new_heap(limit, log=recording.log, labels=recording.labels) for limit in (64 * MIB, MIB)]
        heaps[0].allocate(MIB)
        assert heaps[1].try_allocate(2 * MIB) is None
    trace = Trace.open(tmp_path / "run")
    found = bfcviz.why(trace)
    assert (found.pool, found.requested) == (1, 2 * MIB)
    assert trace.origin.pools[1].limit == MIB


def test_the_last_heaps_without_an_event_are_not_in_the_origin(tmp_path):
    with Recording(tmp_path / "run", [Pool("torch")]) as recording:
        heaps = [new_heap(MIB, log=recording.log) for _ in range(4)]
        heaps[2].mark("used")
        assert len(recording.trace().origin.pools) == 4
    assert [pool.name for pool in Trace.open(tmp_path / "run").origin.pools] == ["torch", "bfc", "bfc"]


def test_each_heap_with_an_event_is_in_the_origin(tmp_path):
    with Recording(tmp_path / "run", [Pool("torch")]) as recording:
        for heap in [new_heap(MIB, log=recording.log) for _ in range(3)]:
            heap.mark("used")
    assert len(Trace.open(tmp_path / "run").origin.pools) == 3


def test_the_name_of_a_framework_gives_way_to_that_of_its_heap(tmp_path):
    with Recording(tmp_path / "run", [Pool("cupy")]) as recording:
        ObservedHeap(recording, name="cupy:3")
    assert Trace.open(tmp_path / "run").origin.pools[0].name == "cupy:3"


def test_rings_are_not_shared(tmp_path):
    ring = EventLog()
    logs = logs_of_heaps(ring)
    assert [next(logs) for _ in range(3)] == [ring, None, None]
    log = EventLog(folder=tmp_path)
    logs = logs_of_heaps(log)
    heaps = [ObservedHeap(next(logs)) for _ in range(MAX_POOLS + 2)]
    assert [heap.log is log for heap in heaps] == [True] * MAX_POOLS + [False] * 2
    assert [heap.pool for heap in heaps[-3:]] == [MAX_POOLS - 1, 0, 0]
    with pytest.raises(BfcvizError, match="256"):
        new_heap(MIB, log=log)
    heaps[MAX_POOLS - 1].mark("last")
    assert log.copy(0, 1)["pool"].tolist() == [MAX_POOLS - 1]


def test_heaps_whose_recording_is_gone_cannot_be_told_apart(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heaps = [new_heap(MIB, log=recording.log) for _ in range(2)]
        assert trace_of(heaps[1]).origin.source == "run"
    for path in (tmp_path / "run").iterdir():
        path.unlink()
    with pytest.raises(BfcvizError, match="log"):
        trace_of(heaps[1])


def test_marks_belong_to_their_heap(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heaps = [new_heap(MIB, log=recording.log, labels=recording.labels), ObservedHeap(recording)]
        for number, heap in enumerate(heaps):
            heap.mark("step", number)
    events = Trace.open(tmp_path / "run").read(0, 2)
    assert events[["kind", "pool", "size"]].tolist() == [(Kind.MARK, 0, 0), (Kind.MARK, 1, 1)]
