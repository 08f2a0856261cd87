import numpy as np
import pytest
from shared import needs_shared
from unit.importers.made import recorded, requests_of
from unit.importers.naive_bfc import NaiveBFC
from unit.importers.naive_view import view_of

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind
from bfcviz.importers.tensorflow.reconstruct import (
    ABSENT,
    Reconstruction,
    RecordedRequests,
    Requests,
    reconstruct,
)

SEEDS = range(4)


def rebuilt(*pools: Requests) -> Reconstruction:
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
