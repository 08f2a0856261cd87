"""The file of a log: where its events lie, while a drain frees slots and the log uses them again."""

import os

import numpy as np
import pytest
from heaps import new_heap
from processes import COMPILED, sized
from unit.events.fabricate import fabricate

from bfcviz.allocator.replay import MARK, Operations
from bfcviz.errors import FileError
from bfcviz.events import event_file
from bfcviz.events.event_file import RECORD, EventFile
from bfcviz.events.log import EventLog
from bfcviz.events.log_memory import MAPPED_SLOTS, SLOT
from bfcviz.events.origin import Status
from bfcviz.events.schema import EVENT
from bfcviz.events.storage import drain as drain_module
from bfcviz.events.storage.drain import Drain, check_can_free_space
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace

needs_speed = pytest.mark.skipif(not COMPILED, reason="uncompiled, a slot takes a second to fill")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 63, 64, 65, 1000, 4095, 4096, 4097, 9000])
@pytest.mark.parametrize("ahead", [0, 1, 5000])
def test_the_end_is_found_from_anywhere(tmp_path, count, ahead):
    path = tmp_path / "events.bin"
    np.concatenate([fabricate(max(count, 1))[:count], np.zeros(ahead, EVENT)]).tofile(path)
    for known in {0, count // 2, count}:
        assert EventFile(path).find_end(known) == count
    assert EventFile(path).tail_bytes(count, 1 << 20) == 0


def write(heap, count):
    """Marks, each of which says how many events the log had before it."""
    values = np.arange(heap.log.head, heap.log.head + count)
    heap.replay(Operations(np.full(count, MARK), np.zeros(count, np.int64), values))


def drained(drain):
    drain.step()
    return drain.packed


def assert_all_there(folder, count):
    trace = Trace.open(folder)
    assert len(trace) == count
    for start in range(0, count, SLOT):
        assert_marks(trace.read(start, min(start + SLOT, count)), start, min(start + SLOT, count))


def assert_marks(events, start, stop):
    assert np.array_equal(events["size"], np.arange(start, stop))


@pytest.fixture
def blocks_of_two_slots(monkeypatch):
    monkeypatch.setattr(drain_module, "MOST_EVENTS", 2 * SLOT)


@pytest.mark.parametrize("capacity", [SLOT, 8192, 192 * 5] if COMPILED else [8192])
def test_a_log_writes_again_to_the_slots_that_a_drain_frees(tmp_path, blocks_of_two_slots, capacity):
    with Recording(tmp_path / "run") as recording:
        recording._log = EventLog(capacity, folder=recording.folder)
        heap, drain = new_heap(log=recording.log), Drain(recording.folder)
        followed, sizes = Trace.open(recording.folder), []
        for _ in range(sized(8, 3)):
            write(heap, SLOT + 700)
            followed.refresh()
            assert len(followed) == heap.log.head
            first = max(heap.log.head - 3 * SLOT, 0)
            assert_marks(followed.read(first, heap.log.head), first, heap.log.head)
            drained(drain)
            assert_all_there(recording.folder, heap.log.head)
            assert_marks(
                heap.log.copy(heap.log.head - 100, heap.log.head), heap.log.head - 100, heap.log.head
            )
            sizes.append(recording.events_path.stat().st_size)
        count = heap.log.head
        assert max(sizes) <= 5 * SLOT * RECORD
        assert sizes[-1] == sizes[min(5, len(sizes) - 1)]
    assert_all_there(recording.folder, count)
    assert drain.step() is True
    drain.close()
    assert not recording.events_path.exists()
    assert_all_there(recording.folder, count)
    assert Trace.open(recording.folder).origin.status is Status.COMPLETE


@needs_speed
def test_a_log_keeps_its_events_where_nothing_is_freed(tmp_path):
    log = EventLog(folder=tmp_path)
    write(new_heap(log=log), 3 * SLOT + 5)
    file = EventFile(tmp_path / "events.bin")
    assert file.find_end(0) == 3 * SLOT + 5
    assert file.read(SLOT - 2, SLOT + 2)["size"].tolist() == [SLOT - 2, SLOT - 1, SLOT, SLOT + 1]
    log.close()
    assert_marks(np.fromfile(tmp_path / "events.bin", EVENT), 0, 3 * SLOT + 5)


@needs_speed
def test_a_slow_drain_gives_the_space_of_later_slots_back(tmp_path, blocks_of_two_slots, monkeypatch):
    try:
        check_can_free_space(tmp_path, "keep")
    except FileError:
        pytest.skip("no holes in files here")
    few = 3
    monkeypatch.setattr(event_file, "MAPPED_SLOTS", few)
    with Recording(tmp_path / "run") as recording:
        heap, drain = new_heap(log=recording.log), Drain(recording.folder)
        write(heap, 9 * SLOT + 10)
        before = recording.events_path.stat().st_blocks
        assert drained(drain) == 8 * SLOT
        assert recording.events_path.stat().st_blocks <= before * (few + 3) / 10
        assert recording.events_path.stat().st_size == 10 * SLOT * RECORD
        assert_all_there(recording.folder, 9 * SLOT + 10)
        write(heap, 4 * SLOT)
        assert recording.events_path.stat().st_size == 10 * SLOT * RECORD
        assert_all_there(recording.folder, 13 * SLOT + 10)
    drain.step()
    drain.close()
    assert_all_there(recording.folder, 13 * SLOT + 10)
    assert few < MAPPED_SLOTS


@needs_speed
def test_a_slot_that_the_log_wrote_to_again_is_not_freed_by_an_old_picture(tmp_path, blocks_of_two_slots):
    with Recording(tmp_path / "run") as recording:
        heap, drain = new_heap(log=recording.log), Drain(recording.folder)
        write(heap, 4 * SLOT)
        old = EventFile(recording.events_path)
        assert old.find_end(0) == 4 * SLOT
        drain.step()
        write(heap, 3 * SLOT)
        old.free(4 * SLOT)
        assert_all_there(recording.folder, 7 * SLOT)
        drain.close()


@needs_speed
def test_a_follower_looks_again_only_at_slots_that_can_change(tmp_path, monkeypatch):
    monkeypatch.setattr(event_file, "MAPPED_SLOTS", 2)
    log = EventLog(folder=tmp_path)
    heap, looked = new_heap(log=log), []
    write(heap, 5 * SLOT)
    first = EventFile(tmp_path / "events.bin")
    assert first.find_end(0) == 5 * SLOT
    write(heap, SLOT + 9)
    window_in = EventFile._window_in
    monkeypatch.setattr(
        EventFile, "_window_in", lambda self, slot: (looked.append(slot), window_in(self, slot))[1]
    )
    assert EventFile(tmp_path / "events.bin", first).find_end(5 * SLOT) == 6 * SLOT + 9
    assert looked == [0, 1, 5, 6]


@needs_speed
def test_a_drained_recording_that_is_truncated_says_so(tmp_path, blocks_of_two_slots):
    with Recording(tmp_path / "run") as recording:
        heap, drain = new_heap(log=recording.log), Drain(recording.folder)
        write(heap, 5 * SLOT + 50)
        drain.step()
        followed = Trace.open(recording.folder)
        os.truncate(recording.events_path, 0)
        followed.refresh()
        assert "shorter" in "; ".join(followed.origin.reasons)
        write(heap, 100)
    drain.close()
    trace = Trace.open(recording.folder)
    assert (len(trace), trace.origin.status) == (4 * SLOT, Status.TRUNCATED)
    assert "truncated" in trace.origin.reasons[0]
    assert not any("0 events were recorded" in reason for reason in trace.origin.reasons)


@needs_speed
def test_a_record_that_was_begun_in_a_used_slot_is_told(tmp_path, blocks_of_two_slots):
    recording = Recording(tmp_path / "run")
    heap, drain = new_heap(log=recording.log), Drain(recording.folder)
    write(heap, 4 * SLOT)
    drain.step()
    write(heap, 100)
    file = EventFile(recording.events_path)
    assert file.find_end(4 * SLOT) == 4 * SLOT + 100
    assert file.tail_bytes(4 * SLOT + 100, 1 << 20) == 0
    with recording.events_path.open("r+b") as events:  # as if the process was killed between two stores
        events.seek(100 * RECORD + EVENT.fields["kind"][1])
        events.write(b"\0")
    assert 0 < file.tail_bytes(4 * SLOT + 100, 1 << 20) <= RECORD
    recording._lock.close()
    trace = Trace.open(recording.folder)
    assert (len(trace), trace.origin.status) == (4 * SLOT + 100, Status.TRUNCATED)
    drain.close()
    recording.close()


@needs_speed
def test_events_that_are_packed_and_written_over_during_a_read_come_from_the_blocks(
    tmp_path, blocks_of_two_slots, monkeypatch
):
    with Recording(tmp_path / "run") as recording:
        heap, drain = new_heap(log=recording.log), Drain(recording.folder)
        write(heap, 3 * SLOT)
        trace, read = Trace.open(recording.folder), EventFile.read

        def overwritten(self, start, stop):
            monkeypatch.setattr(EventFile, "read", read)
            drain.step()
            write(heap, 2 * SLOT)
            return read(self, start, stop)

        monkeypatch.setattr(EventFile, "read", overwritten)
        assert_marks(trace.read(0, SLOT), 0, SLOT)
        drain.close()


@needs_speed
def test_space_that_is_freed_during_the_search_for_the_end_hides_no_event(
    tmp_path, blocks_of_two_slots, monkeypatch
):
    with Recording(tmp_path / "run") as recording:
        heap, drain = new_heap(log=recording.log), Drain(recording.folder)
        write(heap, 4 * SLOT)
        search, found = EventFile.find_end, []

        def freed_before_the_first_search(self, *known):
            if not found:
                found.append(0)
                drain.step()
            found.append(search(self, *known))
            return found[-1]

        monkeypatch.setattr(EventFile, "find_end", freed_before_the_first_search)
        assert_all_there(recording.folder, 4 * SLOT)
        assert found[1] < 4 * SLOT or len(found) > 2
        drain.close()


def test_a_sparse_file_of_absurd_size_is_searched_at_once(tmp_path):
    fabricate(100).tofile(tmp_path / "events.bin")
    os.truncate(tmp_path / "events.bin", 1 << 42)
    assert EventFile(tmp_path / "events.bin").find_end(0) == 100


def test_a_recording_of_an_older_version_with_a_hole_at_its_beginning(tmp_path):
    events = fabricate(SLOT + 2000)
    events[: SLOT + 64] = np.zeros(1, EVENT)  # as its drain freed them, page by page
    events.tofile(tmp_path / "events.bin")
    file = EventFile(tmp_path / "events.bin")
    assert file.find_end(SLOT + 64) == SLOT + 2000
    assert file.read(SLOT + 64, SLOT + 70)["seq"].tolist() == [*range(SLOT + 64, SLOT + 70)]
