from pathlib import Path

import numpy as np
import pytest
from shared import needs_shared
from unit.importers.made import recorded, requests_of
from unit.importers.naive_bfc import NaiveBFC
from unit.importers.naive_view import view_of
from unit.importers.profile_maker import PlaneMaker, memory

from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.event_makers import interleave
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.tensorflow.reconstruct import (
    ABSENT,
    REQUEST,
    PlacedChunks,
    Rebuilt,
    Reconstruction,
    RecordedRequestRows,
    RecordedRequests,
    compare,
    heaps_of,
    place_chunks,
    reconstruct,
    step_marks,
)

SEEDS = range(4)


def rebuilt(*pools: RecordedRequestRows) -> Reconstruction:
    requests = np.concatenate(pools)
    requests["pool"] = np.repeat(range(len(pools)), [len(pool) for pool in pools])
    requests = requests[np.argsort(requests["time"], kind="stable")]
    names = tuple(f"GPU_{number}_bfc" for number in range(len(pools)))
    return reconstruct(RecordedRequests(requests, names, Labels(), {1: "one"}, {}))


@needs_shared
@pytest.mark.parametrize(
    ("name", "events", "regions"), [("conv", 34_504, 6), ("lstm", 24_697, 2), ("transformer", 46_839, 3)]
)
def test_every_event_of_the_real_profiles_is_matched(name: str, events: int, regions: int) -> None:
    found = recorded(name)
    result = reconstruct(found)
    (check,) = result.checks
    assert (check["checked"], check["matched"], check["differing"]) == (events, events, 0)
    assert (check["method"], check["allow_growth"], check["frees_without_allocation"]) == (
        "replayed",
        True,
        0,
    )
    assert result.reasons == ()
    assert result.pools[0].limit == 4000 << 20
    kinds = np.bincount(result.events["kind"], minlength=9)
    assert kinds[Kind.ALLOCATE] + kinds[Kind.FREE] == events
    assert kinds[Kind.EXTEND] == regions
    assert kinds[Kind.OOM] == kinds[Kind.RELEASE] == 0
    requests = result.events[np.isin(result.events["kind"], (Kind.ALLOCATE, Kind.FREE))]
    for column in ("address", "size", "time"):
        assert np.array_equal(requests[column].astype(np.int64), found.requests[column].astype(np.int64))
    assert np.array_equal(requests["by"], found.requests["thread"])


@needs_shared
def test_events_of_a_real_profile_fit_each_other() -> None:
    found = recorded("lstm")
    found = RecordedRequests(found.requests[:6000], found.pools, found.labels, found.threads, {})
    result = reconstruct(found)
    view = view_of(result.events)
    assert view.bytes_in_use == found.requests["bytes_in_use"][-1]
    assert found.labels.name(int(result.events["label"][0])) == "step"


