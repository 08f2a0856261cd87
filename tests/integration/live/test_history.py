"""DeviceHistory: real histories, read in pieces as if polled, and lost entries."""

import functools
import random

import pytest
from unit.live.torch.histories import (
    MIB,
    History,
    assert_model_agrees,
    blocks_of,
    chunks,
    entry,
    in_use,
    mark,
    observed,
    read,
    shown,
)

from bfcviz.events.schema import Kind
from bfcviz.live.torch.observe import Asked

REAL = [
    ("torch_cs336_ctx128_fullstep", 0),  # begins during a step, 430 segments are released
    ("torch_octree_nca_67k", 0),
    ("torch_code_location_2.6M", 0),  # expandable segments
    ("torch_code_location_2.6M", 1),  # which give some back, and still run out of memory
    ("torch_code_location_2.6M", 2),
]


real = pytest.mark.parametrize(("name", "device"), REAL, ids=[f"{name}-{device}" for name, device in REAL])


history_of = functools.cache(History)


@functools.cache
def whole(history):
    """All of it in one reading."""
    taken, start = observed(), history.start()
    read(taken, [mark(start)], start, history.settings)
    trace = [mark(start), *history.trace, mark(history.segments)]
    read(taken, trace, history.segments, history.settings)
    return taken


@real
def test_a_history_ends_in_the_state_pytorch_tells(name, device):
    history = history_of(name, device)
    taken = whole(history)
    assert (taken.mended, taken.lost, taken.heap.inconsistencies.words()) == (0, 0, "")
    assert chunks(taken.heap) == blocks_of(history.segments)
    pool = taken.heap.stats().pool_bytes - taken.unmapped
    assert pool == sum(segment["total_size"] for segment in history.segments)
    assert_model_agrees(taken.heap)


def sizes_in(heap):
    events = heap.log.copy(0, heap.log.head)
    return events[events["kind"] == Kind.ALLOCATE]["size"].tolist()


def polled(history, ring, most, *, clears=False):
    """Read from time to time: the state, up to five entries later the newest `ring` entries, which may be cleared."""
    known = sum(1 for segment in history.start() for _ in in_use(segment))
    chooser, taken, seen, due, told, state = random.Random(7), observed(), [], 0, 0, None
    for step, state_now in enumerate(history.states(sizes_in(whole(history).heap)[known:])):
        if step == due:
            state, told = state_now(), min(step + chooser.randrange(6) * (step > 0), len(history.trace))
            seen.append(mark(state))
        if step == told:
            shown = seen[-ring:]
            facts = {
                "is_still": step == due,
                "is_whole": len(seen) < ring,
                "is_cleared": clears and step == due,
            }
            read(taken, shown, state, history.settings, **facts)
            now = state_now()
            assert chunks(taken.heap) == blocks_of(now)
            assert regions(taken) == segments_of(now)
            due, told = step + chooser.randrange(6, most), -1
            seen = [] if facts["is_cleared"] else seen
        seen += history.trace[step : step + 1]
    seen.append(mark(history.segments))
    read(taken, seen[-ring:], history.segments, history.settings, is_whole=len(seen) < ring)
    return taken


def regions(taken):
    return sorted((int(region["address"]), int(region["size"])) for region in taken.heap.moment().regions)


def segments_of(state):
    return sorted((segment["address"], segment["total_size"]) for segment in state)


@pytest.mark.parametrize("clears", [False, True])
def test_polled_it_is_the_same_as_at_once(clears):
    history = history_of("torch_cs336_ctx128_fullstep", 0)
    taken, at_once = polled(history, ring=5000, most=3000, clears=clears), whole(history)
    assert (taken.mended, taken.lost) == (0, 0)
    ours, theirs = (
        heap.log.copy(0, heap.log.head)[["kind", "address", "size", "requested", "chunk"]].tolist()
        for heap in (taken.heap, at_once.heap)
    )
    assert ours == theirs


@pytest.mark.parametrize("clears", [False, True])
def test_after_what_the_ring_lost_the_rest_of_it_is_recorded_and_the_state_is_right(clears):
    history = history_of("torch_cs336_ctx128_fullstep", 0)
    taken = polled(history, ring=300, most=1000, clears=clears)
    assert taken.lost > 5
    assert taken.mended > 0
    assert taken.heap.inconsistencies.words() == ""
    assert chunks(taken.heap) == blocks_of(history.segments)
    assert_model_agrees(taken.heap)


def test_a_failure_is_an_event_with_its_numbers():
    taken = whole(history_of("torch_code_location_2.6M", 1))
    error = taken.out_of_memory
    assert (error.requested, error.rounded) == (5_308_694_528, 5_308_694_528)
    assert 0 < error.free_bytes < error.requested
    assert error.pool_bytes <= error.bytes_limit
    events = taken.heap.log.copy(0, taken.heap.log.head)
    (event,) = events[events["kind"] == Kind.OOM]
    assert event["requested"] == error.requested
    label = taken.heap.labels[event["label"]]
    assert label.name == "models.py:181 update_nodes"
    assert "/torch/nn/modules/module.py:" in label.details["stack"]


