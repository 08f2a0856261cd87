"""Folders after killed processes, power failures, partial copies and changes by other programs."""

import json
import os
from random import Random

import numpy as np
import pytest
from unit.events.conftest import COUNT
from unit.events.fabricate import fabricate, fabricate_labels

from bfcviz.errors import FileError
from bfcviz.events.origin import Status, ending_signal
from bfcviz.events.schema import EVENT
from bfcviz.events.storage import folder as folder_module
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import BLOCK, Trace


def rewrite(folder, events):
    (folder / "events.bin").write_bytes(events if isinstance(events, bytes) else events.tobytes())


def test_a_clean_one(folder):
    trace = Trace.open(folder)
    assert (trace.origin.status, trace.origin.reasons, len(trace)) == (Status.COMPLETE, (), COUNT)
    assert np.array_equal(trace.read(0, COUNT), fabricate(COUNT))
    assert trace.labels[3] == ("op3", {"shape": "[3,3]", "stack": "train.py:3\nloop.py:7"})
    assert trace.refresh() == 0


def test_one_that_broke_off(broken_off):
    trace = Trace.open(broken_off)
    assert trace.origin.status is Status.TRUNCATED
    assert trace.origin.reasons == (f"recording did not end cleanly; {COUNT} complete events read",)
    assert np.array_equal(trace.read(0, COUNT), fabricate(COUNT))


@pytest.mark.parametrize(
    ("way", "note", "status", "number"),
    [
        ("serve", f"15 {COUNT}\n", Status.COMPLETE, 15),
        ("serve", f"15 {COUNT - 1}\n", Status.COMPLETE, 15),  # one more was written before the process ended
        ("serve", f"15 {COUNT + 1}\n", Status.TRUNCATED, 15),  # the disk was full
        (
            "observe",
            f"15 {COUNT}\n",
            Status.TRUNCATED,
            15,
        ),  # what was not yet read of the framework is missing
        ("serve", "9\n", Status.TRUNCATED, 9),
        ("serve", f"15 {COUNT}", Status.TRUNCATED, None),  # cut off
        ("serve", "", Status.TRUNCATED, None),
        ("serve", "0 1\n", Status.TRUNCATED, None),
    ],
)
def test_one_whose_process_a_signal_ended(way, note, status, number, broken_off):
    origin = json.loads((broken_off / "origin.json").read_text())
    origin["details"]["way"] = way
    (broken_off / "origin.json").write_text(json.dumps(origin))
    (broken_off / "ended").write_text(note)
    trace = Trace.open(broken_off)
    assert (trace.origin.status, ending_signal(trace.origin.details)) == (status, number)
    assert trace.origin.has_ended_whole is (status is Status.COMPLETE)
    assert len(trace) == COUNT


def test_a_note_of_a_signal_stays_as_the_process_wrote_it(folder, broken_off):
    folder_module.note_signal(folder, 9)  # it ended before
    assert ending_signal(Trace.open(folder).origin.details) is None
    folder_module.note_signal(broken_off, 15)
    folder_module.note_signal(broken_off, 9)
    assert ending_signal(Trace.open(broken_off).origin.details) == 15
    folder_module.remove_files(broken_off)
    assert not [*broken_off.iterdir()]


@pytest.mark.parametrize("torn", [1, 40, 63])
def test_a_half_written_event_is_left_out(broken_off, torn):
    half = bytearray(fabricate(COUNT + 1)[COUNT].tobytes())
    half[torn:] = bytes(64 - torn)
    half[60] = 0  # kind is written last
    rewrite(broken_off, fabricate(COUNT).tobytes() + bytes(half) + bytes(640))
    trace = Trace.open(broken_off)
    left = len(bytes(half).rstrip(b"\0"))
    assert (len(trace), trace.origin.status) == (COUNT, Status.TRUNCATED)
    assert f"{COUNT} complete events read; {left} byte" in trace.origin.reasons[0]


