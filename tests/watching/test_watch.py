"""bfcviz.watch around NumPy: what it records and shows, and that all is as it was, however it ends."""

import contextlib
import gc
import sys
import threading
import time

import numpy as np
import pytest
from heaps import KIB, MIB
from processes import run_code

import bfcviz
from bfcviz.errors import FileError, LiveError
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.live.numpy import api
from bfcviz.live.shared import system_memory
from bfcviz.model import Model
from bfcviz.model.browse.navigation import events_of

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def as_it_was():
    """Whatever a test does, NumPy has its own memory afterwards, threads start as they did, and nothing goes on."""
    handler, start = api.get_handler(), threading.Thread.start
    yield
    assert api.get_handler() is handler
    assert threading.Thread.start is start
    assert not [each.name for each in threading.enumerate() if each.name.startswith("bfcviz-lookout")]
    with bfcviz.watch(numpy=True, limit="1MiB"):
        pass  # another one can begin


def watched(**options):
    return bfcviz.watch(**{"numpy": True, "limit": "64MiB", **options})


def agrees(w):
    """Whether the trace alone gives the heap's chunks."""
    model = Model(w.trace)
    model.seek(len(w.trace))
    ours, theirs = w.sources[0].allocator.memory_map(), model.chunks()
    return all(np.array_equal(ours[name], theirs[name]) for name in ("address", "size", "in_use"))


@pytest.mark.parametrize("folder", [False, True])
def test_what_happens_inside_is_recorded(tmp_path, folder):
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
        assert trace.origin.details == {"framework": "numpy", "way": "serve"}
        opened = bfcviz.open(tmp_path / "run")
        assert (len(opened), opened.origin.pools[0].limit) == (len(trace), 64 * MIB)


def test_it_says_which_way():
    w = watched(limit="8MiB")
    assert repr(w) == "<Watch: not begun>"
    with w:
        assert w.says.startswith(
            "NumPy is served: new arrays have their memory from bfcviz's own heap of at most 8.0"
        )
        assert w.sources[0].way == "serve"
        assert w.says in repr(w)
        assert "ended" not in w.says
    assert w.says.endswith("seen. This has ended: every framework has its own allocator again.")


def test_a_ring_is_kept_up_with_though_no_dashboard_reads_it():
    with watched(keep=1 << 12) as w:
        for _ in range(20_000):
            np.empty(100)
    trace = w.trace
    assert trace.first > 0
    assert trace.origin.status is Status.RECORDING  # nothing was lost, only let go
    assert trace.labels is w.sources[0].allocator.labels
    assert len(trace) == w.sources[0].allocator.log.head


def test_without_a_notebook_the_dashboard_is_made_when_it_is_asked_for():
    with watched() as w:
        held = np.ones(MIB)
        dashboard = w.dashboard
        assert w.dashboard is dashboard
        assert dashboard.traces == w.traces
        assert dashboard.renderer.running
        assert "NumPy is served" in dashboard._way.value
        assert not dashboard.renderer._periodic.thread.name.startswith("bfcviz-lookout")
    assert not dashboard.renderer.running
    assert dashboard.inspector.step == len(w.trace)
    assert f"ended: {len(w.trace):,} events" in dashboard.status.value
    assert "This has ended: every framework has its own allocator again." in dashboard._way.value
    assert held.nbytes == 8 * MIB
    dashboard.close()


