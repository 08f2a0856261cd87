import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfcviz.whatif.simulation import AddressTable, FreeBlocks


def sizes(blocks):
    """The size of each block, by its address, from both tables."""
    found = {address: blocks.sizes[address] for address in blocks.sizes}
    assert {blocks.starts.find(address + size) for address, size in found.items()} == set(found)
    assert len(blocks.starts) == len(found)
    return found


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3)), max_size=400))
def test_a_table_of_addresses_is_a_dict(steps):
    table, plain = AddressTable(), {}
    for address, value in steps:
        if value:
            table.put(address << 9, value)
            plain[address << 9] = value
        else:
            assert table.take(address << 9) == plain.pop(address << 9, 0)
        assert (address << 9 in table) == (address << 9 in plain)
    assert {address: table[address] for address in table} == plain
    assert list(table) == sorted(plain)
    assert len(table) == len(plain)
    assert (table.get(1), table.get(1, 7)) == (0, 7)
    with pytest.raises(KeyError):
        table[1]


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
        for sign in (1, -1):
            fits = {
                address: size
                for address, size in enough.items()
                if address + -address % 8 + wanted <= address + size
            }
            first = min(fits, key=lambda each: (fits[each], sign * each), default=0)
            assert blocks.aligned_fit(wanted, 8, sign < 0) == first
        assert blocks.first_fit(wanted) == min(enough, default=0)
        assert blocks.best_fit(wanted) == min(enough, key=lambda each: (enough[each], each), default=0)
        in_order = sorted(plain, key=lambda each: (plain[each], each))
        assert [blocks.next_larger(each) for each in in_order] == [*in_order[1:], 0][: len(in_order)]
        assert blocks.largest() == max(plain.values(), default=0)
        assert (blocks.total, sizes(blocks)) == (sum(plain.values()), plain)


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
        parts = [min(size, end - address) for address, size in sizes(blocks).items()]
        assert blocks.largest_before(end) == max([0, *parts])
        if ask:
            assert blocks.take_recent() == sorted(recent)
            recent = set()


def test_it_merges_with_what_touches():
    blocks = FreeBlocks()
    for address, size in ((100, 10), (120, 5), (140, 7)):
        blocks.add(address, size)
    assert (blocks.merge_around(110, 10), blocks.merged) == (100, 25)
    assert sizes(blocks) == {140: 7}
    assert (blocks.merge_around(10, 10), blocks.merged) == (10, 10)
    assert blocks.add_merged(147, 3) == 140
    blocks.take_front(140, 4)
    assert sizes(blocks) == {144: 6}
    blocks.take_front(144, 6)
    assert (sizes(blocks), blocks.total) == ({}, 0)
