"""PyTorch observed: what it finds, which devices, what is lost, and what the `with` leaves."""

import importlib
import signal
import sys
import threading
import time

import numpy as np
import pytest
from threads import wait_for_end
from unit.live.torch.histories import chunks

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live import labels_and_marks as labels
from bfcviz.live.torch.observe import Recorder, observe_torch
from bfcviz.native import thread_number

OWN = {"filename": "??", "name": "c10", "line": 0}
STEP = (OWN, {"filename": "/home/me/train.py", "name": "step", "line": 9})


def sizes(source, heap=0):
    return [requested for _, _, requested in chunks(source.heaps[heap])]


def test_it_observes_from_the_state_it_finds(torch):
    old = torch.make(500)
    with observe_torch(every_s=1000) as source:
        kept = {"context": "alloc", "stacks": "python", "max_entries": 100_000}
        assert torch.history == {**kept, "skip_actions": ["free_requested"]}
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "torch cuda:0", torch.total)
        assert sizes(source) == [500]
        torch.make(1000, STEP)
        torch.cuda.memory._snapshot()  # of other code
        torch.make(2000, STEP)
        torch.drop(old)
        source.settle()
        assert sizes(source) == [1000, 2000]
    assert torch.history is None
    label = heap.labels[heap.moment().chunks[-2]["label"]]
    assert label == ("train.py:9 step", {"stack": "step (/home/me/train.py:9)"})
    assert "PyTorch is observed" in source.description
    assert source.out_of_memory is None
    assert (source.devices[0].lost, source.devices[0].mended) == (0, 0)


@pytest.fixture
def lazy_inductor(torch, monkeypatch, tmp_path):
    """A package torch._inductor that is imported when it is asked for, as PyTorch's; returns whether it is."""
    folder = tmp_path / "_inductor"
    folder.mkdir()
    (folder / "__init__.py").write_text("config = 7\n", encoding="utf-8")
    torch.__path__ = [str(tmp_path)]
    name = "torch._inductor"
    monkeypatch.setitem(sys.modules, name, None)  # restored after the test
    del sys.modules[name]

    def ask(self, attribute):
        if attribute == "_inductor":
            return importlib.import_module(name)
        raise AttributeError(attribute)

    monkeypatch.setattr(type(torch), "__getattr__", ask, raising=False)
    return lambda: name in sys.modules


def test_no_snapshot_imports_torch_inductor(torch, lazy_inductor):
    seen = []

    def as_pytorch():  # it asks for the names of lines of compiled code
        seen.append(hasattr(torch._inductor, "codecache"))
        if len(seen) == 1:
            asked = threading.Thread(target=lambda: seen.append(torch._inductor.config))
            asked.start()
            asked.join()
        return torch.snapshot()

    torch.cuda.memory._snapshot = as_pytorch
    with observe_torch(every_s=1000):
        assert seen == [False, 7]  # another thread gets the package
        assert torch._inductor.config == 7
    assert seen[-1] is False


def test_a_snapshot_does_not_import_torch_inductor(torch, lazy_inductor):
    torch.cuda.memory._snapshot = lambda: hasattr(torch._inductor, "codecache") or torch.snapshot()
    with observe_torch(every_s=1000):
        pass
    assert not lazy_inductor()
    assert "_inductor" not in vars(torch)


def test_where_it_cannot_begin_no_history_is_kept(torch):
    torch.error = RuntimeError("the driver is gone")
    with pytest.raises(RuntimeError, match="the driver is gone"):
        observe_torch().__enter__()
    assert torch.history is None


def test_each_device_is_a_heap_and_a_recording_gets_the_current_one(torch, tmp_path):
    torch.devices, torch.device = 2, 1
    torch.make(500, device=1)
    with Recording(tmp_path / "run") as recording, observe_torch(log=recording, capture="label") as source:
        assert [heap.name for heap in source.heaps] == ["torch cuda:1", "torch cuda:0"]
        assert (
            np.count_nonzero(recording.trace().read(0, len(recording.trace()))["kind"] == Kind.ALLOCATE) == 1
        )
        assert torch.history["context"] is None


