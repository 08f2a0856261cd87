"""Which frameworks a plan watches, and which arguments it refuses. Stand-ins take the place of CuPy and PyTorch."""

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import bfcviz
from bfcviz.errors import LiveError
from bfcviz.events.schema import Kind
from bfcviz.frameworks import WATCHABLE, WatchRequest
from bfcviz.model.find_steps import events_of
from bfcviz.watching import watch_session as plan_module
from bfcviz.watching.watch_session import watch_plan

NOTHING = dict.fromkeys(WATCHABLE)


def requests(**asked):
    return [(request.framework, request.way) for request in watch_plan(NOTHING | asked).requests]


@pytest.fixture
def no_cupy(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(plan_module, "find_spec", lambda name: None if name == "cupy" else find(name))


@pytest.fixture
def cupy(monkeypatch):
    """A CuPy with or without a GPU."""
    module = ModuleType("cupy")
    module.cuda = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setattr(plan_module, "find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def torch(*, has_gpu):
    module = ModuleType("torch")
    module.cuda = SimpleNamespace(is_available=lambda: has_gpu)
    return module


def test_by_default_numpy_is_served_where_there_is_no_gpu(no_cupy):
    assert watch_plan(NOTHING) == ([WatchRequest("numpy", "serve", {})], [])


def test_by_default_cupy_is_served_where_there_is_a_gpu(cupy):
    assert requests() == [("cupy", "serve")]
    assert requests(cupy=False) == [("numpy", "serve")]


def no_driver():
    raise RuntimeError("cudaErrorInsufficientDriver")  # CuPy 13


@pytest.mark.parametrize("is_available", [lambda: False, no_driver])
def test_a_note_says_why_an_installed_cupy_is_not_watched(cupy, is_available):
    cupy.cuda.is_available = is_available
    (note,) = watch_plan(NOTHING).notes
    assert "CuPy" in note
    assert "no GPU" in note

    def broken():
        raise ImportError("libcudart.so.12: cannot open shared object file")

    cupy.cuda.is_available = broken
    found = watch_plan(NOTHING)
    assert [request.framework for request in found.requests] == ["numpy"]
    (note,) = found.notes
    assert "ImportError" in note


def test_by_default_pytorch_is_observed_where_it_is_imported_and_has_a_gpu(no_cupy, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch(has_gpu=True))
    assert requests() == [("numpy", "serve"), ("torch", "observe")]
    assert requests(numpy=False) == [("torch", "observe")]
    monkeypatch.setitem(sys.modules, "torch", torch(has_gpu=False))
    assert requests() == [("numpy", "serve")]
    (note,) = watch_plan(NOTHING).notes
    assert "PyTorch" in note
    assert watch_plan(NOTHING | {"torch": False}).notes == []


def test_only_the_named_frameworks_are_watched():
    assert requests(torch=True) == [("torch", "observe")]
    assert requests(cupy="observe", numpy=True, rmm=False) == [("numpy", "serve"), ("cupy", "observe")]
    assert watch_plan(NOTHING | {"cupy": {"memory": "managed"}}).requests == [
        WatchRequest("cupy", "serve", {"memory": "managed"})
    ]
    assert watch_plan({"torch": {"way": "serve", "fraction": 0.5}}).requests == [
        WatchRequest("torch", "serve", {"fraction": 0.5})
    ]


@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        ({"numpy": "observe"}, "numpy='observe'.*NumPy.*'serve'$"),
        ({"jax": "serve"}, "JAX.*'observe'$"),
        ({"cupy": "both"}, "CuPy.*'serve' or 'observe'$"),
        ({"rmm": "serve", "cupy": True}, "RMM and CuPy.*rmm='serve' alone"),
        (dict.fromkeys(WATCHABLE, False), "nothing to watch"),
    ],
)
def test_wrong_arguments_are_refused(asked, facts):
    with pytest.raises(LiveError, match=facts):
        watch_plan(NOTHING | asked)


def test_a_limit_for_an_observed_framework_is_refused():
    with pytest.raises(LiveError, match=r"limit=1\.0 GiB.*PyTorch.*observed"):
        bfcviz.watch(torch=True, limit="1GiB")


def test_a_frameworks_own_limit_and_capture_take_precedence():
    own = {"way": "serve", "limit": "1MiB", "capture": "nothing"}
    requests = watch_plan({"torch": own, "cupy": True, "jax": True}, 4096, "label").requests
    assert requests == [
        WatchRequest("cupy", "serve", {"limit": 4096, "capture": "label"}),
        WatchRequest("torch", "serve", {"limit": 1 << 20, "capture": "nothing"}),
        WatchRequest("jax", "observe", {}),
    ]


def test_frameworks_that_cannot_be_watched_are_refused():
    with pytest.raises(LiveError, match="record --tensorflow"):
        bfcviz.watch(tensorflow=True)
    with pytest.raises(LiveError, match="nunpy"):
        bfcviz.watch(nunpy=True)


# -- what is captured ----------------------------------------------------------------------------------------


def names(w):
    return {w.trace.labels.name(int(event["label"])) for event in events_of(w.trace, [Kind.ALLOCATE])}


@pytest.mark.parametrize(("capture", "found"), [(None, {"work"}), ("label", {"work"}), ("nothing", {""})])
def test_a_label_is_captured_unless_nothing_is(capture, found):
    with bfcviz.watch(numpy=True, limit="1MiB", capture=capture) as w, bfcviz.label("work"):
        np.empty(100)
    assert names(w) == found


def test_the_report_names_the_innermost_frame_of_captured_stacks():
    with bfcviz.watch(numpy=True, limit="1MiB", capture="stack") as w, bfcviz.label("work"):
        np.empty(100)
    (holder,) = w.report().holders
    label, _, place = holder.name.partition(", ")
    file, _, function = place.partition(" ")
    assert (label, file.partition(":")[0]) == ("work", "test_chosen_frameworks.py")
    assert function == test_the_report_names_the_innermost_frame_of_captured_stacks.__name__
