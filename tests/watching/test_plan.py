"""What is watched when nothing, something or nonsense is asked for. The other frameworks are stand-ins here."""

import contextlib
import importlib.util
import inspect
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import bfcviz
from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.frameworks.table import FRAMEWORKS, WATCHABLE
from bfcviz.frameworks.wish import Wish
from bfcviz.live.numpy import api
from bfcviz.live.numpy.serve import serve_numpy
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.model.browse.navigation import events_of
from bfcviz.watching import plan as frameworks
from bfcviz.watching.plan import plan, source_of

NOTHING = dict.fromkeys(WATCHABLE)


def wishes(**asked):
    return [(wish.framework, wish.way) for wish in plan(NOTHING | asked).wishes]


@pytest.fixture
def no_cupy(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(frameworks, "find_spec", lambda name: None if name == "cupy" else find(name))


@pytest.fixture
def cupy(monkeypatch):
    """A CuPy whose GPU can be there or not."""
    module = ModuleType("cupy")
    module.cuda = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setattr(frameworks, "find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def torch(*, has_gpu):
    module = ModuleType("torch")
    module.cuda = SimpleNamespace(is_available=lambda: has_gpu)
    return module


class Stand(HeapProvider):
    """A framework's source that can fail to begin."""

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
        self.handler = api.get_handler()

    def _stop(self, error):
        self.ended += 1


@pytest.fixture
def live(monkeypatch):
    """Puts a constructor where `bfcviz.live` has one."""

    def put(framework, way, make):
        module = ModuleType(f"bfcviz.live.{framework}.{way}")
        setattr(module, f"{way}_{framework}", make)
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return put


def test_by_default_numpy_is_served_where_there_is_no_gpu(no_cupy):
    assert plan(NOTHING) == ([Wish("numpy", "serve", {})], [])


def test_by_default_cupy_is_served_where_there_is_a_gpu(cupy):
    assert wishes() == [("cupy", "serve")]
    assert wishes(cupy=False) == [("numpy", "serve")]


def test_a_cupy_that_cannot_be_used_is_said(cupy):
    cupy.cuda.is_available = lambda: False
    assert plan(NOTHING).notes == ["CuPy is installed but not watched: there is no GPU, or no driver"]

    def broken():
        raise ImportError("libcudart.so.12: cannot open shared object file")

    cupy.cuda.is_available = broken
    found = plan(NOTHING)
    assert [wish.framework for wish in found.wishes] == ["numpy"]
    assert found.notes == ["CuPy is installed but not watched: it cannot be imported (ImportError)"]


def test_by_default_pytorch_is_observed_where_it_is_at_work_on_a_gpu(no_cupy, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch(has_gpu=True))
    assert wishes() == [("numpy", "serve"), ("torch", "observe")]
    assert wishes(numpy=False) == [("torch", "observe")]
    monkeypatch.setitem(sys.modules, "torch", torch(has_gpu=False))
    assert wishes() == [("numpy", "serve")]


def test_what_is_asked_for_is_all_that_is_watched():
    assert wishes(torch=True) == [("torch", "observe")]
    assert wishes(cupy="observe", numpy=True, rmm=False) == [("numpy", "serve"), ("cupy", "observe")]
    assert plan(NOTHING | {"cupy": {"memory": "managed"}}).wishes == [
        Wish("cupy", "serve", {"memory": "managed"})
    ]
    assert plan({"torch": {"way": "serve", "fraction": 0.5}}).wishes == [
        Wish("torch", "serve", {"fraction": 0.5})
    ]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"numpy": "observe"}, r"numpy='observe' was asked for; NumPy can be watched by 'serve'$"),
        ({"jax": "serve"}, r"JAX can be watched by 'observe'$"),
        ({"cupy": "both"}, r"CuPy can be watched by 'serve' or 'observe'$"),
        ({"rmm": "serve", "cupy": True}, "RMM and CuPy were to be served, .* ask for rmm='serve' alone"),
        (dict.fromkeys(WATCHABLE, False), "there is nothing to watch"),
    ],
)
def test_nonsense_is_refused(asked, said):
    with pytest.raises(LiveError, match=said):
        plan(NOTHING | asked)


