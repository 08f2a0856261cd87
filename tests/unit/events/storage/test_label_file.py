"""Labels on disk: a drain packs the first lines and frees them; readers find each line at its place."""

import errno
import os
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from heaps import MIB, new_heap
from hypothesis import given
from hypothesis import strategies as st

import bfcviz
from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import Pool, Status
from bfcviz.events.storage import drain as drain_module
from bfcviz.events.storage import files, label_file
from bfcviz.events.storage.drain import Drain, check_can_free_space
from bfcviz.events.storage.label_file import LABELS_FILE, PACKED_LABELS_FILE, LabelFile, LabelPacker
from bfcviz.events.storage.recording import CopyPosition, Recording, RecordingCopy, read_increment

PAGE = 4096


@pytest.fixture(scope="module", autouse=True)
def small_pieces(tmp_path_factory):
    try:
        check_can_free_space(tmp_path_factory.mktemp("holes"), "keep")
    except FileError:
        pytest.skip("no holes in files here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_file, "_LEAST", PAGE)
        patch.setattr(label_file, "_PIECE", 3 * PAGE)
        patch.setattr(drain_module, "MOST_EVENTS", 1024)
        yield


def disk(folder):
    """Bytes of disk that the labels take."""
    paths = [folder / LABELS_FILE, folder / PACKED_LABELS_FILE]
    return sum(path.stat().st_blocks * 512 for path in paths if path.exists())


def read(file, start):
    return b"".join(file.read(start))


lengths = st.lists(st.sampled_from([1, 7, 60, 300, 3 * PAGE, 5 * PAGE]), min_size=1, max_size=60)
steps = st.lists(
    st.tuples(lengths, st.sampled_from(["pack", "kill", "wait"]), st.floats(0, 1)), min_size=1, max_size=8
)


@given(steps)
def test_every_line_is_read_from_every_place_whatever_is_packed_or_killed(steps):
    with TemporaryDirectory() as name:
        folder, labels, number, places = Path(name), Labels(), 0, [0]
        packer, follower, seen = LabelPacker(folder), LabelFile(folder), b""
        with FileIO(folder / LABELS_FILE, "wb") as file:
            labels.append_to(file)
            text = b""
            for sizes, what, part in steps:
                for size in sizes:
                    number += 1
                    labels.intern(f"{number} {'x' * size}")
                    line = b'{"id":%d,"name":"%d %s"}\n' % (number, number, b"x" * size)
                    text += line
                    places.append(len(text))
                if what == "pack":
                    packer.pack()
                elif what == "kill":  # within the write of a piece, or before its lines are free
                    packed = folder / PACKED_LABELS_FILE
                    before = packed.stat().st_size if packed.exists() else 0
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr(label_file, "free_space", lambda *_: False)
                        packer.pack()
                    packer.close()
                    if packed.exists():
                        os.truncate(packed, before + int((packed.stat().st_size - before) * part))
                    packer = LabelPacker(folder)
                start = places[int(part * (len(places) - 1))]
                assert read(LabelFile(folder), start) == text[start:]
                seen += read(follower, len(seen))
                assert seen == text
        packer.close()


def test_labels_that_are_always_new_take_little_disk(tmp_path):
    recording = Recording(tmp_path / "run", [Pool("gpu")], details={"keep_bytes": 1 << 15})
    heap, drain = (
        new_heap(64 * MIB, log=recording.log, labels=recording.labels),
        Drain(tmp_path / "run", keep=1 << 15),
    )
    trace = bfcviz.open(recording.folder)
    copy = RecordingCopy(tmp_path / "copy")
    for number in range(30_000):
        heap.free(heap.allocate(number + 1, label=f"step {number} of the training loop, batch {number % 97}"))
        if number % 2000 == 0:
            drain.step()
            trace.refresh()
            assert len(trace.labels) == len(recording.labels)
            copy.add(read_increment(recording.folder, copy.position, most=0))
    recording.close()
    assert drain.step() is True
    drain.close()
    length = (recording.folder / LABELS_FILE).stat().st_size
    assert length > 3 << 19
    assert disk(recording.folder) < length // 5
    found = bfcviz.open(recording.folder)
    assert found.origin.status is not Status.DEGRADED
    assert found.labels.names == recording.labels.names
    whole = read_increment(recording.folder, CopyPosition(), most=0).labels
    assert whole.count(b"\n") == len(recording.labels) - 1
    copy.add(read_increment(recording.folder, copy.position, most=0))
    assert (tmp_path / "copy" / LABELS_FILE).read_bytes() == whole
    copy.close()
    (recording.folder / PACKED_LABELS_FILE).unlink()
    lost = bfcviz.open(recording.folder)
    assert lost.origin.status is Status.DEGRADED
    assert len(lost) == len(found)


def test_a_piece_that_is_damaged_loses_its_names_only(tmp_path):
    with FileIO(tmp_path / LABELS_FILE, "wb") as file:
        labels = Labels()
        labels.append_to(file)
        for number in range(2000):
            labels.intern(f"name {number}")
        packer = LabelPacker(tmp_path)
        packer.pack()
        packer.close()
        whole = read(LabelFile(tmp_path), 0)
        data = bytearray((tmp_path / PACKED_LABELS_FILE).read_bytes())
        data[60] ^= 255
        (tmp_path / PACKED_LABELS_FILE).write_bytes(data)
        found = read(LabelFile(tmp_path), 0)
        assert len(found) == len(whole)
        assert found.lstrip(b"\0") == whole[len(whole) - len(found.lstrip(b"\0")) :]
        assert found.count(b"\0") > 0


@pytest.mark.parametrize("place", [20, 60])  # of the header, of the packed lines
def test_a_damaged_piece_leaves_those_behind_it(tmp_path, monkeypatch, place):
    monkeypatch.setattr(label_file, "_PIECE", 1 << 20)  # a read has many pieces
    with FileIO(tmp_path / LABELS_FILE, "wb") as file:
        labels, packer, ends = Labels(), LabelPacker(tmp_path), []
        labels.append_to(file)
        for number in range(2000):
            labels.intern(f"name {number}")
            packer.pack()
            if (stop := packer._stop) not in ends:
                ends.append(stop)
        packer.close()
    whole = read(LabelFile(tmp_path), 0)
    data = bytearray((tmp_path / PACKED_LABELS_FILE).read_bytes())
    data[place] ^= 255
    (tmp_path / PACKED_LABELS_FILE).write_bytes(data)
    first, *others = ends[1:] if ends[0] == 0 else ends
    assert len(others) > 3
    found = read(LabelFile(tmp_path), 0)
    assert found[first:] == whole[first:]
    assert b"name" not in found[: first // PAGE * PAGE]


@pytest.mark.parametrize("hit", [0, 1, -1])
def test_another_drain_cuts_nothing_off_behind_a_damaged_header(tmp_path, hit):
    with FileIO(tmp_path / LABELS_FILE, "wb") as file:
        labels, packer, starts = Labels(), LabelPacker(tmp_path), []
        labels.append_to(file)
        for number in range(4000):
            if number == 2000:
                packer.close()
                path = tmp_path / PACKED_LABELS_FILE
                data, cut = bytearray(path.read_bytes()), int(path.stat().st_size)
                data[starts[hit] + 20] ^= 255
                path.write_bytes(data)
                follower, packer = LabelFile(tmp_path), LabelPacker(tmp_path)
                seen = read(follower, 0)
            labels.intern(f"name {number}")
            place = packer._end
            packer.pack()
            if packer._end > place:
                starts.append(place)
        packer.close()
        assert path.read_bytes()[:cut] == data
        seen += read(follower, len(seen))
        assert seen == read(LabelFile(tmp_path), 0)
        found = [line for line in seen.split(b"\n") if line.startswith(b'{"id":') and line.endswith(b"}")]
        lost = len(labels) - 1 - len(found)
        assert 0 < lost < 1000
        assert len({*found}) == len(found)


class FullDisk(FileIO):
    """Takes a few bytes, then there is no room."""

    room = 100

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken, self.room = super().write(data[: self.room]), 0
        return taken


def test_a_disk_that_is_full_while_labels_are_packed_loses_none(tmp_path):
    lines = b"".join(b'"layer %d"\n' % number for number in range(2000))
    half = lines.index(b"\n", len(lines) // 2) + 1
    (tmp_path / LABELS_FILE).write_bytes(lines[:half])
    packer, reader = LabelPacker(tmp_path), LabelFile(tmp_path)
    packer.pack()
    with (tmp_path / LABELS_FILE).open("ab") as file:
        file.write(lines[half:])
    packed, out = (tmp_path / PACKED_LABELS_FILE).read_bytes(), packer._out
    assert packed
    packer._out = FullDisk(tmp_path / PACKED_LABELS_FILE, "r+b")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        packer.pack()
    packer._out.close()
    assert (tmp_path / PACKED_LABELS_FILE).read_bytes() == packed
    assert read(reader, 0) == lines
    packer._out = out  # there is room again
    packer.pack()
    packer.close()
    assert (tmp_path / PACKED_LABELS_FILE).read_bytes()[: len(packed)] == packed
    later = LabelFile(tmp_path)
    later.refresh()
    assert (later.stop > reader.stop, read(later, 0)) == (True, lines)


def test_nothing_is_packed_where_lines_cannot_be_freed(tmp_path, monkeypatch):
    for module in (files, label_file):
        monkeypatch.setattr(module, "free_space", lambda *_: False)
    with FileIO(tmp_path / LABELS_FILE, "wb") as file:
        labels, packer = Labels(), LabelPacker(tmp_path)
        labels.append_to(file)
        for number in range(2000):
            labels.intern(f"name {number}")
        packer.pack()
        packer.close()
    assert not (tmp_path / PACKED_LABELS_FILE).exists()


def test_pieces_that_no_drain_writes_are_not_read(tmp_path):
    (tmp_path / LABELS_FILE).write_bytes(bytes(PAGE))
    packer = LabelPacker(tmp_path)
    packer._open()
    for _ in range(100):
        packer._write(b"\n")
    packer.close()
    assert read(LabelFile(tmp_path), 0) == bytes(PAGE)
    known = LabelFile(tmp_path)
    known.refresh()
    assert known.stop == 0