@pytest.mark.parametrize("allow_growth", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_heap_from_its_beginning_is_rebuilt_exactly(seed: int, *, allow_growth: bool) -> None:
    heap = NaiveBFC(300 << 20, allow_growth)
    result = rebuilt(requests_of(heap, 700, seed))
    assert result.checks[0]["differing"] == 0
    assert result.checks[0]["allow_growth"] is allow_growth
    assert result.pools[0].options["allow_growth"] is allow_growth
    assert result.reasons == ()
    view = view_of(result.events)
    assert view.in_use == heap.in_use
    assert {a: c.size for a, c in view.chunks.items() if c.allocated_by is None} == {
        address: size for size, address in heap.free
    }


def test_several_heaps_become_one_stream() -> None:
    heaps = [NaiveBFC(1 << 30), NaiveBFC(1 << 29)]
    result = rebuilt(*(requests_of(heap, 600, seed) for seed, heap in enumerate(heaps)))
    assert [check["differing"] for check in result.checks] == [0, 0]
    assert [pool.limit for pool in result.pools] == [1 << 30, 1 << 29]
    for pool, heap in enumerate(heaps):
        assert view_of(result.events, pool).in_use == heap.in_use


def test_one_wrong_number_is_one_difference() -> None:
    requests = requests_of(NaiveBFC(1 << 30), 1000, 1)
    requests["bytes_in_use"][500] += 256
    requests["fragmentation"][700] = 0.5
    result = rebuilt(requests)
    (check,) = result.checks
    assert (check["method"], check["checked"], check["differing"]) == ("replayed", 1000, 2)
    assert "2 of 1000 requests differ from the reconstruction; first request 500" in result.reasons[0]


def test_what_was_in_use_before_and_is_never_mentioned_is_said() -> None:
    requests = requests_of(NaiveBFC(1 << 30), 1000, 1)
    requests["bytes_in_use"] += 38_400
    result = rebuilt(requests)
    assert result.checks[0]["differing"] == 1000
    assert "37.5 KiB" in result.reasons[0]


def test_what_was_not_recorded_is_not_compared() -> None:
    requests = requests_of(NaiveBFC(1 << 30), 500, 2)
    requests["bytes_in_use"] = requests["bytes_available"] = ABSENT
    requests["fragmentation"] = -1
    result = rebuilt(requests)
    assert result.checks[0]["differing"] == 0
    assert result.pools[0].limit is None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_heap_from_its_middle_is_tiled_and_says_so(seed: int) -> None:
    heap = NaiveBFC(1 << 30)
    requests = requests_of(heap, 800, seed)[400:]
    result = rebuilt(requests)
    assert result.checks[0]["method"] == "tiled"
    assert "was in use before the profile began" in result.reasons[0]
    assert result.facts[0]["bytes_in_use"] == heap.bytes_in_use
    assert result.facts[0]["pool_bytes"] is None
    assert view_of(result.events).in_use.items() <= heap.in_use.items()


def test_a_lost_event_is_degraded_and_named() -> None:
    requests = requests_of(NaiveBFC(1 << 30), 1500, 3)
    first_free = int(np.argmax(requests["free"]))
    allocation = int(np.argmax(requests["address"] == requests["address"][first_free]))
    result = rebuilt(np.delete(requests, allocation))
    assert result.reasons
    assert result.checks[0]["frees_without_allocation"] == 1
    view_of(result.events)


@pytest.mark.parametrize("seed", SEEDS)
def test_nonsense_is_rebuilt_to_events_that_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    requests = requests_of(NaiveBFC(1 << 26), 300, seed)
    for column in ("address", "requested", "size", "bytes_in_use", "bytes_available"):
        at = rng.integers(0, len(requests), 8)
        requests[column][at] = rng.integers(1, 1 << 62, 8)
    result = rebuilt(requests)
    assert result.reasons
    view_of(result.events)


def log(*entries: tuple[Kind, int, int]) -> Events:
    """(kind, place of the request, other)"""
    events: Events = np.zeros(len(entries), EVENT)
    events["seq"] = np.arange(len(entries))
    for event, (kind, place, other) in zip(events, entries, strict=True):
        event["kind"], event["time"], event["other"] = kind, place, other
    return events


def steps(*entries: tuple[int, bool]) -> RecordedRequestRows:
    """(step, free)"""
    requests: RecordedRequestRows = np.zeros(len(entries), REQUEST)
    for row, (step, free) in zip(requests, entries, strict=True):
        row["step"], row["free"] = step, free
    return requests


def test_a_mark_stands_where_another_step_begins() -> None:
    requests = steps((0, False), (-7, False), (0, False), (9, True), (-7, False), (-1, False), (8, False))
    requests["thread"] = range(1, 8)
    marks = step_marks(requests, label=3)
    assert marks["time"].tolist() == [1, 6]
    assert marks["size"].tolist() == [(1 << 64) - 7, 8]
    assert marks["thread"].tolist() == marks["by"].tolist() == [2, 7]
    assert set(marks["label"]) == {3}
    assert set(marks["kind"]) == {Kind.MARK}
    assert set(marks["bin"]) == {-1}


def test_requests_without_steps_have_no_marks() -> None:
    assert len(step_marks(steps((0, False), (-1, False), (5, True)), 1)) == 0


def test_logs_are_woven_in_the_order_of_the_requests() -> None:
    first = log((Kind.EXTEND, 0, 0), (Kind.ALLOCATE, 0, 1), (Kind.ALLOCATE, 2, 2), (Kind.FREE, 4, 2))
    second = log((Kind.EXTEND, 1, 0), (Kind.ALLOCATE, 1, 1), (Kind.FREE, 3, 1))
    marks = step_marks(steps((0, False), (5, False), (5, False), (0, True), (0, True)), 9)
    woven = interleave([first, second], marks, np.array([0, 15, 25, 35, 45]))
    assert woven["seq"].tolist() == list(range(8))
    assert woven["time"].tolist() == [0, 0, 15, 15, 15, 25, 35, 45]
    assert woven["pool"].tolist() == [0, 0, 0, 1, 1, 0, 1, 0]
    assert [Kind(k).name for k in woven["kind"]] == [
        *("EXTEND", "ALLOCATE", "MARK", "EXTEND", "ALLOCATE", "ALLOCATE", "FREE", "FREE")
    ]
    # A FREE names the seq of its ALLOCATE in the stream; an ALLOCATE keeps its id.
    assert woven["other"].tolist() == [0, 1, 0, 0, 1, 2, 4, 5]


def rows(*entries: tuple[bool, int, int, int]) -> RecordedRequestRows:
    """(free, address, size, bytes_in_use)"""
    requests: RecordedRequestRows = np.zeros(len(entries), REQUEST)
    for row, (free, address, size, in_use) in zip(requests, entries, strict=True):
        row["free"], row["address"], row["size"], row["requested"] = free, address, size, size - 1
        row["bytes_in_use"] = in_use
    return requests


def kinds(tiled: PlacedChunks) -> list[str]:
    return [Kind(kind).name for kind in tiled.events["kind"]]


def test_chunks_from_before_are_there_from_the_start() -> None:
    tiled = place_chunks(
        rows((False, 4096, 256, 1256), (True, 4352, 512, 744), (True, 4096, 256, 488)), label_before=7
    )
    assert tiled is not None
    assert kinds(tiled) == ["EXTEND", "SPLIT", "ALLOCATE", "ALLOCATE", "FREE", "FREE", "MERGE"]
    assert (tiled.chunks_before, tiled.contradicting) == (1, 0)
    assert (tiled.bytes_not_seen, tiled.bytes_differing) == (488, 0)
    assert tiled.events["label"][2] == tiled.events["label"][4] == 7
    assert tiled.events["time"].tolist() == [0, 0, 0, 0, 1, 2, 2]
    view = view_of(tiled.events)
    assert view.regions == {4096: 768}
    assert view.in_use == {}


def test_memory_that_no_request_touches_is_in_no_region() -> None:
    tiled = place_chunks(rows((False, 8192, 256, ABSENT), (False, 4096, 256, ABSENT)), 0)
    assert tiled is not None
    assert view_of(tiled.events).regions == {4096: 256, 8192: 256}
    assert (tiled.bytes_not_seen, tiled.bytes_differing) == (0, 0)


def test_requests_that_contradict_are_counted_and_left_out() -> None:
    tiled = place_chunks(rows((False, 4096, 512, 512), (False, 4352, 256, 768), (False, 4096, 512, 1280)), 0)
    assert tiled is not None
    assert (tiled.contradicting, tiled.bytes_differing) == (2, 2)
    assert view_of(tiled.events).in_use == {4096: 512}


def test_events_name_the_threads_of_the_requests() -> None:
    requests = rows((False, 4096, 256, 256), (True, 4096, 256, 0), (True, 8192, 256, 0))
    requests["thread"] = (1, 2, 3)
    tiled = place_chunks(requests, 0)
    assert tiled is not None
    found = tiled.events[np.isin(tiled.events["kind"], (Kind.ALLOCATE, Kind.FREE))]
    assert found["thread"].tolist() == [0, 1, 1, 0]
    assert found["by"].tolist() == [0, 1, 2, 3]


def test_more_regions_than_a_trace_numbers_cannot_be_tiled() -> None:
    requests: RecordedRequestRows = np.zeros((1 << 16) + 1, REQUEST)
    requests["address"] = 4096 + np.arange(len(requests)) * 512
    requests["size"] = requests["requested"] = 256
    assert place_chunks(requests, 0) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", [0, 200, 600])
def test_from_any_point_of_a_run_the_known_chunks_are_right(seed: int, start: int) -> None:
    heap = NaiveBFC(1 << 30)
    whole = requests_of(heap, 800, seed)
    tiled = place_chunks(whole[start:], 0)
    assert tiled is not None
    assert (tiled.contradicting, tiled.bytes_differing) == (0, 0)
    view = view_of(tiled.events)
    assert view.in_use.items() <= heap.in_use.items()
    assert view.bytes_in_use + tiled.bytes_not_seen == heap.bytes_in_use
    if start == 0:
        assert view.in_use == heap.in_use


@needs_shared
def test_the_end_of_a_real_profile_can_be_tiled() -> None:
    requests = recorded("lstm").requests[20_000:]
    tiled = place_chunks(requests, 0)
    assert tiled is not None
    assert (tiled.contradicting, tiled.bytes_differing) == (0, 0)
    assert tiled.chunks_before > 0
    view = view_of(tiled.events)
    assert view.bytes_in_use + tiled.bytes_not_seen == requests["bytes_in_use"][-1]


# ------------------------------------------------------------------------------
# Profiles of several allocators: other names, the same name on several hosts, the same name in one process.

COUNT = 250


def run(number: int, name: str) -> tuple[NaiveBFC, list[tuple[str, int, dict[str, object]]]]:
    """A heap, and the events of a profile that recorded it; heaps take turns."""
    heap = NaiveBFC(1 << 30)
    events = []
    for place, row in enumerate(requests_of(heap, COUNT, number, address=(number + 1) << 40)):
        stats = memory(name, int(row["address"]), int(row["size"]), int(row["bytes_in_use"]))
        stats |= {"requested_bytes": int(row["requested"]), "fragmentation": float(row["fragmentation"])}
        stats["id"] = int(row["step"])
        kind = "MemoryDeallocation" if row["free"] else "MemoryAllocation"
        events.append((kind, place * 10_000 + number * 1_000, stats))
    return heap, events


def opened(tmp_path: Path, *planes: PlaneMaker) -> Trace:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(b"".join(plane.to_bytes() for plane in planes))
    return open_trace(path)


def check(trace: Trace, heaps: list[NaiveBFC], names: list[str]) -> None:
    """The trace holds exactly these heaps, each replayed without a difference."""
    assert [pool.name for pool in trace.origin.pools] == names
    assert trace.origin.reasons == ()
    checks = trace.origin.details["checks"]
    assert isinstance(checks, list)
    assert [(each["pool"], each["method"], each["checked"]) for each in checks] == [
        (name, "replayed", COUNT) for name in names
    ]
    events = trace.read(0, len(trace))
    for pool, heap in enumerate(heaps):
        assert view_of(events, pool).in_use == heap.in_use
    frees = events[events["kind"] == Kind.FREE]
    births = events[frees["other"]]
    assert (births["address"] == frees["address"]).all()
    assert (births["pool"] == frees["pool"]).all()


@pytest.mark.parametrize("count", [2, 5])
def test_heaps_with_other_names_in_one_process(tmp_path: Path, count: int) -> None:
    names = [f"GPU_{number}_bfc" for number in range(count)]
    runs = [run(number, name) for number, name in enumerate(names)]
    plane = PlaneMaker()
    for number, (_, events) in enumerate(runs):
        plane.line(f"thread {number}", events)
    trace = opened(tmp_path, plane)
    check(trace, [heap for heap, _ in runs], names)


def test_heaps_with_other_names_in_one_thread(tmp_path: Path) -> None:
    runs = [run(number, name) for number, name in enumerate(("GPU_0_bfc", "gpu_host_bfc"))]
    plane = PlaneMaker()
    plane.line("t", sorted((event for _, events in runs for event in events), key=lambda event: event[1]))
    check(opened(tmp_path, plane), [heap for heap, _ in runs], ["GPU_0_bfc", "gpu_host_bfc"])


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        (["/host:CPU", "/host:CPU"], ["/host:CPU GPU_0_bfc", "/host:CPU GPU_0_bfc (2)"]),
        (["host a", "host b"], ["host a GPU_0_bfc", "host b GPU_0_bfc"]),
    ],
)
def test_the_same_name_on_several_hosts(tmp_path: Path, hosts: list[str], names: list[str]) -> None:
    runs = [run(number, "GPU_0_bfc") for number in range(2)]
    planes = [PlaneMaker(host) for host in hosts]
    for plane, (_, events) in zip(planes, runs, strict=True):
        plane.line("t", events)
    check(opened(tmp_path, *planes), [heap for heap, _ in runs], names)


