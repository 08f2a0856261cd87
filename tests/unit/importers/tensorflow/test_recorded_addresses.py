import numpy as np
import pytest
from shared import needs_shared
from unit.importers.made import recorded, requests_of
from unit.importers.naive_bfc import NaiveBFC
from unit.importers.naive_view import view_of

from bfcviz.events.schema import Kind
from bfcviz.importers.tensorflow.reconstruct import ABSENT, REQUEST, PlacedChunks, Requests, place_chunks


def rows(*entries: tuple[bool, int, int, int]) -> Requests:
    """(free, address, size, bytes_in_use)"""
    requests: Requests = np.zeros(len(entries), REQUEST)
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
    requests: Requests = np.zeros((1 << 16) + 1, REQUEST)
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