def program():
    """600 allocations in one segment, at most 20 at a time: the entries, and the state after each."""
    entries, states, used = [], [], []
    for number in range(600):
        at = number % 40 * 4096
        if len(used) == 20:
            entries.append(entry("free_completed", used[0], 4000, time_us=2 * number))
            used.pop(0)
            states.append(segment_with(used))
        entries.append(entry("alloc", at, 4000, time_us=2 * number + 1))
        used.append(at)
        states.append(segment_with(used))
    return entries, states


def segment_with(used, size=2 * MIB):
    start = 0x7000_0000
    blocks = [
        {"address": start + at, "size": 4096, "requested_size": 4000, "state": "active_allocated"}
        for at in used
    ]
    tiles, at = [], start
    for block in sorted(blocks, key=lambda block: block["address"]):
        if block["address"] > at:
            tiles.append({"size": block["address"] - at, "state": "inactive"})
        tiles.append(block)
        at = block["address"] + block["size"]
    tiles.append({"size": start + size - at, "state": "inactive"})
    return [{"device": 0, "address": start, "total_size": size, "stream": 0, "blocks": tiles}]


def test_the_newest_entries_before_a_failure_are_kept_after_a_loss():
    entries, states = program()
    taken = observed()
    read(taken, [], segment_with([]), is_still=True)
    ring = [*entries[-100:], entry("oom", size=64 * MIB, device_free=5, time_us=5000)]
    assert read(taken, ring, states[-1], is_still=True, is_whole=False) == 101
    assert taken.lost == 1
    assert taken.out_of_memory.requested == 64 * MIB
    assert chunks(taken.heap) == blocks_of(states[-1])
    events = taken.heap.log.copy(0, taken.heap.log.head)
    told = [each["addr"] for each in entries[-100:] if each["action"] == "alloc"]
    assert events[events["kind"] == Kind.ALLOCATE]["address"].tolist()[-len(told) :] == told
    assert taken.heap.inconsistencies.words() == ""


def test_a_gap_between_reading_and_clearing_is_counted_and_the_rest_is_recorded():
    entries, states = program()
    taken = observed()
    read(taken, [], segment_with([]), is_still=True)
    read(taken, entries[:100], states[99], is_still=True, is_cleared=True)
    taken.begin_anew(is_complete=False)  # entries 100 to 119 went with it
    assert read(taken, entries[120:200], states[199], is_still=True) == 80
    assert taken.lost == 1
    assert chunks(taken.heap) == blocks_of(states[199])


def test_passed_over_it_goes_on_behind_the_state_that_was_taken():
    entries, states = program()
    taken = observed()
    read(taken, [], segment_with([]), is_still=True)
    taken.pass_over(states[299], Asked(300, 302))
    assert chunks(taken.heap) == blocks_of(states[299])
    assert taken.lost == 1
    ring = [*entries[200:300], {**mark(states[299]), "time_us": 301}, *entries[300:400]]
    assert read(taken, ring, states[399], is_still=True) == 100
    assert (taken.lost, chunks(taken.heap)) == (1, blocks_of(states[399]))
    assert taken.heap.inconsistencies.words() == ""


def test_a_state_of_other_code_is_not_taken_for_ours():
    entries, states = program()
    taken = observed()
    read(taken, [], segment_with([]), is_still=True)
    theirs = {**mark(states[79]), "time_us": 90_000}  # as many bytes, at another time and place
    trace = [*entries[:60], {**mark(states[59]), "time_us": 61}, *entries[60:80], theirs, *entries[80:100]]
    read(taken, trace, states[59], asked=Asked(60, 62))
    assert (taken.mended, chunks(taken.heap)) == (0, blocks_of(states[99]))


def test_a_block_of_another_line_at_the_same_place_has_its_name_after_a_loss():
    taken = observed()
    first, second = ([{"filename": "/home/me/train.py", "name": name, "line": 9}] for name in ("one", "two"))
    for frames in (first, second):
        segments = shown(blocks=[512])["segments"]
        segments[0]["blocks"][0]["frames"] = frames
        read(taken, [entry("alloc", 99 * 4096, 0, time_us=1)][:0], segments, is_still=True, is_whole=False)
    (chunk,) = (chunk for chunk in taken.heap.moment().chunks if chunk["in_use"])
    assert taken.heap.labels.name(int(chunk["label"])) == "train.py:9 two"


def test_a_failure_under_a_limit_of_the_process_has_that_limit():
    taken = observed(limit=lambda: 256 * MIB)
    read(taken, [], [], is_still=True)
    trace = [entry("segment_alloc", 0, 2 * MIB), entry("oom", size=700 * MIB, device_free=900 * MIB)]
    read(taken, trace, shown()["segments"], is_still=True)
    assert taken.out_of_memory.bytes_limit == 256 * MIB
    assert "sub-allocator gave none" not in str(taken.out_of_memory)
