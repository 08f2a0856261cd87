"""The headline of a failure, for each verdict; and of a peak."""

import pytest
from unit.analysis.built import state
from unit.figures.synthetic import MiB, PlainHeap

from bfcviz.analysis.diagnosis import failure_headline
from bfcviz.analysis.why import diagnose
from bfcviz.exporters.report import peak_headline
from bfcviz.model import Model


def headline(regions, **options):
    trace = state(regions, **options)
    return failure_headline(diagnose(trace, len(trace) - 1))


@pytest.mark.parametrize(
    ("regions", "options", "facts"),
    [
        ([[4, -4, 1, -4, 4]], {"asked": 6, "limit": 17}, ["6.0 MiB", "4.0 MiB of 8.0 MiB free", "by op2"]),
        ([[10]], {"asked": 2, "limit": 10}, ["2.0 MiB", "0 B free", "10.0 MiB is full"]),
        ([[4]], {"asked": 32, "limit": 16}, ["32.0 MiB", "limit of 16.0 MiB"]),
        ([[4]], {"asked": 4, "limit": 16}, ["no region granted", "12.0 MiB"]),
        ([[-4], [-4]], {"asked": 6, "limit": 8}, ["4.0 MiB of 8.0 MiB", "2 regions", "4.0 MiB"]),
        ([[-4]], {"asked": 2, "limit": 4}, ["do not show why"]),
        ([[-4]], {"asked": 2, "limit": 4, "has_heap": False}, ["does not show the heap"]),
        ([[4, -4, 1, -4]], {"asked": 6, "limit": 13, "is_exact": False}, ["about 6.0 MiB"]),
        ([[4, -4, 1, -4]], {"asked": 6, "limit": 13, "names": False}, ["unnamed chunk of 1.0 MiB"]),
        ([[4, -4, 1, 1, -4]], {"asked": 7, "limit": 14}, ["fragmented by op2 and 1 other"]),
        ([[4, -4, 1, -4]], {"asked": 0, "limit": 13}, ["how many bytes"]),
        ([[4, -4, 1, -4]], {"asked": 4 + 1 / 4096, "limit": 13}, ["4.0 MiB (-256 B) of 8.0 MiB"]),
    ],
)
def test_it_has_the_numbers_and_the_reason(regions, options, facts):
    found = headline(regions, **options)
    assert found.startswith("OOM")
    assert [fact for fact in facts if fact not in found] == []


def peak_of(*allocations):
    heap = PlainHeap(64 * MiB)
    for size, label, *details in allocations:
        heap.allocate(size * MiB, label, **(details[0] if details else {}))
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    return peak_headline(model)


def test_the_peak_names_the_innermost_large_holder():
    found = peak_of(*((1, f"net/conv/{name}") for name in "abcdef"), (1, "other"))
    assert "7.0 MiB in use" in found
    assert "86% held by net/conv" in found


def test_a_peak_without_names_names_the_line():
    stack = {"stack": "work (train.py:41)\nmain (train.py:80)"}
    assert "held by train.py:41" in peak_of((2, "", stack))
    assert "held by" not in peak_of((2, ""))


def test_an_empty_heap_has_no_peak():
    assert "No allocation" in peak_of()
