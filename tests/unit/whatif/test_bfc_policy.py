import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import needs_shared
from unit.whatif.golden import Golden, golden_files, shared_files
from unit.whatif.streams import numbered_stream

from bfcviz.errors import InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.formats.tensorflow import VERSIONS
from bfcviz.whatif.bfc_policy import GAP, ExactBFCMemory, RecordedBFCMemory
from bfcviz.whatif.driver_memory import DriverCall
from bfcviz.whatif.policy import policy_region_pieces
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, REGION_ROW, RequestStream

KiB, MiB = 1 << 10, 1 << 20


def assert_golden(path):
    golden = Golden.of(path)
    policy = policy_of("bfc", **golden.heap_options(), **golden.memory_options(), mode=golden.mode)
    outcome = policy.serve(golden.stream(), golden.limit)
    assert golden.differences(outcome, slice(None), golden.kept) == 0
    compared, wrong = golden.total_differences(outcome, np.cumsum(golden.kept))
    assert compared > 0
    assert wrong == 0


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
def test_golden_traces_served_from_their_arrays(path):
    assert_golden(path)


@needs_shared
def test_all_golden_traces_served_from_their_arrays():
    for path in shared_files():
        assert_golden(path)


def test_golden_traces_notice_a_wrong_option():
    golden = Golden.of(golden_files()[0])
    policy = policy_of("bfc", **golden.heap_options(), **golden.memory_options(), mode=golden.mode)
    policy.options["garbage_collection"] = not policy.options["garbage_collection"]
    outcome = policy.serve(golden.stream(), golden.limit)
    assert golden.differences(outcome, slice(None), golden.kept) > 0


def grown(text, sizes, limit):
    return policy_of(text).serve(
        numbered_stream([(ALLOCATE, at, size) for at, size in enumerate(sizes)]), limit
    )


@pytest.mark.parametrize(
    ("version", "first"), [("1.0", MiB), ("1.10", MiB), ("2.1", MiB), ("2.7", 2 * MiB), ("2.21", 2 * MiB)]
)
def test_versions_start_with_their_first_region(version, first):
    outcome = grown(f"bfc:version={version},allow_growth=true", [1], 64 * MiB)
    assert outcome.peak_reserved == first


@pytest.mark.parametrize(("version", "kept"), [("1.0", 400 * MiB), ("1.10", 250 * MiB), ("2.21", 250 * MiB)])
def test_only_old_versions_waste_128_mib_and_more(version, kept):
    outcome = grown(f"bfc:version={version}", [250 * MiB], 400 * MiB)
    assert outcome.size.tolist() == [kept]


def test_old_versions_try_smaller_regions_once_in_their_life():
    sizes = [MiB, 2 * MiB, 3 * MiB, 200 * KiB]
    old, new = (
        grown(f"bfc:version={version},allow_growth=true,first_region=1MiB,capacity=6656KiB", sizes, 64 * MiB)
        for version in ("2.7", "2.21")
    )
    assert new.failures.tolist() == []
    assert old.failures.tolist() == [3]
    assert old.reserved.tolist()[:3] == new.reserved.tolist()[:3]


def test_versions_of_gpus_collect_garbage_from_2_1_on():
    requests = [
        (ALLOCATE, 0, MiB),
        (ALLOCATE, 1, 2 * MiB),
        (FREE, 0, 0),
        (FREE, 1, 0),
        (ALLOCATE, 2, 4 * MiB),
    ]
    fits = {
        version: policy_of(f"bfc:version={version},allow_growth=true")
        .serve(numbered_stream(requests), 4 * MiB)
        .fits
        for version in VERSIONS
    }
    assert fits == {"1.0": False, "1.10": False, "2.1": True, "2.7": True, "2.21": False}


def test_an_explicit_option_wins_over_the_version():
    outcome = grown("bfc:version=1.0,allow_growth=true,first_region=4MiB", [1], 64 * MiB)
    assert outcome.peak_reserved == 4 * MiB
    texts = ("bfc:version=1.0", "bfc:version=1.0,first_region=2MiB")
    assert policy_of(texts[0]).options != policy_of(texts[1]).options  # a cache keeps their results by these


