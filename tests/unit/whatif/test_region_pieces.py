from hypothesis import given
from hypothesis import strategies as st

from bfcviz.whatif.policy_serving import policy_region_pieces
from bfcviz.whatif.simulation import DriverCall


def test_grants_that_are_released_as_they_are_stay_as_they_are():
    calls = [DriverCall(0, 100, False), DriverCall(200, 50, False), DriverCall(0, -100, False)]
    found = policy_region_pieces(calls)
    assert found[:2] == [[calls[0]], [calls[1]]]
    assert [call.address for call in found[2]] == [0]


def test_a_hole_becomes_a_region_of_its_own():
    calls = [DriverCall(0, 100, True), DriverCall(40, -20, False), DriverCall(40, 20, True)]
    found = policy_region_pieces(calls)
    assert found[0] == [DriverCall(0, 40, False), DriverCall(40, 20, False), DriverCall(60, 40, False)]
    assert [call.address for call in found[1]] == [40]
    assert found[2] == [DriverCall(40, 20, True)]  # it joins the first: neither is released


def test_what_is_mapped_in_turn_and_released_at_once_is_one_region():
    calls = [DriverCall(at, 10, True) for at in (0, 10, 20)] + [DriverCall(10, -20, False)]
    found = policy_region_pieces(calls)
    assert found[:3] == [[DriverCall(0, 10, False)], [DriverCall(10, 10, False)], [DriverCall(20, 10, True)]]
    assert [call.address for call in found[3]] == [10]


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 6)), max_size=40))
def test_each_release_is_one_of_whole_regions(steps):
    mapped, calls = set(), []
    for start, count in steps:  # of a run that is wholly there, or wholly missing
        run = set(range(start, start + count))
        if not run & mapped:
            calls.append(DriverCall(start, count, True))
            mapped |= run
        elif run <= mapped:
            calls.append(DriverCall(start, -count, False))
            mapped -= run
    regions = {}
    for call, pieces in zip(calls, policy_region_pieces(calls), strict=True):
        for piece in pieces:
            if piece.size < 0:
                assert regions.pop(piece.address) <= set(range(call.address, call.address - call.size))
                continue
            covered = set(range(piece.address, piece.address + piece.size))
            before = next((at for at, cells in regions.items() if max(cells) + 1 == piece.address), None)
            if piece.join:
                regions[before] |= covered
            else:
                regions[piece.address] = covered
    assert sorted(cell for cells in regions.values() for cell in cells) == sorted(mapped)
