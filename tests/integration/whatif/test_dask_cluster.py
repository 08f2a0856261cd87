import json
import os
import signal
import sys
from contextlib import ExitStack, suppress
from threading import Event

import pytest
from unit.whatif.sweep_streams import KillsItsProcess, numbers, random_stream, record

import bfcviz
from bfcviz.cli import main
from bfcviz.errors import InvalidRequest, MissingExtra

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

POLICIES = ["bfc", "bfc:allow_growth=true", "first_fit", "first_fit:granule=512"]
LIMITS = ["90%", "100%", "105%", "110%", "120%", "150%", "4MiB", "16MiB", "0", None]


WORKERS = 2
PATIENCE_S = 120  # on a loaded machine the start of a process takes long
REPAIR_S = 60


class SharedCluster:
    """A cluster for several tests: it is whole at the start of each, also after one that killed its workers."""

    def __init__(self):
        self.open = ExitStack()
        self._client = self._cluster = None

    def client(self):
        """A client of a cluster whose workers all answer: they were started again, else the cluster is made again."""
        if self._client is None or not self._is_whole():
            try:
                self.open.close()
            except KeyError:
                # distributed forgot a worker before it was told of the loss. Its close does not end then, and the
                # cluster would warn as unclosed in whatever test runs when it is collected.
                self._cluster.status = distributed.Status.closed
            options = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": ":0"}
            self._cluster = self.open.enter_context(distributed.LocalCluster(**options))
            self._client = self.open.enter_context(distributed.Client(self._cluster, timeout=PATIENCE_S))
            self._client.wait_for_workers(WORKERS, timeout=PATIENCE_S)
        return self._client

    def _is_whole(self):
        try:
            self._client.wait_for_workers(WORKERS, timeout=REPAIR_S)
            answers = self._client.run(os.getpid, on_error="ignore")
        except (TimeoutError, OSError, RuntimeError):
            return False
        return len(answers) == WORKERS and set(answers) == set(self._client.scheduler_info()["workers"])


@pytest.fixture(scope="module")
def shared_cluster():
    patient = {
        "distributed.deploy.lost-worker-timeout": f"{PATIENCE_S}s",  # after it the cluster gives a worker up for ever
    }
    with dask.config.set(patient):
        shared = SharedCluster()
        with shared.open:
            yield shared


@pytest.fixture
def client(shared_cluster):
    return shared_cluster.client()


@pytest.fixture
def traces(tmp_path):
    return [*(random_stream(seed) for seed in range(3)), record(tmp_path / "run"), tmp_path / "missing"]


def test_200_points_have_the_same_numbers_as_in_this_process_also_when_a_worker_is_killed(client, traces):
    killed = []

    def progress(state):
        if state.done == 60:
            address, pid = min(client.run(os.getpid).items())
            os.kill(pid, signal.SIGKILL)
            killed.append(address)

    expected = bfcviz.sweep(traces, POLICIES, LIMITS)
    assert len(expected) == 200
    assert {point.outcome for point in expected.points} == {"fits", "fails", "error"}
    found = bfcviz.sweep(traces, POLICIES, LIMITS, client=client, progress=progress)
    assert len(killed) == 1
    assert found.complete
    assert numbers(found) == numbers(expected)


def test_its_workers_read_the_ranks_of_a_job(client, tmp_path):
    for rank in range(4):
        record(tmp_path / f"rank{rank}")
    found = bfcviz.open_all(tmp_path, executor=client.get_executor())
    assert found.ranks == bfcviz.open_all(tmp_path).ranks


def test_a_point_that_kills_its_workers_has_a_message(client, monkeypatch, tmp_path):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    results = bfcviz.sweep(
        record(tmp_path / "run"), [KillsItsProcess(), "bfc", "first_fit"], "16MiB", client=client
    )
    assert "lost" in results.points[0].error
    assert [point.outcome for point in results.points] == ["error", "fits", "fits"]


def test_requests_are_sent_again_when_every_worker_that_had_them_is_lost(client):
    def progress(state):
        if state.done == 1:
            for pid in client.run(os.getpid).values():
                os.kill(pid, signal.SIGKILL)

    stream, limits = random_stream(1), [f"{percent}%" for percent in range(90, 130)]
    found = bfcviz.sweep(stream, "first_fit:granule=1", limits, client=client, progress=progress)
    assert numbers(found) == numbers(bfcviz.sweep(stream, "first_fit:granule=1", limits))


def test_after_workers_lost_for_good_the_next_test_gets_a_whole_cluster(shared_cluster, monkeypatch):
    """Where the cluster starts them again, as after the tests above, the fixture of the next test asserts it."""
    client = shared_cluster.client()
    before = client.run(os.getpid)
    monkeypatch.setitem(globals(), "REPAIR_S", 0.5)
    client.cluster.scale(0)
    for pid in before.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    after = shared_cluster.client().run(os.getpid)
    assert len(after) == WORKERS
    assert not set(before.values()) <= set(after.values())


def test_stop_cancels_the_points_in_the_cluster(client, traces):
    stop = Event()

    def progress(state):
        if state.done == 5:
            stop.set()

    results = bfcviz.sweep(traces, POLICIES, LIMITS, client=client, progress=progress, stop=stop)
    assert 5 <= len(results) < 200
    assert not results.complete
    pending = [future for future in list(client.futures.values()) if future.status == "pending"]
    assert pending == []


def test_the_address_of_a_scheduler_is_a_client(client):
    results = bfcviz.sweep(random_stream(1), "bfc", LIMITS, client=client.scheduler.address)
    assert numbers(results) == numbers(bfcviz.sweep(random_stream(1), "bfc", LIMITS))


def test_the_command_serves_on_the_workers_of_a_scheduler(client, tmp_path, capsys):
    path = str(record(tmp_path / "run"))
    words = ["sweep", path, "--policy", "bfc", "--limit", "none", "--limit", "16MiB", "--json"]
    assert main([*words, "--scheduler", client.scheduler.address]) == 0
    served = json.loads(capsys.readouterr().out)["points"]
    assert main(words) == 0
    here = json.loads(capsys.readouterr().out)["points"]
    same = [name for name in here[0] if name not in {"worker", "seconds"}]
    assert [[point[name] for name in same] for point in served] == [
        [point[name] for name in same] for point in here
    ]


def test_a_lost_cluster_returns_what_is_known(traces):
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:

        def progress(state):
            if state.done == 5:
                client.close()

        results = bfcviz.sweep(traces, POLICIES, LIMITS, client=client, progress=progress)
    assert 5 <= len(results) < 200
    assert not results.complete
    assert "closed" in results.reason


def test_an_address_without_a_scheduler_is_told():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "100ms"}),
        pytest.raises(InvalidRequest, match=":9"),
    ):
        bfcviz.sweep(random_stream(1), "bfc", "1MiB", client="tcp://127.0.0.1:9")


def test_without_dask_an_address_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match="dask"):
        bfcviz.sweep(random_stream(1), "bfc", "1MiB", client="tcp://127.0.0.1:1")
