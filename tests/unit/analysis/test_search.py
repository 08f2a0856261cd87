"""The search made again from events alone picks what the real heap picked."""

import random

import numpy as np
import pytest
from heaps import BASE, KIB, Scripted, new_heap
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.analysis.event_text import Cut, search_of
from bfcviz.errors import TraceError
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.model import Model


def trace_of_heap(heap, **details):
    """Everything the heap wrote, with its options as a recording has them."""
    options = {"fragmentation_fraction": heap.options.fragmentation_fraction}
    pools = (Pool(heap.name, heap.limit, options),)
    return Trace.from_events(
        Reader(heap.log, 0).read(1 << 24), heap.labels, Origin(pools=pools, details=details)
    )


def worked(seed, *, alignments=(1,), timestamps=False, operations=250, **options):
    """A heap after random requests."""
    chance = random.Random(seed)
    heap = new_heap(4 * 1024 * KIB, log=EventLog(1 << 14), timestamps=timestamps, **options)
    held = []
    for _ in range(operations):
        if held and chance.random() < 0.45:
            heap.free(held.pop(chance.randrange(len(held))))
            continue
        size = int(2 ** chance.uniform(2, 18))
        before = chance.choice((0, 0, heap.internals().timing_count)) if timestamps else 0
        try:
            held.append(heap.allocate(size, alignment=chance.choice(alignments), freed_before=before))
        except MemoryError:
            heap.free(held.pop())
    return heap


def searches(trace):
    """Each ALLOCATE and OOM with its search."""
    model = Model(trace)
    for event in trace.read(0, len(trace)):
        if event["kind"] in (Kind.ALLOCATE, Kind.OOM):
            yield event, search_of(trace, int(event["seq"]), model), model


def best_fit(model, step, need):
    """(size, address) of the chunk the rule takes at a step, by a plain search; None where none fits."""
    with model.visiting(step):
        free = [c for c in model.chunks() if not c["in_use"] and c["size"] >= need]
    return min(((int(c["size"]), int(c["address"])) for c in free), default=None)


@pytest.mark.parametrize(
    ("seed", "options"),
    [(0, {}), (1, {"allow_growth": True}), (2, {"allow_growth": True, "fragmentation_fraction": 0.01})],
)
def test_the_search_picks_what_the_heap_picked(seed, options):
    trace = trace_of_heap(worked(seed, **options))
    found = 0
    for event, search, model in searches(trace):
        assert search.requested == event["requested"]
        assert search.first_bin == bin_of(search.rounded)
        assert search.passed_over == 0
        if search.taken is None:
            assert event["kind"] == Kind.OOM
            assert best_fit(model, search.event, search.rounded) is None
            continue
        begin = int(event["seq"]) - search.taken.split
        assert best_fit(model, begin, search.rounded) == (search.taken.size, search.taken.address)
        assert (search.taken.address, search.taken.bin) == (event["address"], event["bin"])
        assert search.taken.cut is not Cut.NOT_SHOWN
        assert search.taken.size == event["size"] + (search.taken.rest if search.taken.split else 0)
        found += 1
    assert found > 100


@pytest.mark.parametrize("seed", range(2))
def test_with_alignment_chunks_that_fit_may_be_passed_over(seed):
    trace = trace_of_heap(worked(seed, alignments=(1, 256, 4096), allow_growth=True))
    padded = passed = 0
    for event, search, model in searches(trace):
        if search.taken is None:
            continue
        found = search.taken
        padded += found.padding > 0
        passed += search.passed_over > 0
        assert found.address + found.padding == event["address"]
        assert found.bin == event["bin"]
        if not search.passed_over and not search.extended:
            begin = int(event["seq"]) - found.split - (found.padding > 0)
            assert best_fit(model, begin, search.rounded) == (found.size, found.address)
    assert padded
    assert passed


def test_with_timestamps_chunks_freed_too_late_are_passed_over():
    trace = trace_of_heap(worked(1, timestamps=True, allow_growth=True))
    for event, search, _ in searches(trace):
        assert search.taken is None or search.taken.address == event["address"]
    heap = new_heap(8 * KIB, timestamps=True)
    first, second = heap.allocate(256), heap.allocate(256)
    heap.free(first)
    heap.free(second)
    heap.allocate(256, freed_before=1)
    heap.allocate(256, freed_before=1)
    *_, (event, search, _) = searches(trace_of_heap(heap))
    assert event["address"] == first + 512
    assert search.passed_over == 1