@pytest.mark.parametrize("count", [2, 3])
def test_the_same_name_in_one_process(tmp_path: Path, count: int) -> None:
    runs = [run(number, "gpu_host_bfc") for number in range(count)]
    other, events = run(count, "GPU_0_bfc")
    plane = PlaneMaker()
    plane.line("a", sorted((event for _, each in runs for event in each), key=lambda event: event[1]))
    plane.line("b", events)
    trace = opened(tmp_path, plane)
    names = ["gpu_host_bfc", *(f"gpu_host_bfc ({number})" for number in range(2, count + 1)), "GPU_0_bfc"]
    check(trace, [*(heap for heap, _ in runs), other], names)
    marks = trace.read(0, len(trace))
    marks = marks[marks["kind"] == Kind.MARK]
    assert set(marks["pool"].tolist()) <= set(range(count + 1))


def mixed(*heaps: RecordedRequestRows) -> RecordedRequestRows:
    """Requests of several heaps, which take turns."""
    requests = np.concatenate(heaps)
    return requests[np.argsort(requests["time"], kind="stable")]


def rebuilt_of_several_heaps(requests: RecordedRequestRows) -> Reconstruction:
    return reconstruct(RecordedRequests(requests, ("bfc",), Labels(), {1: "one"}, {}))


