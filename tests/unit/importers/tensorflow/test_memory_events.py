import re

import numpy as np
import pytest
from shared import needs_shared
from unit.importers.made import recorded
from unit.importers.profile_maker import PlaneMaker, chunk, memory, number

from bfcviz.errors import FileError
from bfcviz.importers.protobuf_wire import Wire
from bfcviz.importers.tensorflow import profile
from bfcviz.importers.tensorflow.profile import collect_requests, read_space
from bfcviz.importers.tensorflow.reconstruct import ABSENT, RecordedRequests

ALLOCATE, FREE = "MemoryAllocation", "MemoryDeallocation"


def read(*planes: PlaneMaker) -> RecordedRequests:
    data = b"".join(plane.to_bytes() for plane in planes)
    return collect_requests(read_space(Wire("host.xplane.pb", data)), "host.xplane.pb")


@needs_shared
@pytest.mark.parametrize(("name", "events", "labels"), [("conv", 34_504, 722), ("lstm", 24_697, 550)])
def test_every_memory_event_of_a_real_profile_is_found(name: str, events: int, labels: int) -> None:
    found = recorded(name)
    assert len(found.requests) == events
    assert len(found.labels) == labels
    assert found.pools == ("bfc_cpu_allocator_for_gpu",)
    assert found.threads[1] == "python"
    assert found.left_out == {}
    assert set(found.requests["thread"]) == {1, 2}
    assert found.requests["time"][0] == 0
    assert np.all(np.diff(found.requests["time"]) >= 0)
    first = found.labels[int(found.requests["label"][0])]
    assert first == ("Cast", {"data_type": "int64", "shape": "[]", "region_type": "output"})


def test_events_of_all_threads_are_in_order_of_time() -> None:
    plane = PlaneMaker()
    now = 1_763_700_000_000_000_000  # ns since 1970: in ps it would not fit 64 bits
    plane.line(
        "one",
        [(ALLOCATE, 5_000, memory("a", 256, 256, 1)), (ALLOCATE, 9_001, memory("a", 1024, 256, 4))],
        now,
    )
    plane.line(
        "two", [(ALLOCATE, 2_000, memory("a", 512, 256, 2)), (FREE, 3_000, memory("a", 512, 256, 3))], now + 4
    )
    plane.line("one", [(FREE, 9_002, memory("a", 1024, 256, 5))], now)
    found = read(plane)
    assert found.requests["bytes_in_use"].tolist() == [1, 2, 3, 4, 5]
    assert found.requests["time"].tolist() == [0, 1, 2, 4, 4]
    assert found.requests["thread"].tolist() == [1, 2, 2, 1, 1]
    assert found.requests["free"].tolist() == [False, False, True, False, True]
    assert found.threads == {1: "one", 2: "two"}


def test_values_are_read_whatever_type_the_profiler_made_of_their_text() -> None:
    plane = PlaneMaker()
    stats = memory(
        *("a", 1 << 62, 256, 256),
        tf_op=17,
        shape=b"[2,\xff3]",
        fragmentation=b"nan",
        requested_bytes=b"200",
        id=-5,
        data_type=b"?",
    )
    plane.line("t", [(ALLOCATE, 0, stats), (ALLOCATE, 1, memory("a", 512, 256, 512, fragmentation=0.25))])
    row, other = read(plane).requests
    assert row["address"] == 1 << 62
    assert (row["requested"], row["step"]) == (200, -5)
    assert np.isnan(row["fragmentation"])
    assert other["fragmentation"] == 0.25
    label = read(plane).labels[int(row["label"])]
    assert label == ("17", {"shape": "[2,�3]"})


def test_what_a_source_does_not_say_is_absent() -> None:
    plane = PlaneMaker()
    stats = memory("a", 512, 256, 256)
    del stats["bytes_allocated"], stats["fragmentation"], stats["id"]
    plane.line("t", [(ALLOCATE, 0, stats)])
    (row,) = read(plane).requests
    assert row["bytes_in_use"] == row["step"] == ABSENT
    assert row["fragmentation"] < 0


def test_each_allocator_of_each_host_is_a_pool() -> None:
    planes = [PlaneMaker("host 0"), PlaneMaker("host 1"), PlaneMaker("host 2")]
    for plane, names in zip(planes, (("GPU_0", "GPU_1"), ("GPU_0",), ()), strict=True):
        plane.line("t", [(ALLOCATE, i, memory(name, 512, 256, 256)) for i, name in enumerate(names)])
    found = read(*planes)
    assert found.pools == ("host 0 GPU_0", "host 1 GPU_0", "GPU_1")
    assert found.requests["pool"].tolist() == [0, 1, 2]


