from hypothesis import given
from hypothesis import strategies as st

from bfcviz.whatif.simulation.free_blocks import FreeBlocks


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


def test_it_merges_with_what_touches():
    blocks = FreeBlocks()
    for address, size in ((100, 10), (120, 5), (140, 7)):
        blocks.add(address, size)
    assert blocks.merge_around(110, 10) == (100, 25)
    assert blocks.sizes == {140: 7}
    assert blocks.merge_around(10, 10) == (10, 10)
    assert blocks.add_merged(147, 3) == 140
    blocks.take_front(140, 4)
    assert blocks.sizes == {144: 6}
    blocks.take_front(144, 6)
    assert (blocks.sizes, blocks.total) == ({}, 0)
