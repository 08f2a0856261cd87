from typing import ClassVar

import pytest

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import POLICIES, other_than_default, policy_key, policy_of, policy_text


def test_a_text_names_a_policy_and_its_options():
    policy = policy_of("bfc:allow_growth=true,fragmentation_fraction=0.25,capacity=1GiB")
    assert policy.name == "bfc"
    assert policy.options == {"allow_growth": True, "fragmentation_fraction": 0.25, "capacity": 1 << 30}
    assert policy_of("first_fit", granule=512).options == {"granule": 512}
    assert policy_of(policy) is policy
    assert policy_of("torch:max_split_size=none").options == {"max_split_size": None}


@pytest.mark.parametrize(
    "text",
    [
        "worst_fit",
        "bfc:growth=true",
        "bfc:allow_growth=perhaps",
        "first_fit:granule=much",
        "first_fit:granule=0",
        "bfc:fragmentation_fraction=nan",
        "torch:roundup_power2_divisions=[1:3]",
        "torch:max_split_size=[1:4]",
    ],
)
def test_what_is_wrong_is_named(text):
    with pytest.raises(InvalidRequest) as caught:
        policy_of(text)
    assert text.partition(":")[0] in str(caught.value)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_serves_the_options_of_the_table(name):
    entry = POLICIES[name]
    given = {key: value for key, value in entry.options.items() if value is not None}
    assert policy_of(name, **given).options == given


@pytest.mark.parametrize(
    "text",
    [
        "first_fit:granule=1MiB",
        "bfc",
        "bfc:allow_growth=true,fragmentation_fraction=0.25,capacity=3GiB",
        "torch:max_split_size=20971521,roundup_power2_divisions=16",
        "torch:roundup_power2_divisions=[256:1,512:2,>:8],expandable_segments=true",
    ],
)
def test_a_policy_is_written_as_it_is_read(text):
    policy = policy_of(text)
    assert policy_text(policy.name, policy.options) == text


class Nameless:
    options: ClassVar = {}

    def serve(self, stream, limit=None, *, record=False, stop_at_failure=False):
        raise NotImplementedError


class WithoutOptions(Nameless):
    name, options = "mine", None


class CannotServe(Nameless):
    name, serve = "mine", None


@pytest.mark.parametrize(
    ("given", "missing"),
    [(Nameless(), "name"), (WithoutOptions(), "options"), (CannotServe(), "serve"), (3, "name")],
)
def test_an_object_that_is_no_policy_is_refused_by_what_it_lacks(given, missing):
    with pytest.raises(InvalidRequest, match=f"is no policy.*{missing}"):
        policy_of(given)
    with pytest.raises(InvalidRequest, match=f"is no policy.*{missing}"):
        policy_key(given)


def test_one_policy_has_one_key():
    text = "bfc:allow_growth=true,capacity=4KiB"
    assert policy_key(text) == policy_key("bfc:capacity=4096,allow_growth=true") == text
    assert policy_key(policy_of("bfc", allow_growth=True, capacity=4096)) == text
    assert policy_key("first_fit") == "first_fit"
    assert policy_key("bfc:version=1.0") == "bfc:version=1.0"


def test_defaults_are_left_out_where_they_are_those_of_the_table():
    given = {"expandable_segments": False, "max_split_size": None, "roundup_power2_divisions": 4}
    assert other_than_default("torch", given) == {"roundup_power2_divisions": 4}
    versioned = {"version": "1.10", "allow_growth": False}
    assert other_than_default("bfc", versioned) == versioned


@pytest.mark.parametrize(
    ("text", "nearest"), [("torch:max_split_size_mb=64", "'max_split_size'?"), ("torhc", "'torch'?")]
)
def test_a_wrong_name_has_a_hint_at_the_nearest(text, nearest):
    with pytest.raises(InvalidRequest) as caught:
        policy_of(text)
    assert nearest in str(caught.value)
