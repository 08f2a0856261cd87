"""A watch of NumPy: what it records, and that everything is unchanged after it, however it ends."""

import contextlib
import gc
import inspect
import sys
import threading
from types import ModuleType

import numpy as np
import pytest
from heaps import KIB, MIB
from unit.live.cupy_stand_in import cupy, gpu, needs_cupy
from unit.watching.numpy_watch import as_it_was, watched

import bfcviz
from bfcviz.errors import BfcvizError, FileError, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage import drain as drain_module
from bfcviz.frameworks import FRAMEWORKS, WATCHABLE, WatchRequest
from bfcviz.live import memory_limits
from bfcviz.live.heap_provider import HeapProvider
from bfcviz.live.numpy import get_handler, serve_numpy
from bfcviz.model import Model
from bfcviz.model.find_steps import events_of
from bfcviz.watching import watch_session
from bfcviz.watching.watch_session import open_source

__all__ = ["as_it_was", "gpu"]


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
    monkeypatch.setattr(watch_session, "Watch", lambda settings: settings)
    assert [(each.keep, each.keep_bytes) for each in (watched(keep="64KiB"), watched(keep=7))] == [
        (1024, None),
        (7, None),
    ]
    with pytest.raises(ValueError, match="keep"):
        watched(keep="many")


# ------------------------------------------------------------------------------
# The arguments of bfcviz.watch.


def test_watch_names_every_framework():
    named = inspect.signature(bfcviz.watch).parameters
    assert [name for name in named if name in FRAMEWORKS] == [*WATCHABLE]
    assert all(f"`{name}`" in bfcviz.watch.__doc__ for name in WATCHABLE)


def test_a_limit_above_the_machines_memory_is_refused():
    with pytest.raises(LiveError, match=r"this machine has .* of memory"):
        bfcviz.watch(numpy=True, limit=memory_limits.total_memory() + 1)


@pytest.mark.parametrize("limit", ["much", 1.5e9, float("nan")])
def test_a_limit_that_is_not_a_size_is_refused(limit):
    with pytest.raises((ValueError, TypeError), match=f"limit={limit!r}"):
        bfcviz.watch(numpy=True, limit=limit)


# ------------------------------------------------------------------------------
# How the heap providers of a plan start and end. Fake providers take the place of frameworks.


class FakeProvider(HeapProvider):
    """A heap provider that can fail to start."""

    way, title, is_shared = "serve", "CuPy", True
    heaps = description = out_of_memory = None

    def __init__(self, *, fails=None, **options):
        self.options, self.fails, self.began, self.ended, self.handler = options, fails, 0, 0, None
        self._heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 20, name="stand")
        self.heaps = [self._heap]
        self.description = "CuPy is served by a stand-in"

    def _start(self):
        if self.fails is not None:
            raise self.fails
        self.began += 1
        self.handler = get_handler()

    def _stop(self, error):
        self.ended += 1


@pytest.fixture
def live(monkeypatch):
    """Replaces a framework's function in `bfcviz.live`."""

    def put(framework, way, make):
        module = ModuleType(f"bfcviz.live.{framework}")
        setattr(module, f"{way}_{framework}", make)
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return put


def test_options_go_to_the_frameworks_own_function():
    source = open_source(WatchRequest("numpy", "serve", {"small": 512, "limit": 1 << 20}), None)
    with source:
        np.empty(8)
    assert source.left_to_numpy == 1
    assert source.allocator.limit == 1 << 20


def test_a_log_of_its_own_and_a_folder_exclude_each_other(tmp_path):
    with pytest.raises(LiveError, match="log"):
        bfcviz.watch(numpy={"log": EventLog(64)}, path=tmp_path / "run").__enter__()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "asked",
    [
        {"way": "replace"},
        {"mechanism": "replace"},
        {"way": "serve", "mechanism": "replace"},
        {"way": "replace", "mechanism": "replace"},
        "replace",
    ],
)
def test_pytorch_can_be_served_in_place_of_its_allocator(asked, live, tmp_path):
    made = []
    live("torch", "serve", lambda **options: made.append(FakeProvider(**options)) or made[-1])
    with bfcviz.watch(torch=asked, path=tmp_path / "run") as w:
        assert w.sources == made
    assert made[0].options["mechanism"] == "replace"
    details = bfcviz.open(tmp_path / "run").origin.details
    assert details.pop("threads")
    assert details == {"framework": "torch", "way": "serve", "mechanism": "replace"}


