"""RMM observed, by either mechanism: devices, refusals, and the holders of a recording; with a stand-in for RMM."""

import pytest
from fake_cuda import FakeCuda
from fake_rmm import CallbackMemoryResource
from processes import needs_compiled

import bfcviz
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.errors import BfcvizError, InvalidRequest, LiveError
from bfcviz.live.rmm import observe_rmm
from bfcviz.live.stacks import Stacks

MECHANISMS = pytest.mark.parametrize("mechanism", ["callback", "log"])


def load_table(rmm):
    return rmm.buffer(3000), rmm.buffer(5000)


def join_tables(rmm):
    return rmm.buffer(70_000)


@needs_compiled
def test_a_default_recording_names_its_holders_by_line_of_code(rmm, tmp_path):
    path = tmp_path / "run"
    with bfcviz.watch(rmm=True, path=path, dashboard=False):
        table, joined = load_table(rmm), join_tables(rmm)
        with bfcviz.label("cache"):
            kept = rmm.buffer(256)
    found = bfcviz.holders(path, "peak").to_arrow().to_pylist()
    lines = {function: function.__code__.co_firstlineno + 1 for function in (load_table, join_tables)}
    assert {row["name"]: (row["bytes"], row["chunks"]) for row in found[1:]} == {
        f"test_observe.py:{lines[load_table]} load_table": (3072 + 5120, 2),
        f"test_observe.py:{lines[join_tables]} join_tables": (70_144, 1),
        "cache": (256, 1),
    }
    for buffer in (*table, joined, kept):
        rmm.drop(buffer)


@pytest.fixture
def driver(monkeypatch):
    """A machine with four GPUs, of which the process uses one."""
    library = FakeCuda(devices=4)
    made = Driver(library)
    with made.on(0):
        pass
    monkeypatch.setattr(cuda_driver, "load", lambda: made)
    return made


@MECHANISMS
def test_devices_in_use_are_observed_and_no_context_is_created_on_others(rmm, driver, mechanism):
    rmm.devices = 4
    with driver.on(2):
        pass
    with observe_rmm(mechanism=mechanism) as source:
        assert [heap.name for heap in source.heaps] == ["rmm:0", "rmm:2"]
        assert "Device 1, 3 was not in use" in source.description
        rmm.buffer(1000, device=2)
    assert [heap.stats().num_allocs for heap in source.heaps] == [0, 1]
    assert rmm.contexts == {0, 2}


@MECHANISMS
def test_the_devices_that_are_named_are_observed(rmm, driver, mechanism):
    rmm.devices = 4
    with observe_rmm(mechanism=mechanism, devices=[3]) as source:
        assert [heap.name for heap in source.heaps] == ["rmm:3"]
        assert "not in use" not in source.description
    assert rmm.contexts == {0, 3}
    with pytest.raises(InvalidRequest, match=r"device 4 .* 4, counted from 0"):
        observe_rmm(mechanism=mechanism, devices=[4]).__enter__()


@pytest.mark.parametrize(("mechanism", "made"), [("callback", "Callback"), ("log", "Logging")])
def test_where_one_device_cannot_be_observed_none_is(rmm, monkeypatch, mechanism, made):
    rmm.devices, before, resource_at = 2, dict(rmm.resources), rmm.mr.get_per_device_resource
    source = observe_rmm(mechanism=mechanism, devices=[0, 1])
    with monkeypatch.context() as broken:
        broken.setattr(
            rmm.mr, "get_per_device_resource", lambda device: resource_at(device) if device == 0 else 1 // 0
        )
        with pytest.raises(ZeroDivisionError):
            source.__enter__()
    assert rmm.resources == before
    with source:
        assert made in str(rmm.resources[1].__class__.__mro__)
        rmm.buffer(1000)
    assert source.heaps[0].stats().num_allocs == 1


@MECHANISMS
def test_a_resource_that_other_code_puts_in_place_stays(rmm, mechanism):
    with observe_rmm(mechanism=mechanism):
        rmm.resources[0] = theirs = CallbackMemoryResource(None, None)
    assert rmm.resources[0] is theirs


def test_observing_twice_is_refused_whatever_the_mechanism(rmm):
    for first, second in (("callback", "log"), ("log", "callback")):
        with observe_rmm(mechanism=first), pytest.raises(LiveError, match="RMM is observed already"):
            observe_rmm(mechanism=second).__enter__()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mechanism": "both"}, ["mechanism='both'", "'callback'", "'log'"]),
        ({"mechanism": "log", "every_s": 0}, ["every_s=0"]),
        ({"mechanism": "log", "every_s": float("nan")}, ["every_s=nan"]),
        ({"every_s": 1}, ["every_s=1", "mechanism='log'"]),
        ({"mechanism": "log", "capture": "stack"}, ["capture='stack'", "mechanism='callback'"]),
        ({"mechanism": "log", "capture": Stacks()}, ["mechanism='callback'"]),
        ({"capture": "all"}, ["capture='all'"]),
    ],
)
def test_options_that_cannot_be_are_refused(rmm, options, named):
    with pytest.raises(BfcvizError) as caught:
        observe_rmm(**options)
    assert [word for word in named if word not in str(caught.value)] == []
