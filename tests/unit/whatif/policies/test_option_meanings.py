"""Each option of each policy is explained, with the values that it takes."""

import pytest

from bfcviz.formats.tensorflow import VERSIONS
from bfcviz.whatif.policy_table import MEANINGS, POLICIES, XLA_MEANINGS, meaning_of, policy_of


@pytest.mark.parametrize("name", POLICIES)
def test_each_option_has_a_meaning(name):
    assert all(meaning_of(name, option) for option in POLICIES[name].options)


def test_no_meaning_is_of_an_option_that_is_gone():
    options = {option for entry in POLICIES.values() for option in entry.options}
    assert {*MEANINGS, *XLA_MEANINGS} <= options


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("regions", ["simulated", "recorded", "exact"]),
        ("mode", ["gapped", "contiguous", "descending"]),
        ("version", list(VERSIONS)),
    ],
)
def test_the_words_that_an_option_takes_are_named(option, values):
    for value in values:
        assert value in meaning_of("bfc", option)
        assert policy_of("bfc", **{option: value}).options == {option: value}