def test_a_heap_that_differs_for_another_reason_stays_one() -> None:
    requests = requests_of(NaiveBFC(1 << 30), 300, 1)
    requests["fragmentation"][200] = 0.75
    assert [part.tolist() for part in heaps_of(requests)] == [list(range(300))]
    result = rebuilt_of_several_heaps(requests)
    assert [(each["pool"], each["differing"]) for each in result.checks] == [("bfc", 1)]


def test_heaps_that_were_in_use_before_stay_one() -> None:
    first, second = (requests_of(NaiveBFC(1 << 30), 300, seed, (seed + 1) << 40) for seed in range(2))
    second["bytes_in_use"] += 4096
    assert heaps_of(mixed(first, second)) == []
    assert len(rebuilt_of_several_heaps(mixed(first, second)).pools) == 1


def requests_and_rebuilt(count: int = 4) -> tuple[RecordedRequestRows, Rebuilt]:
    """Requests that agree in everything: 1 KiB chunks, 3 of 7 KiB free in one piece of 2 KiB."""
    requests: RecordedRequestRows = np.zeros(count, REQUEST)
    requests["address"] = 4096 + np.arange(count) * 1024
    requests["size"] = 1024
    requests["bytes_in_use"] = 4096
    requests["fragmentation"] = 0.333333

    def full(value: int) -> np.ndarray:
        return np.full(count, value, np.uint64)

    rebuilt = Rebuilt(requests["address"].copy(), full(1024), full(4096), full(3072), full(2048))
    return requests, rebuilt


