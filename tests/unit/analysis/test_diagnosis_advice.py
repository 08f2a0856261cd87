"""Advice fits the numbers and the settings: each rule where it helps, and where it does not."""

from dataclasses import replace

import pytest
from heaps import new_heap
from processes import sized
from shared import SHARED, needs_shared
from unit.analysis.built import MIB, state

import bfcviz
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.analysis.diagnosis import (
    Verdict,
    failure_headline,
    failure_lines,
    free_words,
    verdict_sentence,
)
from bfcviz.analysis.diagnosis_advice import WORDS, requests_until_failure
from bfcviz.analysis.failures import all_failures, cause_for_json, diagnose
from bfcviz.analysis.heap_settings import Family, heap_settings_of
from bfcviz.analysis.would_fit import would_fit
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.model.trace_from_source import trace_of

PINNED = [[-2, 3, -2, 1, -2, 1, -2]]
"""8 MiB free, 2 MiB in one chunk; freeing 1 MiB makes 5."""

GROWN = [[1, -3], [-4], [2, -2]]
"""9 MiB free in three regions; the largest is 4 MiB, and it is free."""


def advice(*args, **kwargs):
    """Kind -> advice of a failure."""
    trace = state(*args, **kwargs)
    return {str(each.kind): each for each in diagnose(trace, len(trace) - 1).advice}


def test_free_the_chunks_that_pin_the_best_place():
    found = advice(PINNED, 5, 13)["free_pins"]
    assert found.numbers == {
        "address": 0x7F0000000000 + 5 * MIB,
        "chunks": 1,
        "bytes": MIB,
        "free_chunk": 5 * MIB,
    }
    for fact in ("op3", "1.0 MiB", "5.0 MiB", "0x7f0000500000"):
        assert fact in found.text


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("tensorflow", ["TF_GPU_ALLOCATOR=cuda_malloc_async", "TF_FORCE_GPU_ALLOW_GROWTH=false"]),
        ("jax", ["TF_GPU_ALLOCATOR=cuda_malloc_async", "XLA_PYTHON_CLIENT_PREALLOCATE=true"]),
        ("rmm", ["CudaAsyncMemoryResource", f"initial_pool_size={13 * MIB}"]),
        ("cupy", ["MemoryAsyncPool", "CUPY_GPU_MEMORY_LIMIT="]),
        ("torch", ["expandable_segments:True", "backend:cudaMallocAsync"]),
        ("bfcviz", ["AllocatorOptions(allow_growth=False)", "limit="]),
    ],
)
def test_each_framework_has_its_own_words(framework, words):
    text = " ".join(each.text for each in advice(GROWN, 5, 13, framework=framework).values())
    for word in words:
        assert word in text
    others = {word for family in WORDS.values() for word in vars(family).values() if "{" not in word}
    mine = set(vars(WORDS[Family(framework)]).values())
    assert not [word for word in others - mine if word and word in text and len(word) > 20]


def test_to_free_as_much_as_is_asked_is_no_advice():
    assert "free_pins" not in advice([[8, -2]], 5, 10)
    found = advice([[100, -0.25]], 4, 100.25, tensor="float [64,16384]")
    assert "at most 96 %" in found["batch_size"].text  # 100.25 / 104


@pytest.mark.parametrize(("label", "later"), [("add", 0), ("add", 9), ("scalar", 0)])
def test_a_temporary_of_the_call_that_failed_is_not_to_be_freed_before_it(label, later):
    """As in `x + 1`, whose scalar takes the place of 256 B in the only region that is large enough."""
    heap = new_heap(96 * MIB, allow_growth=True, exact_growth=True)
    heap.allocate(32 * MIB, label="x")
    heap.free(heap.allocate(64 * MIB, label="y"))
    scalar = heap.allocate(1, label=label)
    assert heap.try_allocate(64 * MIB, label="add") is None
    for _ in range(later):
        heap.free(heap.allocate(MIB, label="handler"))
    heap.free(scalar)
    trace = trace_of(heap)
    (failed,) = all_failures(trace)
    assert failed.runs[0].bytes_in_use == 256
    assert (label == "add" and not later) is ("free_pins" not in {str(each.kind) for each in failed.advice})


