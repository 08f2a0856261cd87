"""AllocatorWrapper: forwards every call to the allocator inside, at any depth."""

import ctypes
import gc
import threading
import time

import numpy as np
import pytest
from contracts.allocators import WRAPPERS, heap_of, wrapped
from heaps import KIB, MIB, new_heap
from hypothesis import given
from hypothesis import strategies as st
from threads import in_thread, wait_until

from bfcviz.allocator.interface import AllocationAttributes, Stats, bytes_of
from bfcviz.allocator.sub_allocators import HostSubAllocator
from bfcviz.devices.allocator_wrappers import (
    FREED,
    FRESH,
    MEASURES,
    AlertAllocator,
    AllocatorWrapper,
    GuardAllocator,
    LimitAllocator,
    NaNFillAllocator,
    RetryAllocator,
    TrackingAllocator,
)
from bfcviz.devices.memory_access import SimulatedAccess
from bfcviz.errors import (
    AllocatorError,
    BfcvizError,
    BrokenInvariant,
    DoubleFree,
    ForeignPointer,
    GuardOverrun,
    InteriorPointer,
    InvalidRequest,
    OutOfMemory,
)
from bfcviz.events.log import Reader
from bfcviz.events.schema import Kind
from bfcviz.thresholds import Threshold


def test_layers_are_told_from_the_outside_in():
    heap = new_heap()
    inner = TrackingAllocator(heap)
    outer = AllocatorWrapper(inner)
    assert outer.layers == (outer, inner, heap)
    assert outer.base is heap
    assert repr(outer).startswith("AllocatorWrapper(TrackingAllocator(<")


def test_the_heap_is_asked_for_everything():
    heap = new_heap(MIB, timestamps=True)
    outer = AllocatorWrapper(AllocatorWrapper(heap))
    assert outer.name == heap.name
    addresses = [outer.allocate(1000), outer.allocate_elements("f8", 3)]
    assert heap.stats() == outer.stats()
    for ask in ("requested_size", "allocated_size", "allocation_id"):
        assert [getattr(outer, ask)(a) for a in addresses] == [getattr(heap, ask)(a) for a in addresses]
    for address in addresses:
        outer.free(address)
    assert heap.internals().held_chunks == 2
    outer.set_safe_frontier(3)
    outer.allocate(1)  # merges what is safe
    assert heap.internals().held_chunks == 0
    outer.clear_stats()
    assert heap.stats().num_allocs == 0


def test_the_end_of_a_with_closes_the_heap():
    with AllocatorWrapper(new_heap()) as outer:
        outer.allocate(1)
    assert outer.base.stats().pool_bytes == 0


@pytest.mark.parametrize("inner", [None, 5, object(), TrackingAllocator])
def test_only_allocators_are_wrapped(inner):
    with pytest.raises(TypeError, match="not an allocator"):
        AllocatorWrapper(inner)


# ------------------------------------------------------------------------------
# An allocator that tracks nothing, as one around `malloc` would: the minimum of the protocol.


BASE = 0x10000


