"""An event is copied at most twice from log to picture: see "The path of one event" in bfcviz/README.md."""

import ast
import re
from functools import reduce

import numpy as np
import pytest
from heaps import MIB, new_heap
from shared import ROOT

from bfcviz.dashboard.live_dashboard import LiveDashboard
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.sliding_window import KEEP
from bfcviz.events.storage.files import OpenFile
from bfcviz.events.storage.recording import Recording
from bfcviz.figures import map_cells as cells
from bfcviz.figures import map_image
from bfcviz.model import Model, row_storage
from bfcviz.model.trace_from_source import trace_of


class Way:
    """The arrays that events were copied into, and those that the model and the moving map have read.

    Attributes:
        copied: written by the log, or read from its file.
        reduced, drawn: blocks that the chunk table and the cells of the moving map took.
    """

    def __init__(self, monkeypatch):
        self.copied, self.reduced, self.drawn = [], [], []
        read_into, read_file = Reader.read_into, OpenFile.read_into

        def from_log(reader, events):
            count = read_into(reader, events)
            self.copied.append(events[:count])
            return count

        def from_file(file, into, start):
            self.copied.append(into)
            return read_file(file, into, start)

        monkeypatch.setattr(Reader, "read_into", from_log)
        monkeypatch.setattr(OpenFile, "read_into", from_file)
        monkeypatch.setattr(row_storage, "contiguous", self._noted(self.reduced))
        monkeypatch.setattr(cells, "contiguous", self._noted(self.drawn))

    def _noted(self, seen):
        contiguous = row_storage.contiguous

        def note(block):
            seen.append(contiguous(block))
            return seen[-1]

        return note

    def is_first_copy(self, block):
        """Whether these very records are where the log or the file was copied to."""
        return any(np.shares_memory(block, copied) for copied in self.copied)


@pytest.fixture
def path(monkeypatch):
    return Way(monkeypatch)


def work(heap, times):
    for number in range(times):
        heap.free(heap.allocate(1000 + number, label=f"op{number % 5}"))


@pytest.mark.parametrize("keep", [KEEP, 512])
def test_the_model_reads_the_only_copy_of_what_a_heap_in_this_process_wrote(path, keep):
    heap = new_heap(MIB, log=EventLog(4096))
    trace = trace_of(heap, keep)
    model = Model(trace)
    for times in (3, 0, 40, 100):
        work(heap, times)
        trace.fetch()
        work(heap, 1)
        trace.refresh()
        model.seek(len(trace))
    assert model.step == heap.log.head == sum(map(len, path.copied))
    assert sum(map(len, path.reduced)) >= model.step
    assert all(path.is_first_copy(block) for block in path.reduced)


def test_the_model_reads_the_only_copy_of_what_lies_in_a_file(path, tmp_path):
    with Recording(tmp_path / "run") as recording:
        heap = new_heap(MIB, log=recording.log, labels=recording.labels)
        work(heap, 50)
        trace = recording.trace()
        model = Model(trace)
        model.seek(len(trace))
        heap.close()
    assert sum(map(len, path.reduced)) == model.step > 100
    assert all(path.is_first_copy(block) for block in path.reduced)


@pytest.mark.parametrize(("colour", "copies"), [("state", 1), ("label", 2)])
def test_the_moving_map_copies_an_event_at_most_once_more(path, monkeypatch, colour, copies):
    heap = new_heap(64 * MIB, log=EventLog(4096))
    heap.allocate(3000)
    dashboard = LiveDashboard(heap, start=False)
    try:
        dashboard.inspector.colour = colour
        dashboard.inspector.trace_grew(moving=True)
        owned = []
        make = map_image.live_map_chunks
        monkeypatch.setattr(
            map_image, "live_map_chunks", lambda events: owned.append(make(events)) or owned[-1]
        )
        work(heap, 30)
        dashboard.trace.refresh()
        assert dashboard.inspector.draw_moving_map()
    finally:
        dashboard.close()
    assert sum(map(len, path.drawn)) > 60
    assert all(path.is_first_copy(block) for block in path.drawn)
    assert 1 + len(owned) / len(path.drawn) == copies


def is_defined(name):
    """Whether a dotted name is a folder, module, class or function of the package: compiled methods have no other."""
    names = name.split(".")
    depth = next(n for n in range(len(names), 0, -1) if is_module(names[:n]))
    source = ROOT.joinpath(*names[:depth])
    if depth == len(names):
        return True
    tree = ast.parse(source.with_suffix(".py").read_text())
    return reduce(lambda node, inner: node and defined_in(node, inner), names[depth:], tree) is not None


def is_module(names):
    place = ROOT.joinpath(*names)
    return place.is_dir() or place.with_suffix(".py").exists()


def defined_in(node, name):
    inside = [each for each in node.body if isinstance(each, ast.ClassDef | ast.FunctionDef)]
    return next((each for each in inside if each.name == name), None)


def test_the_readme_draws_it_with_names_that_exist():
    text = (ROOT / "bfcviz/README.md").read_text()
    section = text.partition("## The path of one event")[2].partition("\n## ")[0]
    names = sorted({*re.findall(r"bfcviz(?:\.\w+)+", section)})
    assert len(names) > 20
    assert [name for name in names if not is_defined(name)] == []
    assert not is_defined("bfcviz.events.log.EventLog.no_such_method")
