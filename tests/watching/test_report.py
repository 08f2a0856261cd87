"""The report of a recorded cell: the peak in numbers, and who held it."""

import numpy as np
from heaps import KIB, MIB, new_heap

import bfcviz
from bfcviz.model.sources import trace_of
from bfcviz.watching.report import report


def test_who_held_the_peak():
    heap = new_heap()
    weights = heap.allocate(300 * KIB, label="weights")
    held = [heap.allocate(50 * KIB, label="<hidden>") for _ in range(4)]
    heap.allocate(100 * KIB)
    heap.free(weights)
    for address in held:
        heap.free(address)
    found = report(trace_of(heap), says="It is served.")
    assert (found.heap, found.stats.bytes_in_use) == ("bfc", 600 * KIB)
    rows = [(each.name, each.chunks, each.num_bytes // KIB, round(each.share, 3)) for each in found.holders]
    assert rows == [
        ("weights", 1, 300, 0.5),
        ("<hidden>", 4, 200, 0.333),
        ("an unnamed request", 1, 100, 0.167),
    ]
    assert found.words[0] == "It is served."
    assert found.words[1] == f"Peak of bfc: 600.0 KiB in use at step {found.step}, of a pool of 1.0 MiB."
    assert found.words[2] == "Free then: 424.0 KiB in 1 chunk."
    assert "External fragmentation (1 - largest free chunk / free bytes) 0%" in found.words[3]
    assert "&lt;hidden&gt;" in found._repr_html_()
    assert "50.0%" in str(found)


def test_many_holders_are_added_up():
    heap = new_heap(64 * MIB)
    for number in range(40):
        heap.allocate(KIB * (100 - number), label=f"op{number}")
    found = report(trace_of(heap))
    assert [each.name for each in found.holders] == [*(f"op{number}" for number in range(12)), "28 others"]
    assert sum(each.num_bytes for each in found.holders) == found.stats.bytes_in_use
    assert sum(each.chunks for each in found.holders) == 40


def test_a_heap_that_nobody_used_has_nothing_to_tell():
    found = report(trace_of(new_heap()))
    assert found.holders == []
    assert "Nothing was allocated on the heap of bfc." in str(found)
    assert "<table>" not in found._repr_html_()


def test_a_watch_reports_by_itself():
    with bfcviz.watch(numpy=True, limit="64MiB") as w, bfcviz.label("weights"):
        np.empty(MIB)
    found = w.report()
    assert found.words[0] == w.says
    assert [(each.name, each.num_bytes) for each in found.holders] == [("weights", 8 * MIB)]