def test_the_devices_of_a_recording_are_in_the_order_of_time(torch, tmp_path):
    torch.devices = 2
    with Recording(tmp_path / "run") as recording, observe_torch(every_s=1000, log=recording) as source:
        assert all(heap.log is recording.log for heap in source.heaps)
        for number in range(6):
            torch.make(1000 + number, STEP, device=number % 2)
            torch.caches[number % 2].ring[-1]["time_us"] += 100 * number  # else two may have the same
        told = sorted(cache.ring[-3 + number]["time_us"] for cache in torch.caches[:2] for number in range(3))
        source.settle()
        events = recording.trace().read(0, len(recording.trace()))
    made = events[events["kind"] == Kind.ALLOCATE]
    assert made[["requested", "pool"]].tolist() == [(1000 + number, number % 2) for number in range(6)]
    assert np.diff(made["time"]).tolist() == (np.diff(told) * 1000).tolist()


def test_observing_creates_no_context_on_devices_that_are_not_used(torch):
    torch.devices = 4
    with observe_torch(every_s=1000) as source:
        assert [device.number for device in source.devices] == [0, 1, 2, 3]
    assert torch.contexts == {0}


def test_the_devices_that_are_named_are_observed(torch):
    torch.devices, torch.device = 4, 3
    with observe_torch(every_s=1000, devices=[1, 3, 1]) as source:
        assert [heap.name for heap in source.heaps] == ["torch cuda:3", "torch cuda:1"]
    for devices, facts in (([4], "device 4 .* 4, counted from 0"), ([], "no device .* 4, counted from 0")):
        with pytest.raises(InvalidRequest, match=facts):
            observe_torch(devices=devices).__enter__()
        assert torch.history is None


def test_what_was_lost_is_said(torch):
    with observe_torch(every_s=1000, max_entries=10) as source:
        assert "missed" not in source.description
        last = [torch.make(size) for size in range(1, 30)][-1]
        source.settle()
        assert source.devices[0].lost == 1
        assert sizes(source) == list(range(1, 30))
        torch.drop(last)
    assert "1 times entries were missed" in source.description
    assert sizes(source) == list(range(1, 29))


def test_a_recording_says_that_events_are_missing(torch, tmp_path):
    with (
        Recording(tmp_path / "run") as recording,
        observe_torch(log=recording, every_s=1000, max_entries=10) as source,
    ):
        assert recording.trace().origin.reasons == ()
        for size in range(1, 30):
            torch.make(size)
        source.settle()
        for size in range(1, 30):
            torch.make(size)
        source.settle()
        (reason,) = recording.trace().origin.reasons  # once, and while it is recorded
        assert "missed" in reason
    assert recording.trace().origin.reasons == (reason,)


def test_the_thread_reads_by_itself_and_its_end_is_said(torch):
    source = observe_torch(every_s=0.001)
    with pytest.raises(RuntimeError, match="the driver is gone"), source:  # noqa: PT012
        torch.error = RuntimeError("the driver is gone")
        torch.make(500)
        wait_for_end("bfcviz-torch")
        assert "It ended early: the driver is gone" in source.description
    assert torch.history is None


def test_the_limit_of_the_process_is_the_limit(torch):
    torch.fraction = 0.25
    with observe_torch(every_s=1000) as source, pytest.raises(torch.OutOfMemoryError):
        torch.make(1 << 30)
    assert source.heaps[0].limit == torch.total // 4
    assert source.out_of_memory.requested == 1 << 30
    assert source.out_of_memory.bytes_limit <= torch.total // 4


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_a_pytorch_without_cache_is_refused(torch, monkeypatch, value):
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", value)
    with pytest.raises(LiveError, match="PYTORCH_NO_CUDA_MEMORY_CACHING is set"):
        observe_torch().__enter__()
    assert torch.history is None


def test_what_cannot_be_observed_is_refused(torch):
    torch.current_allocator = object()
    with pytest.raises(LiveError, match=r"history.* replaced"):
        observe_torch().__enter__()
    torch.current_allocator, torch.backend = None, "cudaMallocAsync"
    with pytest.raises(LiveError, match="backend:cudaMallocAsync"):
        observe_torch().__enter__()
    torch.devices = 0
    with pytest.raises(LiveError, match="sees no CUDA device"):
        observe_torch().__enter__()
    assert torch.history is None
    with pytest.raises(LiveError, match="choose nothing, label or stack"):
        observe_torch(capture="all")
    for options in (
        {"every_s": 0},
        {"every_s": float("nan")},
        {"max_entries": 0},
        {"most_time": 0},
        {"most_time": 2},
    ):
        with pytest.raises(InvalidRequest):
            observe_torch(**options)