def test_equal_numbers_match_at_the_precision_of_the_file() -> None:
    checks = compare(*requests_and_rebuilt())
    assert (checks.checked, checks.matched, checks.differing, checks.first) == (4, 4, 0, None)


@pytest.mark.parametrize(
    ("column", "value", "name"),
    [
        ("address", 1, "addr"),
        ("size", 1, "allocation_bytes"),
        ("bytes_in_use", 1, "bytes_allocated"),
        ("fragmentation", 0.333334, "fragmentation"),
        ("fragmentation", float("nan"), "fragmentation"),
    ],
)
def test_every_recorded_number_is_compared(column: str, value: float, name: str) -> None:
    requests, rebuilt = requests_and_rebuilt()
    requests[column][2] = value
    checks = compare(requests, rebuilt)
    assert (checks.checked, checks.matched, checks.differing) == (4, 3, 1)
    assert {field for field, count in checks.fields.items() if count} == {name}
    assert checks.first is not None
    assert checks.first.startswith("request 2 (allocation of 0 bytes): recorded ")


def test_full_precision_is_asked_of_a_file_written_with_it() -> None:
    requests, rebuilt = requests_and_rebuilt()
    requests["fragmentation"] = 1 / 3
    assert compare(requests, rebuilt).differing == 0
    requests["fragmentation"][1] = 1 / 3 + 1e-9
    assert compare(requests, rebuilt).differing == 1


def test_nothing_free_is_nan_on_both_sides_and_absent_numbers_are_not_compared() -> None:
    requests, rebuilt = requests_and_rebuilt()
    rebuilt.free_bytes[0] = rebuilt.largest_free_chunk[0] = 0
    requests["fragmentation"][0] = float("nan")
    requests["fragmentation"][1] = -1
    requests["bytes_in_use"][2] = ABSENT
    assert compare(requests, rebuilt).differing == 0
    rebuilt.free_bytes[3] = 0
    assert compare(requests, rebuilt).fields["fragmentation"] == 1


def test_no_requests_are_no_difference() -> None:
    checks = compare(*requests_and_rebuilt(0))
    assert (checks.checked, checks.matched, checks.first) == (0, 0, None)
