"""Leaks and growth in heaps with known leaks."""

import numpy as np
import pytest
from heap_strategies import operations
from hypothesis import given
from hypothesis import strategies as st
from shared import sample_trace
from unit.figures.synthetic import KiB, MiB, PlainHeap
from unit.model.plain_holders import STACK, trace_of_heap

from bfcviz.analysis.leaks import growth_lines, growth_until, leak_lines, leaks
from bfcviz.errors import TraceError
from bfcviz.model import Model
from bfcviz.model.equal_steps import MOST, equal_steps
from bfcviz.model.grouping import UNNAMED


class Program:
    """A training that leaks: `leak` chunks of 4 KiB a step, and a cache that fills during the first steps."""

    def __init__(self, leak=0, cached=0, *, as_phase=False, name="step"):
        self.heap = PlainHeap(1024 * MiB)
        self.leak, self.cached, self.as_phase, self.name = leak, cached, as_phase, name
        self.step = 0
        self.leaked = []
        self.heap.allocate(MiB, "weights")

    def run(self, steps):
        for _ in range(steps):
            self.train()
        return self.heap.trace()

    def mark(self, *marks, **details):
        if self.name:
            self.heap.mark(*marks, **details)

    def train(self):
        self.step += 1
        if self.as_phase:
            self.heap.mark(f"{self.name} begins", self.step, begins=self.name)
        held = [self.heap.allocate(64 * KiB, "forward/activation") for _ in range(6)]
        self.leaked += [self.heap.allocate(4 * KiB, "history/append", stack=STACK) for _ in range(self.leak)]
        if self.step <= self.cached:
            self.heap.allocate(8 * KiB, "cache/entry")
        for address in held:
            self.heap.free(address)
        if self.as_phase:
            self.heap.mark(f"{self.name} ends", self.step, ends=self.name)
        else:
            self.mark(self.name, self.step)

    def evaluate(self):
        """Far more allocations than a step, some of which stay for a while; then a mark as after any step."""
        self.step += 1
        held = [self.heap.allocate(4 * KiB, "evaluation/batch") for _ in range(100)]
        for address in held:
            self.heap.free(address)
        self.mark(self.name, self.step)


@pytest.mark.parametrize("as_phase", [False, True])
@pytest.mark.parametrize("name", ["step", "train_step", "ProfilerStep#12"])
def test_a_leak_is_found_with_its_place_and_a_cache_is_not_one(as_phase, name):
    program = Program(leak=3, cached=3, as_phase=as_phase, name=name)
    trace = program.run(16)
    found = leaks(trace)
    grown = found.growth
    assert (grown.growing, grown.names[0]) == (1, "history/append")
    assert grown.a_step(0) == (3.0, 3 * 4 * KiB)
    assert np.diff(grown.chunks[0]).tolist() == [3] * grown.intervals
    assert grown.steps.name == name.partition("#")[0]
    lines = growth_lines(trace, grown)
    assert lines[1] == "+3 chunks, +12.0 KiB every step: history/append, allocated at model.py:42 forward"
    assert "after 3 of warm-up" in lines[0]
    assert str(found).splitlines() == [*lines, *leak_lines(trace, found)]
    row = found.names.index("history/append")
    assert found.chunks_of(row)["address"].tolist() == program.leaked
    assert (int(found.rows["chunks"][row]), int(found.rows["bytes"][row])) == (48, 48 * 4 * KiB)


def test_no_leak_is_no_growth():
    trace = Program(cached=4).run(20)
    found = leaks(trace)
    grown = found.growth
    assert (grown.growing, len(grown.rows)) == (0, 0)
    assert growth_lines(trace, grown)[1:] == ["no holder grew every step"]
    assert str(found).splitlines() == [*leak_lines(trace, found), *growth_lines(trace, grown)]


def test_the_warm_up_can_be_given_and_matters():
    trace = Program(cached=6).run(10)
    assert leaks(trace, warm_up=0).growth.growing == 0
    assert leaks(trace, warm_up=0).growth.names == ["cache/entry"]
    assert len(leaks(trace, warm_up=6).growth.rows) == 0


def test_other_work_between_steps_is_not_compared():
    program = Program(leak=1)
    for step in range(24):
        if step % 6 == 5:
            program.evaluate()
        program.train()
    grown = leaks(program.heap.trace()).growth
    assert (grown.steps.found, grown.steps.equal) == (27, 23)
    assert grown.names[0] == "history/append"
    assert growth_lines(program.heap.trace(), grown)[1].startswith("+1 chunk, +4.0 KiB every step")


def test_many_steps_are_thinned_and_the_rate_stays_that_of_a_step():
    grown = leaks(Program(leak=2).run(5 * MOST)).growth
    assert (grown.steps.every, len(grown.steps.ends) <= MOST) == (4, True)
    assert grown.a_step(0) == (2.0, 2 * 4 * KiB)
    assert grown.steps.numbers[-1] == grown.steps.found