def test_devices_reach_those_that_observe(live):
    made = []
    for name in ("torch", "rmm"):
        live(name, "observe", lambda **options: made.append(FakeProvider(**options)) or made[-1])
    with bfcviz.watch(torch={"devices": [1]}, rmm={"devices": (0, 2)}):
        pass
    assert [stand.options["devices"] for stand in made] == [[1], [0, 2]]


def test_another_framework_is_watched_like_numpy(live, tmp_path):
    made, plain = [], get_handler()
    live("cupy", "serve", lambda **options: made.append(FakeProvider(**options)) or made[0])
    with bfcviz.watch(cupy={"memory": "managed"}, numpy=True, limit="1MiB", path=tmp_path / "run") as w:
        assert w.says == f"{serve_numpy('1MiB').description}. CuPy is served by a stand-in."
        assert [trace.origin.pools[0].name for trace in w.traces] == ["numpy", "stand"]
        w.mark("step 1")
    (stand,) = made
    assert stand.handler is plain  # its threads do not belong to the workload
    assert (stand.options["limit"], stand.options["memory"]) == (1 << 20, "managed")
    assert (stand.began, stand.ended) == (1, 1)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"numpy", "cupy"}
    assert [len(trace) for trace in w.traces] == [1, 1]


@pytest.mark.parametrize("when", ["made", "entered"])
def test_an_error_of_a_framework_becomes_a_live_error_and_undoes_the_others(live, when):
    error = RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient\nand more")

    def make(**_):
        if when == "made":
            raise error
        return FakeProvider(fails=error)

    live("cupy", "serve", make)
    handler = get_handler()
    with pytest.raises(LiveError, match=r"^CuPy cannot be watched.*RuntimeError: cudaError.*insufficient$"):
        bfcviz.watch(cupy=True, numpy=True).__enter__()
    assert get_handler() is handler
    with bfcviz.watch(numpy=True):
        pass


def test_an_error_of_bfcviz_is_passed_on(live):
    live("cupy", "serve", lambda **_: FakeProvider(fails=LiveError("there is no GPU here: ...")))
    with pytest.raises(LiveError, match=r"^there is no GPU here"):
        bfcviz.watch(cupy=True).__enter__()


def test_a_heap_that_comes_later_joins(live):
    made = []
    live("cupy", "serve", lambda **options: made.append(FakeProvider(**options)) or made[0])
    alert = bfcviz.Alert("bytes_in_use", above="4KiB")
    with bfcviz.watch(cupy=True, alerts=[alert]) as w:
        dashboard = w.dashboard
        assert dashboard.menu not in dashboard.bar.children
        other = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 20, name="stream 7")
        made[0].heaps.append(other)
        other.allocate(10_000)
        w.mark("step 1")
    assert [trace.origin.pools[0].name for trace in w.traces] == ["stand", "stream 7"]
    assert [len(trace) for trace in w.traces] == [1, 5]  # EXTEND, SPLIT, ALLOCATE, and two marks
    assert [alarm.heap for alarm in w.alarms] == ["stream 7"]
    assert dashboard.menu.options == (("stand", 0), ("stream 7", 1))
    assert dashboard.menu in dashboard.bar.children
    assert dashboard.trace is w.traces[0]
    dashboard.menu.value = 1
    assert dashboard.trace is w.traces[1]
    dashboard.close()


