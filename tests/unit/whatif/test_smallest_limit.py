from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import sample_trace
from unit.whatif.streams import MiB, holes, stream_of

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import stream_of as stream_from
from bfcviz.whatif.search import (
    SearchControl,
    TrialCache,
)
from bfcviz.whatif.smallest_limit import smallest_limit

FIRST_FIT = "first_fit:granule=1"


def search(source, policy=FIRST_FIT, **options):
    return smallest_limit(source, policy, cache=TrialCache(), **options)


def test_the_limit_of_a_stream_with_a_hole():
    found = search(holes())
    assert (found.limit_bytes, found.next_smaller) == (6 * MiB, 6 * MiB - 256)
    assert (found.fails_at_request, found.fails_at_event) == (3, 13)
    assert (found.failed_size, found.failed_label) == (3 * MiB, "last")
    assert (found.lower_bound, found.added) == (5 * MiB, MiB)
    assert found.complete
    assert found.replays == len(found.tried)


def test_the_lower_bound_may_fit_and_the_next_smaller_limit_fails_there_too():
    found = search(stream_of(("a", 1), ("a", 2), -1, ("a", 2)), granule="1MiB")
    assert (found.limit_bytes, found.lower_bound, found.added) == (3 * MiB, 3 * MiB, 0)
    assert (found.next_smaller, found.fails_at_request) == (2 * MiB, 1)
    smallest = search(stream_of(("a", 1), -0), granule="1MiB")
    assert (smallest.limit_bytes, smallest.next_smaller, smallest.fails_at_event) == (MiB, None, None)


@pytest.mark.parametrize("name", ["bfc", "bfc:allow_growth=true", FIRST_FIT])
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12), freed=st.sets(st.integers(0, 10), min_size=1)
)
def test_the_limit_fits_and_the_next_smaller_one_fails(name, sizes, freed):
    requests = []
    for number, size in enumerate(sizes):
        requests.append(("a", size))
        if number - 1 in freed:
            requests.append(-(number - 1))
    stream, policy = stream_of(*requests, -(len(sizes) - 1)), policy_of(name)
    found = search(stream, policy, granule=MiB)
    assert policy.serve(stream, found.limit_bytes).fits
    assert found.limit_bytes >= found.lower_bound
    if found.next_smaller is not None:
        assert found.next_smaller == found.limit_bytes - MiB
        failures = policy.serve(stream, found.next_smaller).failures
        assert failures[0] == found.fails_at_request


@dataclass(frozen=True)
class OddLimits:
    """First fit that also fails under each limit that is an even number of MiB below 20."""

    name: str = "odd"
    options: dict = field(default_factory=dict)

    def serve(self, stream, limit=None, **options):
        seems = limit if limit >= 20 * MiB or limit // MiB % 2 else 1
        return replace(policy_of(FIRST_FIT).serve(stream, seems, **options), limit=limit)


def test_a_policy_that_is_not_monotone_gets_two_limits_of_which_one_fails():
    found = search(holes(), OddLimits(), granule=MiB)
    results = {trial.limit: trial.fits for trial in found.tried}
    assert found.limit_bytes % (2 * MiB) == MiB
    assert found.next_smaller == found.limit_bytes - MiB
    assert OddLimits().serve(holes(), found.limit_bytes).fits
    assert not OddLimits().serve(holes(), found.next_smaller).fits
    assert set(results.values()) == {True, False}


@pytest.mark.parametrize("stop", ["stop", "interrupt"])
@pytest.mark.parametrize("after", [0, 2, 8])
def test_a_stopped_search_returns_what_it_knows(stop, after):
    def progress(done, total, text):
        told.append((done, total))
        if done == after:
            if stop == "interrupt":
                raise KeyboardInterrupt
            control.stop()

    told, control = [], SearchControl(progress)
    found = search(holes(), control=control)
    assert not found.complete
    assert len(found.tried) == found.replays == after
    assert told == [(done, total) for done, (_, total) in enumerate(told)]
    assert all(done <= total for done, total in told)
    fitting = [trial.limit for trial in found.tried if trial.fits]
    assert found.limit_bytes == (min(fitting) if fitting else None)
    if after == 8:
        assert found.next_smaller < 6 * MiB <= found.limit_bytes


def test_a_search_is_known_the_second_time(tmp_path):
    first = smallest_limit(holes(), "bfc", cache=tmp_path)
    again = smallest_limit(holes(), "bfc", cache=tmp_path)
    assert (again.limit_bytes, again.tried, again.replays) == (first.limit_bytes, first.tried, 0)
    assert first.replays > 1


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"at_most": "5.5MiB"}, "5.5 MiB"),
        ({"at_most": 4 * MiB}, "4.0 MiB"),
        ({"granule": 0}, "0"),
        ({"granule": -5}, "-5"),
    ],
)
def test_what_cannot_be_searched_is_refused(options, number):
    with pytest.raises(InvalidRequest, match=number):
        search(holes(), **options)


@pytest.mark.parametrize("name", ["conv", "lstm"])
def test_the_samples_need_less_than_they_had(name):
    stream = stream_from(sample_trace(name))
    found = search(stream, "bfc")
    policy = policy_of("bfc")
    assert policy.serve(stream, found.limit_bytes).fits
    assert not policy.serve(stream, found.next_smaller).fits
    row = stream.rows[found.fails_at_request]
    assert (found.failed_size, found.fails_at_event) == (row["size"], row["event"])
    assert stream.live_bytes.max() < found.limit_bytes < stream.limit
