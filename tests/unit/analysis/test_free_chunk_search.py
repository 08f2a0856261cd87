"""The search made again from events alone picks what the real heap picked."""

import random
from dataclasses import replace

import numpy as np
import pytest
from heaps import BASE, KIB, Scripted, new_heap
from unit.analysis.built import has_facts
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.analysis.free_chunk_search import Cut, EventSearch, Taken, search_of, search_words
from bfcviz.errors import TraceError
from bfcviz.events.log import EventLog, Reader
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


# ------------------------------------------------------------------------------
# Searches in sentences: numbers and verdicts.


KiB = 1 << 10
TAKEN = Taken(0x7F1234567800, 40 * KiB, 7, 0, 38 * KiB, split=True, cut=Cut.HALVES)
SEARCH = EventSearch(
    event=9,
    requested=2 * KiB,
    rounded=2 * KiB,
    first_bin=3,
    last_bin=7,
    free_chunks=(0, 0, 0, 0, 3),
    too_small=0,
    passed_over=0,
    extended=0,
    released=0,
    max_waste=128 * MiB,
    taken=TAKEN,
)
PLACE = "0x…34567800 (40.0 KiB)"


def sentences(**changes):
    return search_words(replace(SEARCH, **changes))


def test_lower_bins_without_a_free_chunk():
    facts = ("2.0 KiB", "bin 3", "bins 3 to 6", "no free chunk", "best fit of 3", "bin 7", PLACE, "38.0 KiB")
    assert has_facts(sentences(), *facts)
    facts = ("bin 6 has no free chunk", "only free chunk in bin 7", "0x")
    assert has_facts(sentences(first_bin=6, free_chunks=(0, 1)), *facts)


def test_lower_bins_with_chunks_that_are_too_small():
    text = sentences(free_chunks=(4, 0, 0, 0, 3), too_small=4)
    assert has_facts(text, "all 4", "bins 3 to 6", "too small;")
    text = sentences(first_bin=6, free_chunks=(1, 3), too_small=1)
    assert has_facts(text, "only free chunk in bin 6", "too small;")


def test_the_first_bin_has_the_chunk():
    here = {"last_bin": 3, "taken": replace(TAKEN, bin=3)}
    text = sentences(**here, free_chunks=(12,), too_small=4)
    assert has_facts(text, "bin 3:", "best fit of 12", "bin 3", PLACE, "4 of them too small", "38.0 KiB")
    assert has_facts(sentences(**here, free_chunks=(1,)), "bin 3:", "only free chunk in bin 3")


def test_the_size_before_rounding_is_said():
    assert has_facts(sentences(requested=1900), "2.0 KiB", "1.9 KiB rounded up", "bin 3")
    assert has_facts(sentences(requested=2047), "2.0 KiB", "2,047 B rounded up", "bin 3")
    assert "rounded" not in sentences()


def test_the_pool_grew():
    grown = {"last_bin": 20, "extended": 4 * MiB}
    text = sentences(**grown, free_chunks=(5, *[0] * 17), too_small=5)
    assert has_facts(
        text, "all 5", "bins 3 to 20", "too small", "grew by 4.0 MiB", PLACE, "bin 7", "38.0 KiB"
    )
    text = sentences(**grown, free_chunks=(0,) * 18, released=2)
    assert has_facts(text, "no free chunk", "released 2 free regions", "grew by 4.0 MiB")
    assert "released 1 free region " in sentences(**grown, free_chunks=(0,) * 18, released=1)
    last = sentences(first_bin=20, last_bin=20, extended=MiB, free_chunks=(0,))
    assert has_facts(last, "bin 20 has no free chunk", "grew by 1.0 MiB")


def test_a_request_that_failed():
    failed = {"last_bin": 20, "taken": None, "free_chunks": (2, *[0] * 17), "too_small": 2}
    assert has_facts(sentences(**failed), "all 2", "bins 3 to 20", "too small", "did not grow")
    assert has_facts(sentences(**failed, extended=MiB), "grew by 1.0 MiB", "still no chunk fits")


def test_chunks_that_the_search_skipped():
    text = sentences(free_chunks=(3, 0, 0, 1, 3), too_small=2, passed_over=2)
    assert has_facts(
        text, "none of the 4", "bins 3 to 6", "2 free chunks", "skipped", "alignment", "timestamp"
    )
    text = sentences(first_bin=6, free_chunks=(1, 3), passed_over=1)
    assert has_facts(text, "only free chunk in bin 6", "not taken", "1 free chunk", "skipped")


@pytest.mark.parametrize(
    ("taken", "facts"),
    [
        (replace(TAKEN, padding=512), ("512 B of alignment padding", "was split", "twice", "38.0 KiB")),
        (replace(TAKEN, rest=0, split=False, cut=Cut.EXACT), ("exactly", "not split")),
        (replace(TAKEN, rest=130 * MiB, cut=Cut.WASTE), ("was split", "130.0 MiB", "128.0 MiB")),
        (
            replace(TAKEN, rest=1024, split=False, cut=Cut.WHOLE),
            ("not split", "1.0 KiB", "less than the request", "128.0 MiB"),
        ),
        (replace(TAKEN, rest=1024, cut=Cut.NOT_SHOWN), ("was split", "1.0 KiB", "not show why")),
        (replace(TAKEN, rest=1024, split=False, cut=Cut.NOT_SHOWN), ("not split", "1.0 KiB", "not show why")),
    ],
)
def test_why_the_chunk_was_split_or_not(taken, facts):
    assert has_facts(sentences(taken=taken), PLACE, *facts)


def test_an_unknown_limit_is_not_mentioned():
    taken = replace(TAKEN, rest=1024, split=False, cut=Cut.WHOLE)
    assert "limit" not in sentences(taken=taken, max_waste=None)
