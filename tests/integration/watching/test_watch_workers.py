"""A real Dask cluster of two processes, watched: NumPy in each worker, one killed, one joined, one that cannot."""

import os
import signal
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from processes import needs_compiled

import bfcviz
from bfcviz.errors import BfcvizError, FileError, LiveError, MissingExtra
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage import drain as drain_module
from bfcviz.events.storage.folder import BLOCKS_FILE, EVENTS_FILE, recordings_in
from bfcviz.figures.worker_rows import WorkerRowState

LIMIT_S = 150

LEAST = 1 << 20
"""Bytes of the smallest array of a test. Dask's messages, which it receives into NumPy arrays, are smaller."""


def until(true):
    """Wait until a function returns something true; returns it."""
    end = time.monotonic() + LIMIT_S
    while not (found := true()):
        assert time.monotonic() < end
        time.sleep(0.02)  # between two questions, not in place of one
    return found


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    options = {"processes": True, "dashboard_address": None, "threads_per_worker": 1}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as found:
        yield found


@pytest.fixture
def watch(client, tmp_path):
    begun = []

    def begin(**options):
        begun.append(bfcviz.watch_workers(client, path=tmp_path / f"watch-{len(begun)}", **options))
        return begun[-1]

    yield begin
    for each in begun:
        each.stop()
        if each._dashboard is not None:
            each.dashboard.close()


def hold(size):
    """An array of this many bytes, for a moment; the number of the process."""
    return int(np.full(size, 1, np.uint8)[0]) and os.getpid()


def requests_in(trace):
    trace.refresh()
    events = trace.read(0, len(trace))
    return {*events["requested"][events["kind"] == Kind.ALLOCATE].tolist()}


def details(trace):
    return trace.origin.details["worker"], trace.origin.details["process"]


def run_everywhere(client, sizes):
    """Hold an array of each size, every second one in each worker; returns the process of each."""
    client.wait_for_workers(2)  # a test before may have killed one
    addresses = sorted(client.ncores())  # asked of the scheduler; what the client knows may be older
    tasks = [
        client.submit(hold, size, workers=[addresses[number % len(addresses)]], pure=False)
        for number, size in enumerate(sizes)
    ]
    return client.gather(tasks)


@needs_compiled
@pytest.mark.parametrize("fetch", [False, True])
def test_every_array_of_every_worker_is_in_the_trace_of_its_process(fetch, client, watch, monkeypatch):
    monkeypatch.setattr(drain_module, "MOST_EVENTS", 64)
    w = watch(numpy=True, limit="64MiB", fetch=fetch)
    sizes = [LEAST + number for number in range(40)]
    processes = run_everywhere(client, sizes)
    assert len({*processes}) == 2
    w.stop()
    assert all((place / BLOCKS_FILE).is_file() for place in recordings_in(w.folder).values())
    assert not any((place / EVENTS_FILE).exists() for place in recordings_in(w.folder).values())
    traces = w.traces
    assert {details(trace)[1] for trace in traces.values()} == {*processes}
    for trace in traces.values():
        mine = {size for size, process in zip(sizes, processes, strict=True) if process == details(trace)[1]}
        assert {*sizes} & requests_in(trace) == mine
        assert (trace.origin.status, trace.following) == (Status.COMPLETE, False)
        assert trace.origin.pools[0].limit == 64 << 20
    run_everywhere(client, [LEAST + 777] * 2)
    assert not any(LEAST + 777 in requests_in(trace) for trace in w.traces.values())
    assert [*w.folder.glob(".*")] == []


@needs_compiled
@pytest.mark.parametrize("fetch", [False, True])
def test_the_recording_of_a_killed_worker_stays_and_its_successor_gets_a_new_one(fetch, client, watch):
    w = watch(numpy=True, limit="64MiB", fetch=fetch)
    victim, _ = run_everywhere(client, [LEAST + 1, LEAST + 2])
    until(lambda: {LEAST + 1, LEAST + 2} <= set.union(set(), *map(requests_in, w.traces.values())))
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(w.traces) == 3 and len(client.scheduler_info()["workers"]) == 2)
    by_process = {details(trace)[1]: name for name, trace in w.traces.items()}
    lost = by_process[victim]
    until(lambda: w.traces[lost].origin.status is Status.TRUNCATED)
    assert LEAST + 1 in requests_in(w.traces[lost])
    processes = run_everywhere(client, [LEAST + 3, LEAST + 4])
    assert {*processes} <= {details(trace)[1] for trace in w.traces.values()}
    w.stop()
    assert set.union(*map(requests_in, w.traces.values())) >= {LEAST + 1, LEAST + 2, LEAST + 3, LEAST + 4}
    states = {each.name: each.state for each in w.dashboard.traces.workers}
    assert states.pop(lost) is WorkerRowState.LOST
    assert {*states.values()} == {WorkerRowState.ENDED}


