"""Reports that cannot be true: left out and counted; and what a ledger infers from others."""

from heaps import KIB, MIB
from unit.events.ledger.read_ledger import BASE, Heap


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
