"""The line of a step: what happened, to which label, how many bytes."""

from heaps import MIB, new_heap
from unit.analysis.built import state
from unit.figures.synthetic import busy_trace

from bfcviz.analysis.event_text import step_line
from bfcviz.events.schema import Kind
from bfcviz.model.trace_from_source import trace_of

LONG = "/".join(f"layer_{number}" for number in range(40))


def lines(trace):
    """The line of each step, by the kind of its event."""
    found = {}
    for step in range(1, len(trace) + 1):
        kind = Kind(int(trace.read(step - 1, step)[0]["kind"]))
        found.setdefault(kind.name, step_line(trace, step, 0))
    return found


def test_each_kind_of_event_has_its_numbers():
    heap = new_heap(64 * MIB, allow_growth=True, garbage_collection=True)
    first, second = (heap.allocate(size * MIB + 1, label=name) for size, name in ((3, "conv"), (1, "bias")))
    heap.free(first)
    heap.free(second)
    heap.try_allocate(100 * MIB, label="attention")
    heap.mark("epoch", 7)
    found = lines(trace_of(heap))
    assert "conv allocated 3.0 MiB" in found["ALLOCATE"]
    assert "wasted" in found["ALLOCATE"]
    assert "conv freed 4.0 MiB after" in found["FREE"]
    assert "for bias" in found["SPLIT"]
    assert "MiB" in found["MERGE"]
    assert "region 0" in found["EXTEND"]
    assert found["OOM"] == "attention failed to allocate 100.0 MiB"
    assert found["MARK"] == "mark epoch (7)"


def test_a_line_is_short():
    heap = new_heap(64 * MIB)
    heap.free(heap.allocate(MIB, label=LONG))
    found = lines(trace_of(heap))
    assert all(len(line) <= 110 for line in found.values())
    assert found["ALLOCATE"].startswith("…/layer_")
    assert "layer_39 allocated 1.0 MiB" in found["ALLOCATE"]


def test_steps_without_an_event_and_states():
    trace = busy_trace(20)
    assert step_line(trace, 0, 0) == "before the first event"
    kept = state([[4, -4]], asked=6, limit=8)
    assert "state" in step_line(kept, 1, 0)
    assert "asker failed to allocate 6.0 MiB" in step_line(kept, len(kept), 0)
