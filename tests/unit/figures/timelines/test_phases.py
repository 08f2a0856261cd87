"""Phases on the stats timeline: pairs of marks."""

import numpy as np
import pytest
from unit.figures.drawn import stats_timeline
from unit.figures.synthetic import MiB, PlainHeap

from bfcviz.figures.view_options import Look


class Program:
    """A heap, and what the program around it says that it is at."""

    def __init__(self):
        self.heap = PlainHeap(64 * MiB)
        self.numbers = iter(range(1, 1000))

    def work(self, times=10):
        for _ in range(times):
            self.heap.free(self.heap.allocate(MiB))

    def begin(self, name):
        number = next(self.numbers)
        self.heap.mark(f"{name} begins", number, begins=name)
        return name, number

    def end(self, begun):
        self.heap.mark(f"{begun[0]} ends", begun[1], ends=begun[0])


def bars(figure):
    """Name, left, right and height of each bar; the name is the hover's."""
    (trace,) = [trace for trace in figure.data if trace.name.startswith("phase")]
    x, y = np.reshape(trace.x, (-1, 4)), np.reshape(trace.y, (-1, 4))
    names = [text.split("<b>")[1].split("</b>")[0] for text in trace.hovertext[::4]]
    return [(name, place[0], place[2], height[0]) for name, place, height in zip(names, x, y, strict=True)]


def test_phases_are_bars_and_inner_ones_lie_lower():
    program = Program()
    outer = program.begin("epoch")
    for name in ("forward", "backward"):
        inner = program.begin(name)
        program.work()
        program.end(inner)
    program.end(outer)
    epoch, forward, backward = bars(stats_timeline(program.heap.trace()))
    assert [epoch[0], forward[0], backward[0]] == ["epoch", "forward", "backward"]
    assert epoch[1] < forward[1] < forward[2] < backward[1] < backward[2] < epoch[2]
    assert forward[3] == backward[3] < epoch[3]


def test_a_phase_that_has_not_ended_reaches_the_edge_and_one_that_began_before_the_window_comes_in():
    program = Program()
    one = program.begin("one")
    program.work()
    program.end(one)
    program.begin("two")
    program.work()
    trace = program.heap.trace()
    _, (name, begins, ends, _) = bars(stats_timeline(trace))
    assert (name, ends) == ("two", stats_timeline(trace).layout.xaxis.range[1])
    (one, left, right, _), _ = bars(stats_timeline(trace, look=Look(steps=(5, len(trace)))))
    assert (one, left) == ("one", 5)
    assert 5 < right < begins


def test_other_marks_stay_marks():
    program = Program()
    program.heap.mark("checkpoint", 7)
    program.end(program.begin("forward"))
    figure = stats_timeline(program.heap.trace())
    (marks,) = [trace for trace in figure.data if trace.name == "mark"]
    assert len(marks.x) == 3
    assert "checkpoint" in marks.hovertext[0]


@pytest.mark.parametrize("count", [2, 600])
def test_the_legend_counts_phases_that_are_not_drawn(count):
    program = Program()
    begun = [program.begin(f"worker {number}") for number in range(count)]
    program.work(1)
    for each in begun:
        program.end(each)
    (name,) = [t.name for t in stats_timeline(program.heap.trace()).data if t.name.startswith("phase")]
    assert name == ("phase" if count == 2 else "phase (too many: zoom in)")


def test_phases_beside_more_others_than_there_are_lanes_are_counted():
    program = Program()
    begun = [program.begin(f"worker {number}") for number in range(7)]
    program.work(1)
    for each in begun:
        program.end(each)
    figure = stats_timeline(program.heap.trace())
    assert len(bars(figure)) == 4
    assert any(trace.name == "phase (3 more)" for trace in figure.data)


def test_names_are_harmless():
    program = Program()
    program.end(program.begin("<script>alert(1)</script>"))
    (trace,) = [t for t in stats_timeline(program.heap.trace()).data if t.name == "phase"]
    assert not any("<script" in text for text in (*trace.text, *trace.hovertext))
