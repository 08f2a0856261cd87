"""Measures of fragmentation, by their definitions."""

from dataclasses import replace

import pytest
from naive_heap import NaiveHeap

from bfcviz.model import Model, fragmentation


@pytest.fixture
def stats():
    """4 KiB of pool: 1,000 of 1,024 bytes and 500 of 512 in use, 512 and 2,048 free."""
    heap = NaiveHeap(keep_states=False)
    heap.extend(0, 0x1000, 4096, 0)
    heap.allocate(0, 1000)
    hole = heap.allocate(0, 512)
    heap.allocate(0, 500)
    heap.free(0, hole)
    model = Model(heap.trace())
    model.seek(len(heap.records))
    return model.stats()


def test_each_measure_by_its_definition(stats):
    assert fragmentation.internal(stats) == 36 / 1536
    assert fragmentation.external(stats) == 512 / 2560
    assert fragmentation.reserved_not_in_use(stats) == 2560 / 4096


def test_each_measure_is_0_where_there_is_nothing_to_share(stats):
    nothing_free = replace(stats, free_bytes=0, largest_free_chunk=0)
    assert fragmentation.external(nothing_free) == 0
    nothing_in_use = replace(stats, bytes_in_use=0, requested_bytes_in_use=0)
    assert fragmentation.internal(nothing_in_use) == 0
    assert fragmentation.reserved_not_in_use(nothing_in_use) == 0


def test_each_measure_has_a_definition_that_names_what_it_divides(stats):
    assert set(fragmentation.DEFINITIONS) == {"internal", "external", "reserved_not_in_use"}
    for name, text in fragmentation.DEFINITIONS.items():
        assert callable(getattr(fragmentation, name))
        numerator, denominator = text.split(" = 1 - ")[1].split(" (")[0].split(":")[0].split(" / ")
        by_text = 1 - getattr(stats, numerator) / getattr(stats, denominator)
        assert getattr(fragmentation, name)(stats) == pytest.approx(by_text)
