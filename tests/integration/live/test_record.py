"""What `bfcviz record` has done in a process, with stand-ins for frameworks that want a GPU."""

import pytest
from processes import WarmPython, needs_compiled
from unit.live.record_orders import facts, order

from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage.folder import recordings_in
from bfcviz.events.trace import Trace
from bfcviz.frameworks import FRAMEWORKS

BEGIN = """
import os, sys, types, json
from bfcviz.errors import LiveError
from bfcviz.live import recorded_process as record
from bfcviz.live.heap_provider import HeapProvider
from heaps import new_heap
asked = {}
class Source(HeapProvider):
    way, title = "observe", "stand-in"
    heaps = description = out_of_memory = None
    def __init__(self, log=None, **options):
        asked.update(options)
        self.heaps = [new_heap(log=log.log, labels=log.labels), new_heap()]
    def _start(self): print("entered")
    def _stop(self, error): self.heaps[0].mark("exit"); print("exited")
def broken(**options): raise LiveError("no GPU")
def stand_in(framework, **functions):
    sys.modules["bfcviz.live." + framework] = types.SimpleNamespace(**functions)
"""


@pytest.fixture(scope="module")
def warm():
    with WarmPython(BEGIN) as python:
        yield python


@pytest.mark.parametrize(
    ("framework", "more", "options"),
    [
        ("cupy", {"options": {"capture": "stack"}}, {"capture": "stack"}),
        ("cupy", {"way": "observe"}, {}),
        ("torch", {"way": "observe", "options": {"devices": [1]}}, {"devices": [1]}),
        (
            "torch",
            {"way": "serve", "options": {"mechanism": "replace"}},
            {"mechanism": "replace"},
        ),
        ("rmm", {"way": "serve", "options": {"limit": 4096}}, {"limit": 4096}),
        ("rmm", {"way": "observe", "options": {"devices": [0, 1]}}, {"devices": [0, 1]}),
        ("jax", {"way": "observe"}, {}),
    ],
)
def test_every_framework_is_entered_and_left(framework, more, options, tmp_path, warm):
    asked = order(tmp_path, **more)
    way = asked["way"] or "serve"
    code = f"""
stand_in({framework!r}, {way}_{framework}=Source)
assert record.begin({asked!r}, {framework!r}) == "recorded"
import bfcviz
bfcviz.mark("step", 1)
print(asked == {options!r})
"""
    assert warm.run(code) == "entered\nTrue\nexited\n"
    trace = Trace.open(tmp_path / "run")
    assert trace.origin.status is Status.COMPLETE
    assert (trace.origin.pools[0].name, trace.origin.details["way"]) == (framework, way)
    assert trace.origin.details.get("mechanism") == options.get("mechanism")
    events = trace.read(0, len(trace))
    assert [trace.labels.name(n) for n in events["label"][events["kind"] == Kind.MARK]] == ["step", "exit"]
    assert facts(tmp_path) == ["left out"]


@needs_compiled
@pytest.mark.parametrize(("framework", "sampled"), [("cupy", {"1": 5 << 20}), ("numpy", None)])
def test_the_devices_with_a_context_are_sampled_for_heaps_on_a_device(framework, sampled, tmp_path, warm):
    code = f"""
import ctypes, threading
from pathlib import Path
from fake_cuda import FakeCuda
from bfcviz.allocator import cuda_driver
stand_in("cupy", serve_cupy=Source)
library = FakeCuda(memory=64 << 20, devices=2)
driver = cuda_driver.Driver(library)
cuda_driver.in_use = lambda: driver
with driver.on(1): driver.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(5 << 20))
library.calls.clear()
record.begin({order(tmp_path)!r}, {framework!r})
found = Path({str(tmp_path)!r}, "run", "device.bin")
while {sampled is not None} and not found.exists(): threading.Event().wait(0.01)
record.recordings[0].end()
print(sorted(library.active), "cuMemGetInfo_v2" in library.calls)
print([thread.name for thread in threading.enumerate() if thread.name == "bfcviz-device"])
"""
    asked = warm.run(code).splitlines()
    assert asked[-2:] == [f"[1] {sampled is not None}", "[]"]
    details = Trace.open(tmp_path / "run").origin.details
    used = details.get("device_memory")
    assert (
        used is None
        if sampled is None
        else {n: set(each["used_bytes"]) for n, each in used.items()}
        == {number: {size} for number, size in sampled.items()}
    )


