"""A failed request in sentences: each number in them is counted here by hand."""

import pytest
from naive_heap import NaiveHeap
from unit.analysis.facts import has_facts

from bfcviz.analysis.event_text import explain_event

KiB = 1024
BASE = 0x7F1234567800
NAMES = ["", "train/MatMul", "gradient_tape/Relu", "Adam", "x" * 100]


def explained(heap, limit=8000 * KiB):
    """The explanation of the last event."""
    return explain_event(heap.trace(NAMES, [limit]), len(heap.records) - 1)


@pytest.fixture
def full():
    """1 MiB of train/MatMul, 1 MiB of gradient_tape/Relu, 1 MiB of Adam, 1 MiB free."""
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 4096 * KiB, 0)
    return heap, [heap.allocate(0, 1024 * KiB, label=label) for label in (1, 2, 3)]


def test_a_request_over_the_limit(full):
    heap, _ = full
    heap.allocate(0, 8001 * KiB, label=2)
    facts = ("gradient_tape/Relu failed to allocate 7.8 MiB", "1.0 MiB free", "1.0 MiB", "4.0 MiB", "7.8 MiB")
    assert has_facts(explained(heap), *facts, "8193024 bytes", "larger than the limit")


@pytest.mark.parametrize(
    ("limit", "facts"),
    [
        (8192 * KiB, ("limit of 8.0 MiB", "5.0 MiB more", "only 4.0 MiB for a new region")),
        (12288 * KiB, ("limit of 12.0 MiB", "8.0 MiB for a new region", "granted none", "5.0 MiB more")),
        (None, ("5.0 MiB more", "granted no new region")),
    ],
)
def test_a_full_pool(full, limit, facts):
    heap, _ = full
    heap.allocate(0, 6144 * KiB - 1)
    numbers = ("An unnamed request failed to allocate 6.0 MiB", "1.0 MiB free", "1.0 MiB", "pool 4.0 MiB")
    assert has_facts(explained(heap, limit), *numbers, *facts)


def test_fragmentation_names_the_neighbours_of_the_largest_free_chunk(full):
    heap, (first, _, third) = full
    heap.free(0, first)
    heap.free(0, third)
    heap.allocate(0, 2560 * KiB, label=4)
    text = explained(heap, limit=4096 * KiB)
    assert has_facts(text, f"{'x' * 79}… failed", "2.5 MiB", "3.0 MiB free", "2.0 MiB", "4.0 MiB", "4.0 MiB")
    facts = ("fragmented", "2 chunks", "512.0 KiB too small", "no room for a new region")
    assert has_facts(text, *facts, "0x…34667800 (1.0 MiB, gradient_tape/Relu)", "region's end")


def test_free_chunks_in_two_regions_and_one_that_waits_to_merge():
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, BASE, 1024, 0)
    heap.extend(0, BASE + 1024, 1024, 1)
    heap.allocate(0, 1500)
    numbers = ("2 regions", "even the largest, of 1.0 KiB", "2 of them are wholly free, 2.0 KiB")
    assert has_facts(explained(heap, 2048), *numbers)
    piece = heap.allocate(0, 256)
    heap.free(0, piece, held=True)
    heap.allocate(0, 1800)
    assert has_facts(explained(heap, 2048), "2 regions", "even the largest, of 1.0 KiB", "2.0 KiB in all")
    heap.allocate(0, 1024)
    heap.allocate(0, 1024 + 1)
    assert "The pool is full" in explained(heap, 2048)


def test_a_free_chunk_that_is_large_enough(full):
    heap, _ = full
    heap.allocate(0, 5000 * KiB)
    heap.records[-1]["requested"] = 100
    assert has_facts(explained(heap), "large enough", "not show why", "timestamp", "alignment")
