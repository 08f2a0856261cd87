"""Recorder: what is read and cleared, what a reading may cost, several observers, and a history of other code."""

import signal
import sys
import time

import numpy as np
import pytest
from unit.live.torch.histories import chunks

from bfcviz.errors import InvalidRequest
from bfcviz.events.schema import Kind
from bfcviz.live import labels
from bfcviz.live.torch.observe import Recorder, observe_torch
from bfcviz.native import thread_number


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