def test_a_recording_is_whole_even_if_the_framework_cannot_be_left(tmp_path, warm):
    code = f"""
class Failing(Source):
    def _stop(self, error): raise RuntimeError("cudaErrorIllegalAddress")
stand_in("cupy", serve_cupy=Failing)
record.begin({order(tmp_path)!r}, "cupy")
try: record.recordings[0].end()
except RuntimeError as error: print(error)
"""
    assert warm.run(code) == "entered\ncudaErrorIllegalAddress\n"
    assert Trace.open(tmp_path / "run").origin.status is Status.COMPLETE


def test_where_a_framework_cannot_be_watched_nothing_is_left(tmp_path, warm):
    code = f"""
stand_in("jax", observe_jax=broken)
for framework in ("jax", "nothing"):
    try: record.begin({order(tmp_path, way="observe")!r}, framework)
    except LiveError as error: print(error)
"""
    first, second = warm.run(code).splitlines()
    assert first == "no GPU"
    assert all(name in second for name in ("nothing", *FRAMEWORKS))
    assert [*(tmp_path / "run").iterdir()] == []


@needs_compiled
def test_each_process_has_a_recording_of_its_own(tmp_path, warm):
    asked = order(tmp_path)
    code = f"print(record.begin({asked!r}, 'numpy')); import numpy; numpy.empty(1234)"
    assert [warm.run(code), warm.run(code), warm.run(code, RANK="3")] == ["recorded\n"] * 3
    first, second, third = recordings_in(tmp_path / "run").values()
    assert (first, third) == (tmp_path / "run", tmp_path / "run" / "rank-3")
    assert second.name.startswith("process-")
    details = [Trace.open(path).origin.details for path in (first, second, third)]
    assert len({each["process"] for each in details}) == 3
    assert sorted(details, key=lambda each: each["started_ns"]) == details


def test_a_worker_that_cannot_be_watched_leaves_no_folder(tmp_path, warm):
    code = f"""
stand_in("jax", observe_jax=broken)
try: record.begin({order(tmp_path, way="observe")!r}, "jax")
except LiveError as error: print(error)
"""
    assert warm.run(code, RANK="0") == "no GPU\n"
    assert [*(tmp_path / "run").iterdir()] == []


@needs_compiled
def test_it_can_be_ended_and_a_forked_process_ends_nothing(tmp_path, warm):
    code = f"""
import numpy as np
from forks import child_ends_well
from bfcviz.events.trace import Trace
record.begin({order(tmp_path)!r}, "numpy")
(recorded,) = record.recordings
assert child_ends_well(recorded.end)
np.empty(1234, np.uint8)
print(Trace.open({str(tmp_path / "run")!r}).origin.status)
recorded.end()
print(Trace.open({str(tmp_path / "run")!r}).origin.status)
"""
    assert warm.run(code) == "recording\ncomplete\n"
    assert facts(tmp_path) == ["other"]


def test_one_process_records_tensorflows_windows(tmp_path, warm):
    asked = order(tmp_path, way="observe")
    code = f"""
from pathlib import Path
class Profiler:
    def ProfilerOptions(self, **options): return options
    def start(self, folder, options): self.folder = Path(folder)
    def stop(self): self.folder.mkdir(); self.folder.joinpath("a.xplane.pb").touch()
sys.modules["tensorflow"] = types.SimpleNamespace(profiler=types.SimpleNamespace(experimental=Profiler()))
print(record.begin({asked!r}, "tensorflow"), record.begin({asked!r}, "tensorflow"))
"""
    assert warm.run(code) == "recorded other\n"
    assert (tmp_path / "run" / "window-000001" / "a.xplane.pb").exists()