@pytest.mark.parametrize(
    ("steps", "name", "reason"),
    [
        (0, None, "no mark names the steps of the program; call bfcviz.mark"),
        (3, None, "2 steps between marks 'step'.*record a longer run"),
        (9, "epoch", "there is no mark 'epoch'; there are marks 'step'"),
    ],
)
def test_nothing_to_compare_says_why(steps, name, reason):
    trace = Program(leak=1).run(steps)
    grown = leaks(trace, mark=name).growth
    assert (len(grown.rows), grown.intervals) == (0, 0)
    (line,) = growth_lines(trace, grown)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(line)


def test_a_range_and_a_phase():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "before")
    start = len(heap.events)
    heap.mark("load begins", 1, begins="load")
    kept = heap.allocate(2 * MiB, "data/kept")
    heap.free(heap.allocate(MiB, "data/freed"))
    heap.mark("load ends", 1, ends="load")
    stop = len(heap.events)
    heap.allocate(MiB, "after")
    trace = heap.trace()
    for found in (leaks(trace, 0, start, stop), leaks(trace, phase="load")):
        assert (found.names, found.bytes) == (["data/kept"], 2 * MiB)
        chunk = found.chunks_of(0)[0]
        assert (int(chunk["address"]), int(found.rows["oldest_events"][0])) == (
            kept,
            len(trace) - int(chunk["born"]),
        )
        assert found.to_arrow()["age_events"].to_pylist() == [len(trace) - int(chunk["born"])]
        assert found.to_arrow()["age_ns"].to_pylist() == [1000 * (len(trace) - 1 - int(chunk["born"]))]
    lines = leak_lines(trace, leaks(trace, phase="load"))
    assert "in phase 'load' and not freed" in lines[0]
    assert lines[1].startswith(f"2.0 MiB in 1 chunk: data/kept; the oldest at {kept:#x}, ")
    assert leaks(trace, 0, 0, 0).bytes == 0
    with pytest.raises(TraceError, match="no phase 'forward': there are load"):
        leaks(trace, phase="forward")
    with pytest.raises(TraceError, match=f"the trace has steps 0 to {len(trace)}"):
        leaks(trace, 0, 5, len(trace) + 1)


@given(
    operations(),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 1),
    st.sampled_from(list(UNNAMED)),
)
def test_leaks_are_the_chunks_in_use_at_the_end_that_the_range_allocated(steps, one, other, pool, by):
    trace = trace_of_heap(steps)
    start, stop = sorted((one % (len(trace) + 1), other % (len(trace) + 1)))
    found = leaks(trace, pool, start, stop, by=by)
    model = Model(trace, pool)
    model.seek(len(trace))
    chunks = model.in_use()
    kept = chunks[(chunks["born"] >= start) & (chunks["born"] < stop)]
    assert sorted(found.chunks["address"].tolist()) == sorted(kept["address"].tolist())
    assert found.bytes == int(kept["size"].sum())
    assert len(set(found.names)) == len(found.names) == len(found.rows)
    for row in range(len(found.rows)):
        mine = found.chunks_of(row)
        assert int(mine["size"].sum()) == found.rows["bytes"][row]
        assert mine["born"].tolist() == sorted(mine["born"].tolist())


def test_a_profile_of_tensorflow_compares_its_equal_steps():
    trace = sample_trace("transformer")
    steps = equal_steps(trace)
    assert (steps.found, steps.equal, steps.warm_up) == (319, 6, 1)
    assert (steps.numbers.tolist(), steps.reason) == ([315, 316, 317, 318, 319], "")
    grown = leaks(trace).growth
    assert grown.chunks.shape == (len(grown.rows), 5)


# ------------------------------------------------------------------------------
# A program without marks is cut where an allocation of one kind comes again and again.


def test_a_leak_is_found_without_marks():
    program = Program(leak=2, cached=3, name="")
    program.run(20)
    program.evaluate()
    found = leaks(program.run(20)).growth
    assert found.steps.name == ""
    assert found.steps.allocation in {"forward/activation", "history/append"}
    assert found.growing == 1
    assert found.names[0] == "history/append"
    assert found.a_step(0) == pytest.approx(
        (2, 8 * KiB), rel=0.1
    )  # the evaluation is no step, and leaves some
    assert "history/append" in growth_lines(program.heap.trace(), found)[1]


def test_without_marks_and_names_sizes_tell_the_steps():
    heap = PlainHeap(64 * MiB)
    for _ in range(30):
        held = [heap.allocate(KiB * kib) for kib in (64, 32, 32)]
        heap.allocate(4 * KiB)
        for address in held:
            heap.free(address)
    found = leaks(heap.trace()).growth
    assert not found.steps.reason
    assert (found.growing, found.a_step(0)) == (1, (1, 4 * KiB))


