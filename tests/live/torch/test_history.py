"""DeviceHistory: real histories, read in pieces as if polled, and lost entries."""

import random

import pytest
from live.torch.histories import History, assert_model_agrees, blocks_of, chunks, in_use, mark, observed

from bfcviz.events.schema import Kind

REAL = [
    ("torch_cs336_ctx128_fullstep", 0),  # begins during a step, 430 segments are released
    ("torch_octree_nca_67k", 0),
    ("torch_code_location_2.6M", 0),  # expandable segments
    ("torch_code_location_2.6M", 1),  # which give some back, and still run out of memory
    ("torch_code_location_2.6M", 2),
]


real = pytest.mark.parametrize(("name", "device"), REAL, ids=[f"{name}-{device}" for name, device in REAL])


def whole(history):
    """All of it in one reading, and another that finds the state of the first."""
    taken, start = observed(), history.start()
    taken.read([], start, history.settings)
    trace = [mark(start), *history.trace]
    taken.read(trace, history.segments, history.settings)
    taken.read([*trace, mark(history.segments)], history.segments, history.settings)
    return taken


@real
def test_a_history_ends_in_the_state_pytorch_tells(name, device):
    history = History(name, device)
    taken = whole(history)
    assert (taken.mended, taken.lost, taken.heap.inconsistencies.words()) == (0, 0, "")
    assert chunks(taken.heap) == blocks_of(history.segments)
    pool = taken.heap.stats().pool_bytes - taken.unmapped
    assert pool == sum(segment["total_size"] for segment in history.segments)
    assert_model_agrees(taken.heap)


def sizes_in(heap):
    events = heap.log.copy(0, heap.log.head)
    return events[events["kind"] == Kind.ALLOCATE]["size"].tolist()


def polled(history, ring, most):
    """Read from time to time: the newest `ring` entries, and up to five entries later the state."""
    known = sum(1 for segment in history.start() for _ in in_use(segment))
    chooser, taken, seen, shown, due, told = random.Random(7), observed(), [], [], 0, 0
    for step, state in enumerate(history.states(sizes_in(whole(history).heap)[known:])):
        if step == due:
            shown, told = seen[-ring:], min(step + chooser.randrange(6) * (step > 0), len(history.trace))
        if step == told:
            taken.read(shown, state(), history.settings)
            seen.append(mark(state()))
            if step == due:  # nothing happened in between
                assert chunks(taken.heap) == blocks_of(state())
            due, told = step + chooser.randrange(6, most), -1
        seen += history.trace[step : step + 1]
    for _ in range(2):
        taken.read(seen[-ring:], history.segments, history.settings)
        seen.append(mark(history.segments))
    return taken


def test_polled_it_is_the_same_as_at_once():
    history = History("torch_cs336_ctx128_fullstep", 0)
    taken, at_once = polled(history, ring=5000, most=3000), whole(history)
    assert (taken.mended, taken.lost) == (0, 0)
    ours, theirs = (
        heap.log.copy(0, heap.log.head)[["kind", "address", "size", "requested", "chunk"]].tolist()
        for heap in (taken.heap, at_once.heap)
    )
    assert ours == theirs


def test_what_the_ring_lost_is_taken_from_the_state():
    history = History("torch_cs336_ctx128_fullstep", 0)
    taken = polled(history, ring=300, most=1000)
    assert taken.lost > 10
    assert taken.mended > 0
    assert taken.heap.inconsistencies.words() == ""
    assert chunks(taken.heap) == blocks_of(history.segments)
    assert_model_agrees(taken.heap)


def test_a_failure_is_an_event_with_its_numbers():
    taken = whole(History("torch_code_location_2.6M", 1))
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