def test_a_half_written_name_that_no_event_needs_is_no_damage_of_a_killed_recording(folder, broken_off):
    for path, status in ((broken_off, Status.TRUNCATED), (folder, Status.DEGRADED)):
        with (path / "labels.jsonl").open("ab") as file:
            file.write(b'{"id":')
        trace = Trace.open(path)
        assert (len(trace), trace.origin.status) == (COUNT, status)
        assert trace.labels[3].name == "op3"


@pytest.mark.parametrize("extra", [b"\xff", b"\xff" * 63, b"\0" * 64 + b"garbage", Random(1).randbytes(1000)])
def test_garbage_behind_the_end(folder, broken_off, extra):
    for path in (folder, broken_off):
        rewrite(path, fabricate(COUNT).tobytes() + extra)
        trace = Trace.open(path)
        assert (len(trace), trace.origin.status) == (COUNT, Status.TRUNCATED)
        assert f"{len(extra.rstrip(bytes(1)))} byte" in trace.origin.reasons[0]
        assert len(trace.read(0, COUNT)) == COUNT


@pytest.mark.parametrize("kept", [0, 1, 64, 64 * 500 + 13, 64 * COUNT - 1])
def test_a_file_cut_anywhere(folder, kept):
    os.truncate(folder / "events.bin", kept)
    trace = Trace.open(folder)
    assert (len(trace), trace.origin.status) == (kept // 64, Status.TRUNCATED)
    assert f"{COUNT} events were recorded, {kept // 64} can be read" in trace.origin.reasons[0]
    assert np.array_equal(trace.read(0, kept // 64), fabricate(COUNT)[: kept // 64])


def test_more_events_than_were_recorded(folder):
    rewrite(folder, fabricate(COUNT + 5))
    trace = Trace.open(folder)
    assert (len(trace), trace.origin.status) == (COUNT + 5, Status.TRUNCATED)


@pytest.mark.parametrize("hole", [0, 3, COUNT - 1])
@pytest.mark.parametrize("what", ["empty", "skipped", "repeated"])
def test_a_short_recording_with_a_hole_ends_before_it(broken_off, hole, what):
    events = fabricate(COUNT)
    if what == "empty":
        events[hole] = np.zeros((), EVENT)
    else:
        events["seq"][hole:] += np.uint64(1) if what == "skipped" else np.uint64(1 << 63)
    rewrite(broken_off, events)
    trace = Trace.open(broken_off)
    assert (len(trace), trace.origin.status) == (hole, Status.TRUNCATED)
    assert len(trace.read(0, hole)) == hole


def test_a_hole_far_from_the_end_is_found_when_read_or_asked_for(folder):
    count, hole = BLOCK + 5000, BLOCK + 17
    events = fabricate(count)
    events["seq"][hole] = 0
    rewrite(folder, events)
    trace = Trace.open(folder)
    assert len(trace.read(0, hole)) == hole
    with pytest.raises(FileError, match=rf"event {hole}: has seq 0; .*opens the {hole} events before it"):
        trace.read(0, count)
    checked = Trace.open(folder, check=True)
    assert (len(checked), checked.origin.status) == (hole, Status.DEGRADED)
    assert any(f"event {hole} has seq 0" in reason for reason in checked.origin.reasons)


def lines(folder):
    return (folder / "labels.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("change", "known", "why"),
    [
        (lambda rows: [*rows[:9], rows[9][:-5]], 10, "line 10 is cut off"),
        (lambda rows: [*rows[:9], rows[9][:-1]], 10, "line 10 is cut off"),
        (lambda rows: [*rows[:9], b"[" * 50_000 + b"\n"], 10, "line 10 is nested too deeply"),
        (lambda rows: [*rows[:9], b'{"id":10,"name":5}\n'], 10, "line 10 has a name that is not text"),
        (lambda rows: [*rows[:9], b'{"id":4294967295,"name":"x"}\n'], 10, "line 10 is not label 10"),
        (lambda rows: [*rows[:9], b"\0" * 500], 10, "line 10 is cut off"),
        (lambda _: [], 1, None),
    ],
)
def test_damaged_labels_cost_names_only(folder, change, known, why):
    (folder / "labels.jsonl").write_bytes(b"".join(change(lines(folder))))
    trace = Trace.open(folder)
    assert len(trace.labels) == known
    events = trace.read(0, COUNT)
    assert events["label"].max() < known
    assert trace.origin.status is Status.DEGRADED
    if why is not None:
        assert f"labels.jsonl {why}" in trace.origin.reasons[0]
    assert "label" in trace.origin.reasons[-1]
    assert len(trace.to_pandas()) == COUNT


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda rows: [*rows[:9], *rows[10:]], {10}),
        (lambda rows: [*rows[:9], *rows[12:]], {10, 11, 12}),
        (lambda rows: [*rows[:9], b"\xff\xfe{}\n", *rows[10:]], {10}),
        (lambda rows: [*rows[:9], b"\n", *rows[10:]], {10}),
        (lambda rows: [*rows[:9], b'{"id":0,"name":"x"}\n', *rows[10:]], {10}),
        (lambda rows: [*rows[:9], rows[9][:-9], *rows[10:]], {10}),  # cut off, and the next one behind it
        (lambda rows: [*rows[:9], rows[9][:-9], *rows[9:]], set()),  # cut off, and written again
        (lambda rows: [*rows[:10], *rows[9:]], set()),  # twice
        (lambda rows: [*rows[:9], b"\0" * sum(map(len, rows[9:12])), *rows[12:]], {10, 11, 12}),  # truncated
    ],
)
def test_a_damaged_line_costs_no_other_name(folder, change, missing):
    whole = Trace.open(folder).labels
    (folder / "labels.jsonl").write_bytes(b"".join(change(lines(folder))))
    trace = Trace.open(folder)
    assert len(trace.labels) == len(whole)
    known = [number for number in range(1, len(whole)) if trace.labels[number] == whole[number]]
    assert {*range(1, len(whole))} - {*known} == missing
    assert {trace.labels.name(number) for number in missing} <= {""}
    assert trace.origin.status is (Status.DEGRADED if missing else Status.COMPLETE)
    assert f"{len(missing)} name" in "; ".join(trace.origin.reasons) or not missing
    assert np.array_equal(trace.read(0, COUNT), fabricate(COUNT))