class PlainAllocator:
    """Allocates consecutive addresses and accepts every free."""

    name = "plain"

    def __init__(self, *, empties=False):
        self.empties = empties
        self.top = BASE
        self.live = set()

    def allocate(self, num_bytes, alignment=256, label=None, *, attributes=None):
        if num_bytes == 0 and not self.empties:
            return 0
        address = -(-self.top // alignment) * alignment
        self.top = address + max(num_bytes, 1)
        self.live.add(address)
        return address

    def try_allocate(self, num_bytes, alignment=256, label=None, *, attributes=None):
        return self.allocate(num_bytes, alignment)

    def allocate_elements(self, dtype, count, alignment=256, label=None, *, attributes=None):
        return self.allocate(bytes_of(dtype, count), alignment)

    def free(self, address):
        self.live.remove(address)

    def tracks_allocation_sizes(self):
        return False

    def requested_size(self, address):
        raise AssertionError("it said that it cannot tell")

    allocated_size = allocation_id = requested_size

    def should_allocate_empty(self):
        return self.empties

    def stats(self):
        return Stats(*[0] * 12)

    def clear_stats(self):
        """It counts nothing."""

    def set_safe_frontier(self, count):
        """It has none."""

    def check_invariants(self):
        """It has no books."""

    def close(self):
        self.live.clear()


# ------------------------------------------------------------------------------
# TrackingAllocator: sizes, the high-water mark, and leaks by label.


def test_it_counts_what_goes_through_it():
    tracker = TrackingAllocator(new_heap())
    first, second = tracker.allocate(1000), tracker.allocate(300)
    assert (tracker.total_bytes, tracker.high_water, tracker.live_bytes) == (1536, 1536, 1536)
    tracker.free(first)
    tracker.allocate(1)
    assert (tracker.total_bytes, tracker.high_water, tracker.live_bytes) == (1792, 1536, 768)
    tracker.free(second)
    assert tracker.count == 3
    assert [chunk.requested_size for chunk in tracker.in_use()] == [1]


def test_leaks_are_told_by_label_most_bytes_first():
    tracker = TrackingAllocator(new_heap())
    number = tracker.base.labels.intern("bias")
    weights = [tracker.allocate(10 * KIB, label="weights") for _ in range(3)]
    tracker.allocate(100, label=number)
    tracker.allocate(100, label="bias")
    tracker.allocate(50)
    tracker.free(weights.pop(0))
    leaks = tracker.leaks()
    assert [(leak.label, leak.chunks, leak.num_bytes) for leak in leaks] == [
        ("weights", 2, 20 * KIB), ("bias", 2, 512), ("", 1, 256),
    ]  # fmt: skip
    assert leaks[0].oldest.address == weights[0]
    assert tracker.report().splitlines() == [
        f"weights: 20.0 KiB in 2 chunks, the oldest of 10240 bytes at {weights[0]:#x} (request 2)",
        f"bias: 512 B in 2 chunks, the oldest of 100 bytes at {leaks[1].oldest.address:#x} (request 4)",
        f"without a label: 256 B in 1 chunk, the oldest of 50 bytes at {leaks[2].oldest.address:#x} (request 6)",
    ]


def test_leaks_of_one_step_are_told_from_what_was_there_before():
    tracker = TrackingAllocator(new_heap())
    tracker.allocate(1000, label="weights")
    before = tracker.count
    kept = [tracker.allocate(1000, label=f"step {n}") for n in range(3)]
    tracker.free(kept[0])
    tracker.free(kept[2])
    assert [leak.label for leak in tracker.leaks(since=before)] == ["step 1"]
    tracker.free(kept[1])
    assert tracker.leaks(since=before) == []
    assert tracker.report(since=before) == f"nothing requested after the first {before} is in use"


def test_a_free_that_fails_leaves_the_chunk_in_the_books():
    tracker = TrackingAllocator(new_heap())
    address = tracker.allocate(1000)
    with pytest.raises(InteriorPointer):
        tracker.free(address + 8)
    assert tracker.live_bytes == 1024

    def refuse(_):
        raise RuntimeError

    tracker.wrapped = TrackingAllocator(tracker.wrapped)
    tracker.wrapped.free = refuse
    with pytest.raises(RuntimeError):
        tracker.free(address)
    assert tracker.live_bytes == 1024
    assert [chunk.address for chunk in tracker.in_use()] == [address]


def test_it_tells_sizes_where_the_allocator_inside_does_not():
    tracker = TrackingAllocator(PlainAllocator())
    addresses = [tracker.allocate(1000), tracker.allocate(7, alignment=1)]
    assert tracker.tracks_allocation_sizes()
    assert [tracker.requested_size(a) for a in addresses] == [1000, 7]
    assert [tracker.allocated_size(a) for a in addresses] == [1000, 7]
    assert [tracker.allocation_id(a) for a in addresses] == [1, 2]
    tracker.check_invariants()
    tracker.free(addresses[0])
    for ask in (tracker.requested_size, tracker.allocated_size, tracker.allocation_id):
        with pytest.raises(ForeignPointer) as caught:
            ask(addresses[0])
        assert caught.value.address == addresses[0]


def test_what_was_in_use_at_the_end_can_be_told_after_it():
    tracker = TrackingAllocator(new_heap(MIB))
    tracker.allocate(1000, label="forgotten")
    tracker.close()
    assert [leak.label for leak in tracker.leaks()] == ["forgotten"]


def test_records_that_do_not_agree_are_noticed():
    tracker = TrackingAllocator(new_heap())
    address = tracker.allocate(1000)
    tracker.live_bytes += 1
    with pytest.raises(BrokenInvariant, match="1025 bytes are counted"):
        tracker.check_invariants()
    tracker.live_bytes -= 1
    tracker.wrapped.free(address)  # bypasses the wrapper
    tracker.wrapped.allocate(1)
    with pytest.raises(BrokenInvariant, match="changed its size"):
        tracker.check_invariants()


# ------------------------------------------------------------------------------
# LimitAllocator: a limit on the bytes in use, counted in rounded requests.


def test_what_goes_beyond_it_is_out_of_memory_with_its_numbers():
    limited = LimitAllocator(new_heap(MIB), 4 * KIB)
    address = limited.allocate(3000)
    assert limited.used == 3072
    with pytest.raises(OutOfMemory, match="raise the limit") as caught:
        limited.allocate(1025)
    error = caught.value
    assert (error.requested, error.rounded) == (1025, 1280)
    assert (error.free_bytes, error.largest_free_chunk, error.bytes_limit) == (1024, 1024, 4 * KIB)
    assert limited.stats().bytes_limit == 4 * KIB
    assert limited.allocate(1024)
    limited.free(address)
    assert limited.used == 1024
    limited.check_invariants()


def test_several_share_one_heap():
    heap = new_heap(8 * KIB)
    one, other = LimitAllocator(heap, 6 * KIB), LimitAllocator(heap, 6 * KIB)
    address = one.allocate(6 * KIB)
    with pytest.raises(OutOfMemory) as caught:
        other.allocate(3 * KIB)
    assert caught.value.bytes_limit == 8 * KIB  # the heap's, not its own
    assert other.used == 0
    assert other.stats().bytes_limit == 6 * KIB
    one.free(address)
    assert other.allocate(3 * KIB)


def test_what_fails_inside_does_not_count():
    limited = LimitAllocator(new_heap(MIB), 512 * KIB)
    for request in ((-1,), (1 << 63,), (10, 3)):
        with pytest.raises(InvalidRequest):
            limited.allocate(*request)
    with pytest.raises(TypeError):
        limited.allocate(1.5)
    assert limited.allocate(0) == 0
    assert limited.used == 0


def test_threads_never_go_beyond_it_together():
    limited = LimitAllocator(TrackingAllocator(new_heap(MIB)), 16 * KIB)

    def work():
        for size in range(1, 300):
            limited.free(limited.try_allocate(size * 13) or 0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < limited.wrapped.high_water <= 16 * KIB
    assert limited.used == 0


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_a_byte(limit):
    with pytest.raises(InvalidRequest, match="1 or more"):
        LimitAllocator(new_heap(), limit)


def test_a_limit_is_an_integer_and_sizes_must_be_known():
    with pytest.raises(TypeError):
        LimitAllocator(new_heap(), 1e6)
    with pytest.raises(InvalidRequest, match="TrackingAllocator"):
        LimitAllocator(PlainAllocator(), MIB)


def test_books_that_do_not_balance_are_noticed():
    limited = LimitAllocator(new_heap(), 4 * KIB)
    limited.used = -256
    with pytest.raises(BrokenInvariant):
        limited.check_invariants()


# ------------------------------------------------------------------------------
# RetryAllocator: a request without memory waits for frees of other threads, or until the time is up.


def failures(heap):
    """Number of failed tries."""
    return int((Reader(heap.log, 0).read()["kind"] == Kind.OOM).sum())


WRAPPINGS = {
    "bare": lambda heap: RetryAllocator(heap, 30),
    "around others": lambda heap: RetryAllocator(TrackingAllocator(heap), 30),
    "inside others": lambda heap: TrackingAllocator(RetryAllocator(heap, 30)),
    "around a limit": lambda heap: RetryAllocator(LimitAllocator(heap, KIB), 30),
}


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
def test_a_free_of_another_thread_serves_it(wrap):
    allocator = wrap(new_heap(KIB))
    (retry,) = (layer for layer in allocator.layers if isinstance(layer, RetryAllocator))
    address = allocator.allocate(KIB)
    thread, result = in_thread(allocator.allocate, KIB)
    wait_until(lambda: retry.waiting == 1)
    allocator.free(address)
    thread.join(20)
    assert result == [address]


def test_a_free_that_does_not_help_lets_it_wait_on():
    heap = new_heap(2 * KIB)
    retry = RetryAllocator(heap, 30)
    small, large = retry.allocate(512), retry.allocate(1536)
    thread, result = in_thread(retry.allocate, 2 * KIB)
    wait_until(lambda: retry.waiting == 1)
    assert failures(heap) == 1
    retry.free(small)
    wait_until(lambda: failures(heap) == 2 and retry.waiting == 1)
    assert thread.is_alive()
    retry.free(large)
    thread.join(20)
    assert result == [small]


def test_after_the_time_limit_the_last_try_raises():
    heap = new_heap(KIB)
    retry = RetryAllocator(heap, 0.05)
    retry.allocate(KIB)
    begin = time.monotonic()
    with pytest.raises(OutOfMemory) as caught:
        retry.allocate(100)
    assert time.monotonic() - begin >= 0.05
    assert caught.value.requested == 100
    assert failures(heap) == 2  # the first try, and the last one
    assert retry.try_allocate(1) is None
    assert retry.waiting == 0


@pytest.mark.parametrize("wrap", [lambda retry: retry, GuardAllocator, TrackingAllocator])
def test_a_request_that_wants_no_retry_does_not_wait(wrap):
    allocator = wrap(RetryAllocator(new_heap(KIB), 1e6))
    allocator.try_allocate(512, alignment=64)
    attributes = AllocationAttributes(no_retry_on_failure=True)
    assert allocator.try_allocate(KIB, attributes=attributes) is None


def test_without_a_time_limit_no_thread_waits():
    retry = RetryAllocator(new_heap(KIB), 0)
    retry.allocate(KIB)
    assert retry.try_allocate(1) is None


def test_only_out_of_memory_waits():
    retry = RetryAllocator(new_heap(KIB), 1e6)
    with pytest.raises(InvalidRequest):
        retry.allocate(-1)


def test_many_waiters_are_all_served():
    """Each gets the one chunk in turn: a missed free would make this wait until the time is up."""
    retry = RetryAllocator(new_heap(KIB), 1e6)
    turns = 40

    def work():
        for _ in range(turns):
            retry.free(retry.allocate(KIB))
        return "done"

    threads = [in_thread(work) for _ in range(6)]
    for thread, _ in threads:
        thread.join(50)
    assert [result for _, result in threads] == [["done"]] * 6
    assert retry.stats().num_allocs == 6 * turns


def test_close_ends_a_wait():
    retry = RetryAllocator(new_heap(KIB), 1e6)
    retry.allocate(KIB)
    thread, result = in_thread(retry.allocate, KIB)
    wait_until(lambda: retry.waiting == 1)
    retry.close()
    thread.join(20)
    assert isinstance(result[0], AllocatorError)
    assert "closed" in str(result[0])


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_times_that_cannot_be(seconds):
    with pytest.raises(InvalidRequest, match="finite"):
        RetryAllocator(new_heap(), seconds)


# ------------------------------------------------------------------------------
# AlertAllocator: reports a crossed threshold once, at once, in the thread that crossed it.


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


# ------------------------------------------------------------------------------
# NaNFillAllocator: uninitialised and freed memory is NaN.


FLOATS = ["f2", "f4", "f8"]


@pytest.fixture
def nan():
    with NaNFillAllocator(new_heap(8 * MIB, HostSubAllocator())) as made:
        yield made


def array(address, count, dtype):
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fresh_memory_is_nan(nan, dtype):
    address = nan.allocate_elements(dtype, 1000)
    assert np.isnan(array(address, 1000, dtype)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_freed_memory_is_nan(nan, dtype):
    address = nan.allocate_elements(dtype, 1000)
    values = array(address, 1000, dtype)
    values[:] = 1
    nan.free(address)
    assert np.isnan(values).all()
    assert values.tobytes()[:2] == FREED
    assert np.frombuffer(FRESH, "i2")[0] == -1


def test_used_again_it_is_fresh_again(nan):
    address = nan.allocate(100)
    nan.free(address)
    assert nan.allocate(64) == address
    assert ctypes.string_at(address, 66) == FRESH * 32 + FREED  # followed by bytes of the old chunk


@pytest.mark.parametrize("size", [1, 3, 255, (1 << 20) + 1, (3 << 20) - 1])
def test_every_byte_that_was_asked_for_is_filled_and_no_other(nan, size):
    address = nan.allocate(size)
    data = ctypes.string_at(address, size + 1)
    assert data == (FRESH * (size // 2 + 1))[:size] + b"\0"


def test_a_wrong_free_fills_nothing(nan):
    address = nan.allocate(100)
    for wrong, error in ((address + 8, InteriorPointer), (address + 256, DoubleFree)):
        with pytest.raises(error):
            nan.free(wrong)
    assert ctypes.string_at(address, 100) == FRESH * 50


def test_after_the_end_nothing_is_filled(nan):
    address = nan.allocate(100)
    nan.wrapped.close()
    nan.free(address)


def test_memory_that_cannot_be_filled_is_given_back():
    class Broken(SimulatedAccess):
        def fill(self, address, num_bytes, pattern):
            raise RuntimeError("no such memory")

    nan = NaNFillAllocator(new_heap(), access=Broken())
    with pytest.raises(RuntimeError):
        nan.allocate(100)
    assert nan.stats().chunks_in_use == 0


def test_sizes_must_be_known():
    with pytest.raises(InvalidRequest, match="TrackingAllocator"):
        NaNFillAllocator(PlainAllocator(), access=SimulatedAccess())
    nan = NaNFillAllocator(TrackingAllocator(PlainAllocator()), access=SimulatedAccess())
    address = nan.allocate(5)
    nan.free(address)
    assert nan.access.read(address, 5) == (FREED * 3)[:5]


# ------------------------------------------------------------------------------
# Guard words: a guarded heap of host memory, three chunks in a row, and writes to single bytes.


@pytest.fixture
def guard():
    with GuardAllocator(new_heap(MIB, HostSubAllocator())) as made:
        yield made


def three(guard):
    return [guard.allocate(100, label=label) for label in ("weights", "bias", "input")]


def poke(address, byte=0x5A):
    ctypes.memset(address, byte, 1)


# ------------------------------------------------------------------------------
# GuardAllocator: which bytes it guards and checks, when it frees, and what it says of the allocator inside.


def test_a_chunk_is_the_owners_to_write_to_the_last_byte(guard):
    addresses = three(guard)
    for address in addresses:
        ctypes.memset(address, 0x11, 100)
    guard.check()
    for address in addresses:
        guard.free(address)
    assert guard.in_use() == []
    assert guard.stats().bytes_in_use == 0


def test_a_check_on_demand_finds_all_damage_and_frees_nothing(guard):
    weights, bias, last = three(guard)
    guard.check()
    poke(bias - 1)
    poke(last + 100)
    with pytest.raises(GuardOverrun) as caught:
        guard.check()
    assert [(d.chunk.label, d.side) for d in caught.value.damages] == [("bias", "before"), ("input", "after")]
    assert [chunk.address for chunk in guard.in_use()] == [weights, bias, last]


def test_a_damaged_chunk_is_kept_until_it_is_mended(guard):
    weights, _, _ = three(guard)
    poke(weights + 100)
    for _ in range(2):
        with pytest.raises(GuardOverrun):
            guard.free(weights)
    assert guard.requested_size(weights) == 100
    guard.mend(weights)
    guard.check()
    guard.free(weights)
    with pytest.raises(DoubleFree):
        guard.free(weights)
    with pytest.raises(DoubleFree):
        guard.mend(weights)


@given(
    size=st.integers(1, 2000),
    guard_bytes=st.integers(1, 300),
    alignment=st.sampled_from([1, 2, 64, 256, 4096]),
    data=st.data(),
)
def test_every_guarded_byte_is_looked_at(size, guard_bytes, alignment, data):
    guard = GuardAllocator(new_heap(), guard_bytes)
    address = guard.allocate(size, alignment)
    assert address % alignment == 0
    offset = data.draw(st.one_of(st.integers(-guard_bytes, -1), st.integers(size, size + guard_bytes - 1)))
    old = guard.access.read(address + offset, 1)
    new = data.draw(st.binary(min_size=1, max_size=1).filter(lambda byte: byte != old))
    guard.access.write(address + offset, new)
    (damage,) = guard.damages()
    assert (damage.address, damage.found) == (address + offset, new)
    assert damage.side == ("before" if offset < 0 else "after")
    guard.access.write(address + offset, old)
    guard.free(address)


def test_guard_words_inside_guard_words_are_looked_at_both():
    inner = GuardAllocator(new_heap())
    outer = GuardAllocator(inner)
    address = outer.allocate(100, label="twice")
    assert outer.requested_size(address) == 100
    outer.access.write(address + 100, b"\0")
    assert [d.chunk.label for d in outer.damages()] == ["twice"]
    assert inner.damages() == []
    inner.access.write(address + 100 + 64, b"\0")
    assert len(inner.damages()) == 1
    outer.mend(address)
    with pytest.raises(GuardOverrun):
        outer.free(address)
    assert [chunk.address for chunk in outer.in_use()] == [address]  # the one inside refused
    inner.mend(inner.in_use()[0].address)
    outer.free(address)


def test_the_address_of_the_inner_chunk_cannot_be_freed():
    guard = GuardAllocator(new_heap())
    address = guard.allocate(100)
    start = guard.in_use()[0].start
    assert start < address
    with pytest.raises(InteriorPointer, match="guard words"):
        guard.free(start)
    past = guard.wrapped.allocate(100)
    with pytest.raises(ForeignPointer, match="not allocated by this"):
        guard.free(past)
    guard.wrapped.free(past)
    guard.free(address)


def test_out_of_memory_speaks_of_what_the_caller_asked_for():
    guard = GuardAllocator(new_heap(4 * KIB))
    with pytest.raises(OutOfMemory) as caught:
        guard.allocate(4 * KIB)
    assert (caught.value.requested, caught.value.rounded) == (4096, 4096 + 512)


def test_memory_that_cannot_be_written_is_given_back_at_once():
    class Broken(SimulatedAccess):
        def write(self, address, data):
            raise RuntimeError("no such memory")

    guard = GuardAllocator(new_heap(), access=Broken())
    with pytest.raises(RuntimeError):
        guard.allocate(100)
    assert guard.stats().bytes_in_use == 0
    assert guard.in_use() == []


def test_once_the_heap_is_closed_its_memory_is_not_read():
    heap = new_heap(MIB, HostSubAllocator())
    guard = GuardAllocator(heap)
    addresses = three(guard)
    heap.close()
    guard.check()
    guard.free(addresses[0])
    with pytest.raises(ForeignPointer, match="closed"):
        guard.requested_size(addresses[1])


def test_an_allocator_that_tracks_nothing_can_be_guarded():
    plain = PlainAllocator()
    guard = GuardAllocator(plain, access=SimulatedAccess())
    addresses = [guard.allocate(100), guard.allocate(7)]
    assert [guard.requested_size(a) for a in addresses] == [100, 7]
    assert [guard.allocated_size(a) for a in addresses] == [100 + 320, 7 + 320]
    assert [guard.allocation_id(a) for a in addresses] == [1, 2]
    with pytest.raises(ForeignPointer):
        guard.free(5)
    guard.access.write(addresses[0] - 1, b"\0")
    assert len(guard.damages()) == 1
    guard.free(addresses[1])
    assert len(plain.live) == 1


def test_empty_chunks_with_addresses_of_their_own_are_guarded_too():
    guard = GuardAllocator(PlainAllocator(empties=True), access=SimulatedAccess())
    address = guard.allocate(0)
    assert address
    guard.access.write(address, b"\0")
    assert len(guard.damages()) == 1


def test_memory_of_an_unknown_kind_is_not_accessed():
    with pytest.raises(InvalidRequest, match="give access="):
        GuardAllocator(PlainAllocator())
    with pytest.raises(InvalidRequest, match="1 or more"):
        GuardAllocator(new_heap(), 0)


def test_a_check_beside_threads_that_allocate_and_free_is_safe():
    heap = new_heap(MIB, HostSubAllocator(), allow_growth=True, garbage_collection=True)
    guard = GuardAllocator(TrackingAllocator(NaNFillAllocator(heap)))
    done = threading.Event()
    failures = []

    def work():
        try:
            for size in range(1, 400):
                address = guard.try_allocate(size * 97)
                heap.trim()
                guard.free(address or 0)
        except BfcvizError as error:
            failures.append(error)
        done.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not done.is_set():
        guard.check()
    for thread in threads:
        thread.join()
    assert failures == []
    guard.check_invariants()
    guard.close()


# ------------------------------------------------------------------------------
# Damage: where it is, and the two chunks whose owners may have written there.


def test_one_byte_past_the_end_names_the_chunk_and_the_next(guard):
    weights, bias, _ = three(guard)
    poke(weights + 100)
    with pytest.raises(GuardOverrun) as caught:
        guard.free(weights)
    (damage,) = caught.value.damages
    assert (damage.chunk.label, damage.chunk.address, damage.side) == ("weights", weights, "after")
    assert (damage.address, damage.num_bytes, damage.found) == (weights + 100, 1, b"\x5a")
    assert (damage.neighbour.label, damage.neighbour.address) == ("bias", bias)
    text = str(caught.value)
    for words in (f"'weights' (100 bytes at {weights:#x})", f"'bias' (100 bytes at {bias:#x})", "5a",
                  "0 bytes past its end"):  # fmt: skip
        assert words in text
    assert isinstance(caught.value, AllocatorError)


def test_one_byte_before_the_beginning_names_the_chunk_and_the_one_before(guard):
    _, bias, last = three(guard)
    poke(last - 1)
    with pytest.raises(GuardOverrun) as caught:
        guard.free(last)
    (damage,) = caught.value.damages
    assert (damage.chunk.label, damage.side, damage.address) == ("input", "before", last - 1)
    assert (damage.neighbour.label, damage.neighbour.address) == ("bias", bias)
    assert f"the end of 'bias' (100 bytes at {bias:#x}), {last - bias - 100} bytes before" in str(damage)
    assert "1 byte before its beginning" in str(damage)


def test_at_the_ends_of_the_heap_there_is_no_neighbour(guard):
    only = guard.allocate(100)
    poke(only - 1)
    poke(only + 100)
    before, after = guard.damages()
    assert before.neighbour is after.neighbour is None
    assert "no other chunk is in use before it" in str(before)
    assert "a chunk without a label" in str(after)


def test_a_write_across_two_chunks_is_seen_from_both(guard):
    weights, bias, _ = three(guard)
    ctypes.memset(weights + 100, 0, bias - weights - 100)
    after, before = guard.damages()
    assert (after.chunk.label, after.neighbour.label) == ("weights", "bias")
    assert (before.chunk.label, before.neighbour.label) == ("bias", "weights")
    assert after.num_bytes == before.num_bytes == guard.guard_bytes


# ------------------------------------------------------------------------------
# A garbage collection inside a wrapper may free memory through it: no wrapper deadlocks.


MOMENTS = 120
"""Objects created between the garbage and its collection, so that it happens at each point of the operation."""


class Owner:
    """Memory that the garbage collector frees, as that of a tensor in a reference cycle."""

    def __init__(self, allocator):
        self.itself = self
        self.allocator = allocator
        self.address = allocator.allocate(1000)

    def __del__(self):
        self.allocator.free(self.address)


@pytest.fixture(scope="module")
def little_garbage():
    gc.collect()
    gc.freeze()  # so that collecting takes no time
    yield
    gc.unfreeze()


@pytest.fixture
def own_thresholds(little_garbage):
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


def use(allocator):
    address = allocator.allocate(2000)
    for ask in ("in_use", "damages", "stats"):
        getattr(allocator, ask, list)()
    allocator.free(address)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("own_thresholds")
@pytest.mark.parametrize("names", [*((name,) for name in WRAPPERS), tuple(WRAPPERS)], ids=" in ".join)
def test_garbage_that_frees_is_collected_at_any_moment(names):
    allocator = wrapped(new_heap(MIB), names)
    for moment in range(MOMENTS):
        gc.collect(0)
        gc.disable()
        Owner(allocator)
        gc.set_threshold(gc.get_count()[0] + moment)
        gc.enable()
        use(allocator)
    gc.collect()
    allocator.check_invariants()
    assert heap_of(allocator).stats().chunks_in_use == 0
