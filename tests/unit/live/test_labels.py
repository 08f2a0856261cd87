"""Labels: what a thread is busy with stands in its allocations."""

import asyncio
import contextvars
import threading
from collections import Counter
from itertools import count

import numpy as np
import pytest
from interrupts import interrupted
from processes import needs_compiled

from bfcviz.errors import LiveError
from bfcviz.events import labels as labels_module
from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live import labels as live_labels
from bfcviz.live.labels import label
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
