import numpy as np
import pytest
from shared import needs_shared
from unit.whatif.golden import Golden, golden_files, shared_files
from unit.whatif.labelled_streams import stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.formats.tensorflow import VERSIONS
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE

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
    return policy_of(text).serve(stream_of([(ALLOCATE, at, size) for at, size in enumerate(sizes)]), limit)


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
        .serve(stream_of(requests), 4 * MiB)
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
            stream_of(requests), 6 * MiB
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
        policy_of("bfc:regions=recorded,granule=4096").serve(stream_of([(ALLOCATE, 0, 1)]), MiB)