@pytest.mark.parametrize("seed", range(2))
def test_the_search_counts_the_free_chunks_of_each_bin_it_looked_at(seed):
    trace = busy_trace(250, seed)
    for event, search, model in searches(trace):
        assert len(search.free_chunks) == search.last_bin - search.first_bin + 1
        begin = int(event["seq"]) - (search.taken is not None and search.taken.split) - (search.extended > 0)
        with model.visiting(begin):
            counts = model.bins()["free_chunks"][search.first_bin : search.last_bin + 1]
            chunks = model.chunks()
        assert search.free_chunks == tuple(counts.tolist())
        small = [c for c in chunks if not c["in_use"] and bin_of(int(c["size"])) == search.first_bin]
        assert search.too_small == sum(int(c["size"]) < search.rounded for c in small)
        if search.taken is not None and not search.extended:
            assert search.last_bin == search.taken.bin == event["bin"]
        else:
            assert search.last_bin == 20


def test_every_event_of_an_allocation_tells_of_its_one_search():
    heap = new_heap(4096 * KIB, allow_growth=True)
    heap.allocate(1000)
    trace = trace_of_heap(heap)
    assert trace.read(0, len(trace))["kind"].tolist() == [Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE]
    search = search_of(trace, 2)
    assert search_of(trace, 0) == search_of(trace, 1) == search
    assert (search.extended, search.released) == (2048 * KIB, 0)
    assert (search.first_bin, search.last_bin, sum(search.free_chunks)) == (2, 20, 0)
    assert search.taken.size == 2048 * KIB
    assert search.taken.cut is Cut.HALVES


def test_a_region_that_grows_and_merges_is_part_of_the_search():
    place = iter([BASE, BASE + 2048 * KIB])
    source = Scripted(lambda _, num_bytes: (next(place), num_bytes), supports_coalescing=True)
    heap = new_heap(16384 * KIB, source, allow_growth=True)
    heap.allocate(1000 * KIB)
    heap.allocate(2300 * KIB)
    trace = trace_of_heap(heap)
    kinds = trace.read(0, len(trace))["kind"].tolist()
    assert kinds[3:] == [Kind.EXTEND, Kind.MERGE, Kind.SPLIT, Kind.ALLOCATE]
    search = search_of(trace, 6)
    assert search == search_of(trace, 3) == search_of(trace, 4)
    assert search.extended == 4096 * KIB
    assert search.taken.size == 5144 * KIB
    assert (search.free_chunks[0], search.too_small) == (0, 0)


def test_regions_released_for_a_request_are_counted():
    heap = new_heap(8192 * KIB, allow_growth=True, garbage_collection=True)
    heap.free(heap.allocate(2048 * KIB))
    heap.free(heap.allocate(4096 * KIB))
    heap.allocate(6144 * KIB)
    trace = trace_of_heap(heap)
    (release,) = np.flatnonzero(trace.read(0, len(trace))["kind"] == Kind.RELEASE)[:1]
    search = search_of(trace, int(release))
    assert search.released == 2
    assert search.extended == 8192 * KIB
    assert search.passed_over == 0


def test_why_a_chunk_is_split_or_not():
    heap = new_heap(1024 * KIB, fragmentation_fraction=0.25)
    first = heap.allocate(700 * KIB)
    heap.allocate(300 * KIB)
    heap.free(first)
    heap.allocate(500 * KIB)
    trace = trace_of_heap(heap)
    found = [search.taken for _, search, _ in searches(trace)]
    assert [(place.cut, place.split, place.rest) for place in found] == [
        (Cut.WASTE, True, 324 * KIB),
        (Cut.WHOLE, False, 24 * KIB),
        (Cut.WHOLE, False, 200 * KIB),
    ]
    assert search_of(trace, 1).max_waste == 256 * KIB


def test_what_the_options_do_not_tell_is_not_shown():
    heap = PlainHeap(200 * MiB)  # splits off 64 MiB of waste
    heap.allocate(110 * MiB)
    trace = heap.trace()
    search = search_of(trace, len(trace) - 1)
    assert search.max_waste is None
    assert (search.taken.split, search.taken.cut) == (True, Cut.NOT_SHOWN)


def test_events_of_no_request_have_no_search():
    heap = PlainHeap(MiB)
    address = heap.allocate(256)
    heap.allocate(256)
    heap.free(address)
    heap.allocate(1024)
    trace = heap.trace()
    kinds = trace.read(0, len(trace))["kind"].tolist()
    assert search_of(trace, kinds.index(Kind.FREE)) is None
    assert search_of(trace_of(trace.read(0, 1)), 0) is None
    assert search_of(trace_of(trace.read(0, 2)), 1) is None
    with pytest.raises(TraceError):
        search_of(trace, len(trace))


def test_a_heap_tiled_from_addresses_has_no_search():
    heap = new_heap(MiB)
    heap.allocate(256)
    assert search_of(trace_of_heap(heap, checks=[{"method": "replayed"}]), 2) is not None
    assert search_of(trace_of_heap(heap, checks=[{"method": "tiled"}]), 2) is None


def test_the_model_stays_where_it_stands():
    trace = busy_trace()
    model = Model(trace)
    model.seek(200)
    chunks = model.chunks()
    for step in range(190, 210):
        search_of(trace, step, model)
    assert model.step == 200
    assert model.chunks() is chunks
