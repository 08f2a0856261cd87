"""What is shown when memory runs out, and that the error stays unchanged."""

import contextlib

import numpy as np
import pytest
from heaps import MIB, new_heap

import bfcviz
from bfcviz import notebook
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


def test_it_says_why_and_what_would_have_helped():
    heap = new_heap(64 * MIB)
    first, second, _ = (heap.allocate(16 * MIB, label=name) for name in ("weights", "<hidden>", "momentum"))
    heap.free(second)
    assert heap.try_allocate(20 * MIB, label="attention") is None
    heap.free(first)
    found = last_failure(trace_of(heap))
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
    found = last_failure(trace_of(heap))
    assert found.headline in found.note
    assert f"step {found.step}" in found.note
    assert "\n" not in found.note


def test_without_a_failure_there_is_none():
    heap = new_heap(MIB)
    trace = trace_of(heap)
    assert last_failure(trace) is None
    heap.allocate(MIB)
    trace.refresh()
    assert last_failure(trace) is None
    heap.try_allocate(256)
    trace.refresh()
    assert "0 B free" in last_failure(trace).headline


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
    assert last_failure(bfcviz.open(tmp_path / "run")) == failure
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