def test_a_size_that_is_printed_as_the_request_shows_the_difference():
    heap = new_heap(96 * MIB, allow_growth=True, exact_growth=True)
    heap.allocate(32 * MIB)
    heap.free(heap.allocate(64 * MIB))
    heap.allocate(1)
    assert heap.try_allocate(64 * MIB) is None
    (failed,) = all_failures(trace_of(heap))
    for text in ("\n".join(failure_lines(failed)), failure_headline(failed), free_words(failed)):
        assert "64.0 MiB (-256 B)" in text


def test_region_release_where_it_would_have_been_enough():
    found = advice(GROWN, 5, 13)
    assert found["region_release"].numbers == {"regions": 1, "bytes": 4 * MIB, "room": MIB, "needed": 5 * MIB}
    assert "TF_ENABLE_GPU_GARBAGE_COLLECTION=true" in found["region_release"].text
    assert "region_release" not in advice(GROWN, 6, 13)  # 4 MiB and 1 MiB of room
    assert "region_release" not in advice(GROWN, 5, 13, options={"garbage_collection": True})
    assert "region_release" in advice([[4], [-4]], 5, 9)  # less is free than needed, but there is room


def test_growth_off_only_where_growth_is_on():
    found = advice(GROWN, 5, 13)["growth_off"]
    assert found.numbers == {"regions": 3, "largest": 4 * MIB, "limit": 13 * MIB, "free": 10 * MIB}
    assert "growth_off" not in advice(GROWN, 5, 13, options={"allow_growth": False})
    assert "growth_off" not in advice(PINNED, 5, 13)
    assert "growth_off" not in advice(GROWN, 5, None)


def failure_of(sizes, freed, asked, limit):
    """The advice where a heap that grows failed to serve `asked` MiB; whether one without growth serves the same.

    Args:
        sizes: MiB of what it served before.
        freed: which of these it freed then, by index.
    """

    def last(heap):
        held = [heap.allocate(int(size * MIB)) for size in sizes]
        for index in freed:
            heap.free(held[index])
        return heap.try_allocate(int(asked * MIB))

    heap = new_heap(limit * MIB, allow_growth=True)
    assert last(heap) is None
    trace = trace_of(heap)
    found = {str(each.kind): each for each in diagnose(trace, len(trace) - 1).advice}
    return found, last(new_heap(limit * MIB)) is not None


def test_growth_off_is_advised_only_where_the_same_requests_succeed_with_it():
    found, serves = failure_of([1.5, 3, 6], [0, 1, 2], 14, 20)
    assert serves
    assert found["growth_off"].numbers["tried"] == 7
    found, serves = failure_of([1] * 8, [0, 2, 4, 6], 2, 8)  # every second chunk is free, in one region too
    assert not serves
    assert "growth_off" not in found
    assert "free_pins" in found