# ------------------------------------------------------------------------------
# Recorder: what is read and cleared, what a reading may cost, several observers, and a history of other code.


def observing(**options):
    return observe_torch(every_s=1000, **options)


def allocations(source):
    heap = source.heaps[0]
    events = heap.log.copy(0, heap.log.head)
    return events[events["kind"] == Kind.ALLOCATE]["requested"].tolist()


def lengths(torch):
    return [len(cache.ring) for cache in torch.caches[:1]]


def test_a_reading_leaves_an_empty_history_so_that_the_next_one_copies_only_what_is_new(torch):
    with observing() as source:
        for size in range(1, 101):
            torch.make(size)
        source.settle()
        assert lengths(torch) == [0]
        torch.make(101)
        source.settle()
        assert torch.readings[-2:] == [101, 2]  # with the entry of the state
        assert allocations(source) == list(range(1, 102))
    assert (source.devices[0].lost, source.devices[0].mended) == (0, 0)


def test_what_is_recorded_during_a_reading_is_not_cleared(torch):
    with observing() as source:
        torch.make(1)
        torch.meanwhile["snapshot"] = lambda: torch.drop(torch.make(2))
        source.settle()
        assert lengths(torch)[0] > 0
        torch.make(3)
        source.settle()
        assert allocations(source) == [1, 2, 3]
    assert (source.devices[0].lost, source.devices[0].mended) == (0, 0)


def test_what_is_recorded_between_the_last_look_and_the_clearing_is_said_to_be_missed(torch):
    with observing() as source:
        torch.make(1)
        torch.meanwhile["clear"] = lambda: torch.drop(torch.make(2))
        source.settle()
        torch.make(3)
        source.settle()
        assert allocations(source) == [1, 3]
        assert [requested for _, _, requested in chunks(source.heaps[0])] == [1, 3]
        assert source.devices[0].lost == 1


def test_a_pytorch_that_cannot_clear_is_turned_off_and_on(torch):
    record = torch.cuda.memory._record_memory_history
    torch.cuda.memory._record_memory_history = (
        lambda enabled="all", context="all", stacks="all", max_entries=1: record(
            enabled, context, stacks, max_entries
        )
    )
    with observing() as source:
        torch.drop(torch.make(1))
        source.settle()
        assert lengths(torch) == [0]
        torch.make(2)
        source.settle()
        assert allocations(source) == [1, 2]
    assert source.devices[0].lost == 0


def test_a_pytorch_without_counters_is_read_and_never_cleared(torch):
    del torch.cuda.memory.memory_stats_as_nested_dict
    with observing() as source:
        for size in (1, 2):
            torch.make(size)
            source.settle()
        assert allocations(source) == [1, 2]
        assert lengths(torch)[0] > 2
    assert (source.devices[0].lost, source.devices[0].mended) == (0, 0)


class Clock:
    """The time of the recorder, and what a reading costs a processor, by the entries in it."""

    def __init__(self, monkeypatch, torch):
        self.now, self.used = time.monotonic(), 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "thread_time", self._thread_time)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        self.torch, self.seen = torch, 0

    def _thread_time(self):
        new = self.torch.readings[self.seen :]
        self.seen += len(new)
        self.used += sum(new) * 1e-4 + 1e-3
        return self.used

    def poll(self, seconds, share=0.02):
        """Poll five times a second; returns how many readings there were."""
        before = len(self.torch.readings)
        for _ in range(int(seconds * 5)):
            self.now += 0.2
            Recorder.of(self.torch).read_if_due(share)
        return len(self.torch.readings) - before


def test_nothing_new_is_not_read(torch, monkeypatch):
    with observing():
        clock = Clock(monkeypatch, torch)
        torch.make(1)
        assert clock.poll(2) == 1
        assert clock.poll(100) == 0
        monkeypatch.undo()


def test_readings_take_at_most_their_share_of_the_time(torch, monkeypatch):
    with observing() as source:
        clock = Clock(monkeypatch, torch)
        torch.drop(torch.make(1))
        clock.poll(2)
        begin = clock.used
        for _ in range(100):
            for _ in range(20):
                torch.drop(torch.make(1))
            clock.poll(2)
        assert source.devices[0].lost == 0
        assert len(allocations(source)) > 1900
        assert clock.used - begin <= 0.02 * 200 + 0.1
        monkeypatch.undo()


