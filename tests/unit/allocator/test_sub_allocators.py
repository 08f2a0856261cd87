"""Sub-allocators that refuse, fail, grant invalid regions or call the heap: the heap stays valid and raises errors."""

import numpy as np
import pytest
from heaps import GIB, KIB, MIB, Scripted, assert_model_agrees, new_heap, snapshot

from bfcviz.allocator.sub_allocators import (
    DESCENDING_TOP,
    HostSubAllocator,
    PythonSubAllocator,
    SimulatedSubAllocator,
    SubAllocator,
)
from bfcviz.errors import AllocatorError, InvalidRequest, OutOfMemory, SubAllocatorError

pytestmark = pytest.mark.timeout(30)


def books(heap):
    """The state that must not change; the log records a failed request anyway."""
    chunks, regions, stats, *_ = snapshot(heap)
    return chunks, regions, stats


def grown_heap(*later):
    """A heap whose region [1 MiB, 3 MiB) is full, and whose sub-allocator then returns each of `later` in turn."""
    answers = [lambda _, num_bytes: (MIB, num_bytes), *later]

    def answer(alignment, num_bytes):
        return answers[min(len(source.asked), len(answers)) - 1](alignment, num_bytes)

    source = Scripted(answer)
    heap = new_heap(64 * MIB, source, allow_growth=True)
    heap.allocate(2 * MIB)
    return heap, source


@pytest.mark.parametrize(
    ("address", "num_bytes", "given_back"),
    [
        (MIB, 1.0, False),
        (3 * MIB - 1, 1.0, False),
        (MIB - 256, 1.0, False),
        (MIB + 256, 256, False),
        (256, GIB, False),  # contains the other
        (0x10000000, 0.99, True),
        (0x10000000, 256, True),
        (0x10000000, 0, False),
        (0x10000001, 1.0, True),
        (0x10000080, 1.0, True),
        (100, 1.0, False),
        (-256, 1.0, False),
        (1 << 64, 1.0, False),
        ((1 << 64) - 256, 1.0, False),
        (0x10000000, -256, False),
        (0x10000000, 1 << 64, False),
    ],
)
def test_a_broken_promise_is_named_and_not_taken(address, num_bytes, given_back):
    """`num_bytes` is a number, or a share of the requested bytes."""

    def grant(_, asked):
        return address, int(asked * num_bytes) if isinstance(num_bytes, float) else num_bytes

    heap, source = grown_heap(grant)
    before = books(heap)
    for asked in (1, 5 * MIB):
        with pytest.raises(SubAllocatorError, match="multiple of 256"):
            heap.allocate(asked)
        assert books(heap) == before
    assert len(source.asked) == 3  # no back-off: a smaller request would fail too
    assert len(source.released) == (2 if given_back else 0)
    heap.check_invariants()
    assert_model_agrees(heap)


def test_what_was_wrong_once_may_be_right_later():
    heap, _ = grown_heap(lambda _, n: (MIB, n), lambda _, n: (GIB, n))
    with pytest.raises(SubAllocatorError):
        heap.allocate(1)
    assert heap.allocate(1) == GIB
    assert_model_agrees(heap)


@pytest.mark.parametrize(
    "answer", ["text", (1,), (1, 2, 3), 5, ("a", 5), (GIB, "b"), (1.5, 256), (None, None)]
)
def test_an_answer_that_is_none_is_a_python_error(answer):
    heap, _ = grown_heap(lambda *_: answer)
    before = books(heap)
    with pytest.raises((TypeError, ValueError)) as caught:
        heap.allocate(1)
    assert not isinstance(caught.value, AllocatorError)
    assert books(heap) == before


@pytest.mark.parametrize("answer", [None, (0, MIB)])
def test_a_refusal_is_out_of_memory(answer):
    heap, source = grown_heap(lambda *_: answer)
    before = books(heap)
    with pytest.raises(OutOfMemory):
        heap.allocate(MIB)
    assert books(heap) == before
    sizes = [num_bytes for _, num_bytes in source.asked[1:]]
    assert sizes[0] == 4 * MIB
    assert sizes[-1] >= MIB > sizes[-1] * 0.9


def test_numpy_numbers_are_numbers():
    heap, _ = grown_heap(lambda _, n: (np.uint64(GIB), np.int64(n)))
    assert heap.allocate(1) == GIB


