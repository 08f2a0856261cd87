"""Ledger: the events that it derives from allocations, frees and grants. Any reports in any order: `properties`."""

import random
from bisect import bisect_left, bisect_right, insort

import pytest
from heaps import KIB, MIB
from unit.events.ledger.read_ledger import BASE, Heap

from bfcviz.events.ledger import SortedAddresses
from bfcviz.events.schema import Flag


def test_memory_is_split_and_merged_as_a_heap_would(ledger):
    ledger.grant(BASE, MIB)
    ledger.allocate(BASE, 512, 400, label=3, stream=5)
    ledger.allocate(BASE + 1024, 512, 512, label=4)
    ledger.free(BASE)
    ledger.free(BASE + 1024)
    ledger.release(BASE)
    assert ledger.kinds() == [
        "EXTEND", "SPLIT", "ALLOCATE", "SPLIT", "SPLIT", "ALLOCATE", "FREE", "MERGE", "FREE",
        "MERGE", "MERGE", "RELEASE",
    ]  # fmt: skip
    events = ledger.events()
    assert (events["requested"][2], events["label"][2], events["stream"][2]) == (400, 3, 5)
    assert events["flags"][3] == Flag.PADDING
    assert not ledger.inconsistencies.words()
    assert (ledger.peak_bytes_in_use, ledger.pool_bytes) == (1024, 0)


def test_a_free_tells_who_allocated_and_when(ledger):
    ledger.thread = 1
    ledger.allocate(BASE, 512, 400, label=3, stream=5)
    ledger.thread = 2
    ledger.free(BASE)
    _, allocated, freed = ledger.events()
    assert freed["other"] == allocated["seq"]
    for name in ("address", "size", "requested", "label", "stream", "thread", "chunk", "region"):
        assert freed[name] == allocated[name]


def test_memory_never_in_use_is_in_no_region(ledger):
    ledger.allocate(BASE + 8192, 256, 256)
    ledger.allocate(BASE, 256, 256)
    assert ledger.sizes() == {BASE: 256, BASE + 8192: 256}
    assert ledger.free_bytes == 0


def test_a_region_grows_and_takes_in_free_ones(ledger):
    for address in (BASE, BASE + 256, BASE + 1024):
        ledger.allocate(address, 256, 256)
    ledger.free(BASE + 1024)
    ledger.allocate(BASE + 512, 1024, 1024)
    assert ledger.sizes() == {BASE: 1536}
    assert not ledger.inconsistencies.words()


def test_covered_memory_is_one_region_from_the_start(ledger):
    ledger.cover(BASE, MIB)
    ledger.allocate(BASE + 512, 256, 256)
    ledger.allocate(BASE + 768, 256, 256)
    assert ledger.kinds() == ["EXTEND", "SPLIT", "SPLIT", "ALLOCATE", "SPLIT", "ALLOCATE"]
    assert ledger.events()["requested"][0] == 0  # no request asked for it
    ledger.release(BASE)
    assert ledger.inconsistencies.unknown_releases == 1  # it is no grant


def test_covering_around_a_region_keeps_it(ledger):
    ledger.allocate(BASE + 512, 256, 256)
    ledger.cover(BASE, KIB)
    assert ledger.sizes() == {BASE: 512, BASE + 512: 512}
    assert ledger.chunks_in_use() == {BASE + 512: (256, 256)}


def test_memory_across_two_regions_is_in_pieces_and_freed_as_one(ledger):
    ledger.grant(BASE, KIB)
    ledger.grant(BASE + KIB, KIB)
    ledger.allocate(BASE + 512, 1024, 600)
    assert ledger.chunks_in_use() == {BASE + 512: (512, 512), BASE + KIB: (512, 88)}
    ledger.free(BASE + KIB)
    assert ledger.inconsistencies.unknown_frees == 1
    ledger.free(BASE + 512)
    assert ledger.chunks_in_use() == {}
    assert ledger.inconsistencies.in_pieces == 1
    ledger.release(BASE)
    ledger.release(BASE + KIB)
    assert ledger.pool_bytes == 0


def test_joined_grants_are_one_region(ledger):
    ledger.grant(BASE, KIB)
    ledger.grant(BASE + KIB, KIB, join=True)
    ledger.allocate(BASE + 512, 1024, 1024)
    assert ledger.sizes() == {BASE: 2048}
    assert ledger.inconsistencies.in_pieces == 0


def test_a_failed_request_tells_what_was_free(ledger):
    ledger.grant(BASE, MIB)
    ledger.allocate(BASE + 512 * KIB, 256 * KIB, 1)
    ledger.oom(2 * MIB, label=7, stream=2)
    failed = ledger.events()[-1]
    assert (failed["address"], failed["size"], failed["requested"]) == (768 * KIB, 512 * KIB, 2 * MIB)
    assert (failed["label"], failed["stream"]) == (7, 2)


@pytest.mark.parametrize("address", [(1 << 63) - 512, (1 << 63) - 1])
def test_memory_above_the_highest_address_is_left_out(ledger, address):
    ledger.allocate(address, 512, 512)
    ledger.grant(address, 512)
    ledger.cover(address, 512)
    assert (ledger.kinds(), ledger.inconsistencies.left_out) == ([], 3)
    ledger.allocate((1 << 63) - 1024, 512, 512)
    assert ledger.kinds() == ["EXTEND", "ALLOCATE"]