@pytest.mark.parametrize("leaks", [True, False])
def test_what_grows_with_every_step_comes_first_and_what_is_replaced_does_not(leaks):
    """Steps without marks, each from one allocation of `batch` to the next; the last batch finds no place."""
    heap = new_heap(16 * MIB)
    heap.allocate(2 * MIB, label="weights")
    cache = heap.allocate(MIB // 4, label="cache")
    for _ in range(24):
        batch = heap.allocate(2 * MIB, label="batch")
        newest = heap.allocate(MIB // 4, label="cache")
        heap.free(batch)
        if not leaks:
            heap.free(cache)
        cache = newest
    assert any("cache" in line for line in bfcviz.why(trace_of(heap)).lead) is leaks
    assert heap.try_allocate(13 * MIB, label="batch") is None
    trace = trace_of(heap)
    failed = diagnose(trace, len(trace) - 1)
    found = failed.advice
    assert ("grows every step" in failure_headline(failed)) is leaks
    if leaks:
        assert found[0].kind == "growing_holder"
        assert "cache" in found[0].text
        assert failed.tables[0].rows == [("cache", "+256.0 KiB", "+1.0")]
        assert found[0].numbers["bytes_a_step"] == MIB // 4
        assert found[0].numbers["bytes"] == (found[0].numbers["steps"] - 1) * (MIB // 4)
    else:
        assert "growing_holder" not in {str(each.kind) for each in found}
    assert "growing_holder" not in {
        str(each.kind) for each in diagnose(trace, len(trace) - 1, tries=False).advice
    }


def test_the_headline_does_not_take_the_end_of_a_name_for_what_grows():
    heap = new_heap(16 * MIB)
    heap.allocate(8 * MIB, label="cache")
    for _ in range(24):
        batch = heap.allocate(MIB, label="batch")
        heap.allocate(MIB // 8, label="e")
        heap.free(batch)
    assert heap.try_allocate(13 * MIB, label="batch") is None
    trace = trace_of(heap)
    headline = failure_headline(diagnose(trace, len(trace) - 1))
    assert headline.endswith("held by cache; e grows every step")


def test_of_many_failures_of_a_heap_the_first_is_tried():
    heap = new_heap(20 * MIB, allow_growth=True)
    held = [heap.allocate(int(size * MIB)) for size in (1.5, 3, 6)]
    for address in held:
        heap.free(address)
    for _ in range(3):
        assert heap.try_allocate(14 * MIB) is None
    found = [{str(each.kind): each.numbers for each in one.advice} for one in all_failures(trace_of(heap))]
    assert ["tried" in each["growth_off"] for each in found] == [True, False, False]


@pytest.mark.parametrize(
    ("name", "value"),
    [("first_region", "2MiB"), ("first_region", None), ("first_region", 1 << 70), ("limit", 1 << 63)],
)
def test_options_that_no_heap_takes_leave_the_advice_untried(name, value):
    heap = new_heap(20 * MIB, allow_growth=True)
    for address in [heap.allocate(int(size * MIB)) for size in (1.5, 3, 6)]:
        heap.free(address)
    assert heap.try_allocate(14 * MIB) is None
    trace = trace_of(heap)
    (pool,) = trace.origin.pools
    known = requests_until_failure(trace, diagnose(trace, len(trace) - 1))
    wrong = {"limit": value} if name == "limit" else {"options": {**pool.options, name: value}}
    assert known.succeed_with(allow_growth=False)
    assert replace(known, **wrong).succeed_with(allow_growth=False) is None


def test_a_setting_is_not_tried_where_requests_are_missing():
    assert "tried" not in advice(GROWN, 5, 13)["growth_off"].numbers


@pytest.mark.parametrize(("name", "is_on_host"), [("numpy", True), ("GPU_0_bfc", False)])
def test_what_the_system_refuses_on_the_host_is_said_without_its_limits_too(name, is_on_host):
    source, log = SimulatedSubAllocator(capacity=8 * MIB), EventLog(1 << 16)
    heap = BFCAllocator(source, 64 * MIB, AllocatorOptions(allow_growth=True), log=log, name=name)
    held = [heap.allocate(int(size * MIB)) for size in (1, 3)]
    heap.free(held[0])
    assert heap.try_allocate(8 * MIB) is None
    trace = trace_of(heap)
    found = diagnose(trace, len(trace) - 1)
    assert found.verdict is Verdict.REFUSED
    kinds = {str(each.kind): each for each in found.advice}
    assert ("system_memory" in kinds) is is_on_host
    assert "larger_limit" not in kinds
    assert (cause_for_json(found) == "host_memory") is is_on_host
    if is_on_host:
        assert "ulimit -v" in kinds["system_memory"].text
        assert "growth_off" not in kinds


def test_what_is_on_is_not_advised():
    options = {"expandable_segments": True, "max_split_size": 64 * MIB, "garbage_collection_threshold": 0.8}
    found = advice([[-32, 1, -32], [-16]], 40, 81, framework="torch", options=options)
    assert not {"expandable_segments", "other_allocator", "split_size", "collection_threshold"} & set(found)
    off = {"expandable_segments": False, "max_split_size": -1, "garbage_collection_threshold": 0.0}
    assert {"expandable_segments", "split_size"} <= set(
        advice([[-32, 1, -32]], 40, 65, framework="torch", options=off)
    )


def test_the_split_size_of_pytorch():
    found = advice([[-32, 33, -32, 40]], 65, 137, framework="torch")
    assert "split_size" not in found  # 64 MiB would be as large as the request
    found = advice([[-64, 33, -64]], 100, 161, framework="torch")["split_size"]
    assert found.numbers == {"max_split_size_mb": 64, "largest_pin": 33 * MIB}


def test_the_collection_threshold_of_pytorch():
    found = advice([[-3], [7, -1], [-3]], 6, 14, framework="torch")["collection_threshold"]
    assert found.numbers == {"threshold": 0.58, "bytes": 6 * MIB, "pool": 14 * MIB}  # (14 - 6) / 14
    assert "garbage_collection_threshold:0.58" in found.text


def test_waste_of_one_chunk_that_would_have_been_enough():
    wasteful = [[(100, 10), (100, 20), (100, 10), -4]]
    found = advice(wasteful, 60, 304)["fragmentation_fraction"]
    assert found.numbers == {
        "fraction": 0.2,  # 90 / 304, rounded down
        "wasted": 260 * MIB,
        "largest_waste": 90 * MIB,
        "kept_below": 128 * MIB,
    }
    set_lower = {"fragmentation_fraction": 0.2}
    assert "fragmentation_fraction" not in advice(wasteful, 60, 304, options=set_lower)
    assert "fragmentation_fraction" not in advice(wasteful, 100, 304)  # together enough, but in pieces


def test_a_larger_limit_and_a_device_that_is_too_small():
    found = advice(PINNED, 5, 13)["larger_limit"]
    assert found.numbers == {"needed": 18 * MIB, "limit": 13 * MIB, "more": 5 * MIB}
    assert "memory_limit=18" in found.text
    small = advice(PINNED, 5, 13, framework="jax", device_free=0, device_total=16 * MIB)
    assert "larger_limit" not in small  # the device has less
    assert "larger_limit" not in advice(PINNED, 5, 13, framework="jax")  # 13 MiB are 75 % of the device
    assert (
        "1.24 times as large" in advice([[8, -2, 1, -2]], 3, 13, framework="jax")["larger_limit"].text
    )  # 16 / 13
    assert "larger_limit" not in advice(PINNED, 5, 64)  # refused: the limit is not the reason
    share = advice(PINNED, 5, 13, framework="jax", device_free=4 * MIB, device_total=20 * MIB)["larger_limit"]
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION=0.90" in share.text


def test_one_region_of_xla_lacks_the_missing_bytes_only():
    for framework, setting in (("jax", "XLA_PYTHON_CLIENT_"), ("reactant", "XLA_REACTANT_GPU_")):
        found = advice([[10, -3]], 4, 13, framework=framework)["larger_limit"]
        assert found.numbers == {"needed": 14 * MIB, "limit": 13 * MIB, "more": MIB}
        assert f"{setting}MEM_FRACTION" in found.text
    assert advice([[10, -3]], 4, 13)["larger_limit"].numbers["more"] == 4 * MIB  # a pool that grows


def test_a_larger_limit_is_never_printed_smaller_than_it_must_be():
    found = advice(PINNED, 5.01, 13)["larger_limit"]
    assert 18 * MIB < found.numbers["needed"] < 18.05 * MIB
    assert "18.1 MiB" in found.text
    assert "18.0 MiB" not in found.text


def one_large_after_many_small(heap):
    """Small ones that stay, and an empty region that can be given back."""
    held = [heap.allocate(2 * MIB) for _ in range(30)]
    heap.free(heap.allocate(MIB))
    for address in held[:4]:
        heap.free(address)
    return heap.try_allocate(100 * MIB)


def one_large_in_an_empty_heap(heap):
    for address in [heap.allocate(2 * MIB) for _ in range(30)]:
        heap.free(address)
    return heap.try_allocate(200 * MIB)


def every_second_is_free(heap):
    held = [heap.allocate(2 * MIB) for _ in range(40)]
    for address in held[::2]:
        heap.free(address)
    return heap.try_allocate(16 * MIB)


def temporaries_beside_a_large_one(heap):
    heap.allocate(20 * MIB)
    heap.allocate(64 * MIB)
    heap.free(heap.allocate(1))
    return heap.try_allocate(64 * MIB)


def one_large_after_steps(count):
    def ask(heap):
        heap.allocate(2 * MIB)
        for _ in range(count):
            heap.free(heap.allocate(MIB))
        return heap.try_allocate(100 * MIB)

    return ask


PROGRAMS = [
    (one_large_after_many_small, 150),
    (one_large_in_an_empty_heap, 150),
    (every_second_is_free, 90),
    (temporaries_beside_a_large_one, 100),
]
GROWS = {"allow_growth": True, "exact_growth": True, "garbage_collection": True}


def larger_limit(heap, ask):
    """The advice on the limit where a heap failed to serve these requests, and the trace."""
    assert ask(heap) is None
    trace = trace_of(heap)
    found = diagnose(trace, len(trace) - 1).advice
    return next(each for each in found if each.kind == "larger_limit"), trace


@pytest.mark.parametrize(("ask", "limit"), PROGRAMS)
def test_the_limit_that_is_advised_is_the_smallest_that_serves(ask, limit):
    advised, trace = larger_limit(new_heap(limit * MIB, **GROWS), ask)
    needed = advised.numbers["needed"]
    assert advised.numbers["tried"]
    assert ask(new_heap(needed, **GROWS)) is not None
    assert ask(new_heap(needed - 256, **GROWS)) is None
    assert bfcviz.smallest_limit(trace).limit_bytes == needed


def test_what_is_missing_in_a_heap_that_gives_regions_back_is_what_its_limit_lacks():
    """62 MiB in small regions stay; an empty one of 64 MiB makes room for 88 MiB of 150."""
    heap = new_heap(150 * MIB, **GROWS)
    held = [heap.allocate(2 * MIB, label="stays") for _ in range(30)]
    heap.free(heap.allocate(3 * MIB))
    (failed,) = all_failures(trace_of(heap)) if heap.try_allocate(100 * MIB) is None else (None,)
    kinds = {str(each.kind): each.numbers for each in failed.advice}
    assert len(held) * 2 * MIB < failed.pool_bytes - failed.releasable == 62 * MIB
    assert failed.missing == kinds["largest_holder"]["missing"] == kinds["larger_limit"]["more"] == 12 * MIB


@pytest.mark.parametrize(("count", "is_tried"), [(sized(30_000, 700), True), (sized(80_000, 2000), False)])
def test_a_limit_is_searched_in_larger_steps_in_a_long_trace_and_not_at_all_in_a_very_long_one(
    count, is_tried
):
    log = EventLog(1 << 19)
    ask = one_large_after_steps(count)
    advised, _ = larger_limit(new_heap(50 * MIB, log=log, **GROWS), ask)
    needed = advised.numbers["needed"]
    assert ("tried" in advised.numbers) is is_tried
    assert ("bfcviz fit FILE" in advised.text) is not is_tried
    assert 102 * MIB <= needed < (102.5 if is_tried else 105) * MIB
    assert one_large_after_steps(1)(new_heap(needed, **GROWS)) is not None


def test_the_limit_of_each_failure_is_the_same_alone_and_among_all():
    heap = new_heap(80 * MIB, **GROWS)
    heap.allocate(20 * MIB)
    assert heap.try_allocate(64 * MIB) is None
    heap.allocate(32 * MIB)
    assert heap.try_allocate(32 * MIB) is None
    trace = trace_of(heap)
    for found in all_failures(trace):
        (among,) = [each for each in found.advice if each.kind == "larger_limit"]
        (alone,) = [each for each in diagnose(trace, found.event).advice if each.kind == "larger_limit"]
        assert among == alone
        assert alone.numbers["needed"] == 96 * MIB  # in regions of 32 and 64 MiB
        assert alone.numbers["tried"]


def test_an_estimate_counts_the_regions_that_are_given_back():
    kept = {"framework": "tensorflow", "options": {"garbage_collection": True}}
    assert advice([[4, -1], [-6]], 12, 12, **kept)["larger_limit"].numbers["needed"] == 17 * MIB
    assert advice([[4, -1], [-6]], 12, 12)["larger_limit"].numbers["needed"] == 23 * MIB


def test_other_users_of_the_device():
    found = advice(PINNED, 5, 64, device_free=MIB, device_total=64 * MIB)["other_users"]
    assert found.numbers == {"others": 50 * MIB, "device_free": MIB, "missing": 4 * MIB}
    assert "other_users" not in advice(PINNED, 5, 64, device_free=8 * MIB, device_total=64 * MIB)


def test_the_batch_size_is_an_estimate_between_two_bounds():
    found = advice([[6, -2]], 4, 8, tensor="shape[128,64] and type float")["batch_size"]
    assert found.numbers == {"least": 0.5, "most": 0.8, "fits": 2 * MIB}
    for fact in ("50 to 80 %", "an estimate", "at most 2.0 MiB", "64 to 102"):
        assert fact in found.text
    tensor = "float [128,64]"
    split = advice(PINNED, 5, 13, tensor=tensor)["batch_size"]  # a request has to fit the largest free chunk
    assert (split.numbers["least"], split.numbers["most"]) == (0.4, 0.4)
    grown = advice(GROWN, 6, 13, tensor=tensor)[
        "batch_size"
    ]  # all would fit the limit: only the places are in the way
    assert grown.numbers["least"] == grown.numbers["most"] == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("recorded", "instead"),
    [
        ({"tensor": "float [1,64,64]"}, None),
        ({"tensor": "float [4096]"}, None),
        ({"tensor": ""}, None),
        ({"tensor": "float [512,512]", "op": "dense/kernel/Adam_1/Initializer/zeros"}, "optimizer_state"),
        ({"tensor": "float [60000,784]", "op": "_EagerConst"}, "feed_in_parts"),
    ],
)
def test_a_batch_is_advised_only_where_the_shape_shows_one(recorded, instead):
    found = advice([[6, -2]], 4, 8, **recorded)
    assert "batch_size" not in found
    assert instead is None or instead in found


def test_others_that_held_the_device_at_the_start_come_first():
    found = advice(PINNED, 5, 13, device_total=64 * MIB, device_free_at_start=14 * MIB)
    assert next(iter(found)) == "other_users"
    assert found["other_users"].numbers["others"] == 50 * MIB


def test_settings_are_those_of_tensorflow_1():
    texts = " ".join(each.text for each in advice(GROWN, 5, 13, version="1.x").values())
    assert "per_process_gpu_memory_fraction" in texts
    assert "cuda_malloc_async" not in texts
    assert "set_logical_device_configuration" not in texts


def test_an_incomplete_file_qualifies_what_follows_from_its_chunks():
    gap = "5.0 KiB of the regions are in no chunk line"
    trace = state(PINNED, 5, 64, reasons=(f"GPU_0_bfc: {gap}",), room=153)
    found = diagnose(trace, len(trace) - 1)
    assert (found.gaps, found.room) == ((gap,), 153)
    assert found.verdict is Verdict.FRAGMENTATION  # not refused: the log says that only 153 bytes are left
    assert "incomplete" in verdict_sentence(found)
    assert "incomplete" in "\n".join(failure_lines(found))


def test_what_is_missing_says_what_to_run_again():
    found = advice(PINNED, 5, 13, names=False)["rerun"]
    assert found.numbers == {
        "chunks": 1,
        "unnamed": 1,
    }  # of the best place, as the report and the map show it
    several = advice([[4, -4, 1, 1, -4]], 7, 14, names=False)["rerun"]
    assert several.numbers == {"chunks": 2, "unnamed": 2}
    assert "2 chunks" in several.text
    assert "tf.profiler.experimental.start" in found.text
    assert "_record_memory_history" in advice(PINNED, 5, 13, framework="torch", names=False)["rerun"].text
    assert "does not show why a free chunk" in advice([[-8]], 5, 8)["rerun"].text
    assert "TF_CPP_MIN_LOG_LEVEL=0" in advice([[-8]], 5, 16, has_heap=False, framework="jax")["rerun"].text


def test_a_question_that_fits_needs_no_advice():
    trace = state(PINNED, limit=13)
    assert would_fit(trace, len(trace), MIB).advice == ()


@pytest.mark.parametrize(
    ("origin", "family"),
    [
        (Origin("xplane"), Family.TENSORFLOW),
        (Origin("rmm-csv"), Family.RMM),
        (Origin(details={"framework": "cupy", "way": "observe"}), Family.CUPY),
        (Origin(details={"framework": "cupy", "way": "serve"}), Family.OWN),
        (Origin(pools=(Pool("torch cuda:0"),)), Family.TORCH),
        (Origin(pools=(Pool("cupy:0 stream 1", None, {"honour_alignment": True}),)), Family.OWN),
        (Origin(details={"framework": "numpy"}), Family.OWN),
        (Origin(), Family.OWN),
    ],
)
def test_whose_settings_they_are(origin, family):
    assert heap_settings_of(origin, 0).family is family


def test_of_a_heap_of_the_host_no_setting_of_a_gpu_is_advised():
    (found,) = all_failures(bfcviz.open(bfcviz.sample("oom_log")))
    kinds = {str(each.kind) for each in found.advice}
    assert kinds.isdisjoint(
        {"free_other_processes", "cuda_malloc_async", "preallocation_off_or_fraction", "growth_off"}
    )
    text = " ".join(each.text for each in found.advice)
    assert "TF_CPU_BFC_MEM_LIMIT_IN_MB=12" in text
    assert "GPU" not in text


@needs_shared
def test_a_question_that_no_free_chunk_answers_asks_for_no_reason_why_one_was_not_taken():
    trace = bfcviz.open(SHARED / "real" / "snapshots" / "torch_magma_cs336.pickle")
    found = would_fit(trace, len(trace), 500 * MIB)
    assert found.verdict is Verdict.UNKNOWN
    assert not any("largest_free_chunk" in each.numbers for each in found.advice)