def test_a_share_of_the_limit_decides_about_waste():
    sizes = [(100 - part) * KiB for part in (5, 10, 20)]
    for size, whole in zip(sizes, (True, False, False), strict=True):
        outcome = grown("bfc:fragmentation_fraction=0.1", [size], 100 * KiB)
        assert (outcome.size[0] == 100 * KiB) == whole


def test_adjacent_regions_join_only_if_the_memory_supports_it():
    sizes = [2 * MiB, 4 * MiB]
    requests = [(ALLOCATE, at, size) for at, size in enumerate(sizes)]
    requests += [(FREE, 0, 0), (FREE, 1, 0), (ALLOCATE, 2, 6 * MiB)]
    apart, joined = (
        policy_of(f"bfc:allow_growth=true,mode=contiguous,supports_coalescing={word}").serve(
            numbered_stream(requests), 6 * MiB
        )
        for word in ("false", "true")
    )
    assert (apart.fits, joined.fits) == (False, True)


@pytest.mark.parametrize("text", ["bfc:version=3", "bfc:regions=lost", "bfc:mode=sideways"])
def test_unknown_choices_are_named(text):
    with pytest.raises(InvalidRequest, match=text.partition("=")[2]):
        policy_of(text)


def test_options_of_simulated_regions_do_not_mix_with_recorded_ones():
    with pytest.raises(InvalidRequest, match="granule"):
        policy_of("bfc:regions=recorded,granule=4096").serve(numbered_stream([(ALLOCATE, 0, 1)]), MiB)


def regions_of(*rows):
    """Rows of (request, address, size)."""
    regions = np.zeros(len(rows), REGION_ROW)
    for at, row in enumerate(rows):
        regions[at]["request"], regions[at]["address"], regions[at]["size"] = row
    return regions


def test_recorded_addresses_are_granted_by_size_in_order():
    memory = RecordedBFCMemory(
        regions_of((0, 0x7000_0000, MiB), (1, 0x1000_0040, 2 * MiB), (2, 0x5000_0000, MiB))
    )
    assert memory.allocate(256, 2 * MiB) == (0x1000_0040, 2 * MiB)
    assert memory.allocate(256, MiB) == (0x7000_0000, MiB)
    other, size = memory.allocate(256, 3 * MiB)
    assert (other >= 0x7000_0000 + GAP, size) == (True, 3 * MiB)
    assert memory.allocate(256, MiB) == (0x5000_0000, MiB)
    assert memory.allocate(256, MiB)[0] >= other + size + GAP
    assert memory.driver_calls == (5, 0, 0)


def test_an_address_that_is_taken_waits_until_it_is_free():
    memory = RecordedBFCMemory(regions_of((0, 0x1000_0000, MiB), (9, 0x1000_0000, 2 * MiB)))
    assert memory.allocate(256, MiB)[0] == 0x1000_0000
    assert memory.allocate(256, 2 * MiB)[0] > 0x1000_0000
    memory.free(0x1000_0000, MiB)
    assert memory.allocate(256, 2 * MiB)[0] == 0x1000_0000


def test_the_capacity_counts_what_is_granted_now():
    memory = RecordedBFCMemory(regions_of(), 3 * MiB)
    first, _ = memory.allocate(256, 2 * MiB)
    assert memory.allocate(256, 2 * MiB) is None
    assert memory.allocate(256, MiB) is not None
    memory.free(first, 2 * MiB)
    assert memory.allocate(256, 2 * MiB) is not None
    assert memory.driver_calls == (3, 1, 1)


@pytest.mark.parametrize("once", [False, True])
def test_smaller_sizes_after_a_second_refusal_are_refused_where_the_heap_did_not_try_them(once):
    memory = RecordedBFCMemory(regions_of(), 6 * MiB, backs_off_once=once)
    for operation, sizes, granted in ((3, (8, 7, 5), [False, False, True]), (4, (2, 1), [False, not once])):
        memory.operation = operation
        assert [memory.allocate(256, size * MiB) is not None for size in sizes] == granted


