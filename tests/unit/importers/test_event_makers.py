"""Events of the chunks of a moment, and of a recorded history."""

import random

import numpy as np
import pytest

from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Origin
from bfcviz.events.schema import Kind
from bfcviz.events.structured_arrays import joined
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import (
    HEAP_CHUNK,
    HeapChunks,
    HeapRegion,
    RecordedHistory,
    events_of_state,
    failed_request,
    regions_of,
)
from bfcviz.model.model import Model


def chunks_of(*rows: tuple[int, int, bool]) -> HeapChunks:
    return np.array([(at, size, size - 1, 0, 0, used) for at, size, used in rows], HEAP_CHUNK)


def model_of(chunks: HeapChunks, regions: list[HeapRegion]) -> Model:
    labels = Labels()
    model = Model(Trace.from_events(events_of_state(chunks, regions), labels, Origin()))
    model.seek(len(model.trace))
    return model


def random_heap(rng: random.Random) -> tuple[HeapChunks, list[HeapRegion]]:
    rows, regions, at = [], [], 256
    for _ in range(rng.randrange(5)):
        start = at = at + 256 * rng.randint(1, 9)
        for _ in range(rng.randint(1, 6)):
            size = 256 * rng.choice((1, 1 << 31, rng.randint(1, 9), rng.randint(1, 1 << 31)))
            rows.append((at, size, rng.random() < 0.5))
            at += size
        regions.append(HeapRegion(start, at - start))
    return chunks_of(*rows), regions


@pytest.mark.parametrize("seed", range(60))
def test_the_model_has_exactly_the_chunks_and_regions(seed: int) -> None:
    chunks, regions = random_heap(random.Random(seed))
    model = model_of(chunks, regions)
    found = model.chunks()
    for field in ("address", "size", "in_use"):
        assert found[field].tolist() == chunks[field].tolist()
    used = found["in_use"]
    assert found["requested"][used].tolist() == chunks["requested"][used].tolist()
    assert [(r["address"], r["size"]) for r in model.regions()] == regions
    model.seek(0)  # every event can be undone
    assert len(model.chunks()) == 0
    assert regions_of(chunks) == regions


def test_chunks_that_do_not_tile_are_refused() -> None:
    with pytest.raises(TraceError, match="0x400"):
        events_of_state(chunks_of((0x100, 0x100, True), (0x400, 0x100, False)), [HeapRegion(0x100, 0x400)])
    with pytest.raises(TraceError, match="0x80"):
        events_of_state(chunks_of((0x80, 0x100, True)), [HeapRegion(0x100, 0x100)])
    with pytest.raises(TraceError, match="2 regions"):
        events_of_state(chunks_of((0x100, 0x100, True)), [HeapRegion(0x100, 0x100), HeapRegion(0x300, 0x100)])
    with pytest.raises(TraceError, match="1 regions"):
        events_of_state(chunks_of((0x100, 0x100, True)), [HeapRegion(0x100, 0x200)])


def test_a_failed_request_carries_its_numbers() -> None:
    state = events_of_state(
        chunks_of((0x100, 0x100, True), (0x200, 0x300, False)), [HeapRegion(0x100, 0x400)]
    )
    events = joined([state, failed_request(0x1000, 0x300, 0x300, label=0)])
    events["seq"] = np.arange(len(events))
    model = Model(Trace.from_events(events, Labels(), Origin()))
    model.seek(len(events))
    assert model.stats().ooms == 1
    assert (events[-1]["requested"], events[-1]["address"], events[-1]["size"]) == (0x1000, 0x300, 0x300)


def test_more_events_than_the_ring_keeps_are_all_there() -> None:
    history = RecordedHistory()
    rounds = 5 << 16
    for n in range(rounds):
        history.at(2 * n)
        history.ledger.allocate(0x1000, 512, 512)
        history.at(2 * n + 1)
        history.ledger.free(0x1000)
    events = history.events()
    assert len(events) == 1 + 2 * rounds
    model = Model(Trace.from_events(events, Labels(), Origin()))
    model.seek(len(events))
    assert model.stats().num_allocs == rounds


def test_marks_and_inconsistencies_are_kept() -> None:
    history = RecordedHistory()
    history.at(5, thread=9)
    history.mark(0, value=7)
    history.ledger.free(0x1000)
    assert history.inconsistencies.unknown_frees == 1
    (mark,) = history.events()
    assert (mark["kind"], mark["size"], mark["thread"], mark["by"], mark["time"]) == (Kind.MARK, 7, 9, 9, 5)
