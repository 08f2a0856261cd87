"""The time strip: the whole trace whatever the window is, its phases, failures, window and step."""

import numpy as np
from unit.figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.events.schema import Kind
from bfcviz.figures.time_strip import WINDOW, strip_panel, strip_traces
from bfcviz.figures.timeline_parts import measure_history
from bfcviz.figures.view_options import Look
from bfcviz.model import timeline


def strip(trace, step=5, look=Look()):  # noqa: B008  never changed
    history = measure_history(trace)
    panel = strip_panel(history, strip_traces(history, look), step, look)
    return panel, {each["name"]: each for each in panel.traces}


def test_it_shows_the_memory_in_use_of_the_whole_trace():
    trace = busy_trace()
    panel, traces = strip(trace, look=Look(steps=(100, 200)))
    in_use = timeline(trace)["bytes_in_use_last"].astype(float)
    assert np.array_equal(np.asarray(traces["memory in use"]["y"]) * panel.y_unit, in_use)
    assert panel.xaxis["range"][0] == 0
    assert panel.xaxis["range"][1] >= len(trace)
    assert panel.yaxis["range"][1] * panel.y_unit > in_use.max()


def test_the_window_is_drawn_by_its_ends_and_the_rest_is_veiled():
    trace = busy_trace()
    panel, traces = strip(trace, look=Look(steps=(100, 200)))
    assert np.array_equal(traces[WINDOW]["x"][[0, 1, 3, 4]], [100, 100, 200, 200])
    assert np.nanmax(traces[WINDOW]["y"]) == panel.yaxis["range"][1]
    veil = np.asarray(traces["outside of the window"]["x"])
    assert not ((veil > 100) & (veil < 200)).any()
    assert (np.nanmin(veil), np.nanmax(veil)) == tuple(panel.xaxis["range"])
    _, traces = strip(trace)
    assert len(traces[WINDOW]["x"]) == len(traces["outside of the window"]["x"]) == 0


def test_the_step_and_each_failed_request_have_a_line():
    trace = busy_trace()
    _, traces = strip(trace, step=42)
    assert list(traces["this step"]["x"]) == [42, 42]
    failed = trace.read(0, len(trace))
    steps = failed["seq"][failed["kind"] == Kind.OOM].astype(float) + 1
    assert len(steps) > 0
    assert np.array_equal(traces["OOM"]["x"][::3], steps)


def test_phases_are_named_where_they_have_room_and_so_are_marks():
    heap = PlainHeap(64 * MiB)
    heap.mark("warm up begins", 1, begins="warm up")
    for _ in range(20):
        heap.free(heap.allocate(MiB))
    heap.mark("warm up ends", 1, ends="warm up")
    heap.mark("<b>epoch 1</b>", 7)
    heap.mark("<b>", 8)
    for _ in range(20):
        heap.free(heap.allocate(MiB))
    _, traces = strip(heap.trace())
    assert "warm up" in traces["phase"]["text"]
    names = [text.strip() for text in traces["mark names"]["text"]]
    assert names == ["&lt;b&gt;epoch 1&lt;/b&gt;", ""]  # the second would cover the first


def test_of_marks_of_one_name_that_are_close_the_last_is_named():
    heap = PlainHeap(64 * MiB)
    for _ in range(3):
        heap.mark("step", 7)
        heap.free(heap.allocate(MiB))
    for _ in range(100):
        heap.free(heap.allocate(MiB))
    heap.mark("step", 7)
    for _ in range(20):
        heap.free(heap.allocate(MiB))
    _, traces = strip(heap.trace())
    assert traces["mark names"]["text"] == ["", "", "step", "step"]


def test_marks_that_count_steps_have_their_numbers():
    heap = PlainHeap(64 * MiB)
    for number in (0, 1, 1500):
        heap.mark("step", number)
        for _ in range(40):
            heap.free(heap.allocate(MiB))
    _, traces = strip(heap.trace())
    assert traces["mark names"]["text"] == ["step 0", "step 1", "step 1,500"]


def test_of_many_numbered_marks_those_with_room_are_named():
    heap = PlainHeap(64 * MiB)
    for number in range(200):
        heap.mark("step", number)
        heap.free(heap.allocate(MiB))
    _, traces = strip(heap.trace())
    named = [text for text in traces["mark names"]["text"] if text]
    assert named[0] == "step 0"
    assert 5 < len(named) < 30


def test_only_the_last_three_traces_depend_on_step_and_window():
    trace = busy_trace()
    one, _ = strip(trace, 5)
    other, _ = strip(trace, 50, Look(steps=(1, 9)))
    assert len(one.traces) == len(other.traces)
    history = measure_history(trace)
    kept = strip_traces(history, Look())
    panels = [strip_panel(history, kept, step, Look(steps=steps)) for step, steps in ((1, None), (7, (2, 9)))]
    assert all(a is b for a, b in zip(panels[0].traces[:-3], panels[1].traces[:-3], strict=True))