def test_what_cannot_be_used_is_counted() -> None:
    plane = PlaneMaker()
    foreign = memory("cpu", 512, 256, 256)
    del foreign["bytes_available"], foreign["fragmentation"]
    plane.line(
        "t",
        [
            ("OtherEvent", 0, {}),
            (ALLOCATE, 1, foreign),
            (ALLOCATE, 2, memory("a", 0, 256, 256)),
            (ALLOCATE, 3, memory("", 512, 256, 256)),
            (ALLOCATE, 4, memory("a", 512, 0, 256)),
            (ALLOCATE, 5, memory("a", 512, 256, 256, requested_bytes=0)),
            (FREE, 6, memory("a", 512, 256, 256, requested_bytes=0)),
            (FREE, 7, memory("a", (1 << 63) - 512, 1024, 256)),
            (FREE, 8, memory("a", (1 << 64) - 512, 256, 256)),
        ],
    )
    found = read(plane)
    assert len(found.requests) == 1
    assert found.left_out == {
        "events of allocator 'cpu', which is not a BFC heap": 1,
        "memory events without an allocator or an address": 3,
        "memory events with impossible addresses": 1,
        "memory events without a size": 2,
    }


def test_a_profile_without_memory_events_says_how_to_record_them() -> None:
    plane = PlaneMaker()
    plane.line("t", [("OtherEvent", 0, {})])
    with pytest.raises(FileError, match=re.escape("ProfilerOptions(host_tracer_level=2)")):
        read(plane)
    with pytest.raises(FileError, match="BFC heap"):
        read()


def test_corrupt_lines_and_times_are_one_error_with_the_place() -> None:
    plane = PlaneMaker()
    plane.line("t", [(ALLOCATE, 0, memory("a", 512, 256, 256))], timestamp_ns=1 << 62)
    with pytest.raises(FileError, match="line begins at"):
        read(plane)
    plane = PlaneMaker()
    plane.line("t", [(ALLOCATE, 0, memory("a", 512, 256, 256))])
    plane.lines += chunk(3, b"\x22\x7f")  # an event longer than its line
    with pytest.raises(FileError, match=r"byte \d+: .*'/host:CPU'"):
        read(plane)


def test_a_corrupt_stat_is_an_error_in_a_memory_event_only() -> None:
    for name in (ALLOCATE, "OtherEvent"):
        plane = PlaneMaker()
        plane.line("t", [(ALLOCATE, 0, memory("a", 512, 256, 256)), ("OtherEvent", 1, {})])
        plane.lines += chunk(3, chunk(4, number(1, plane.events[name]) + chunk(4, b"\xff")))
        if name == ALLOCATE:
            with pytest.raises(FileError, match=r"byte \d+: .*'/host:CPU'"):
                read(plane)
        else:
            assert len(read(plane).requests) == 1


def test_a_corrupt_stat_is_named_by_the_piece_that_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_PIECE", 1)  # bytes: a piece is an event
    plane = PlaneMaker()
    plane.line("t", [(ALLOCATE, 0, memory("a", 512, 256, 256))])
    good = plane.event(ALLOCATE, 1, memory("a", 1024, 256, 512))
    corrupt = chunk(4, number(1, plane.events[ALLOCATE]) + chunk(4, b"\xff"))
    plane.lines += chunk(3, good + corrupt)
    with pytest.raises(FileError, match=f"byte {plane.to_bytes().index(corrupt)}: "):
        read(plane)


def test_more_stats_than_are_remembered_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_MAX_KNOWN", 1000)
    plane = PlaneMaker()
    count = 2 * profile._MAX_KNOWN
    plane.line(
        "t", [(ALLOCATE, at, memory("a", 256 * (at % count + 1), 256, at)) for at in range(count + 100)]
    )
    found = read(plane).requests
    assert found["address"].tolist() == [256 * (at % count + 1) for at in range(count + 100)]


def test_more_pools_than_a_trace_holds_are_refused() -> None:
    plane = PlaneMaker()
    plane.line("t", [(ALLOCATE, i, memory(f"heap {i}", 512, 256, 256)) for i in range(256)])
    with pytest.raises(FileError, match=r"256 .*255"):
        read(plane)


def test_a_cut_profile_keeps_its_complete_planes() -> None:
    planes = [PlaneMaker(), PlaneMaker("other")]
    for plane in planes:
        plane.line("t", [(ALLOCATE, 0, memory("a", 512, 256, 256))])
    first, second = (plane.to_bytes() for plane in planes)
    for keep in range(1, len(second)):
        space = read_space(Wire("f", first + second[:keep]))
        assert space.cut is not None
        assert f"cut off at byte {len(first) + keep}: " in space.cut
        assert len(collect_requests(space, "f").requests) in (1, 2)
    for keep in range(1, len(first) - 60):
        with pytest.raises(FileError, match=f"byte {keep}"):
            collect_requests(read_space(Wire("f", first[:keep])), "f")
