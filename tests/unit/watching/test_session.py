"""A watch of NumPy: what it records, and that everything is unchanged after it, however it ends."""

import contextlib
import gc
import sys
import threading

import numpy as np
import pytest
from heaps import KIB, MIB
from unit.watching.numpy_watch import as_it_was, watched

import bfcviz
from bfcviz.errors import FileError, LiveError
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage import drain as drain_module
from bfcviz.model import Model
from bfcviz.model.navigation import events_of
from bfcviz.watching import session

__all__ = ["as_it_was"]


def agrees(w):
    """Whether the chunks computed from the trace equal the heap's."""
    model = Model(w.trace)
    model.seek(len(w.trace))
    ours, theirs = w.sources[0].allocator.memory_map(), model.chunks()
    return all(np.array_equal(ours[name], theirs[name]) for name in ("address", "size", "in_use"))


def test_the_failed_request_is_the_array_without_room():
    """`np.ones` makes a scalar, too, and there may be no room for it after the last array that fits."""

    def fill():
        held = []
        while True:
            held.append(np.ones(MIB, np.uint8))

    with pytest.raises(MemoryError, match=r"1\.00 MiB"), watched() as w:
        fill()
    assert bfcviz.why(w).requested == MIB
    assert "1.0 MiB" in w.failure.headline


@pytest.mark.parametrize("folder", [False, True])
def test_inside_the_trace_has_the_events_until_now(tmp_path, folder):
    with watched(path=tmp_path / "run" if folder else None) as w:
        for number in range(1, 4):
            with bfcviz.label(f"step {number}"):
                held = np.empty(MIB, np.uint8)
            found = bfcviz.holders(w.trace)
            assert f"step {number}" in found.names
            assert bfcviz.holders(w).bytes_in_use == found.bytes_in_use == MIB
            assert bfcviz.holders(w.traces[0]).bytes_in_use == MIB
        del held
        assert bfcviz.holders(w.trace, "last").bytes_in_use == 0
        assert w.report().step > 0


@pytest.mark.parametrize("folder", [False, True])
def test_allocations_and_marks_inside_are_recorded(tmp_path, folder):
    with watched(path=tmp_path / "run" if folder else None) as w:
        for number in range(3):
            with bfcviz.label("forward"):
                held = np.empty(100 * KIB)
            w.mark(f"step {number}", number)
    trace = w.trace
    made = events_of(trace, [Kind.ALLOCATE])
    assert {trace.labels.name(int(event["label"])) for event in made} == {"forward"}
    assert len(made) == 3
    marks = events_of(trace, [Kind.MARK])
    assert [trace.labels.name(int(mark["label"])) for mark in marks] == ["step 0", "step 1", "step 2"]
    assert marks["size"].tolist() == [0, 1, 2]
    assert agrees(w)
    assert held.nbytes == 800 * KIB
    if folder:
        assert trace.origin.status is Status.COMPLETE
        details = trace.origin.details
        assert (details["framework"], details["way"]) == ("numpy", "serve")
        assert threading.current_thread().name in details["threads"].values()
        opened = bfcviz.open(tmp_path / "run")
        assert (len(opened), opened.origin.pools[0].limit) == (len(trace), 64 * MIB)


def test_it_says_how_it_watches():
    w = watched(limit="8MiB")
    assert repr(w) == "<Watch: not started>"
    with w:
        assert w.says.startswith("NumPy is served")
        assert "8.0 MiB" in w.says
        assert w.sources[0].way == "serve"
        assert w.says in repr(w)
        assert "ended" not in w.says
    assert "ended" in w.says


def test_a_ring_is_read_without_a_dashboard():
    with watched(keep=1 << 12) as w:
        for _ in range(20_000):
            np.empty(100)
    trace = w.trace
    assert trace.first > 0
    assert trace.origin.status is Status.RECORDING  # no event was lost; old ones were dropped
    assert trace.labels is w.sources[0].allocator.labels
    assert len(trace) == w.sources[0].allocator.log.head


def test_arrays_outlive_it(tmp_path):
    with watched(path=tmp_path / "run") as w:
        array = np.arange(100_000)
    del w
    gc.collect()
    assert array.sum() == 99_999 * 50_000
    array.resize(200_000, refcheck=False)
    assert not array[100_000:].any()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_everything_as_it_was(tmp_path, error):
    w = watched(path=tmp_path / "run")

    def work():
        with w:
            np.ones(MIB)
            raise error("ended")

    with pytest.raises(error, match="ended"):
        work()
    assert (w.failure, w.trace.origin.status) == (None, Status.COMPLETE)
    assert agrees(w)


