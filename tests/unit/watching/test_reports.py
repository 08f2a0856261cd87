"""The report of a recorded cell: the numbers at the peak, and the labels that held the memory."""

from inspect import currentframe

import numpy as np
from heaps import KIB, MIB, new_heap

import bfcviz
from bfcviz.model.trace_from_source import trace_of
from bfcviz.watching.reports import report


def test_it_names_the_holders_at_the_peak():
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
    for fact in ("bfc", "600.0 KiB", f"step {found.step}", "1.0 MiB"):
        assert fact in found.words[1]
    assert "424.0 KiB in 1 chunk" in found.words[2]
    assert "(1 - largest free chunk / free bytes) 0%" in found.words[3]
    assert "&lt;hidden&gt;" in found._repr_html_()
    assert "600.0 KiB in use" in found._repr_html_()
    assert "50.0%" in str(found)


def test_many_holders_are_added_up():
    heap = new_heap(64 * MIB)
    for number in range(40):
        heap.allocate(KIB * (100 - number), label=f"op{number}")
    found = report(trace_of(heap))
    assert [each.name for each in found.holders] == [*(f"op{number}" for number in range(12)), "28 others"]
    assert sum(each.num_bytes for each in found.holders) == found.stats.bytes_in_use
    assert sum(each.chunks for each in found.holders) == 40


def test_labels_of_one_name_are_one_holder():
    heap = new_heap()
    for shape in ("[1]", "[2]"):
        heap.allocate(KIB, label=heap.labels.intern("weights", shape=shape))
    (holder,) = report(trace_of(heap)).holders
    assert (holder.name, holder.chunks, holder.num_bytes, holder.share) == ("weights", 2, 2 * KIB, 1.0)


def test_an_unused_heap_has_no_holders():
    found = report(trace_of(new_heap()))
    assert found.holders == []
    assert "No allocation on the heap of bfc" in str(found)
    assert "<table" not in found._repr_html_()


def test_a_watch_reports_by_itself():
    with bfcviz.watch(numpy=True, limit="64MiB") as w, bfcviz.label("weights"):
        np.empty(MIB)
        line = currentframe().f_lineno - 1
    found = w.report()
    assert found.words[0] == w.says
    assert [(each.name, each.num_bytes) for each in found.holders] == [
        (f"weights, test_reports.py:{line} test_a_watch_reports_by_itself", 8 * MIB)
    ]
