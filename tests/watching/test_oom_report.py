"""What is shown when memory runs out, and that the error stays unchanged."""

import contextlib

import numpy as np
import pytest
from heaps import MIB, new_heap

import bfcviz
from bfcviz.dashboard import notebook
from bfcviz.model.trace_from_source import trace_of
from bfcviz.watching.reports import last_failure


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


def test_it_shows_the_neighbours_of_the_largest_free_chunk():
    heap = new_heap(64 * MIB)
    first, second, _ = (heap.allocate(16 * MIB, label=name) for name in ("weights", "<hidden>", "momentum"))
    heap.free(second)
    assert heap.try_allocate(20 * MIB, label="attention") is None
    heap.free(first)
    found = last_failure(trace_of(heap))
    assert found.words.startswith("attention failed to allocate 20.0 MiB")
    rows = dict(found.rows)
    assert rows["requested"].startswith("20.0 MiB (20,971,520 bytes")
    assert rows["free"] == "32.0 MiB in 2 chunks"
    assert rows["pool"].count("64.0 MiB") == 2
    assert rows["largest free chunk"].startswith("16.0 MiB at ")
    assert rows["before it"].endswith(", weights")
    assert rows["after it"].endswith(", momentum")
    assert "  free: 32.0 MiB in 2 chunks" in str(found)
    assert "<td style='text-align: left'>32.0 MiB in 2 chunks</td>" in found._repr_html_()
    assert "Free the chunk in use (weights)" in found.advice[0]
    assert "one free chunk of 32.0 MiB" in found.advice[0]
    assert f"  - {found.advice[0]}" in str(found)
    assert f"<li>{found.advice[0]}</li>" in found._repr_html_()


def test_names_cannot_break_the_page():
    heap = new_heap(MIB)
    heap.try_allocate(2 * MIB, label="<script>")
    assert "<script>" not in last_failure(trace_of(heap))._repr_html_()


def test_without_free_memory_it_has_fewer_rows_and_without_a_failure_there_is_none():
    heap = new_heap(MIB)
    trace = trace_of(heap)
    assert last_failure(trace) is None
    heap.allocate(MIB)
    trace.refresh()
    assert last_failure(trace) is None
    heap.try_allocate(256)
    trace.refresh()
    assert [name for name, _ in last_failure(trace).rows] == ["requested", "pool", "free"]


def test_in_a_notebook_it_is_shown_before_the_error_leaves(shown, tmp_path):
    w = watched(path=tmp_path / "run")
    with pytest.raises(MemoryError, match="Unable to allocate") as caught, w:
        fragment()
    failure, figure = shown
    assert failure is w.failure
    assert failure.words.startswith("attention failed to allocate 24.0 MiB")
    assert "layers" in dict(failure.rows)["after it"] + dict(failure.rows)["before it"]
    assert "Region map" in figure.layout.annotations[0].text
    assert len(caught.value.__notes__) == 1  # the numbers that NumPy's handler adds
    assert bfcviz.open(tmp_path / "run").origin.status == "complete"
    assert last_failure(bfcviz.open(tmp_path / "run")) == failure
    assert w.errors == []


def test_without_a_notebook_the_error_has_it_as_a_note():
    with pytest.raises(MemoryError) as caught, watched() as w:
        fragment()
    assert caught.value.__notes__[-1] == str(w.failure)


def test_the_dashboard_shows_it_too():
    w = watched()
    with contextlib.suppress(MemoryError), w:
        dashboard = w.dashboard
        fragment()
    assert dashboard.notices == [w.failure.words]
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
    assert len(shown) == 2


def test_an_error_in_the_picture_does_not_hide_the_workloads_error(shown, monkeypatch):
    monkeypatch.setattr(notebook, "show", lambda *_: 1 / 0)
    with pytest.raises(MemoryError), watched() as w:
        fragment()
    assert [type(error) for error in w.errors] == [ZeroDivisionError]
