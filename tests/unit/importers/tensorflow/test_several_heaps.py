"""Profiles of several allocators: other names, the same name on several hosts, the same name in one process."""

from pathlib import Path

import numpy as np
import pytest
from unit.importers.made import requests_of
from unit.importers.naive_bfc import NaiveBFC
from unit.importers.naive_view import view_of
from unit.importers.profile_maker import PlaneMaker, memory

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.tensorflow.reconstruct import (
    Reconstruction,
    RecordedRequests,
    Requests,
    heaps_of,
    reconstruct,
)

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


def mixed(*heaps: Requests) -> Requests:
    """Requests of several heaps, which take turns."""
    requests = np.concatenate(heaps)
    return requests[np.argsort(requests["time"], kind="stable")]


def rebuilt(requests: Requests) -> Reconstruction:
    return reconstruct(RecordedRequests(requests, ("bfc",), Labels(), {1: "one"}, {}))


def test_a_heap_that_differs_for_another_reason_stays_one() -> None:
    requests = requests_of(NaiveBFC(1 << 30), 300, 1)
    requests["fragmentation"][200] = 0.75
    assert [part.tolist() for part in heaps_of(requests)] == [list(range(300))]
    result = rebuilt(requests)
    assert [(each["pool"], each["differing"]) for each in result.checks] == [("bfc", 1)]


def test_heaps_that_were_in_use_before_stay_one() -> None:
    first, second = (requests_of(NaiveBFC(1 << 30), 300, seed, (seed + 1) << 40) for seed in range(2))
    second["bytes_in_use"] += 4096
    assert heaps_of(mixed(first, second)) == []
    assert len(rebuilt(mixed(first, second)).pools) == 1