def test_a_line_cut_off_at_first_is_taken_when_it_is_whole(tmp_path):
    with Recording(tmp_path / "run", labels=fabricate_labels()) as recording:
        path, whole = recording.folder / "labels.jsonl", (recording.folder / "labels.jsonl").read_bytes()
        path.write_bytes(whole[:-30])
        trace = recording.trace()
        before = len(trace.labels)
        path.write_bytes(whole)
        trace.refresh()
        assert trace.labels.names == recording.labels.names
        assert before < len(trace.labels)
        assert trace.origin.reasons == ()


def test_no_labels_at_all(folder):
    (folder / "labels.jsonl").unlink()
    trace = Trace.open(folder)
    assert trace.origin.status is Status.DEGRADED
    assert "labels.jsonl cannot be opened" in trace.origin.reasons[0]
    assert trace.read(0, COUNT)["label"].max() == 0


def test_labels_without_end(folder, monkeypatch):
    monkeypatch.setattr(folder_module, "MAX_LABELS_BYTES", 10_000)
    trace = Trace.open(folder)
    assert trace.origin.status is Status.DEGRADED
    assert "labels.jsonl" in trace.origin.reasons[0]


def test_no_events_at_all(broken_off):
    (broken_off / "events.bin").unlink()
    trace = Trace.open(broken_off)
    assert (len(trace), trace.origin.status) == (0, Status.TRUNCATED)


@pytest.mark.parametrize("name", ["origin.json", "events.bin", "labels.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.timeout(20)
def test_pipes_and_folders_in_place_of_files_do_not_hang(folder, name, make):
    (folder / name).unlink()
    make(folder / name)
    if name == "labels.jsonl":
        assert Trace.open(folder).origin.status is Status.DEGRADED
    else:
        with pytest.raises(FileError, match=name):
            Trace.open(folder)


def test_a_file_of_absurd_size(broken_off):
    os.truncate(broken_off / "events.bin", 1 << 42)  # sparse: no disk holds it
    trace = Trace.open(broken_off)
    assert (len(trace), trace.origin.status) == (COUNT, Status.TRUNCATED)
