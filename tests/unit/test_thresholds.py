"""Thresholds: valid values, which values violate them, and how often a crossing is reported."""

import pytest

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.thresholds import Hysteresis, Threshold
from bfcviz.watching.alerts import Alert


@pytest.mark.parametrize("kind", [Threshold, Alert])
def test_a_bound_is_a_number_or_a_size_as_text(kind):
    upper, lower = kind("bytes_in_use", above="4KiB"), kind("free_bytes", below=4096)
    assert (upper.number, upper.is_upper, lower.number, lower.is_upper) == (4096, True, 4096, False)
    assert [upper.is_past(value) for value in (4095, 4096, 4097)] == [False, False, True]
    assert [lower.is_past(value) for value in (4095, 4096, 4097)] == [True, False, False]
    assert (upper.bound, lower.bound) == ("above 4.0 KiB", "below 4.0 KiB")


@pytest.mark.parametrize(
    ("measure", "bound"),
    [("pool_bytes", "below 0 B"), ("chunks_in_use", "below 0"), ("external_fragmentation", "below 0%")],
)
def test_each_measure_is_formatted_in_its_unit(measure, bound):
    assert str(Threshold(measure, below=0)) == f"{measure} {bound}"


@pytest.mark.parametrize(("kind", "refusal"), [(Threshold, InvalidRequest), (Alert, LiveError)])
@pytest.mark.parametrize(
    ("measure", "numbers", "words"),
    [
        ("bytes", {"above": 1}, "'bytes'.*bytes_in_use"),
        ("bytes_in_use", {}, "above.*below"),
        ("bytes_in_use", {"above": 1, "below": 0}, "above.*below"),
        ("bytes_in_use", {"above": float("nan")}, "nan .*bytes_in_use"),
        ("bytes_in_use", {"below": float("-inf")}, "-inf .*bytes_in_use"),
        ("bytes_in_use", {"above": b"1MiB"}, "b'1MiB' .*bytes_in_use"),
        ("internal_fragmentation", {"above": 30}, "30 .*internal_fragmentation.* 0 to 1"),
    ],
)
def test_invalid_thresholds_are_refused(kind, refusal, measure, numbers, words):
    with pytest.raises(refusal, match=words):
        kind(measure, **numbers)


@pytest.mark.parametrize("kind", [Threshold, Alert])
def test_text_that_is_not_a_size_is_refused(kind):
    with pytest.raises(ValueError, match="'much'"):
        kind("bytes_in_use", above="much")


@pytest.mark.parametrize(
    ("calm", "starts_past", "looks", "told"),
    [
        (1, False, "+-+--+", "101001"),
        (3, False, "+-+--+---+", "1000000001"),
        (1, True, "++-+", "0001"),
        (3, True, "++-+", "0000"),
        (3, True, "-+--+---+", "010000001"),
    ],
)
def test_it_is_reported_again_only_after_good_samples(calm, starts_past, looks, told):
    """`+` violates the threshold."""
    state = Hysteresis(calm, is_past=starts_past)
    assert "".join(str(int(state.take(is_past=look == "+"))) for look in looks) == told