def test_exact_memory_repeats_the_calls_of_each_request():
    memory = ExactBFCMemory(regions_of((2, 0x1000, MiB), (5, 0x1000, 0), (5, 0x9000, 3 * MiB)))
    memory.operation = 1
    assert memory.allocate(256, 256) is None
    memory.operation = 2
    assert memory.allocate(256, 2 * MiB) is None
    assert memory.allocate(256, MiB) == (0x1000, MiB)
    assert memory.allocate(256, 256) is None
    memory.operation = 5
    assert memory.allocate(256, MiB) is None  # the release comes first
    memory.free(0x1000, MiB)
    assert memory.allocate(256, 2 * MiB) == (0x9000, 3 * MiB)


def labelled(*requests):
    """A stream of allocations (label, size)."""
    stream = numbered_stream([(ALLOCATE, at, size) for at, (_, size) in enumerate(requests)])
    labels = Labels()
    stream.rows["label"] = [labels.intern(label) for label, _ in requests]
    return RequestStream(stream.rows, labels, "labelled")


STREAM = labelled(
    ("fusion", MiB), ("all-gather.1", MiB), ("empty", 0), ("x/all-reduce", 3 * MiB), ("copy", 2 * MiB)
)


def upper_ones(text):
    outcome = policy_of(text).serve(STREAM, 16 * MiB)
    middle = outcome.address.min(where=outcome.address > 0, initial=1 << 62) + np.uint64(8 * MiB)
    return np.flatnonzero(outcome.address >= middle).tolist()


def test_labels_or_sizes_send_requests_to_the_upper_end():
    assert upper_ones("xla:collective_labels=all-gather|all-reduce") == [1, 3]
    assert upper_ones("xla:collective_from=2MiB") == [3, 4]
    assert upper_ones("xla:collective_labels=gather,collective_from=3MiB") == [1, 3]
    assert policy_of("xla").serve(STREAM, 8 * MiB).address[4] % np.uint64(16 * MiB) == 5 * MiB


def test_collectives_at_the_lower_end_are_aligned_and_split_exactly():
    text = "xla:collectives=lower,collective_labels=all-gather|all-reduce"
    assert upper_ones(text) == [0, 4]
    outcome = policy_of(text).serve(STREAM, 16 * MiB)
    assert {int(outcome.address[at]) % (2 * MiB) for at in (1, 3)} == {0}
    whole = labelled(
        ("fusion", 4 * MiB), ("fusion", 7 * MiB)
    )  # less than twice the request is left in the gap
    assert policy_of("xla:collectives=lower").serve(whole, 16 * MiB).size.tolist() == [4 * MiB, 12 * MiB]
    given = policy_of("xla:collectives=lower,upper_gap_split=exact").serve(whole, 16 * MiB)
    assert given.size.tolist() == [4 * MiB, 7 * MiB]


def test_a_recorded_outcome_has_the_same_ends():
    policy = policy_of("xla:collective_from=2MiB")
    plain, recorded = (policy.serve(STREAM, 16 * MiB, record=record) for record in (False, True))
    assert (plain.address == recorded.address).all()
    assert recorded.options == {"collective_from": 2 * MiB}


@pytest.mark.parametrize(
    "text",
    [
        "xla:lower_order=random",
        "xla:upper_split=never",
        "xla:collective_alignment=300",
        "xla:lower_gap_split=half",
        "xla:collectives=middle",
        "xla:fragmentation_fraction=2",
    ],
)
def test_impossible_options_are_named(text):
    with pytest.raises(InvalidRequest, match=text.partition(":")[2].partition("=")[0]):
        policy_of(text)


def test_it_needs_a_limit():
    with pytest.raises(InvalidRequest, match="limit"):
        policy_of("xla").serve(STREAM)


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