def test_the_arrays_of_pictures_are_not_on_the_heap():
    with watched() as w:
        dashboard = w.dashboard
        made = w.sources[0].allocator.stats
        before = made().num_allocs
        np.empty(1000)
        dashboard.refresh()
        dashboard.stop()
        np.empty(1000)
        dashboard.start()
        pictures = dashboard.pictures
        dashboard.run(np.empty, 1000).result(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while dashboard.pictures == pictures and time.monotonic() < until:
            time.sleep(0.01)  # between two questions
        assert made().num_allocs == before + 3
    dashboard.close()


def test_asked_for_afterwards_the_dashboard_shows_where_it_ended():
    with watched() as w:
        np.ones(MIB)
    dashboard = w.dashboard
    assert not dashboard.renderer.running
    assert dashboard.inspector.step == len(w.trace)
    dashboard.close()


def test_the_dashboard_of_a_recording_says_that_it_is_complete(tmp_path):
    with watched(path=tmp_path / "run") as w:
        dashboard = w.dashboard
        np.ones(MIB)
    assert f"ended (complete): {len(w.trace):,} events" in dashboard.status.value
    dashboard.close()


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


def test_a_mark_that_is_no_text_is_refused():
    with watched() as w, pytest.raises(LiveError, match="3 was given as a name"):
        w.mark(3)


def test_a_watch_inside_another_is_refused_and_the_first_goes_on():
    with watched() as w:
        with pytest.raises(
            LiveError, match=r"something is watched already \(NumPy is served.*leave that `with`"
        ):
            watched().__enter__()
        np.empty(MIB)
        assert w.sources[0].allocator.stats().num_allocs == 1


def test_a_watch_while_numpy_is_served_by_hand_is_refused_and_it_stays_served():
    with bfcviz.serve_numpy("32MiB") as served:
        with pytest.raises(LiveError, match=r"NumPy is served already, by a heap of 32\.0 MiB"):
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
    assert "in the thread 'worker'" in found[0]
    assert "begin it in the main thread" in found[0]


def test_it_begins_once():
    with watched() as w:
        pass
    with pytest.raises(LiveError, match="has begun before: make a new one"):
        w.__enter__()


@pytest.mark.parametrize("use", [lambda w: w.trace, lambda w: w.dashboard, lambda w: w.mark("step")])
def test_before_it_begins_there_is_nothing(use):
    with pytest.raises(LiveError, match="nothing is watched yet"):
        use(watched())


def test_a_limit_above_the_machines_memory_is_refused():
    with pytest.raises(LiveError, match=r"this machine has .* of memory: give a lower limit"):
        watched(limit=system_memory.total_memory() + 1)


@pytest.mark.parametrize("limit", ["much", 1.5e9, float("nan")])
def test_a_limit_that_is_no_size_is_refused(limit):
    with pytest.raises((ValueError, TypeError), match=f"limit={limit!r}"):
        watched(limit=limit)


def test_a_folder_that_holds_something_is_refused_before_anything_is_served(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is not empty"):
        watched(path=tmp_path).__enter__()
    assert (tmp_path / "file").read_text() == "mine"


def test_what_fails_at_the_beginning_undoes_all(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    w = watched(path=tmp_path / "run")
    monkeypatch.setattr(w, "_open", fail)
    with pytest.raises(KeyboardInterrupt):
        w.__enter__()
    assert bfcviz.open(tmp_path / "run").origin.status is Status.COMPLETE


def test_where_one_cannot_be_watched_the_folder_is_free_again(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    for _ in range(2):
        with pytest.raises(LiveError, match="JAX was to be observed, but is not installed"):
            watched(jax=True, path=tmp_path / "run").__enter__()
        assert [*tmp_path.rglob("*")] == [tmp_path / "run"]
    with watched(path=tmp_path / "run") as w:
        np.empty(MIB)
    assert agrees(w)


def test_a_forked_process_may_watch_by_itself():
    code = """
import os, numpy as np, bfcviz
with bfcviz.watch(numpy=True, limit="8MiB"):
    child = os.fork()
    if child == 0:
        with bfcviz.watch(numpy=True, limit="8MiB") as w:
            np.ones(1000)
        os._exit(0 if len(w.trace) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_code(code) == "0\n"


def test_a_hundred_in_a_row_leave_nothing_behind():
    for _ in range(100):
        with contextlib.suppress(ValueError), watched(limit="1MiB"):
            np.ones(1000)
            raise ValueError
