import pytest
from shared import sample_trace
from unit.whatif.streams import MiB, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import stream_of as stream_from
from bfcviz.whatif.search.largest_batch import largest_batch, scaled_requests
from bfcviz.whatif.search.trial import SearchControl, TrialCache

FIRST_FIT = "first_fit:granule=1"


def training(limit=None):
    """Weights of 10 MiB, and 4 MiB that grow."""
    return stream_of(("a", 10, "weights"), "step", ("a", 4, "activation"), -1, limit=limit)


def search(limit, **options):
    return largest_batch(training(), FIRST_FIT, limit, cache=TrialCache(), **options)


def test_the_largest_batch_and_the_failure_of_the_next_one():
    found = search("30MiB", batch=8)
    assert (found.largest, found.factor, found.next_factor) == (40, 5.0, 41 / 8)
    assert (found.fails_at_request, found.fails_at_event) == (2, 12)
    assert (found.failed_size, found.failed_label) == (4 * MiB * 41 // 8, "activation")
    assert (found.limit, found.batch, found.complete) == (30 * MiB, 8, True)


def test_factors_have_two_decimals():
    found = search(17 * MiB)
    assert (found.factor, found.next_factor, found.largest) == (1.75, 1.76, None)


def test_a_batch_that_does_not_fit_shrinks():
    found = search("13MiB", batch=8)
    assert (found.largest, found.factor, found.next_factor) == (6, 0.75, 7 / 8)
    assert search("10MiB", batch=8).largest == 0


def test_the_limit_of_the_trace_is_the_default():
    found = largest_batch(training(18 * MiB), FIRST_FIT, batch=1, cache=TrialCache())
    assert (found.limit, found.largest) == (18 * MiB, 2)
    with pytest.raises(InvalidRequest, match="limit"):
        largest_batch(training(), FIRST_FIT)


def test_labels_choose_what_grows():
    assert search("24MiB", batch=10, labels=["weights"]).largest == 20


@pytest.mark.parametrize(
    ("limit", "options"), [("9MiB", {}), ("1GiB", {"batch": 0}), ("1GiB", {"labels": ["x"]})]
)
def test_what_cannot_be_searched_is_refused(limit, options):
    with pytest.raises(InvalidRequest):
        search(limit, **options)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_stopped_search_returns_what_it_knows(after):
    control = SearchControl(lambda done, *_: done == after and control.stop())
    found = search("1GiB", batch=1000, control=control)
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
