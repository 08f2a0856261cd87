import numpy as np
import pytest
from shared import needs_shared, sample_trace, snapshot_trace
from unit.whatif.streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.largest_batch import largest_batch, scaled_requests
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import stream_of as stream_from
from bfcviz.whatif.search import SearchControl, TrialCache

FIRST_FIT = "first_fit:granule=1"


def training(limit=None):
    """Weights of 10 MiB, and 4 MiB that grow."""
    return stream_of(("a", 10, "weights"), "step", ("a", 4, "activation"), -1, limit=limit)


def largest_batch_of(limit, **options):
    return largest_batch(training(), FIRST_FIT, limit, cache=TrialCache(), **options)


def test_the_largest_batch_and_the_failure_of_the_next_one():
    found = largest_batch_of("30MiB", batch=8)
    assert (found.largest, found.factor, found.next_factor) == (40, 5.0, 41 / 8)
    assert (found.fails_at_request, found.fails_at_event) == (2, 12)
    assert (found.failed_size, found.failed_label) == (4 * MiB * 41 // 8, "activation")
    assert (found.limit, found.batch, found.complete) == (30 * MiB, 8, True)


def test_factors_have_two_decimals():
    found = largest_batch_of(17 * MiB)
    assert (found.factor, found.next_factor, found.largest) == (1.75, 1.76, None)


@pytest.mark.parametrize("batch", [None, 7])
def test_the_text_tells_the_two_neighbours_apart(batch):
    found = largest_batch_of("462MiB", batch=batch)
    last, following = (
        (f"{found.factor:.2f} times", f"{found.next_factor:.2f} times")
        if batch is None
        else ("a batch of 791 ", "a batch of 792 ")
    )
    assert last != following
    serves, fails, *_ = str(found).splitlines()
    assert (last in serves, following in fails) == (True, True)


def test_a_batch_that_does_not_fit_shrinks():
    found = largest_batch_of("13MiB", batch=8)
    assert (found.largest, found.factor, found.next_factor) == (6, 0.75, 7 / 8)
    assert largest_batch_of("10MiB", batch=8).largest == 0


def test_the_limit_of_the_trace_is_the_default():
    found = largest_batch(training(18 * MiB), FIRST_FIT, batch=1, cache=TrialCache())
    assert (found.limit, found.largest) == (18 * MiB, 2)
    with pytest.raises(InvalidRequest, match="limit"):
        largest_batch(training(), FIRST_FIT)


def test_labels_choose_what_grows():
    assert largest_batch_of("24MiB", batch=10, labels=["weights"]).largest == 20


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        ("9MiB", {}),
        (True, {}),
        *(("1GiB", {"batch": each}) for each in (0, 1.5, "8", True)),
        *(("1GiB", {"labels": each}) for each in (["x"], [], 5, ["weights", 5])),
    ],
)
def test_no_batch_of_this_can_be_searched(limit, options):
    with pytest.raises(InvalidRequest):
        largest_batch_of(limit, **options)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_stopped_search_of_a_batch_returns_what_it_knows(after):
    control = SearchControl(lambda done, *_: done == after and control.stop())
    found = largest_batch_of("1GiB", batch=1000, control=control)
    assert not found.complete
    assert found.replays == after
    assert (found.factor is None) == (after == 0)
    assert found.factor is None or found.factor >= 1


def test_a_sample_grows_until_the_next_batch_fails():
    stream, policy = stream_from(sample_trace("lstm")), policy_of("bfc:allow_growth=true")
    found = largest_batch(stream, policy, "24MiB", batch=32, cache=TrialCache())
    scaled = scaled_requests(stream)
    assert policy.serve(scaled.times(found.largest, 32), 24 * MiB).fits
    assert policy.serve(scaled.times(found.largest + 1, 32), 24 * MiB).failures[0] == found.fails_at_request
    assert found.largest > 32


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


ADAM = "Optimizer.step#Adam.step"
ONE_STEP = (
    ("a", 10, "weights"),
    "history begins here",
    ("a", 3, "activation"),
    ("a", 10, "gradient"),
    -1,
    f"{ADAM} begins",
    ("a", 4, "temporary"),
    -3,
    ("a", 6, "state"),
    f"{ADAM} ends",
)
"""A snapshot of one step of PyTorch: its only mark of a step is that of the optimizer, which comes last."""


SECOND_STEP = (-2, ("a", 3), ("a", 10), -5, f"{ADAM} begins", ("a", 4), -7, f"{ADAM} ends")
"""Its gradient replaces the first one."""

KEPT_OUTPUT = (-2, ("a", 7), ("a", 10), f"{ADAM} begins", f"{ADAM} ends", ("a", 7), -5)
"""A second step whose output a variable keeps until the next one is there."""


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((), []),
        ((*SECOND_STEP, ("a", 2)), [6, 10, 4, 4]),
        (KEPT_OUTPUT, [14, 10, 14]),
        ((-2, "Optimizer.zero_grad#Adam.zero_grad begins", ("a", 1)), [1]),
    ],
)
def test_the_work_of_an_optimizer_does_not_grow(after, expected):
    scaled = scaled_requests(stream_of(*ONE_STEP, *after))
    one_step = [10, 3 if len(after) > 3 else 6, 10, 4, 6]
    assert sizes(scaled.times(2, 1)) == one_step + expected
    assert f"'{ADAM} begins'" in scaled.assumption


def test_one_step_without_its_forward_pass_is_refused():
    begin = (("a", 10, "weights"), ("a", 3, "activation"), "history begins here", ("a", 10, "gradient"), -1)
    optimizer = (f"{ADAM} begins", ("a", 4), -3, f"{ADAM} ends")
    with pytest.raises(InvalidRequest, match=r"3\.0 MiB"):
        scaled_requests(stream_of(*begin, *optimizer))
    zero = "Optimizer.zero_grad#Adam.zero_grad"
    of_zero_grad = (*begin[:-1], f"{zero} begins", -1, f"{zero} ends", ("a", 1), -3)
    assert sizes(scaled_requests(stream_of(*of_zero_grad, *optimizer[:1])).times(2, 1)) == [10, 3, 10, 2]


def test_a_mark_of_an_optimizer_without_an_end_is_refused():
    with pytest.raises(InvalidRequest, match="'optimizer step'"):
        scaled_requests(stream_of(("a", 3), -0, "optimizer step", ("a", 4), -1))
    marked = stream_of(("a", 10), "step", ("a", 3), -1, "optimizer step", ("a", 4), -2)
    assert "'step'" in scaled_requests(marked).assumption


@needs_shared
@pytest.mark.parametrize(
    ("name", "grow", "most", "kept"),
    [
        ("torch_cs336_ctx128_fullstep", 5314, 5.5, 20_480_000 + 4),  # a variable has the logits, one the loss
        ("torch_wedson_medium512_train", 4305, 6.8, 4),
    ],
)
def test_what_grows_of_one_recorded_step_are_the_blocks_of_its_passes(name, grow, most, kept):
    stream = stream_from(snapshot_trace(name))
    scaled = scaled_requests(stream)
    assert np.count_nonzero(scaled.grows) == grow
    assert round(scaled.peak_growing() / (1 << 30), 1) == most
    begin = next(at for at in np.flatnonzero(stream.rows["kind"] == 2) if "step" in label_name(stream, at))
    assert np.flatnonzero(scaled.grows).max() < begin
    assert scaled.times(2, 1).live_bytes[begin] == stream.live_bytes[begin] + kept


def label_name(stream, at):
    return stream.labels.name(int(stream.rows["label"][at]))


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