def test_what_does_not_leak_does_not_grow_without_marks():
    found = leaks(Program(cached=3, name="").run(40)).growth
    assert (found.steps.reason, found.growing) == ("", 0)
    assert found.steps.allocation == "forward/activation"


@pytest.mark.parametrize("marked", [True, False])
def test_a_line_with_small_memory_of_its_own_is_counted_once_a_step(marked):
    """As `np.ones` makes: the array, and two numbers that are freed at once."""
    heap = PlainHeap(1024 * MiB)
    for step in range(40):
        heap.allocate(MiB, "rows.py:4")
        for _ in range(2):
            heap.free(heap.allocate(256, "rows.py:4"))
        if marked:
            heap.mark("step", step)
    found = leaks(heap.trace()).growth
    assert found.steps.found == 39
    assert (found.growing, found.a_step(0)) == (1, (1, MiB))


def test_a_loop_that_fills_a_list_is_no_program_that_repeats_its_steps():
    heap = PlainHeap(64 * MiB)
    for _ in range(40):
        heap.allocate(KiB, "load.py:8")
    found = leaks(heap.trace()).growth
    assert (found.steps.is_single, found.growing) == (True, 0)
    assert growth_until(Model(heap.trace()), 40) is None


def test_what_was_freed_before_the_failure_is_not_its_cause():
    heap = PlainHeap(64 * MiB)
    kept = []
    for step in range(40):
        heap.free(heap.allocate(64 * KiB, "read"))
        kept.append(heap.allocate(MiB, "batch"))
        heap.mark("step", step)
    full = len(heap.trace())
    for address in kept[::2]:
        heap.free(address)
    trace = heap.trace()
    model = Model(trace)
    assert growth_until(model, full, still_held=True).names == ["batch"]
    assert growth_until(model, len(trace), still_held=True) is None


def test_a_chunk_that_is_made_anew_and_larger_in_each_step_is_still_held():
    """As `torch.cat` of a cache; the last step fails behind it."""
    heap, old = PlainHeap(65536 * MiB), None
    for step in range(21):
        heap.free(heap.allocate(64 * KiB, "read"))
        new = heap.allocate((step + 1) * 256 * MiB, "cache.cat")
        if old is not None:
            heap.free(old)
        old = new
        if step < 20:
            heap.mark("step", step)
    trace = heap.trace()
    assert growth_until(Model(trace), len(trace), still_held=True).names == ["cache.cat"]


@pytest.mark.parametrize("small", [1, 10, 16, 30])
def test_small_memory_of_one_line_does_not_hide_the_steps_of_its_large_array(small):
    heap = PlainHeap(1024 * MiB)
    for _ in range(40):
        heap.allocate(MiB, "rows.py:4")
        for number in range(small):
            heap.free(heap.allocate(256 * (number + 1), "rows.py:4"))
    found = leaks(heap.trace()).growth
    assert (found.steps.found, found.growing, found.a_step(0)) == (39, 1, (1, MiB))


# ------------------------------------------------------------------------------
# A leak in some steps only: an average, and only where it goes on.


@pytest.mark.parametrize("extra", [True, False], ids=["an allocation more", "the same work"])
@pytest.mark.parametrize(("every", "steps"), [(5, 200), (10, 400), (50, 1000)])
def test_what_some_steps_keep_is_found_as_an_average(every, steps, extra):
    heap = PlainHeap(1024 * MiB)
    for step in range(steps):
        keeps = step % every == 0
        held = [heap.allocate(64 * KiB, "forward"), heap.allocate(64 * KiB, "loss")]
        if keeps and extra:
            heap.allocate(64 * KiB, "history")
        heap.free(held[0])
        if extra or not keeps:
            heap.free(held[1])
        heap.mark("step", step)
    found = leaks(heap.trace()).growth
    assert (found.growing, found.names[0]) == (1, "history" if extra else "loss")
    assert found.a_step(0)[0] == pytest.approx(1 / every, rel=0.2)
    assert not found.is_every(0)


def test_a_cache_that_is_filled_now_and_then_at_first_is_no_leak():
    heap = PlainHeap(1024 * MiB)
    for step in range(200):
        heap.free(heap.allocate(64 * KiB, "forward"))
        if step % 5 == 0 and step < 120:
            heap.allocate(64 * KiB, "cache")
        else:
            heap.free(heap.allocate(64 * KiB, "other"))
        heap.mark("step", step)
    assert leaks(heap.trace()).growth.growing == 0


def test_work_without_a_rhythm_has_no_steps_and_marks_come_first():
    heap = PlainHeap(64 * MiB)
    for number in np.random.default_rng(0).permutation(400).tolist():
        heap.allocate(KiB, f"op {number % 97}")
    found = leaks(heap.trace()).growth
    assert found.steps.reason
    assert not len(found.steps.ends)
    assert leaks(Program(leak=1).run(20)).growth.steps.name == "step"
    assert leaks(Program(leak=1, name="").run(20), mark="step").growth.steps.reason
