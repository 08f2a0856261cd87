"""The report of a recorded cell: the numbers at the peak, and the labels that held the memory."""

import contextlib
from inspect import currentframe

import numpy as np
import pytest
from heaps import KIB, MIB, new_heap

import bfcviz
from bfcviz import notebook
from bfcviz.model.trace_from_source import trace_of
from bfcviz.watching.watch_reports import last_oom_report, report


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
    assert [line.split()[-3:-1] for line in str(found).splitlines()[4:6]] == [["1", "chunk"], ["4", "chunks"]]
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
        (f"weights, test_watch_reports.py:{line} test_a_watch_reports_by_itself", 8 * MIB)
    ]


# ------------------------------------------------------------------------------
# What is shown when memory runs out, and that the error stays unchanged.


@pytest.fixture
def shown(monkeypatch):
    """The things that a notebook would display."""
    things = []
    monkeypatch.setattr(notebook, "has_kernel", lambda: True)
    monkeypatch.setattr(notebook, "show", lambda *those: things.extend(those))
    return things


def watched(**options):
    return bfcviz.watch(numpy=True, limit="64MiB", dashboard=False, **options)


def fragment():
    """Allocate 8 MiB pieces, free every other one, then request more than a piece."""
    with bfcviz.label("layers"):
        held = [np.empty(MIB) for _ in range(7)]
    del held[1::2]
    with bfcviz.label("attention"):
        return np.empty(3 * MIB), held


def test_it_says_why_and_what_would_have_helped():
    heap = new_heap(64 * MIB)
    first, second, _ = (heap.allocate(16 * MIB, label=name) for name in ("weights", "<hidden>", "momentum"))
    heap.free(second)
    assert heap.try_allocate(20 * MIB, label="attention") is None
    heap.free(first)
    found = last_oom_report(trace_of(heap))
    for fact in ("20.0 MiB", "16.0 MiB of 32.0 MiB free", "fragmented by"):
        assert fact in found.headline
    assert found.words.startswith("attention failed to allocate 20.0 MiB")
    assert "weights" in found.words
    assert "momentum" in found.words
    assert str(found).splitlines()[:2] == [found.headline, found.words]
    assert "Free the chunk in use" in found.advice[0]
    assert f"  - {found.advice[0]}" in str(found)
    assert found.advice[0] in found._repr_html_()
    assert "&lt;hidden&gt;" not in found._repr_html_()  # it holds nothing


def test_the_note_is_one_line():
    heap = new_heap(MIB)
    heap.try_allocate(2 * MIB, label="attention")
    found = last_oom_report(trace_of(heap))
    assert found.headline in found.note
    assert f"step {found.step}" in found.note
    assert "\n" not in found.note


def test_without_a_failure_there_is_none():
    heap = new_heap(MIB)
    trace = trace_of(heap)
    assert last_oom_report(trace) is None
    heap.allocate(MIB)
    trace.refresh()
    assert last_oom_report(trace) is None
    heap.try_allocate(256)
    trace.refresh()
    assert "0 B free" in last_oom_report(trace).headline


def test_in_a_notebook_it_is_shown_before_the_error_leaves(shown, tmp_path):
    w = watched(path=tmp_path / "run")
    with pytest.raises(MemoryError, match="Unable to allocate") as caught, w:
        fragment()
    (failure,) = shown
    assert failure is w.failure
    assert failure.words.startswith("attention failed to allocate 24.0 MiB")
    assert "fragmented by layers" in failure.headline
    assert len(caught.value.__notes__) == 1  # the numbers that NumPy's handler adds
    assert bfcviz.open(tmp_path / "run").origin.status == "complete"
    assert last_oom_report(bfcviz.open(tmp_path / "run")) == failure
    assert w.errors == []


def test_without_a_notebook_the_error_has_it_as_a_note():
    with pytest.raises(MemoryError) as caught, watched() as w:
        fragment()
    assert caught.value.__notes__[-1] == w.failure.note


def test_the_dashboard_shows_it_too():
    w = watched()
    with contextlib.suppress(MemoryError), w:
        dashboard = w.dashboard
        fragment()
    assert dashboard.notices == [w.failure.headline]
    dashboard.close()


def test_an_error_caught_inside_is_not_shown(shown):
    with watched() as w, pytest.raises(MemoryError):
        fragment()
    assert (w.failure, shown) == (None, [])


def test_another_error_is_not_shown(shown):
    w = watched()
    with contextlib.suppress(ZeroDivisionError), w:
        with contextlib.suppress(MemoryError):
            fragment()
        1 / 0  # noqa: B018
    assert w.sources[0].out_of_memory is not None
    assert (w.failure, shown) == (None, [])


def test_a_failure_shown_inside_is_shown_once(shown):
    with watched() as w:
        with pytest.raises(MemoryError) as caught:
            fragment()
        w.tell(caught.value)
        w.tell(caught.value)
        w.tell(ValueError("something else"))
    assert len(shown) == 1


def test_an_error_in_the_picture_does_not_hide_the_workloads_error(shown, monkeypatch):
    monkeypatch.setattr(notebook, "show", lambda *_: 1 / 0)
    with pytest.raises(MemoryError), watched() as w:
        fragment()
    assert [type(error) for error in w.errors] == [ZeroDivisionError]