def test_all_heaps_of_a_recording_are_one_trace(live, tmp_path):
    made = []

    def provider(log, **options):
        made.append(FakeProvider(log=log, **options))
        made[0].heaps = [recorded(log, "cupy:0")]
        return made[0]

    def recorded(log, name):
        source = bfcviz.SimulatedSubAllocator()
        return bfcviz.BFCAllocator(source, 1 << 20, name=name, log=log.log, labels=log.labels)

    live("cupy", "serve", provider)
    alert = bfcviz.Alert("bytes_in_use", above="4KiB")
    with bfcviz.watch(cupy=True, alerts=[alert], path=tmp_path / "run") as w:
        inspector = w.dashboard.inspector
        made[0].heaps.append(recorded(made[0].options["log"], "cupy:1"))
        made[0].heaps[0].allocate(100)
        made[0].heaps[1].allocate(10_000)
        w.mark("step 1")
        w.dashboard.refresh()
        assert [name for name, _ in inspector.toolbar.pool.options] == ["cupy:0", "cupy:1"]
        assert inspector.pool == 0
        inspector.pool = 1
        made[0].heaps[1].allocate(10_000)
        w.dashboard.refresh()
        assert inspector.pool == 1
        assert inspector.panel_data.model.stats().bytes_in_use == made[0].heaps[1].stats().bytes_in_use
    (trace,) = w.traces
    assert [pool.name for pool in trace.origin.pools] == ["cupy:0", "cupy:1"]
    assert [alarm.heap for alarm in w.alarms] == ["cupy:1"]
    assert trace.origin.has_ended_whole
    w.dashboard.close()


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA out of memory. Tried to allocate"), MemoryError("no more")]
)
def test_the_out_of_memory_error_of_every_framework_is_recognised(live, error):
    made = []
    live("torch", "serve", lambda **options: made.append(FakeProvider(**options)) or made[0])
    w = bfcviz.watch(torch="serve", dashboard=False)
    with contextlib.suppress(type(error)), w:
        made[0].heaps[0].try_allocate(1 << 30, label="attention")
        made[0].out_of_memory = object()
        raise error
    assert w.failure.words.startswith("attention failed to allocate 1.0 GiB")
    assert error.__notes__ == [w.failure.note]
    assert "\n" not in w.failure.note


def test_capture_goes_to_each_framework_that_takes_it(live):
    made = []
    live("cupy", "serve", lambda **options: made.append(FakeProvider(**options)) or made[-1])
    live("jax", "observe", lambda **options: made.append(FakeProvider(**options)) or made[-1])
    with bfcviz.watch(cupy=True, jax=True, capture="nothing"):
        pass
    assert [stand.options.get("capture") for stand in made] == ["nothing", None]
    with pytest.raises(LiveError, match=r"stack.*JAX"):
        bfcviz.watch(jax=True, capture="stack")


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"cupy": True}, "(?i)cupy"),
        ({"cupy": "observe"}, "(?i)cupy"),
        ({"torch": True}, "(?i)torch"),
        ({"torch": "serve"}, "(?i)torch"),
        ({"rmm": True}, "(?i)rmm"),
        ({"jax": True}, "(?i)jax"),
    ],
)
def test_a_missing_framework_is_named_and_numpy_stays_unchanged(asked, name, monkeypatch):
    for module in ("cupy", "torch", "rmm", "jax"):
        monkeypatch.setitem(sys.modules, module, None)  # as where it is not installed
    handler = get_handler()
    with pytest.raises(BfcvizError, match=name):
        bfcviz.watch(numpy=True, **asked).__enter__()
    assert get_handler() is handler
    with bfcviz.watch(numpy=True, limit="1MiB"):
        pass


# ------------------------------------------------------------------------------
# Watch CuPy: its real arrays, in host memory where there is no GPU.


@needs_cupy
def test_it_is_served_recorded_and_as_it_was_afterwards(gpu, tmp_path):
    before = cupy.cuda.get_allocator()
    with bfcviz.watch(cupy=True, limit="32MiB", path=tmp_path / "run") as w:
        assert w.says.startswith("CuPy is served")
        with bfcviz.label("weights"):
            array = cupy.empty(1000, np.float64)
        w.mark("step 1")
    assert cupy.cuda.get_allocator() == before
    assert not w.sources[0].is_active
    (made,) = events_of(w.trace, [Kind.ALLOCATE])
    assert (w.trace.labels.name(int(made["label"])), int(made["requested"])) == ("weights", 8000)
    assert len(events_of(w.trace, [Kind.MARK])) == 1
    assert array.nbytes == 8000


@needs_cupy
def test_where_memory_runs_out_the_error_tells_why(gpu):
    with pytest.raises(OutOfMemory) as caught, bfcviz.watch(cupy=True, limit="8MiB") as w:
        cupy.empty(1 << 21, np.float64)
    assert "failed to allocate 16.0 MiB" in w.failure.words
    assert caught.value.__notes__[-1] == w.failure.note