def test_a_busy_program_is_passed_over_but_its_state_is_told_and_its_end_is_whole(torch, monkeypatch):
    with observing(max_entries=1000) as source:
        clock = Clock(monkeypatch, torch)
        begin = clock.used
        for _ in range(60):
            for _ in range(600):
                torch.drop(torch.make(1))
            clock.poll(1)
        torch.make(77)
        assert clock.used - begin <= 0.02 * 60 + 0.1
        assert source.devices[0].lost > 10
        assert len(chunks(source.heaps[0])) == 0
        clock.poll(5)
        assert [requested for _, _, requested in chunks(source.heaps[0])] == [77]
        monkeypatch.undo()
        before = len(allocations(source))
        for size in range(1, 101):
            torch.drop(torch.make(size))
    assert allocations(source)[before:] == list(range(1, 101))


def test_without_counters_readings_take_at_most_their_share(torch, monkeypatch):
    del torch.cuda.memory.memory_stats_as_nested_dict
    with observing():
        for _ in range(100):
            torch.drop(torch.make(1))
        clock = Clock(monkeypatch, torch)
        clock.poll(1)
        begin = clock.used
        assert clock.poll(100) > 20
        assert clock.used - begin <= 0.02 * 100 + 0.1
        monkeypatch.undo()


def test_a_failed_request_is_read_at_once(torch, monkeypatch):
    with observing(max_entries=1000) as source:
        clock = Clock(monkeypatch, torch)
        for _ in range(600):
            torch.drop(torch.make(1))
        with pytest.raises(torch.OutOfMemoryError):
            torch.make(1 << 40)
        clock.poll(0.2)
        assert source.out_of_memory.requested == 1 << 40
        monkeypatch.undo()


def test_a_failed_request_is_told_before_the_program_gets_its_error(torch):
    told = []
    with observing() as source, observing() as other:
        source.on_failure = lambda: told.append((source.out_of_memory.requested, allocations(source)))
        torch.make(700)
        with pytest.raises(torch.OutOfMemoryError):
            torch.make(1 << 40)
        assert told == [(1 << 40, [700])]
        assert allocations(other) == [700]
        source.on_failure = lambda: 1 // 0
        with pytest.raises(torch.OutOfMemoryError):  # as without bfcviz
            torch.make(1 << 41)
    with pytest.raises(torch.OutOfMemoryError), observing():
        torch.make(1 << 40)  # PyTorch keeps the observer
    assert (len(torch.observers), len(told)) == (1, 1)


def test_a_mark_stands_between_what_came_before_it_and_after_it(torch):
    with observing() as source:
        labels.mark("step", 1)
        torch.make(100)
        labels.mark("step", 2)
        torch.drop(torch.make(200))
        labels.mark("step", 3)
        source.settle()
        labels.mark("step", 4)
        with pytest.raises(InvalidRequest):
            labels.mark("step", "4")
    heap = source.heaps[0]
    events = heap.log.copy(0, heap.log.head)
    events = events[np.isin(events["kind"], [Kind.ALLOCATE, Kind.FREE, Kind.MARK])][1:]  # after bfcviz's own
    of_marks = events["kind"] == Kind.MARK
    found = np.where(of_marks, events["size"], events["requested"]).tolist()
    assert found == [1, 100, 2, 200, 200, 3, 4]
    assert {*events["by"][of_marks].tolist()} == {thread_number()}
    assert (np.diff(events["time"]) >= 0).all()


# -- several observers -------------------------------------------------------------------------------------------


def test_nested_observers_share_one_history(torch):
    with observing() as outer:
        torch.make(1)
        with observing(max_entries=200_000, capture="nothing") as inner:
            assert torch.history["max_entries"] == 200_000
            assert torch.history["context"] == "alloc"  # the outer one wants stacks
            torch.make(2)
            inner.settle()
            outer.settle()
            assert allocations(outer) == [1, 2]
        torch.make(3)
        outer.settle()
        assert (allocations(inner), allocations(outer)) == ([1, 2], [1, 2, 3])
    assert torch.history is None
    assert [each.devices[0].lost for each in (outer, inner)] == [0, 0]


def test_the_one_that_began_first_may_end_first(torch):
    first, second = observing(), observing()
    first.__enter__()
    second.__enter__()
    torch.make(1)
    first.__exit__(None, None, None)
    torch.make(2)
    second.__exit__(None, None, None)
    assert torch.history is None
    assert (allocations(first), allocations(second)) == ([1], [1, 2])
    assert second.devices[0].lost == 0


