"""AlertAllocator: reports a crossed threshold once, at once, in the thread that crossed it."""

import threading

import pytest
from heaps import KIB, MIB, new_heap

from bfcviz.devices.wrappers import MEASURES, AlertAllocator, TrackingAllocator
from bfcviz.thresholds import Threshold


def alerting(*thresholds, limit=MIB, **options):
    heard = []
    return AlertAllocator(new_heap(limit, **options), thresholds, heard.append), heard


def test_going_past_is_told_once_and_again_after_coming_back():
    alert, heard = alerting(Threshold("bytes_in_use", above=4 * KIB))
    blocks = [alert.allocate(KIB, label=f"layer {n}") for n in range(6)]
    (crossing,) = heard
    assert crossing.value == 5 * KIB
    assert str(crossing) == "bfc: bytes_in_use above 4.0 KiB: 5.0 KiB, after 1024 bytes for layer 4"
    alert.free(blocks.pop())
    alert.free(blocks.pop())
    assert len(heard) == 1
    alert.allocate(KIB)
    assert len(heard) == 2


def test_falling_below_is_told_by_the_free_or_request_that_did_it():
    alert, heard = alerting(
        Threshold("largest_free_chunk", below=512 * KIB), Threshold("chunks_in_use", below=1)
    )
    address = alert.allocate(600 * KIB)
    assert [crossing.threshold.measure for crossing in heard] == ["largest_free_chunk"]
    alert.free(address)
    assert [crossing.threshold.measure for crossing in heard] == ["largest_free_chunk", "chunks_in_use"]
    assert f"the free of {address:#x}" in str(heard[1])


def test_fragmentation_is_a_share():
    alert, heard = alerting(
        Threshold("external_fragmentation", above=0.4), Threshold("internal_fragmentation", above=0.5),
        Threshold("share_of_limit", above=0.9), limit=16 * KIB,
    )  # fmt: skip
    blocks = [alert.allocate(4 * KIB) for _ in range(4)]
    assert [str(crossing.threshold) for crossing in heard] == ["share_of_limit above 90%"]
    alert.free(blocks[0])
    alert.free(blocks[2])
    assert heard[1].value == 0.5
    assert "external_fragmentation above 40%: 50%" in str(heard[1])
    alert.free(blocks[1])
    alert.free(blocks[3])
    alert.allocate(1)
    assert heard[-1].threshold.measure == "internal_fragmentation"


def test_there_is_a_unit_for_every_measure():
    assert list(Threshold.UNITS) == list(MEASURES)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_can_be_told_of_an_empty_heap(measure):
    passed = {"below": 1} if Threshold.UNITS[measure] == "share" else {"above": -1}
    alert, heard = alerting(Threshold(measure, **passed))
    alert.free(0)
    assert heard == []  # nothing was freed
    alert.free(alert.allocate(1))
    assert len(heard) == 1
    assert measure in str(heard[0])


def test_what_the_call_raises_does_not_lose_the_memory():
    def fail(crossing):
        raise RuntimeError("no such window")

    tracker = TrackingAllocator(new_heap())
    alert = AlertAllocator(tracker, [Threshold("bytes_in_use", above=0)], fail)
    address = alert.allocate(100)
    assert [chunk.address for chunk in tracker.in_use()] == [address]
    assert str(alert.error) == "no such window"


def test_the_call_may_put_things_right_itself():
    kept, calls = [], []

    def free_all(crossing):
        calls.append(crossing)
        while kept:
            alert.free(kept.pop())
        alert.free(alert.allocate(4 * KIB))  # crosses the threshold again, but in its own call

    alert = AlertAllocator(new_heap(), [Threshold("bytes_in_use", above=2 * KIB)], free_all)
    for _ in range(20):
        address = alert.allocate(512)
        kept.append(address)
    assert alert.error is None
    assert alert.stats().peak_bytes_in_use <= 2 * KIB + 512 + 4 * KIB
    assert len(calls) == 4  # at the chunks 5, 9, 13 and 17


def test_what_the_call_has_put_right_can_be_crossed_again_at_once():
    kept, calls = [], []

    def free_all(crossing):
        calls.append(crossing)
        while kept:
            alert.free(kept.pop())

    alert = AlertAllocator(new_heap(), [Threshold("bytes_in_use", above=2 * KIB)], free_all)
    kept.append(alert.allocate(2 * KIB))
    last = alert.allocate(KIB)
    kept.append(alert.allocate(2 * KIB))
    assert len(calls) == 2
    alert.free(last)


def test_threads_together_tell_a_crossing_once():
    alert, heard = alerting(Threshold("chunks_in_use", above=50))
    threads = [threading.Thread(target=lambda: [alert.allocate(1) for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 1
