"""Ledger: the events that it derives from allocations, frees and grants. Any reports in any order: `properties`."""

import pytest
from heaps import KIB, MIB
from unit.events.ledger.read_ledger import BASE

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