# -- a history of other code -------------------------------------------------------------------------------------


def told(torch):
    """The sizes of the allocations in the program's own history."""
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    return [entry["size"] for entry in trace if entry["action"] == "alloc"]


def test_a_history_of_other_code_is_read_as_it_is_and_continues(torch):
    torch.cuda.memory._record_memory_history(max_entries=5000)
    theirs = dict(torch.history)
    torch.make(1)
    with observing() as source:
        torch.make(2)
        source.settle()
        assert torch.history == theirs
        assert "turned on by other code" in source.description
    torch.make(3)
    assert (told(torch), torch.history) == ([1, 2, 3], theirs)
    assert allocations(source) == [1, 2]
    assert "turned on by other code" in source.description


def test_a_history_that_other_code_turns_on_meanwhile_is_its_own(torch):
    switch = torch._C._cuda_record_memory_history
    with observing() as source:
        torch.make(1)
        torch.cuda.memory._record_memory_history(max_entries=50)
        assert told(torch) == []
        torch.make(2)
        source.settle()
        torch.make(3)
    assert torch._C._cuda_record_memory_history == switch
    assert torch.history["max_entries"] == 50
    assert told(torch) == [2, 3]
    assert allocations(source) == [1, 2, 3]
    assert source.devices[0].lost == 0


def test_what_the_history_of_other_code_overwrote_since_it_began_is_said_to_be_missed(torch):
    with observing() as source:
        kept = [torch.make(size) for size in range(1, 20)]
        torch.cuda.memory._record_memory_history(max_entries=50)
        for address in kept:
            torch.drop(address)
        torch.make(100)
        source.settle()
        assert source.devices[0].lost == 0
        for size in range(1, 60):
            torch.drop(torch.make(size))
        torch.cuda.memory._record_memory_history(None)
        torch.cuda.memory._record_memory_history(max_entries=50)
        for size in range(1, 60):
            torch.drop(torch.make(size))
        torch.make(200)
        lost = source.devices[0].lost
        source.settle()
        assert source.devices[0].lost == lost + 1
        assert sorted(requested for _, _, requested in chunks(source.heaps[0])) == [100, 200]


def test_a_history_of_other_code_without_entries_shows_the_state(torch):
    torch.cuda.memory._record_memory_history(max_entries=0)
    with observing() as source:
        torch.make(1)
        source.settle()
        torch.make(2)
        source.settle()
        assert [requested for _, _, requested in chunks(source.heaps[0])] == [1, 2]
    assert source.devices[0].lost > 0


def test_other_code_that_turns_the_history_off_ends_only_its_own(torch):
    with observing() as source:
        torch.make(1)
        torch.cuda.memory._record_memory_history(max_entries=sys.maxsize)
        torch.make(2)
        torch.cuda.memory._record_memory_history(None)
        torch.make(3)
        source.settle()
        assert allocations(source) == [1, 2, 3]
        assert "turned on by other code" not in source.description
    assert torch.history is None
    assert source.devices[0].lost == 0


def test_a_wrong_call_of_other_code_changes_nothing(torch):
    with observing() as source:
        torch.make(1)
        with pytest.raises(RuntimeError, match="expected state or all"):
            torch.cuda.memory._record_memory_history("some")
        torch.make(2)
        source.settle()
        assert torch.history["max_entries"] == 100_000
        assert allocations(source) == [1, 2]
    assert source.devices[0].lost == 0


def test_a_history_of_one_entry_shows_the_state_and_says_what_is_missed(torch):
    torch.cuda.memory._record_memory_history(max_entries=1)
    with observing() as source:
        torch.make(1)
        torch.make(2)
        source.settle()
        assert [requested for _, _, requested in chunks(source.heaps[0])] == [1, 2]
    assert source.devices[0].lost > 0
    assert "missed" in source.description


def test_an_interrupt_during_a_reading_comes_after_it(torch):
    with observing() as source:
        torch.make(1)
        torch.meanwhile["clear"] = lambda: signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            source.settle()
        assert lengths(torch) == [0]
        assert allocations(source) == [1]
        torch.make(2)
    assert allocations(source) == [1, 2]
    assert source.devices[0].lost == 0
