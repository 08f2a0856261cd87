"""The part of `watch_workers` in a worker, without a cluster; the plugin is given a stand-in for Dask's worker."""

from types import SimpleNamespace

import numpy as np
import pytest
from processes import needs_compiled

from bfcviz.errors import LiveError
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import CopyPosition
from bfcviz.events.trace import Trace
from bfcviz.watching.dask_worker import WorkerOrder, WorkerRecording, machine_id
from bfcviz.watching.watch_workers import checked_order

pytestmark = needs_compiled


def order_for(folder, *, asked=None, machine=None):
    found = WorkerOrder(asked or {"numpy": True}, 64 << 20, None, str(folder), machine)
    (folder / found.token).touch()
    return found


@pytest.fixture
def places(tmp_path):
    found = tmp_path / "clients", tmp_path / "own"
    for each in found:
        each.mkdir()
    return found


def sizes_in(folder):
    trace = Trace.open(folder)
    events = trace.read(0, len(trace))
    return {*events["requested"][events["kind"] == Kind.ALLOCATE].tolist()}


@pytest.mark.parametrize("is_shared", [True, False])
def test_it_records_into_the_clients_folder_if_it_can(is_shared, places):
    clients, own = places
    recording = WorkerRecording(order_for(clients, machine=machine_id() if is_shared else None), "7", own)
    try:
        np.empty(4321, np.uint8)
    finally:
        recording.end()
    assert (recording.is_shared, recording.folder) == (is_shared, (clients if is_shared else own) / "7")
    assert 4321 in sizes_in(recording.folder)
    trace = Trace.open(recording.folder)
    assert trace.origin.status is Status.COMPLETE
    assert (trace.origin.details["worker"], trace.origin.details["framework"]) == ("7", "numpy")
    recording.end()
    np.empty(4322, np.uint8)
    assert 4322 not in sizes_in(recording.folder)


def test_a_folder_of_the_same_name_on_another_machine_is_not_the_clients(places):
    clients, own = places
    order = order_for(clients, machine=machine_id())
    (clients / order.token).unlink()
    recording = WorkerRecording(order, "7", own)
    recording.end()
    assert not recording.is_shared


def test_where_nothing_can_be_watched_nothing_is_left(places):
    clients, own = places
    with pytest.raises(LiveError):
        WorkerRecording(order_for(clients, asked={"cupy": "serve"}, machine=machine_id()), "7", own)
    assert [path for path in clients.iterdir() if path.is_dir()] == []
    first = WorkerRecording(order_for(clients), "7", own)
    try:
        with pytest.raises(LiveError, match="already"):
            WorkerRecording(order_for(clients), "8", own)
    finally:
        first.end()
    assert [path.name for path in own.iterdir()] == ["7"]


def test_one_framework_is_watched_in_a_worker():
    assert checked_order({"numpy": True, "cupy": False, "torch": None}).keys() == {"numpy", "cupy", "torch"}
    with pytest.raises(LiveError, match="cupy and numpy"):
        checked_order({"numpy": True, "cupy": True})


@pytest.fixture
def worker(places):
    plugins = pytest.importorskip("distributed") and {}
    return SimpleNamespace(name=3, local_directory=str(places[1]), plugins=plugins)


def begin(plugin_module, worker, order):
    plugin = plugin_module.AllocatorPlugin(order)
    worker.plugins[plugin.name] = plugin
    plugin.setup(worker)
    return plugin


def test_a_plugin_reports_what_is_new_and_removes_it_at_the_end(worker, places):
    from bfcviz.watching import dask_worker as dask_plugin  # noqa: PLC0415  an extra

    plugin = begin(dask_plugin, worker, order_for(places[0]))
    np.empty(4321, np.uint8)
    first = dask_plugin.report(plugin.name, {}, worker)
    assert (first.name, first.problem, first.left_out) == ("3", "", [])
    assert len(first.increment.events) >= 64
    have = {first.token: CopyPosition(len(first.increment.events) // 64, len(first.increment.labels))}
    dask_plugin.end(plugin.name, worker)
    last = dask_plugin.report(plugin.name, have, worker)
    assert (last.increment.start, last.increment.is_last) == (have[first.token], True)
    plugin.teardown(worker)
    assert [*places[1].iterdir()] == []
    assert dask_plugin.report("another plugin", {}, worker) is None


def test_a_plugin_of_a_client_that_is_gone_ends(worker, places, monkeypatch):
    from bfcviz.watching import dask_worker as dask_plugin  # noqa: PLC0415  an extra

    plugin = begin(dask_plugin, worker, order_for(places[0]))
    plugin.transition("task", "ready", "executing")
    assert plugin.recording.source.is_active
    monkeypatch.setattr(dask_plugin, "ABANDONED_S", -1.0)
    plugin.transition("task", "executing", "memory")
    assert plugin.recording.source.is_active
    plugin.transition("task", "ready", "executing")
    assert not plugin.recording.source.is_active
    plugin.teardown(worker)


def test_a_plugin_that_cannot_watch_says_why_and_raises_nothing(worker, places):
    from bfcviz.watching import dask_worker as dask_plugin  # noqa: PLC0415  an extra

    plugin = begin(dask_plugin, worker, order_for(places[0], asked={"cupy": "serve"}))
    plugin.transition("task", "ready", "executing")
    found = dask_plugin.report(plugin.name, {}, worker)
    assert found.problem.startswith("LiveError: ")
    assert (found.token, found.increment) == ("", None)
    plugin.teardown(worker)
