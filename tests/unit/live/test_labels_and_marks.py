"""Labels: what a thread is busy with stands in its allocations."""

import asyncio
import contextvars
import os
import threading
from collections import Counter
from itertools import count

import numpy as np
import pytest
from forks import child_ends_well
from heaps import new_heap
from interrupts import interrupted
from processes import needs_compiled
from unit.figures.drawn import stats_timeline

import bfcviz
from bfcviz.errors import LiveError
from bfcviz.events import label_table as labels_module
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.figures.timeline_parts import measure_history
from bfcviz.live import labels_and_marks as labels
from bfcviz.live import labels_and_marks as live_labels
from bfcviz.live.labels_and_marks import label, mark, phase
from bfcviz.live.numpy import serve_numpy, unserved


def labels_of(service):
    """The label of each allocation, in order."""
    with unserved():
        events = service.allocator.log.copy(0, service.allocator.log.head)
        numbers = events["label"][events["kind"] == Kind.ALLOCATE].tolist()
    return [service.allocator.labels.name(number) for number in numbers]


@needs_compiled
def test_allocations_carry_the_innermost_label():
    with serve_numpy("1MiB", capture="label") as service:
        np.empty(1)
        with label("encoder"):
            np.empty(1)
            with label("encoder/layer3"):
                np.empty(1)
            np.empty(1)
        np.empty(1)
    assert labels_of(service) == ["", "encoder", "encoder/layer3", "encoder", ""]


@needs_compiled
def test_it_decorates_and_gives_way_to_errors():
    @label("step")
    def step():
        np.empty(1)
        raise KeyError

    with serve_numpy("1MiB", capture="label") as service:
        for _ in range(2):
            try:
                step()
            except KeyError:
                np.empty(1)
    assert labels_of(service) == ["step", "", "step", ""]


