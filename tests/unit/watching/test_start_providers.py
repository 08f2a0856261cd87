"""How the heap providers of a plan start and end. Fake providers take the place of frameworks."""

import contextlib
import sys
from types import ModuleType

import numpy as np
import pytest

import bfcviz
from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.log import EventLog
from bfcviz.frameworks import WatchRequest
from bfcviz.live.heap_provider import HeapProvider
from bfcviz.live.numpy import get_handler, serve_numpy
from bfcviz.watching.session import open_source


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
        assert [name for name, _ in inspector.controls.pool.options] == ["cupy:0", "cupy:1"]
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