def test_threads_inside_are_watched():
    with watched() as w:
        thread = threading.Thread(target=lambda: np.empty(MIB))
        thread.start()
        thread.join()
        assert w.sources[0].allocator.stats().num_allocs == 1


# -- what is refused -----------------------------------------------------------------------------------------


def test_a_mark_that_is_not_text_is_refused():
    with watched() as w, pytest.raises(LiveError, match=r"3 .*name"):
        w.mark(3)


def test_a_watch_inside_another_is_refused_and_the_first_goes_on():
    with watched() as w:
        with pytest.raises(LiveError, match=r"NumPy is served.*leave"):
            watched().__enter__()
        np.empty(MIB)
        assert w.sources[0].allocator.stats().num_allocs == 1


def test_a_watch_while_numpy_is_served_by_hand_is_refused_and_it_stays_served():
    with bfcviz.serve_numpy("32MiB") as served:
        with pytest.raises(LiveError, match=r"NumPy is served.*32\.0 MiB"):
            watched().__enter__()
        np.empty(MIB)
        assert served.allocator.stats().num_allocs == 1


def test_it_begins_in_the_main_thread_only():
    found = []

    def begin():
        try:
            watched().__enter__()
        except LiveError as error:
            found.append(str(error))

    thread = threading.Thread(target=begin, name="worker")
    thread.start()
    thread.join()
    assert len(found) == 1
    assert "'worker'" in found[0]
    assert "main thread" in found[0]


def test_it_begins_once():
    with watched() as w:
        pass
    with pytest.raises(LiveError, match="make a new one"):
        w.__enter__()


@pytest.mark.parametrize("use", [lambda w: w.trace, lambda w: w.dashboard, lambda w: w.mark("step")])
def test_before_it_starts_there_is_no_trace(use):
    with pytest.raises(LiveError, match="not started"):
        use(watched())


def test_a_folder_that_was_filled_meanwhile_is_refused_before_anything_is_served(tmp_path):
    w = watched(path=tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is not empty"):
        w.__enter__()
    assert (tmp_path / "file").read_text() == "mine"


def test_an_error_at_the_start_undoes_everything(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    w = watched(path=tmp_path / "run")
    monkeypatch.setattr(w, "_open", fail)
    with pytest.raises(KeyboardInterrupt):
        w.__enter__()
    assert bfcviz.open(tmp_path / "run").origin.status is Status.COMPLETE


def test_a_watch_that_cannot_start_removes_its_recording(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    for _ in range(2):
        with pytest.raises(LiveError, match=r"JAX .*not installed"):
            watched(jax=True, path=tmp_path / "run").__enter__()
        assert [*tmp_path.rglob("*")] == [tmp_path / "run"]
    with watched(path=tmp_path / "run") as w:
        np.empty(MIB)
    assert agrees(w)


def test_thirty_in_a_row_leave_nothing_behind():
    for _ in range(30):
        with contextlib.suppress(ValueError), watched(limit="1MiB"):
            np.ones(1000)
            raise ValueError


def test_it_keeps_the_newest_events_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(drain_module, "MOST_EVENTS", 1024)
    monkeypatch.setattr(drain_module, "SAMPLE_EVERY_S", 0.001)
    with watched(path=tmp_path / "run", keep="4KiB") as w:
        rounds = 0
        while not w.trace.first and rounds < 10_000:
            for _ in range(1000):
                np.zeros(1000)
            rounds += 1
            w.trace.refresh()
        live = w.trace.first
    trace = bfcviz.open(w.folder)
    assert 0 < live <= trace.first < len(trace)
    assert trace.origin.details["keep_bytes"] == 4096
    assert (trace.origin.status, len(trace.origin.reasons)) == (Status.TRUNCATED, 1)
    model = Model(trace)  # begins at a state, and applies the events that are kept
    model.seek(len(trace))
    chunks, stats = model.chunks(), model.stats()
    assert chunks["size"].sum() == stats.pool_bytes > 0
    assert chunks["size"][chunks["in_use"]].sum() == stats.bytes_in_use


def test_without_a_folder_a_size_is_a_number_of_events(monkeypatch):
    monkeypatch.setattr(session, "Watch", lambda settings: settings)
    assert [(each.keep, each.keep_bytes) for each in (watched(keep="64KiB"), watched(keep=7))] == [
        (1024, None),
        (7, None),
    ]
    with pytest.raises(ValueError, match="keep"):
        watched(keep="many")
