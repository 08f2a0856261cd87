"""A drain packs a recording while it is written; at every moment all events can be read."""

import os
from random import Random

import numpy as np
import pytest
from processes import sized
from unit.events.fabricate import fabricate, fabricate_labels

from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.sub_allocators import SimulatedSubAllocator
from bfcviz.errors import FileError
from bfcviz.events import event_file
from bfcviz.events.log_memory import SLOT
from bfcviz.events.origin import Status
from bfcviz.events.storage import drain as drain_module
from bfcviz.events.storage.blocks import sections_of
from bfcviz.events.storage.drain import Drain
from bfcviz.events.storage.files import OpenFile
from bfcviz.events.storage.folder import BLOCKS_FILE, EVENTS_FILE
from bfcviz.events.storage.label_file import LABELS_FILE, PACKED_LABELS_FILE
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace

SIZE = sized(8192, 64)
EVENTS = fabricate(5 * SIZE + SIZE // 2)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(drain_module, "MOST_EVENTS", SIZE)
    monkeypatch.setattr(event_file, "LAST_LOOK", SIZE // 8)


@pytest.fixture
def recording(tmp_path):
    with Recording(tmp_path / "run", labels=fabricate_labels()) as recording:
        recording.events_path.touch()
        yield recording


def write(recording, start, stop):
    with recording.events_path.open("ab") as file:
        file.write(EVENTS[start:stop].tobytes())
    recording._count = lambda: stop  # as the log of a real writer knows


def assert_read(trace, count):
    assert len(trace) == count
    assert np.array_equal(trace.read(0, count), EVENTS[:count])
    cut = min(SIZE - 3, count)
    assert np.array_equal(trace.read(cut, count), EVENTS[cut:count])


def describe(pools):
    return lambda events: (b"index", b"state" if events["seq"][0] else b"")


def test_all_events_can_be_read_at_every_moment(recording):
    folder, drain = recording.folder, Drain(recording.folder, describe)
    followed = Trace.open(folder)
    for stop in (10, SIZE, SIZE + 1, 3 * SIZE + 5, len(EVENTS)):
        write(recording, len(followed), stop)
        followed.refresh()
        assert_read(Trace.open(folder), stop)
        assert drain.step() is False
        assert drain.packed == stop // SIZE * SIZE
        assert_read(followed, stop)  # it has not looked since
        assert_read(Trace.open(folder), stop)
    recording.close()
    assert drain.step() is True
    drain.close()
    assert not (folder / EVENTS_FILE).exists()
    trace = Trace.open(folder)
    assert_read(trace, len(EVENTS))
    assert (trace.origin.status, trace.origin.reasons) == (Status.COMPLETE, ())
    assert trace.index_entries() == [b"index"] * 6
    assert trace.keyframe_before(3 * SIZE + 1) == (3 * SIZE, b"state")
    assert followed.refresh() == 0
    assert_read(followed, len(EVENTS))


def test_a_drain_that_was_killed_anywhere_loses_nothing(recording, monkeypatch):
    """The file of blocks is cut at random places, as by a kill during a write; another drain continues."""
    monkeypatch.setattr(drain_module, "MOST_EVENTS", SIZE // 8)
    random, folder, count = Random(3), recording.folder, SIZE - 5
    write(recording, 0, count)
    for _ in range(sized(20, 5)):
        drain = Drain(folder, describe)
        drain.step()
        drain.close()
        path = folder / BLOCKS_FILE
        os.truncate(path, random.randrange(path.stat().st_size))
        assert_read(Trace.open(folder), count)
    recording.close()
    drain = Drain(folder)
    assert drain.step() is True
    drain.close()
    assert_read(Trace.open(folder), count)


def test_a_killed_writer_has_all_whole_events_packed(recording):
    folder = recording.folder
    write(recording, 0, 2 * SIZE + 50)
    with recording.events_path.open("ab") as file:
        file.write(b"\x01" * 40 + bytes(640))
    recording._lock.close()  # as the kernel does
    drain = Drain(folder)
    assert drain.step() is False  # without locks it would look as if it was at work
    assert drain.packed == 2 * SIZE
    assert drain.step(has_ended=True) is True
    drain.close()
    trace = Trace.open(folder)
    assert_read(trace, 2 * SIZE + 50)
    assert trace.origin.status is Status.TRUNCATED


def test_a_hole_that_no_drain_made_is_not_taken_for_events(recording):
    # As a page looks for a moment that a log has just made.
    os.truncate(recording.events_path, SIZE * 64)
    with recording.events_path.open("r+b") as file:
        file.seek(SIZE * 32)
        file.write(bytes(SIZE * 32))
    trace = Trace.open(recording.folder)
    assert len(trace) == 0
    assert trace.read(0, 0).size == 0


def test_a_log_that_is_drained_to_its_end_knows_how_many_events_it_had(tmp_path):
    with Recording(tmp_path / "run") as recording:
        heap = BFCAllocator(SimulatedSubAllocator(), 1 << 30, log=recording.log)
        while recording.log.head < 2 * SIZE:
            heap.mark("step")
        drain = Drain(recording.folder)
        drain.step()
        assert drain.packed == 2 * SIZE
    assert drain.step() is True
    drain.close()
    trace = Trace.open(recording.folder)
    assert (len(trace), trace.origin.status) == (2 * SIZE, Status.COMPLETE)
    assert not recording.events_path.exists()


def test_two_drains_do_not_pack_one_recording(recording):
    drain = Drain(recording.folder)
    with pytest.raises(FileError):
        Drain(recording.folder)
    drain.close()


def test_damaged_events_stay_where_they_are(recording):
    events = EVENTS[: 2 * SIZE].copy()
    events["seq"][SIZE + 7] = 1
    with recording.events_path.open("ab") as file:
        file.write(events.tobytes())
    drain = Drain(recording.folder)
    drain.step()
    drain.close()
    assert drain.packed == SIZE
    with pytest.raises(FileError):
        Trace.open(recording.folder).read(SIZE, 2 * SIZE)


@pytest.mark.parametrize("hit", [0, 1, 2])
def test_a_damaged_header_loses_its_block_only(recording, hit, monkeypatch):
    """Also that of the last block: another drain leaves what it cannot read, and goes on behind it."""
    monkeypatch.setattr(drain_module, "MOST_EVENTS", SLOT)
    events = fabricate(5 * SLOT + 9)
    recording.events_path.write_bytes(events[: 3 * SLOT + 5].tobytes())
    drain = Drain(recording.folder, describe)
    drain.step()
    drain.close()
    path = recording.folder / BLOCKS_FILE
    data = bytearray(path.read_bytes())
    data[[*sections_of(OpenFile(path))][hit].start + 20] ^= 0x41
    path.write_bytes(data)
    trace = Trace.open(recording.folder)
    assert len(trace) == 3 * SLOT + 5
    with recording.events_path.open("r+b") as file:
        file.seek(3 * SLOT * 64)
        file.write(events[3 * SLOT :].tobytes())
    recording._count = lambda: len(events)
    recording.close()
    drain = Drain(recording.folder, describe)
    drain.step()
    drain.close()
    assert path.read_bytes().startswith(data)
    assert not recording.events_path.exists()
    trace.refresh()
    for found in (trace, Trace.open(recording.folder)):
        assert len(found) == len(events)
        assert found.origin.status is Status.DEGRADED
        assert f"{SLOT:,} events are damaged" in found.origin.reasons[-1]
        start, stop = hit * SLOT, (hit + 1) * SLOT
        assert np.array_equal(found.read(0, start), events[:start])
        assert np.array_equal(found.read(stop, len(events)), events[stop:])
        with pytest.raises(FileError, match="damaged"):
            found.read(start, start + 1)
    checked = Trace.open(recording.folder, check=True)
    assert (len(checked), checked.origin.status) == (hit * SLOT, Status.DEGRADED)


def test_a_full_disk_ends_nothing(recording, monkeypatch):
    write(recording, 0, 3 * SIZE)
    drain = Drain(recording.folder)
    with monkeypatch.context() as patch:
        patch.setattr(drain_module, "event_section", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(FileError):
            drain.step()
    assert_read(Trace.open(recording.folder), 3 * SIZE)
    drain.step()
    drain.close()
    assert drain.packed == 3 * SIZE
    assert_read(Trace.open(recording.folder), 3 * SIZE)


def test_labels_that_cannot_be_packed_keep_no_event_from_it(recording):
    folder = recording.folder
    (folder / PACKED_LABELS_FILE).mkdir()
    os.truncate(folder / LABELS_FILE, 1 << 17)
    write(recording, 0, len(EVENTS))
    drain = Drain(folder)
    assert drain.step(has_ended=True) is True
    assert drain.packed == len(EVENTS)
    drain.close()