@needs_compiled
def test_each_thread_has_its_own():
    def work():
        np.empty(1)
        with label("theirs"):
            np.empty(1)

    with serve_numpy("1MiB", capture="label") as service, label("mine"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        np.empty(1)
    assert [name for name in labels_of(service) if name] == ["theirs", "mine"]


@needs_compiled
def test_a_task_keeps_its_label_across_await():
    async def work(name, turns):
        with label(name):
            for _ in range(turns):
                np.empty(1)
                await asyncio.sleep(0)
                with label(f"{name}/inner"):
                    await asyncio.sleep(0)
                    np.empty(2)

    async def main():
        with label("main"):
            tasks = [asyncio.create_task(work(name, 3)) for name in ("a", "b")]
            await asyncio.sleep(0)
            np.empty(3)
        await asyncio.gather(*tasks)
        np.empty(4)

    with serve_numpy("1MiB", capture="label") as service:
        asyncio.run(main())
    labels = service.allocator.labels
    events = service.allocator.log.copy(0, service.allocator.log.head)
    events = events[events["kind"] == Kind.ALLOCATE]
    told = Counter((labels.name(int(each["label"])), int(each["requested"]) // 8) for each in events)
    assert told == {
        ("a", 1): 3, ("b", 1): 3, ("a/inner", 2): 3, ("b/inner", 2): 3, ("main", 3): 1, ("", 4): 1,
    }  # fmt: skip


@needs_compiled
def test_a_task_begins_with_the_label_around_it_and_so_does_a_thread_with_its_context():
    async def work():
        await asyncio.sleep(0)
        np.empty(1)

    async def main():
        with label("around"):
            task = asyncio.create_task(work())
            thread = asyncio.create_task(asyncio.to_thread(np.empty, 1))
        await task
        await thread
        np.empty(1)

    with serve_numpy("1MiB", capture="label") as service:
        asyncio.run(main())
    assert labels_of(service) == ["around", "around", ""]


@needs_compiled
def test_it_decorates_coroutine_functions():
    @label("step")
    async def step():
        await asyncio.sleep(0)
        np.empty(1)
        return 5

    async def main():
        found = await asyncio.gather(step(), step())
        np.empty(1)
        return found

    with serve_numpy("1MiB", capture="label") as service:
        assert asyncio.run(main()) == [5, 5]
    assert labels_of(service) == ["step", "step", ""]


@needs_compiled
def test_generators_may_end_in_any_order():
    def work(name):
        with label(name):
            yield

    with serve_numpy("1MiB", capture="label") as service:
        first, second = work("first"), work("second")
        for each in (first, second):
            next(each)
        np.empty(1)
        first.close()
        np.empty(1)
        second.close()
        np.empty(1)
        left = work("left")
        contextvars.copy_context().run(next, left)
        left.close()
        np.empty(1)
    assert labels_of(service) == ["second", "second", "", ""]


@needs_compiled
def test_a_label_around_the_with_counts_too():
    with label("run"), serve_numpy("1MiB", capture="label") as first:
        np.empty(1)
    with serve_numpy("1MiB", capture="label") as second, label("other"):
        np.empty(1)
    assert (labels_of(first), labels_of(second)) == (["run"], ["other"])


@needs_compiled
def test_a_label_of_another_table_is_not_written():
    labels = Labels()
    first = serve_numpy("1MiB", labels=labels)
    with label("of the first"):
        second = serve_numpy("1MiB", capture="label")
        with first:
            np.empty(1)
        with second:
            np.empty(1)
    assert (labels_of(first), labels_of(second)) == (["of the first"], ["of the first"])
    assert "of the first" in labels.names


@needs_compiled
def test_a_recording_brings_its_table(tmp_path):
    with Recording(tmp_path / "run") as recording:
        with serve_numpy("1MiB", log=recording), label("forward"):
            np.empty(1)
        trace = recording.trace()
    events = trace.read(0, len(trace))
    assert trace.labels.name(int(events["label"][events["kind"] == Kind.ALLOCATE][0])) == "forward"


@needs_compiled
def test_a_name_that_is_no_text_is_refused_and_harms_no_other():
    with serve_numpy("1MiB", capture="label") as service:
        with label("layers"), pytest.raises(LiveError, match=r"3 .* give text"):
            label(3)
        with label("later"):
            np.empty(1)
    assert labels_of(service) == ["later"]


def test_without_a_heap_it_does_nothing():
    with label("nothing"):
        assert np.ones(3).sum() == 3


@needs_compiled
def test_a_label_that_is_interrupted_is_in_force_for_nothing():
    def begin():
        label("interrupted").__enter__()

    with serve_numpy("1MiB", capture="label") as service:
        for at in count(1):
            more = interrupted(at, begin, live_labels, labels_module, guarded=("intern",))
            with label("next"):
                pass
            np.empty(1)
            if not more:
                break
    assert at > 20
    assert labels_of(service) == [""] * (at - 1) + ["interrupted"]
    label("interrupted").__exit__(None, None, None)


# ------------------------------------------------------------------------------
# Marks and phases: in every heap that is watched, in pairs, and nowhere else.


class Source:
    """Two heaps that are watched in a `with`."""

    def __init__(self):
        self.heaps = [new_heap(), new_heap()]

    def __enter__(self):
        labels.begin(self)
        return self

    def __exit__(self, *how):
        labels.end(self)


def marks_of(heap):
    """Name and value of each mark."""
    with unserved():
        events = heap.log.copy(0, heap.log.head)
        found = events[events["kind"] == Kind.MARK]
    return [(heap.labels.name(int(event["label"])), int(event["size"])) for event in found]


@needs_compiled
def test_marks_go_into_every_heap_that_is_watched():
    mark("before")
    with Source() as first:
        mark("step", 1)
        with serve_numpy("1MiB") as service:
            mark("step", 2)
        mark("step", 3)
    mark("after")
    assert [marks_of(heap) for heap in first.heaps] == [[("step", 1), ("step", 2), ("step", 3)]] * 2
    assert marks_of(service.allocator) == [("step", 2)]


def test_phases_of_tasks_keep_their_numbers():
    async def work(name, turns):
        async with asyncio.timeout(10):
            with phase(name):
                for _ in range(turns):
                    await asyncio.sleep(0)

    async def main():
        await asyncio.gather(work("long", 5), work("short", 1))

    with Source() as source:
        asyncio.run(main())
    found = marks_of(source.heaps[0])
    assert [name for name, _ in found] == ["long begins", "short begins", "short ends", "long ends"]
    numbers = [number for _, number in found]
    assert numbers[0] == numbers[3] != numbers[1] == numbers[2]


@needs_compiled
def test_a_phase_is_a_pair_of_marks_and_labels_what_is_inside():
    with serve_numpy("1MiB", capture="label") as service:
        with phase("forward"):
            np.empty(1)
            with phase("layer"):
                np.empty(1)
                with label("weights"):
                    np.empty(1)
        np.empty(1)
    heap = service.allocator
    (outer, first), (inner, second), *ends = marks_of(heap)
    assert [outer, inner] == ["forward begins", "layer begins"]
    assert ends == [("layer ends", second), ("forward ends", first)]
    assert first != second
    events = heap.log.copy(0, heap.log.head)
    told = [heap.labels[int(number)] for number in events["label"][events["kind"] == Kind.ALLOCATE]]
    assert [each.name for each in told] == ["forward", "layer", "weights", ""]
    assert {heap.labels[n].details.get("begins") for n in range(len(heap.labels))} == {
        None,
        "forward",
        "layer",
    }


def test_it_decorates_recurs_and_ends_with_an_error():
    @phase("dive")
    def dive(depth):
        if depth == 0:
            raise KeyError
        dive(depth - 1)

    with Source() as source, pytest.raises(KeyError):
        dive(2)
    names, values = zip(*marks_of(source.heaps[0]), strict=True)
    assert names == ("dive begins",) * 3 + ("dive ends",) * 3
    assert values[:3] == values[:2:-1]


def test_each_end_belongs_to_a_beginning():
    with phase("around"), Source() as source, phase("inside"):
        pass
    with Source() as other:
        half = phase("half")
        half.__enter__()
    half.__exit__(None, None, None)
    assert [name for name, _ in marks_of(source.heaps[0])] == ["inside begins", "inside ends"]
    assert [name for name, _ in marks_of(other.heaps[0])] == ["half begins"]


def test_threads_share_a_decorator():
    both = threading.Barrier(2)

    @phase("work")
    def work():
        both.wait(10)

    with Source() as source:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = marks_of(source.heaps[0])
    assert [name for name, _ in found] == ["work begins"] * 2 + ["work ends"] * 2
    assert {value for _, value in found[:2]} == {value for _, value in found[2:]}


def test_a_source_that_begins_twice_is_marked_once():
    with Source() as source:
        labels.begin(source)
        mark("step")
    assert marks_of(source.heaps[0]) == [("step", 0)]


@needs_compiled
def test_what_is_watched_is_marked_once():
    with bfcviz.watch(numpy=True, limit="64MiB", dashboard=False) as w:
        bfcviz.mark("step", 5)
    bfcviz.mark("after")
    assert marks_of(w.sources[0].allocator) == [("step", 5)]


@pytest.mark.parametrize("wrong", [mark, phase])
def test_a_name_that_is_no_text_is_refused(wrong):
    with Source() as source, pytest.raises(LiveError, match=r"3 .* give text"):
        wrong(3)
    assert [marks_of(heap) for heap in source.heaps] == [[], []]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_marks_nothing():
    with Source() as source:

        def work():
            mark("of the child")
            assert marks_of(source.heaps[0]) == []

        assert child_ends_well(work)


@needs_compiled
def test_phases_are_told_in_a_timeline(tmp_path):
    with Recording(tmp_path / "run") as recording, serve_numpy("1MiB", log=recording):
        with phase("forward"):
            np.empty(1000)
        mark("step", 7)
    trace = recording.trace()
    assert len(measure_history(trace).marks.events) == 3
    told = [words for each in stats_timeline(trace, 0).data for words in each.hovertext or ()]
    assert any(words.startswith("<b>forward</b>") for words in told)
    assert any(words.startswith("<b>step</b><br>value 7<br>") for words in told)
