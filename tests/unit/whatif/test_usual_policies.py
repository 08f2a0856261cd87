"""Which rules are served by if none is named."""

import numpy as np
import pytest
from shared import sample_trace
from unit.whatif.labelled_streams import MiB, stream_of

from bfcviz.events.labels import Labels
from bfcviz.whatif.policy_table import (
    AS_RECORDED,
    GROWING_BFC,
    OWN_RULES,
    USUAL,
    own_or_bfc_rules,
    own_rules,
    policy_of,
    usual_policies,
)
from bfcviz.whatif.requests import ALLOCATE, STREAM_ROW, RequestStream, requests_of


def torch_stream(**settings):
    return RequestStream(np.zeros(0, STREAM_ROW), Labels(), "snapshot", options=settings, family="torch")


@pytest.fixture(scope="module")
def requests():
    return requests_of(sample_trace("lstm"))


def test_the_recorded_heap_is_the_first_row_under_its_own_limit(requests):
    for limit in (None, requests.limit):
        own, *others = usual_policies(requests, limit)
        assert (own.role, own.limit) == (AS_RECORDED, requests.limit)
        assert tuple(others) == USUAL
    outcome = own.policy.serve(requests, own.limit)
    granted = requests.regions["size"]
    assert outcome.fits
    assert outcome.peak_reserved == granted.sum()  # of this run no region was released


def test_another_limit_has_the_same_rules_with_a_simulated_driver(requests):
    own, *others = usual_policies(requests, 8 * MiB)
    assert (own.role, own.limit, own.text) == (OWN_RULES, 8 * MiB, GROWING_BFC)
    assert tuple(others) == tuple(name for name in USUAL if name != GROWING_BFC)
    assert own.policy.serve(requests, 8 * MiB).peak_reserved <= 8 * MiB


def test_what_the_file_says_of_garbage_collection_wins():
    rows = stream_of([(ALLOCATE, 0, MiB)]).rows
    for told, expected in (({}, True), ({"garbage_collection": False}, False)):
        stream = RequestStream(rows, Labels(), options={"allow_growth": True, **told})
        own = own_rules(stream, 4 * MiB)
        assert own.policy.options.get("garbage_collection", False) is expected


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "torch"),
        ({"expandable_segments": True, "max_split_size": -1}, "torch:expandable_segments=true"),
        ({"expandable_segments": False, "max_split_size": 64 * MiB}, "torch:max_split_size=64MiB"),
        ({"max_split_size": (1 << 63) - 1, "garbage_collection_threshold": 0.0}, "torch"),
        ({"garbage_collection_threshold": 0.8}, "torch:garbage_collection_threshold=0.8"),
        ({"roundup_power2_divisions": {"1": 4, "2": 4}}, "torch:roundup_power2_divisions=4"),
        ({"roundup_power2_divisions": {"1": 4, "2": 8}}, "torch:roundup_power2_divisions=[1:4,>:8]"),
        (
            {"roundup_power2_divisions": {"1": 0, "2": 4, "4": 8, "8": 8}, "max_split_size": 64 * MiB},
            "torch:max_split_size=64MiB,roundup_power2_divisions=[1:1,2:4,>:8]",
        ),
        ({"max_split_size": 1, "expandable_segments": "yes", "roundup_power2_divisions": -4}, "torch"),
    ],
)
def test_pytorch_has_the_options_of_its_snapshot(settings, text):
    own = own_rules(torch_stream(**settings), None)
    assert (own.text, own.role) == (text, OWN_RULES)
    assert policy_of(own.text).options == own.policy.options


def test_rules_that_are_not_known_are_none():
    plain = stream_of([(ALLOCATE, 0, MiB)])
    assert own_rules(plain, None) is None
    assert usual_policies(plain, None) == USUAL
    assert own_or_bfc_rules(plain).text == "bfc"
    strange = RequestStream(plain.rows, plain.labels, options={"allow_growth": "perhaps"})
    assert own_rules(strange, None) is None


def test_a_limit_is_searched_with_a_simulated_driver(requests):
    assert own_or_bfc_rules(requests).text == GROWING_BFC
    assert own_or_bfc_rules(torch_stream(expandable_segments=True)).text == "torch:expandable_segments=true"


def test_a_heap_whose_beginning_is_missing_is_simulated(requests):
    rows = requests.rows.copy()
    rows["event"][0] = -1
    late = RequestStream(
        rows, requests.labels, limit=requests.limit, options=requests.options, regions=requests.regions
    )
    assert own_rules(late, requests.limit).role == OWN_RULES
