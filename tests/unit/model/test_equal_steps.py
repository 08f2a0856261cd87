"""The marks that separate steps; equal steps themselves are in test_leaks.py."""

import bfcviz
from bfcviz.events.log import EventLog
from bfcviz.events.trace import Trace
from bfcviz.model.equal_steps import step_marks
from bfcviz.model.trace_from_source import trace_of


def test_marks_of_a_growing_trace_are_read_once(monkeypatch):
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "64MiB", log=EventLog(4096))
    trace = trace_of(heap)
    read = []
    blocks = Trace.blocks
    monkeypatch.setattr(Trace, "blocks", lambda *of: read.extend(each := list(blocks(*of))) or each)
    seqs = []
    for step in range(3):
        for _ in range(50):
            heap.free(heap.allocate(1000))
        seqs.append(heap.log.head)
        heap.mark("step", step)
        trace.refresh()
        read.clear()
        name, found = step_marks(trace)
        assert (name, found.tolist()) == ("step", seqs)
        assert sum(map(len, read)) == len(trace) - (seqs[-2] + 1 if step else trace.first)


def test_marks_that_a_window_dropped_are_gone():
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "64MiB", log=EventLog(256))
    trace = trace_of(heap, keep=512)
    heap.mark("step", 0)
    trace.refresh()
    assert len(step_marks(trace)[1]) == 1
    for _ in range(2000):
        heap.free(heap.allocate(1000))
    heap.mark("step", 1)
    trace.refresh()
    assert trace.first > 0
    assert step_marks(trace)[1].tolist() == [heap.log.head - 1]


def test_marks_of_alerts_separate_no_steps():
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), "64MiB", log=EventLog(256))
    trace = trace_of(heap)
    for epoch in range(3):
        heap.mark(f"epoch {epoch}")
        heap.mark("alert: growth of bytes in use per step above 1.0 MiB")
    trace.refresh()
    assert step_marks(trace)[0] == "epoch"