def test_a_limit_for_what_is_only_observed_is_refused():
    with pytest.raises(LiveError, match="PyTorch would only be observed and keeps its own memory"):
        bfcviz.watch(torch=True, limit="1GiB")


def test_options_go_to_the_frameworks_own_function():
    source = source_of(Wish("numpy", "serve", {"small": 512, "limit": 1 << 20}), None)
    with source:
        np.empty(8)
    assert source.left_to_numpy == 1
    assert source.allocator.limit == 1 << 20


def test_a_limit_and_capture_of_its_own_count_before_those_of_all():
    own = {"way": "serve", "limit": "1MiB", "capture": "nothing"}
    wishes = plan({"torch": own, "cupy": True, "jax": True}, 4096, "label").wishes
    assert wishes == [
        Wish("cupy", "serve", {"limit": 4096, "capture": "label"}),
        Wish("torch", "serve", {"limit": 1 << 20, "capture": "nothing"}),
        Wish("jax", "observe", {}),
    ]


def test_what_cannot_be_watched_from_inside_is_refused():
    with pytest.raises(LiveError, match="record --tensorflow"):
        bfcviz.watch(tensorflow=True)
    with pytest.raises(LiveError, match="nunpy"):
        bfcviz.watch(nunpy=True)


def test_watch_names_every_framework():
    named = inspect.signature(bfcviz.watch).parameters
    assert [name for name in named if name in FRAMEWORKS] == [*WATCHABLE]
    assert all(f"`{name}`" in bfcviz.watch.__doc__ for name in WATCHABLE)


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
    live("torch", "serve", lambda **options: made.append(Stand(**options)) or made[-1])
    with bfcviz.watch(torch=asked, path=tmp_path / "run") as w:
        assert w.sources == made
    assert made[0].options["mechanism"] == "replace"
    details = bfcviz.open(tmp_path / "run").origin.details
    assert details == {"framework": "torch", "way": "serve", "mechanism": "replace"}


def test_devices_reach_those_that_observe(live):
    made = []
    for name in ("torch", "rmm"):
        live(name, "observe", lambda **options: made.append(Stand(**options)) or made[-1])
    with bfcviz.watch(torch={"devices": [1]}, rmm={"devices": (0, 2)}):
        pass
    assert [stand.options["devices"] for stand in made] == [[1], [0, 2]]


def test_another_framework_is_watched_like_numpy(live, tmp_path):
    made, plain = [], api.get_handler()
    live("cupy", "serve", lambda **options: made.append(Stand(**options)) or made[0])
    with bfcviz.watch(cupy={"memory": "managed"}, numpy=True, limit="1MiB", path=tmp_path / "run") as w:
        assert w.says == f"{serve_numpy('1MiB').description}. CuPy is served by a stand-in."
        assert [trace.origin.pools[0].name for trace in w.traces] == ["numpy", "stand"]
        w.mark("step 1")
    (stand,) = made
    assert stand.handler is plain  # its threads are not the workload's
    assert (stand.options["limit"], stand.options["memory"]) == (1 << 20, "managed")
    assert (stand.began, stand.ended) == (1, 1)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"numpy", "cupy"}
    assert [len(trace) for trace in w.traces] == [1, 1]


@pytest.mark.parametrize("when", ["made", "entered"])
def test_what_a_framework_raises_becomes_words_and_undoes_the_others(live, when):
    error = RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient\nand more")

    def make(**_):
        if when == "made":
            raise error
        return Stand(fails=error)

    live("cupy", "serve", make)
    handler = api.get_handler()
    with pytest.raises(
        LiveError, match=r"^CuPy cannot be watched here, .* RuntimeError: cudaError.*insufficient$"
    ):
        bfcviz.watch(cupy=True, numpy=True).__enter__()
    assert api.get_handler() is handler
    with bfcviz.watch(numpy=True):
        pass


def test_an_error_of_ours_is_passed_on(live):
    live("cupy", "serve", lambda **_: Stand(fails=LiveError("there is no GPU here: ...")))
    with pytest.raises(LiveError, match=r"^there is no GPU here"):
        bfcviz.watch(cupy=True).__enter__()


