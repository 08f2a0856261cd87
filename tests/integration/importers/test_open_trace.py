import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from shared import needs_shared, write_anew
from unit.importers.made import REAL, profile, recorded

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.events.trace import Status, Trace
from bfcviz.importers.open_trace import open_trace

EVENTS = {"conv": 34_504, "lstm": 24_697, "transformer": 46_839}


def opened(path: Path, data: bytes) -> Trace:
    write_anew(path, data)
    return open_trace(path)


@needs_shared
@pytest.mark.parametrize("name", EVENTS)
def test_real_profiles_open_complete_and_checked(name: str) -> None:
    trace = open_trace(REAL / f"{name}.xplane.pb.gz")
    assert (trace.origin.format, trace.origin.source) == ("xplane", f"{name}.xplane.pb.gz")
    assert (trace.origin.status, trace.origin.reasons) == (Status.COMPLETE, ())
    (check,) = trace.origin.details["checks"]  # type: ignore[misc]
    assert (check["checked"], check["matched"], check["differing"]) == (EVENTS[name], EVENTS[name], 0)
    (allocator,) = info(trace)["allocators"]  # type: ignore[misc]
    last = recorded(name).requests[-1]
    assert allocator["bytes_in_use"] == last["bytes_in_use"]
    assert allocator["peak_bytes_in_use"] == last["peak_bytes_in_use"]
    assert allocator["bytes_limit"] == last["bytes_in_use"] + last["bytes_available"]


def test_plain_and_packed_profiles_are_the_same_trace_also_once_saved(tmp_path: Path) -> None:
    plain = opened(tmp_path / "a.xplane.pb", profile())
    packed = opened(tmp_path / "b", gzip.compress(profile()))
    saved = open_trace(plain.save(tmp_path / "c.parquet"))
    assert plain.origin.status == Status.COMPLETE
    assert plain.origin.details["threads"] == {"1": "main", "2": "worker"}
    for trace in (packed, saved):
        assert np.array_equal(trace.read(0, len(trace)), plain.read(0, len(plain)))
        assert trace.origin.details == plain.origin.details
        assert trace.labels.to_json() == plain.labels.to_json()


def test_a_cut_profile_is_an_error_or_truncated_with_all_that_is_left(tmp_path: Path) -> None:
    data = profile()
    whole = opened(tmp_path / "whole", data)
    last = data.index(b"Task Environment") - 4  # where the second plane begins
    names = data.index(b"MemoryAllocation")  # without the names that come last, events mean nothing
    for keep in [1, 2, 3, *range(4, names, 997)]:
        with pytest.raises(FileError):
            opened(tmp_path / "cut", data[:keep])
    for keep in range(names, last, 7):
        try:
            trace = opened(tmp_path / "cut", data[:keep])
        except FileError:
            continue
        assert trace.origin.status in (Status.TRUNCATED, Status.DEGRADED)
        assert f"cut off at byte {keep}" in trace.origin.reasons[0]
        assert trace.origin.lacks_end
    for keep in range(last + 1, len(data)):
        trace = opened(tmp_path / "cut", data[:keep])
        assert trace.origin.status == Status.TRUNCATED
        assert f"cut off at byte {keep}" in trace.origin.reasons[0]
        assert trace.origin.lacks_end
        assert np.array_equal(trace.read(0, len(trace)), whole.read(0, len(whole)))


def test_a_cut_gzip_file_is_truncated_where_all_events_are_there(tmp_path: Path) -> None:
    packed = gzip.compress(profile())
    trace = opened(tmp_path / "cut", packed[:-4])
    assert trace.origin.status == Status.TRUNCATED
    assert f"the gzip file is cut off at byte {len(packed) - 4}" in trace.origin.reasons
    with pytest.raises(FileError, match="cut off"):
        opened(tmp_path / "cut", packed[: len(packed) // 2])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_changed_bytes_are_one_error_or_a_trace_that_holds_together(
    tmp_path: Path, data: st.DataObject
) -> None:
    raw = bytearray(profile(30))
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        raw[place] ^= data.draw(st.integers(1, 255))
    try:
        trace = opened(tmp_path / "changed", bytes(raw))
    except FileError:
        return
    json.dumps(info(trace), allow_nan=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    head=st.sampled_from([b"", b"\n", b"\x1f\x8b\x08\0", b"PAR1", profile(4)[:40]]),
    tail=st.binary(max_size=300),
)
@example(head=b"\n", tail=b"\x01 ")  # a memory dump's name, and nothing else
@example(head=b"\n", tail=b"\x01 \x12\x05\x08")  # the same, cut off in its first bin
def test_any_bytes_are_one_clear_error(tmp_path: Path, head: bytes, tail: bytes) -> None:
    with pytest.raises(FileError) as caught:
        opened(tmp_path / "bytes", head + tail)
    assert str(tmp_path / "bytes") in str(caught.value)


@needs_shared
@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_real_profile_is_one_error_or_says_what_is_wrong(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    raw = bytearray(gzip.decompress((REAL / "lstm.xplane.pb.gz").read_bytes()))
    if seed % 2:
        del raw[rng.randrange(len(raw)) :]
    for _ in range(seed):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    try:
        trace = opened(tmp_path / "damaged.xplane.pb", bytes(raw))
    except FileError:
        assert seed
        return
    assert trace.origin.status == Status.COMPLETE or trace.origin.reasons
    json.dumps(info(trace), allow_nan=False)


def test_folders_and_parquet_files_that_are_no_trace_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "events.bin").write_bytes(b"junk")
    with pytest.raises(FileError):
        open_trace(tmp_path)
    with pytest.raises(FileError):
        opened(tmp_path / "a.parquet", b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(FileError, match="no such file"):
        open_trace(str(tmp_path / "missing"))


def test_a_trace_knows_where_it_was_opened_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.xplane.pb").write_bytes(profile())
    monkeypatch.chdir(tmp_path)
    trace = open_trace("run.xplane.pb")
    assert trace.path == tmp_path / "run.xplane.pb"
    trace.save("run.parquet")
    assert Trace.open("run.parquet").path == tmp_path / "run.parquet"
    assert Trace.from_events(trace.read(0, 0), trace.labels, trace.origin).path is None


def test_a_file_that_does_not_fit_in_memory_is_refused(tmp_path, monkeypatch):
    def fail(_path):
        raise MemoryError

    path = tmp_path / "run.xplane.pb"
    path.write_bytes(profile())
    monkeypatch.setattr("bfcviz.importers.tensorflow.profile.read_content", fail)
    with pytest.raises(FileError, match="memory") as caught:
        open_trace(path)
    assert caught.value.path == str(path)
