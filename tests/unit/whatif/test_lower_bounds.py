import numpy as np
import pytest
from hypothesis import given
from shared import sample_trace
from unit.whatif.streams import LIMIT, numbered_stream, streams

from bfcviz.errors import InvalidRequest
from bfcviz.events.labels import Labels
from bfcviz.whatif import planner
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE, STREAM_ROW, RequestStream, requests_of

KiB, MiB = 1 << 10, 1 << 20


@given(stream=streams())
def test_live_bytes_are_those_of_the_stream_and_no_policy_needs_less(stream):
    exact = policy_of("live_bytes").serve(stream)
    assert exact.in_use.tolist() == exact.reserved.tolist() == stream.live_bytes.tolist()
    rounded = policy_of("live_bytes:unit=256").serve(stream)
    assert exact.peak_reserved <= policy_of("exact_size:unit=1").serve(stream).peak_reserved
    for name in ("bfc", "xla", "first_fit", "buddy", "packed"):
        outcome = policy_of(name).serve(stream, 1 << 40)
        assert outcome.fits
        assert exact.peak_reserved <= rounded.peak_reserved <= outcome.peak_in_use <= outcome.peak_reserved


def test_live_bytes_fail_only_where_the_live_bytes_exceed_the_limit():
    requests = [
        (ALLOCATE, 0, 3 * KiB),
        (ALLOCATE, 1, 2 * KiB),
        (FREE, 0, 0),
        (FREE, 1, 0),
        (ALLOCATE, 2, 4 * KiB),
    ]
    outcome = policy_of("live_bytes").serve(numbered_stream(requests), 4 * KiB)
    assert outcome.failures.tolist() == [1]
    assert outcome.in_use.tolist() == [3 * KiB, 3 * KiB, 0, 0, 4 * KiB]


def test_a_plan_reserves_its_height_once():
    requests = [(ALLOCATE, 0, MiB), (ALLOCATE, 1, MiB), (FREE, 0, 0), (ALLOCATE, 2, 2 * MiB)]
    outcome = policy_of("packed").serve(numbered_stream(requests), 3 * MiB)
    assert outcome.fits
    assert outcome.reserved.tolist() == [3 * MiB] * 4
    assert outcome.driver_calls == (1, 0, 0)
    tight = policy_of("packed").serve(numbered_stream(requests), 3 * MiB - 1)
    assert len(tight.failures) == 1
    assert tight.peak_reserved <= 3 * MiB - 1


def test_what_exceeds_the_limit_alone_displaces_nothing():
    requests = [(ALLOCATE, 0, LIMIT + 1), (ALLOCATE, 1, LIMIT)]
    outcome = policy_of("packed").serve(numbered_stream(requests), LIMIT)
    assert outcome.failures.tolist() == [0]


def test_bound_and_plan_stand_below_the_real_heap_of_a_sample():
    stream = requests_of(sample_trace("lstm"))
    live, packed, bfc = (
        policy_of(text).serve(stream, stream.limit).peak_reserved
        for text in ("live_bytes", "packed", "bfc:allow_growth=true")
    )
    assert live <= packed < bfc


def test_too_many_blocks_for_a_trace_are_named():
    rows = np.zeros(65_536, STREAM_ROW)
    rows["kind"], rows["size"], rows["block"] = ALLOCATE, 1, np.arange(len(rows))
    requests = RequestStream(rows, Labels())
    assert policy_of("live_bytes").serve(requests).peak_in_use == 65_536
    with pytest.raises(InvalidRequest, match="65,536"):
        policy_of("live_bytes").serve(requests, record=True)


def test_sizes_beyond_all_addresses_are_refused():
    requests = numbered_stream([(ALLOCATE, at, 1 << 61) for at in range(3)])
    with pytest.raises(InvalidRequest, match="addresses"):
        policy_of("live_bytes").serve(requests)
    with pytest.raises(InvalidRequest):
        policy_of("packed").serve(requests)


def test_a_unit_below_one_byte_is_refused():
    with pytest.raises(InvalidRequest, match="unit"):
        policy_of("live_bytes:unit=0")


def test_all_limits_of_a_stream_are_planned_once(monkeypatch):
    planned = []
    plain = planner.pack
    monkeypatch.setattr(planner, "_plans", {})
    monkeypatch.setattr(
        planner, "pack", lambda stream, seconds: planned.append(stream) or plain(stream, seconds)
    )
    stream = requests_of(sample_trace("lstm"))
    policy = policy_of("packed")
    peaks = {policy.serve(stream, limit).peak_reserved for limit in (None, 1 << 30, 1 << 28)}
    assert planned == [stream]
    assert len(peaks) == 1
    largest = int(stream.block_sizes.max())
    assert not policy.serve(stream, largest - 1).fits
    assert planned[-1] is not stream
