from hypothesis import given
from hypothesis import strategies as st

from bfcviz.whatif.simulation import FreeBlocks


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), max_size=60), st.integers(1, 6))
def test_it_finds_what_a_search_of_all_blocks_finds(places, wanted):
    blocks, plain = FreeBlocks(), {}
    for place, size in places:
        address = place * 100
        if address in plain:
            assert blocks.remove(address) == plain.pop(address)
        else:
            blocks.add(address, size)
            plain[address] = size
        enough = {address: size for address, size in plain.items() if size >= wanted}
        assert blocks.first_fit(wanted) == min(enough, default=0)
        assert blocks.best_fit(wanted) == min(enough, key=lambda each: (enough[each], each), default=0)
        in_order = sorted(plain, key=lambda each: (plain[each], each))
        assert [blocks.next_larger(each) for each in in_order] == [*in_order[1:], 0][: len(in_order)]
        assert blocks.largest() == max(plain.values(), default=0)
        assert (blocks.total, blocks.sizes) == (sum(plain.values()), plain)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), max_size=40))
def test_recent_blocks_are_those_added_since_the_last_call(steps):
    blocks, recent = FreeBlocks(recent_from=5), set()
    for place, size, ask in steps:
        if place * 100 in blocks.sizes:
            blocks.remove(place * 100)
            recent.discard(place * 100)
        else:
            blocks.add(place * 100, size)
            recent |= {place * 100} if size >= 5 else set()
        end = place * 100 + 3
        parts = [min(size, end - address) for address, size in blocks.sizes.items()]
        assert blocks.largest_before(end) == max([0, *parts])
        if ask:
            assert blocks.take_recent() == sorted(recent)
            recent = set()


def test_it_merges_with_what_touches():
    blocks = FreeBlocks()
    for address, size in ((100, 10), (120, 5), (140, 7)):
        blocks.add(address, size)
    assert (blocks.merge_around(110, 10), blocks.merged) == (100, 25)
    assert blocks.sizes == {140: 7}
    assert (blocks.merge_around(10, 10), blocks.merged) == (10, 10)
    assert blocks.add_merged(147, 3) == 140
    blocks.take_front(140, 4)
    assert blocks.sizes == {144: 6}
    blocks.take_front(144, 6)
    assert (blocks.sizes, blocks.total) == ({}, 0)
