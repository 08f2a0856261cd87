"""TensorFlow's windows: recorded by a stand-in for its profiler, and opened as they land."""

import sys
import threading
import types
from pathlib import Path

import pytest
from threads import wait_for_end
from unit.importers.profile_maker import PlaneMaker, memory

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.importers.tensorflow.profiler_windows import open_windows
from bfcviz.live.tensorflow import observe_tensorflow


class AlreadyExistsError(Exception):
    """tf.errors.AlreadyExistsError: a profile is being made."""


class Profiler:
    """tf.profiler.experimental. `stopped` counts profiles; waiting for a number of them is what tests do."""

    def __init__(self, has_memory):
        self.has_memory = has_memory
        self.options, self.folder, self.busy, self.stopped = [], None, 0, threading.Semaphore(0)

    def ProfilerOptions(self, **options):  # noqa: N802
        self.options.append(options)
        return options

    def start(self, folder, options):
        if isinstance(self.busy, Exception):
            raise self.busy
        if self.busy:
            self.busy -= 1
            raise AlreadyExistsError
        self.folder = Path(folder)

    def stop(self):
        made = self.folder / "plugins" / "profile" / "2026_11_21_16_25_19"
        made.mkdir(parents=True)
        plane = PlaneMaker()
        stats = memory("GPU_0_bfc", 1 << 40, 256, 256)
        plane.line("main", [("MemoryAllocation" if self.has_memory else "Other", 0, stats)])
        (made / "vm.xplane.pb").write_bytes(plane.to_bytes())
        self.stopped.release()


@pytest.fixture
def profiler(monkeypatch):
    fake = Profiler(has_memory=True)
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.profiler = types.SimpleNamespace(experimental=fake)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    return fake


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_windows_land_whole_and_are_opened(profiler, tmp_path):
    with observe_tensorflow(tmp_path / "run", window_s=0.001, every_s=0.001) as source:
        for _ in range(3):
            profiler.stopped.acquire()
    assert source.count >= 3
    assert names(tmp_path / "run")[:3] == ["window-000001", "window-000002", "window-000003"]
    assert profiler.options[0] == {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0}
    found = list(open_windows(tmp_path / "run"))
    assert [each.path.name for each in found] == names(tmp_path / "run")
    assert all(len(each.trace) > 0 and each.error is None for each in found)
    assert "0.001 s" in source.description
    assert (source.way, source.heaps, source.out_of_memory) == ("observe", [], None)


def test_the_end_cuts_a_window_short_and_numbers_go_on(profiler, tmp_path):
    for _ in range(2):
        with observe_tensorflow(tmp_path, window_s=1000, every_s=1000):
            pass
    count = len(names(tmp_path))
    assert names(tmp_path) == [f"window-{number + 1:06}" for number in range(count)]


def test_where_the_profiler_is_in_use_a_window_is_left_out(profiler, tmp_path):
    profiler.busy = 2
    with observe_tensorflow(tmp_path, window_s=0.001, every_s=0.001) as source:
        profiler.stopped.acquire()
    assert source.missed == 2
    assert "2 were left out" in source.description


def test_what_ends_it_early_is_said(profiler, tmp_path):
    profiler.busy = RuntimeError("no profiler")
    with observe_tensorflow(tmp_path) as source:
        wait_for_end("bfcviz-tensorflow")
    assert "It ended early: no profiler" in source.description
    assert names(tmp_path) == []


def test_each_window_is_given_once_as_it_lands(profiler, tmp_path):
    ended, found = threading.Event(), []

    def follow():
        found.extend(open_windows(tmp_path / "run", every_s=0.001, ended=ended))

    thread = threading.Thread(target=follow)
    thread.start()
    with observe_tensorflow(tmp_path / "run", window_s=0.001, every_s=0.001):
        profiler.stopped.acquire()
        profiler.stopped.acquire()
    ended.set()
    thread.join()
    assert [each.path.name for each in found] == names(tmp_path / "run")


def test_a_window_without_memory_events_says_so(profiler, tmp_path):
    profiler.has_memory = False
    with observe_tensorflow(tmp_path, window_s=1000, every_s=1000):
        while profiler.folder is None:
            threading.Event().wait(0.001)
    (tmp_path / "window-7").mkdir()
    (tmp_path / "window-odd").mkdir()
    first, second = open_windows(tmp_path)
    assert first.trace is None
    assert "a profile without events of a BFC heap" in str(first.error)
    assert "without a profile" in str(second.error)


def test_what_cannot_be_is_refused(profiler, monkeypatch, tmp_path):
    for seconds, every_s in ((0, 1), (2, 1), (float("nan"), 1)):
        with pytest.raises(InvalidRequest):
            observe_tensorflow(tmp_path, window_s=seconds, every_s=every_s)
    with observe_tensorflow(tmp_path) as source, pytest.raises(LiveError, match="observed already"):
        source.__enter__()
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(LiveError, match="pip install tensorflow"):
        observe_tensorflow(tmp_path).__enter__()
