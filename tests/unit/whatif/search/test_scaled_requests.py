import numpy as np
import pytest
from unit.whatif.streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.search.largest_batch import scaled_requests

TRAINING = stream_of(
    ("a", 10, "weights"),
    "step",
    ("a", 3, "net/activation"),
    ("a", 2, "optimizer"),
    -1,
    "step",
    ("a", 3, "net/activation"),
    ("a", 1, "net/loss"),
)
"""Blocks 0 and 2 are weights and state; the trace ends in the middle of the second step."""


def sizes(stream):
    return (stream.rows["size"][stream.rows["kind"] == 0] / MiB).tolist()


def test_weights_and_state_stay_and_the_blocks_of_steps_grow():
    scaled = scaled_requests(TRAINING)
    assert sizes(scaled.times(3, 2)) == [10, 4.5, 2, 4.5, 1.5]
    assert sizes(scaled.times(0, 1)) == [10, 0, 2, 0, 0]
    assert sizes(TRAINING) == [10, 3, 2, 3, 1]
    assert scaled.peak_growing() == 4 * MiB
    assert "'step'" in scaled.assumption
    assert "12.0 MiB" in scaled.assumption


def test_without_marks_what_is_freed_grows():
    scaled = scaled_requests(stream_of(("a", 10), ("a", 1), -1, ("a", 2), -2))
    assert sizes(scaled.times(2, 1)) == [10, 2, 4]
    assert "10.0 MiB" in scaled.assumption


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["weights"], [20, 3, 2, 3, 1]), (["net/*", "optimizer"], [10, 6, 4, 6, 2]), (["*"], [20, 6, 4, 6, 2])],
)
def test_chosen_labels_grow(labels, expected):
    assert sizes(scaled_requests(TRAINING, labels).times(2, 1)) == expected


def test_sizes_are_rounded_up():
    stream = stream_of(("a", 1), -0)
    for numerator, denominator in [(1, 3), (2, 7), (10_000_001, 10_000_000), (1 << 30, (1 << 30) - 1)]:
        (found,) = scaled_requests(stream).times(numerator, denominator).rows["size"][:1]
        assert found == -(-MiB * numerator // denominator)


def test_what_cannot_grow_is_refused():
    with pytest.raises(InvalidRequest, match="'nothing'"):
        scaled_requests(TRAINING, ["weights", "nothing"])
    with pytest.raises(InvalidRequest, match="'step'"):
        scaled_requests(stream_of(("a", 1), -0, "step"))
    with pytest.raises(InvalidRequest, match="2\\^62"):
        scaled_requests(TRAINING).times(1 << 50, 1)


def test_everything_else_of_the_requests_stays():
    scaled = scaled_requests(TRAINING).times(2, 1)
    for name in set(TRAINING.rows.dtype.names) - {"size"}:
        assert np.array_equal(scaled.rows[name], TRAINING.rows[name])
    assert scaled.digest != TRAINING.digest