# ------------------------------------------------------------------------------
# SortedAddresses against a plain sorted list, across its own short lists.


@pytest.mark.parametrize("longest", [1, 2, 3, 1024])
def test_it_finds_what_a_sorted_list_finds(longest):
    rng, found, plain = random.Random(longest), SortedAddresses(longest), []
    for step in range(3000):
        address = rng.randrange(400)
        at = bisect_left(plain, address)
        if address in plain[at : at + 1]:
            found.remove(address)
            del plain[at]
        elif step % 1000 < 700:  # grow, then shrink
            found.add(address)
            insort(plain, address)
        probe = rng.randrange(-1, 401)
        place = bisect_right(plain, probe)
        assert found.at_or_before(probe) == (plain[place - 1] if place else -1)
        if step % 50 == 0:
            assert list(found.at_or_after(max(probe, 0))) == plain[bisect_left(plain, max(probe, 0)) :]
    assert list(found.at_or_after(0)) == plain


# ------------------------------------------------------------------------------
# Reports that cannot be true: left out and counted; and what a ledger infers from others.


def test_reports_that_cannot_be_true_are_left_out_and_counted(ledger):
    ledger.grant(BASE, MIB)
    ledger.allocate(BASE, 512, 512)
    before = ledger.log.head
    ledger.free(BASE + 512)
    ledger.allocate(BASE + 256, 512, 512)
    ledger.grant(BASE, KIB)
    ledger.release(BASE)
    ledger.release(BASE + 256)
    assert ledger.log.head == before
    found = ledger.inconsistencies
    assert (found.unknown_frees, found.overlaps, found.overlapping_grants) == (1, 1, 1)
    assert (found.unknown_releases, found.left_out) == (2, 5)
    assert found.words().count("1 ") == 3
    assert found.words().count("; ") == 3


def test_a_grant_over_a_free_one_says_that_it_was_released(ledger):
    ledger.grant(BASE, MIB)
    ledger.grant(BASE + 512 * KIB, MIB)
    assert ledger.kinds() == ["EXTEND", "RELEASE", "EXTEND"]
    assert ledger.inconsistencies.unseen_releases == 1
    assert ledger.inconsistencies.left_out == 0


def test_more_regions_than_can_be_numbered():
    ledger = Heap(1 << 17)
    for number in range(65_535):
        ledger.grant(BASE + number * KIB * 2, KIB)
    ledger.allocate(BASE - MIB, 256, 256)
    ledger.grant(BASE - MIB, 256)
    ledger.cover(BASE - MIB, 256)
    assert ledger.inconsistencies.too_many_regions == 3
    ledger.allocate(BASE, 256, 256)
    assert ledger.num_allocs == 1
    ledger.release(BASE + 2 * KIB)
    ledger.grant(BASE - MIB, 256)
    assert (len(ledger.regions), ledger.inconsistencies.left_out) == (65_535, 3)


def test_a_grant_that_is_gone_takes_its_chunks_along(ledger):
    ledger.grant(BASE, MIB)
    ledger.grant(BASE + MIB, MIB)
    ledger.allocate(BASE, 512, 500)
    ledger.allocate(BASE + 4096, 512, 512)
    ledger.allocate(BASE + MIB - 512, 1024, 1024)  # in both
    ledger.allocate(BASE + MIB + 4096, 512, 512)
    ledger.lose(BASE)
    assert ledger.chunks_in_use() == {BASE + MIB + 4096: (512, 512)}
    assert (ledger.sizes(), ledger.pool_bytes) == ({BASE + MIB: MIB}, MIB)
    assert (ledger.inconsistencies.unseen_frees, ledger.inconsistencies.left_out) == (3, 0)
    ledger.lose(BASE)
    assert ledger.inconsistencies.unknown_releases == 1


def test_an_allocation_that_reaches_into_a_grant_that_is_gone_is_freed_as_a_whole(ledger):
    for number in range(3):
        ledger.grant(BASE + number * KIB, KIB)
    ledger.allocate(BASE, 512, 512)
    ledger.allocate(BASE + 512, 2048, 2048)  # in all three
    ledger.lose(BASE + KIB)
    assert ledger.chunks_in_use() == {BASE: (512, 512)}
    assert ledger.sizes() == {BASE: KIB, BASE + 2 * KIB: KIB}
    assert (ledger.inconsistencies.unseen_frees, ledger.inconsistencies.left_out) == (1, 0)


def test_a_region_grows_behind_a_chunk_wherever_it_was_cut(ledger):
    for cut in (512, 1024, 1536):
        ledger.allocate(BASE, 2048, 2048)
        ledger.free(BASE)
        ledger.allocate(BASE + cut, 512, 512)
        ledger.allocate(BASE + 2048, 512, 512)  # behind the free rest, or the chunk
        ledger.free(BASE + 2048)
        free = [(at, chunk.size) for at, chunk in sorted(ledger.free_chunks.items())]
        assert free == [(BASE, cut), (BASE + cut + 512, 2560 - cut - 512)]
        ledger.free(BASE + cut)
        assert [(at, chunk.size) for at, chunk in ledger.free_chunks.items()] == [(BASE, 2560)]
