import pytest
from shared import sample_file, sample_trace
from unit.whatif.streams import MiB, holes, stream_of

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import replay
from bfcviz.whatif.requests import stream_of as stream_from
from bfcviz.whatif.search import searchable, smallest_limit


def test_a_path_a_trace_and_a_stream_give_the_same():
    path = sample_file("lstm")
    trace = bfcviz.open(path)
    found = [replay(source, "bfc:allow_growth=true", "12MiB") for source in (path, trace, stream_from(trace))]
    assert {(each.fits, each.peak_reserved, each.limit) for each in found} == {
        (True, found[0].peak_reserved, 12 * MiB)
    }


def test_options_limits_and_records_are_passed_on():
    outcome = replay(holes(), "first_fit", 5 * MiB, granule="1MiB", record=True)
    assert outcome.options == {"granule": MiB}
    assert outcome.failures.tolist() == [3]
    assert replay(outcome.trace, "first_fit", "6MiB", granule=MiB).fits


@pytest.mark.parametrize("pool", [-1, 1])
def test_a_heap_that_is_not_there_is_refused(pool):
    with pytest.raises(InvalidRequest, match=str(pool)):
        replay(sample_trace("lstm"), "bfc", "1GiB", pool=pool)


def test_the_free_of_a_request_that_failed_in_the_trace_does_not_count():
    stream = stream_of(("a", 3), ("a", 4), -1)
    assert searchable(stream) is stream
    stream.rows["event"][2] = stream.rows["event"][1]
    with pytest.raises(InvalidRequest, match="2 allocations"):
        searchable(stream)


@pytest.mark.parametrize(
    ("stream", "number"), [(stream_of(), "no allocation"), (stream_of(("a", 3), ("a", 4)), "7.0 MiB")]
)
def test_a_stream_without_allocations_or_frees_is_not_searched(stream, number):
    with pytest.raises(InvalidRequest, match=number):
        searchable(stream)


@pytest.mark.parametrize("limit", ["much", 0, -1, 1.5, [1]])
def test_a_wrong_limit_is_refused_by_name(limit):
    with pytest.raises(InvalidRequest, match="limit="):
        replay(holes(), "first_fit", limit)
    with pytest.raises(InvalidRequest, match="at_most="):
        smallest_limit(holes(), "first_fit", at_most=limit)
    with pytest.raises(InvalidRequest, match="granule="):
        smallest_limit(holes(), "first_fit", granule=limit)