def test_a_heap_that_comes_later_joins(live):
    made = []
    live("cupy", "serve", lambda **options: made.append(Stand(**options)) or made[0])
    alert = bfcviz.Alert("bytes_in_use", above="4KiB")
    with bfcviz.watch(cupy=True, alerts=[alert]) as w:
        dashboard = w.dashboard
        assert dashboard._menu not in dashboard._bar.children
        other = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 1 << 20, name="stream 7")
        made[0].heaps.append(other)
        other.allocate(10_000)
        w.mark("step 1")
    assert [trace.origin.pools[0].name for trace in w.traces] == ["stand", "stream 7"]
    assert [len(trace) for trace in w.traces] == [1, 5]  # EXTEND, SPLIT, ALLOCATE, and two marks
    assert [alarm.heap for alarm in w.alarms] == ["stream 7"]
    assert dashboard._menu.options == (("stand", 0), ("stream 7", 1))
    assert dashboard._menu in dashboard._bar.children
    assert dashboard.trace is w.traces[0]
    dashboard._menu.value = 1
    assert dashboard.trace is w.traces[1]
    dashboard.close()


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA out of memory. Tried to allocate"), MemoryError("no more")]
)
def test_every_frameworks_own_error_of_memory_is_one(live, error):
    made = []
    live("torch", "serve", lambda **options: made.append(Stand(**options)) or made[0])
    w = bfcviz.watch(torch="serve", dashboard=False)
    with contextlib.suppress(type(error)), w:
        made[0].heaps[0].try_allocate(1 << 30, label="attention")
        made[0].out_of_memory = object()
        raise error
    assert w.failure.words.startswith("A request by attention for 1.0 GiB failed")
    assert error.__notes__ == [str(w.failure)]


# -- what is captured ----------------------------------------------------------------------------------------


def names(w):
    return {w.trace.labels.name(int(event["label"])) for event in events_of(w.trace, [Kind.ALLOCATE])}


@pytest.mark.parametrize(("capture", "found"), [(None, {"work"}), ("label", {"work"}), ("nothing", {""})])
def test_a_label_is_captured_unless_nothing_is(capture, found):
    with bfcviz.watch(numpy=True, limit="1MiB", capture=capture) as w, bfcviz.label("work"):
        np.empty(100)
    assert names(w) == found


def test_stacks_are_captured_where_they_are_asked_for_and_the_report_tells_the_innermost():
    with bfcviz.watch(numpy=True, limit="1MiB", capture="stack") as w, bfcviz.label("work"):
        np.empty(100)
    (holder,) = w.report().holders
    assert holder.name.startswith("work, in test_stacks_are_captured_where_they_are_asked_for")
    assert "(test_plan.py:" in holder.name


def test_capture_goes_to_each_framework_that_knows_it(live):
    made = []
    live("cupy", "serve", lambda **options: made.append(Stand(**options)) or made[-1])
    live("jax", "observe", lambda **options: made.append(Stand(**options)) or made[-1])
    with bfcviz.watch(cupy=True, jax=True, capture="nothing"):
        pass
    assert [stand.options.get("capture") for stand in made] == ["nothing", None]
    with pytest.raises(LiveError, match="stacks were asked for, but JAX"):
        bfcviz.watch(jax=True, capture="stack")


# -- where there is no GPU -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cupy": True}, "(?i)cupy"),
        ({"cupy": "observe"}, "(?i)cupy"),
        ({"torch": True}, "(?i)torch"),
        ({"torch": "serve"}, "(?i)torch"),
        ({"rmm": True}, "(?i)rmm"),
        ({"jax": True}, "(?i)jax"),
    ],
)
def test_a_framework_that_is_not_there_is_told_and_numpy_stays_as_it_was(asked, said, monkeypatch):
    for name in ("cupy", "torch", "rmm", "jax"):
        monkeypatch.setitem(sys.modules, name, None)  # as where it is not installed
    handler = api.get_handler()
    with pytest.raises(BfcvizError, match=said):
        bfcviz.watch(numpy=True, **asked).__enter__()
    assert api.get_handler() is handler
    with bfcviz.watch(numpy=True, limit="1MiB"):
        pass