@pytest.mark.parametrize("honours", [True, False])
def test_a_grant_may_be_larger_and_odd(honours):
    source = Scripted(lambda _, n: (MIB, n + 1001))
    limit = 64 * KIB
    heap = new_heap(limit, source, honour_alignment=honours)
    addresses = [heap.allocate(256) for _ in range(limit // 256 + 3)]
    assert heap.stats().pool_bytes == limit + 1001
    for address in addresses:
        heap.free(address)
    heap.check_invariants()
    assert len(heap.memory_map()) == 1
    assert_model_agrees(heap)
    heap.close()
    assert source.released == [(MIB, limit + 1001)]


def test_misaligned_regions_are_taken_as_tensorflow_takes_them():
    heap = new_heap(MIB, Scripted(lambda _, n: (MIB + 24, n)), honour_alignment=False)
    assert heap.allocate(1, 4096) == MIB + 24
    heap.check_invariants()


class Broken(Exception):
    pass


def raise_broken(*_):
    raise Broken("no device")


def test_allocate_raises_an_exception_of_the_sub_allocator():
    heap, source = grown_heap(raise_broken)
    before = books(heap)
    for call in (heap.allocate, heap.try_allocate):
        with pytest.raises(Broken, match="no device"):
            call(MIB)
    assert books(heap) == before
    assert source.error is None
    source.give_out = lambda *_: None
    with pytest.raises(OutOfMemory):
        heap.allocate(MIB)


def test_allocate_raises_an_interrupt_in_the_sub_allocator():
    def interrupt(*_):
        raise KeyboardInterrupt

    heap, _ = grown_heap(interrupt)
    with pytest.raises(KeyboardInterrupt):
        heap.allocate(1)
    heap.check_invariants()


def test_an_exception_for_a_large_grant_is_forgotten_once_a_smaller_one_came():
    def grant(_, num_bytes):
        return raise_broken() if num_bytes > 3 * MIB else (GIB, num_bytes)

    heap, source = grown_heap(grant)
    assert heap.allocate(MIB) == GIB
    assert source.error is None
    source.give_out = lambda *_: None
    with pytest.raises(OutOfMemory):
        heap.allocate(8 * MIB)


def test_an_exception_is_not_raised_for_what_has_nothing_to_do_with_it():
    heap, source = grown_heap(raise_broken)
    source.error = Broken("from earlier")
    with pytest.raises(InvalidRequest):
        heap.allocate(-1)
    assert heap.allocate(0) == 0


def test_an_exception_in_free_reaches_the_next_who_fails():
    source = Scripted(lambda _, n: (GIB * len(source.asked), n) if n <= 2 * MIB else None, raise_broken)
    heap = new_heap(4 * MIB, source, allow_growth=True, garbage_collection=True)
    heap.free(heap.allocate(2 * MIB))
    with pytest.raises(Broken):
        heap.allocate(3 * MIB)
    assert len(source.released) == 1
    assert heap.stats().pool_bytes == 0
    heap.check_invariants()
    assert_model_agrees(heap)


def test_an_exception_in_free_reaches_who_closes():
    heap = new_heap(MIB, Scripted(lambda _, n: (MIB, n), raise_broken))
    heap.allocate(1)
    with pytest.raises(Broken):
        heap.close()
    heap.close()


def test_the_heap_may_be_looked_at_from_its_sub_allocator():
    seen = []

    def look(*_):
        seen.append(
            (heap.stats().pool_bytes, len(heap.memory_map()), heap.regions().tolist(), heap.occupancy())
        )

    def grant(_, num_bytes):
        look()
        return (GIB, num_bytes - 1) if len(seen) == 1 else (GIB, num_bytes)

    source = Scripted(grant, look)
    heap = new_heap(MIB, source)
    with pytest.raises(SubAllocatorError):
        heap.allocate(1)
    heap.allocate(1)
    heap.close()
    assert len(seen) == 4  # two grants, an invalid one returned, the close


def test_a_sub_allocator_that_needs_its_own_heap_finds_no_end_but_an_error():
    outcomes = []

    def grant(_, num_bytes):
        outcomes.append(heap.try_allocate(100))
        with pytest.raises(AllocatorError, match="close"):
            heap.close()
        return GIB * len(outcomes), num_bytes

    heap = new_heap(64 * MIB, Scripted(grant), allow_growth=True)
    first = heap.allocate(MIB)
    assert outcomes == [None]
    second = heap.allocate(3 * MIB)
    assert outcomes == [None, first + MIB]  # the first region has room for it
    assert second == 2 * GIB
    heap.check_invariants()
    assert_model_agrees(heap)


def test_handles_are_used_up_while_the_sub_allocator_refuses():
    """With timestamps a refusal leads to forced merging, for which the tables must still have room."""

    def grant(_, num_bytes):
        if len(source.asked) == 1:
            return MIB, num_bytes
        if len(source.asked) == 2:
            small.extend(heap.allocate(256) for _ in range(600))
        return None

    small = []
    source = Scripted(grant)
    heap = new_heap(4 * MIB, source, timestamps=True, allow_growth=True)
    held = [heap.allocate(64 * KIB) for _ in range(24)]
    heap.allocate((2048 - 24 * 64 - 30) * KIB)
    for address in held:
        heap.free(address)
    assert heap.internals().held_chunks == 24
    heap.allocate(100 * KIB)
    assert heap.internals().chunk_handles > 600
    heap.check_invariants()
    assert_model_agrees(heap)


def test_the_bare_base_refuses():
    with pytest.raises(OutOfMemory):
        new_heap(MIB, SubAllocator()).allocate(1)
    with pytest.raises(NotImplementedError):
        new_heap(MIB, PythonSubAllocator()).allocate(1)


# ------------------------------------------------------------------------------
# Simulated addresses: their order, and the end of the address space.


@pytest.mark.parametrize(
    "arguments",
    [{"granule": 0}, {"granule": -1}, {"gap": -1}, {"gap": 1 << 63}, {"capacity": -1}, {"capacity": 1 << 64},
     {"base": 0}, {"base": -1}, {"base": 1 << 63}, {"mode": "random"}],
)  # fmt: skip
def test_simulated_memory_that_cannot_be(arguments):
    with pytest.raises(InvalidRequest):
        SimulatedSubAllocator(**arguments)


@pytest.mark.parametrize(
    "source",
    [
        {"base": (1 << 63) - 3 * MIB},
        {"base": (1 << 63) - MIB - 100},
        {"mode": "descending", "base": 3 * MIB},
        {"mode": "descending", "base": 300},
        {"mode": "gapped", "gap": (1 << 63) - 1},
    ],
)
def test_the_pretended_address_space_ends(source):
    heap = new_heap(1 << 62, SimulatedSubAllocator(**source), allow_growth=True)
    served = [heap.try_allocate(MIB) for _ in range(6)]
    assert None in served
    heap.check_invariants()
    regions = heap.regions()
    assert (regions["address"] > 0).all()
    assert all(int(r["address"]) + int(r["size"]) <= 1 << 63 for r in regions)


def test_descending_regions_stay_below():
    heap = new_heap(1 << 62, SimulatedSubAllocator("descending"))
    heap.allocate(1)
    assert int(heap.regions()["address"][0]) < DESCENDING_TOP
    heap.check_invariants()


@pytest.mark.parametrize("alignment", [1 << 40, 1 << 62, 1 << 63])
@pytest.mark.parametrize("honours", [True, False])
def test_alignments_nothing_can_keep_end(alignment, honours):
    for source in (SimulatedSubAllocator(), SimulatedSubAllocator("descending"), HostSubAllocator(MIB)):
        heap = new_heap(GIB, source, allow_growth=True, honour_alignment=honours)
        for _ in range(3):
            address = heap.try_allocate(5 * MIB, alignment)
            assert address is None or address % alignment == 0
        heap.check_invariants()
        heap.close()


# ------------------------------------------------------------------------------
# HostSubAllocator: its capacity, and the memory that it leaves available on the machine.


@pytest.mark.parametrize("capacity", [-1, 1 << 64])
def test_host_memory_that_cannot_be(capacity):
    with pytest.raises(InvalidRequest):
        HostSubAllocator(capacity)


def test_regions_go_back_where_the_machine_is_short_of_memory():
    source = HostSubAllocator()
    with new_heap(1 << 40, source, allow_growth=True, garbage_collection=True) as heap:
        heap.free(heap.allocate(MIB))
        held = heap.allocate(3 * MIB)
        assert source.used == 6 * MIB
        source.keep_available = 1 << 61  # more than any machine has
        assert heap.try_allocate(64 * MIB) is None
        assert source.used == heap.stats().pool_bytes == 4 * MIB
        heap.free(held)
        assert heap.allocate(MIB)  # in the remaining region
        heap.check_invariants()


@pytest.mark.parametrize("keep", [-1, 1 << 62])
def test_what_must_stay_available_is_a_number_of_bytes(keep):
    with pytest.raises(InvalidRequest, match=str(keep)):
        HostSubAllocator(keep_available=keep)
