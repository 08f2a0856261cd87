import pickle
from dataclasses import replace

import pytest
from shared import sample_trace
from unit.whatif.sweep.streams import random_stream

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import requests_of
from bfcviz.whatif.sweep.point import SentStream, SweepLimit


@pytest.mark.parametrize(
    ("given", "text", "num_bytes"),
    [
        (None, "none", None),
        (4096, "4096", 4096),
        ("4KiB", "4096", 4096),
        ("150%", "150%", 1500),
        (" 99.5 %", "99.5%", 995),
        (-1, "-1", -1),
    ],
)
def test_limits(given, text, num_bytes):
    limit = SweepLimit.of(given)
    assert (limit.text, limit.bytes_for(1000)) == (text, num_bytes)


@pytest.mark.parametrize("given", ["much", "%", "x%", "", "nan%", "inf%", 1.5])
def test_what_is_no_limit(given):
    with pytest.raises(InvalidRequest):
        SweepLimit.of(given)


def test_a_sent_stream_arrives_whole():
    stream = random_stream(1)
    found = pickle.loads(pickle.dumps(SentStream.of(stream))).stream()  # noqa: S301  our own
    assert (found.rows == stream.rows).all()
    assert found.source == stream.source


def test_a_sent_stream_has_the_regions_and_labels_that_policies_read():
    stream = requests_of(sample_trace("lstm"))
    found = pickle.loads(pickle.dumps(SentStream.of(stream))).stream()  # noqa: S301  our own
    assert found.digest == stream.digest
    assert replace(stream, regions=stream.regions[:0]).digest != stream.digest
    policy = policy_of("bfc:allow_growth=true,regions=exact")
    assert (policy.serve(found, stream.limit).address == policy.serve(stream, stream.limit).address).all()
