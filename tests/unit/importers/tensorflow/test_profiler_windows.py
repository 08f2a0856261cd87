"""The windows of one run, written byte by byte, read as one trace."""

import numpy as np
import pytest
from unit.importers.profile_maker import PlaneMaker, memory

import bfcviz
from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, Status
from bfcviz.importers.tensorflow.profiler_windows import BETWEEN, join
from bfcviz.importers.tensorflow.reconstruct import REQUEST, RecordedRequests

START = 1 << 40
SIZE = 256


class Run:
    """A heap of chunks of 256 bytes, by number, whose requests are written to windows; the next gap is one second."""

    def __init__(self, folder):
        self.folder, self.used, self.windows, self.events = folder, set(), 0, []
        self.peak = 0

    def allocate(self, chunk, op=""):
        self.used.add(chunk)
        return self._tell("MemoryAllocation", chunk, op)

    def free(self, chunk):
        self.used.remove(chunk)
        return self._tell("MemoryDeallocation", chunk, "")

    def _tell(self, name, chunk, op):
        in_use = SIZE * len(self.used)
        self.peak = max(self.peak, in_use)
        more = {"requested_bytes": 200, "tf_op": op, "peak_bytes_in_use": self.peak, "fragmentation": -1.0}
        stats = memory("bfc", START + SIZE * chunk, SIZE, in_use, **more)
        self.events.append((name, len(self.events) * 1000, stats))
        return self

    def write(self):
        """Write a window with the requests since the last one."""
        plane = PlaneMaker()
        plane.line("main", self.events)
        self.lose()
        self.windows += 1
        path = self.folder / f"window-{self.windows:06}" / "vm.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(plane.to_bytes())
        return self

    def lose(self):
        """Forget the requests since the last window: they came in a gap."""
        self.events = []
        return self


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


def in_use(trace):
    model = bfcviz.Model(trace)
    model.seek(len(trace))
    return {
        (int(row["address"]) - START) // SIZE: trace.labels.name(int(row["label"])) for row in model.in_use()
    }


def test_windows_without_a_gap_are_one_profile(run):
    run.allocate(0, "a").allocate(1, "b").write().free(0).allocate(0, "c").write().allocate(2, "d").write()
    trace = bfcviz.open(run.folder)
    assert in_use(trace) == {0: "c", 1: "b", 2: "d"}
    assert trace.origin.details["checks"][0]["method"] == "replayed"
    assert trace.origin.details["checks"][0]["differing"] == 0
    assert len(trace.origin.reasons) == 1  # windows may always have gaps
    assert trace.origin.details["threads"] == {"1": "main"}
    times = trace.read(0, len(trace))["time"]
    assert (np.diff(times) >= 0).all()


def test_what_a_window_shows_of_the_gap_before_it_is_inferred(run):
    run.allocate(0, "a").allocate(1, "b").allocate(2, "c").write()
    run.free(0).allocate(3).allocate(4).free(4).lose()
    run.allocate(0, "d").free(3).write()  # a was freed, 3 allocated; nothing tells of 4
    trace = bfcviz.open(run.folder)
    assert in_use(trace) == {0: "d", 1: "b", 2: "c"}
    assert trace.origin.status is Status.DEGRADED
    assert "1 allocations and 1 frees" in trace.origin.reasons[0]
    rows = trace.read(0, len(trace))
    names = [trace.labels.name(int(label)) for label in rows["label"]]
    (at,) = np.flatnonzero((rows["kind"] == 3) & (np.array(names) == BETWEEN))[:1]
    assert int(rows["address"][at]) == START + 3 * SIZE
    assert int(rows["requested"][at]) == 200


def test_a_chunk_that_came_again_in_a_gap_is_another_one(run):
    run.allocate(0, "a").write().free(0).lose()
    first = memory("bfc", START, 2 * SIZE, 0, requested_bytes=300)
    run.events.append(("MemoryDeallocation", 0, first))
    run.write()
    assert in_use(bfcviz.open(run.folder)) == {}


def test_windows_that_cannot_be_read_are_named(run):
    run.allocate(0, "a").write()
    broken = run.folder / "window-000002"
    broken.mkdir()
    trace = bfcviz.open(run.folder)
    assert in_use(trace) == {0: "a"}
    assert str(broken) in " ".join(trace.origin.reasons)
    (run.folder / "window-000001" / "vm.xplane.pb").unlink()
    with pytest.raises(FileError, match="without a profile"):
        bfcviz.open(run.folder)


@pytest.mark.parametrize(
    ("pools", "threads", "most"), [(200, 1, f"{MAX_POOLS}"), (1, 40_000, "65,535")], ids=["pools", "threads"]
)
def test_windows_that_have_too_much_together_are_refused(pools, threads, most):
    def window(number):
        names = tuple(f"{number}-{pool}" for pool in range(pools))
        of_threads = {1 + thread: f"{number}-{thread}" for thread in range(threads)}
        return RecordedRequests(np.zeros(1, REQUEST), names, Labels(), of_threads, {})

    assert len(join([window(0)], "run")[0].pools) == pools
    with pytest.raises(FileError, match=most):
        join([window(0), window(1)], "run")