@needs_compiled
def test_a_worker_that_joins_is_watched_and_one_that_leaves_is_complete(client, watch):
    w = watch(numpy=True, limit="64MiB")
    until(lambda: len(w.traces) == 2)
    client.cluster.scale(3)
    client.wait_for_workers(3)
    until(lambda: len(w.traces) == 3)
    assert len({*run_everywhere(client, [LEAST + 1, LEAST + 2, LEAST + 3])}) == 3
    client.cluster.scale(2)
    until(lambda: Status.COMPLETE in {trace.origin.status for trace in w.traces.values()})
    assert sorted(trace.origin.status for trace in w.traces.values()) == [
        "complete",
        "recording",
        "recording",
    ]


@needs_compiled
def test_a_second_watch_ends_the_first(client, watch):
    first = watch(cupy=False, limit="64MiB")  # the default of a machine without a GPU
    second = watch(numpy={"limit": "32MiB"})
    assert {trace.origin.status for trace in first.traces.values()} == {Status.COMPLETE}
    assert {trace.origin.pools[0].limit for trace in second.traces.values()} == {32 << 20}
    assert not second.collector.problems
    assert {trace.origin.details["framework"] for trace in first.traces.values()} == {"numpy"}


@needs_compiled
def test_the_view_shows_all_workers_and_opens_one(client, watch):
    w = watch(numpy=True, limit="64MiB")
    run_everywhere(client, [30 << 20, LEAST])
    board = w.dashboard
    until(lambda: all(each.timeline.step for each in board.traces.workers) and len(board.traces.workers) == 2)
    board.refresh()
    rows = [each.row() for each in board.traces.workers]
    assert max(row.most for row in rows) >= 30 << 20
    assert all(f"data-worker='{row.name}'" in board.page.html for row in rows)
    board.page._receive({"worker": rows[1].name}, board.show)
    assert board.detail.trace.path == w.folder / rows[1].name
    assert board.detail in board.children
    board.show(None)
    assert (board.detail, len(board.children)) == (None, 2)
    board.close()
    assert w.dashboard is not board


def test_where_no_worker_can_be_watched_the_reason_is_given_and_they_go_on(client, tmp_path):
    with pytest.raises(LiveError, match=r"worker [01]: .*CuPy"):
        bfcviz.watch_workers(client, path=tmp_path / "none", cupy="serve")
    assert len({*run_everywhere(client, [1, 1])}) == 2
    assert not any("bfcviz" in name for names in client.run(plugins).values() for name in names)


def plugins(dask_worker):
    return [*dask_worker.plugins]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"numpy": True, "cupy": True}, "cupy and numpy"),
        ({"numpy": {"log": 1}}, "log"),
        ({"nothing": True}, "nothing"),
        ({"numpy": {"colour": 1}}, "colour"),
        ({"numpy": True, "limit": "much"}, "much"),
    ],
)
def test_impossible_options_are_refused_before_a_worker_is_asked(options, error, client, tmp_path):
    with pytest.raises((BfcvizError, ValueError), match=error):
        bfcviz.watch_workers(client, path=tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


def test_a_folder_with_files_is_refused(client, tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(FileError, match="not empty"):
        bfcviz.watch_workers(client, path=tmp_path)


def test_an_asynchronous_client_is_refused():
    pytest.importorskip("distributed")
    with pytest.raises(LiveError, match="asynchronous"):
        bfcviz.watch_workers(SimpleNamespace(asynchronous=True))


def test_without_dask_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("dask_worker", "watch_workers"):
        monkeypatch.delitem(sys.modules, f"bfcviz.watching.{name}", raising=False)
    with pytest.raises(MissingExtra, match=r"bfcviz\[dask\]"):
        _ = bfcviz.watch_workers
