import pytest

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import POLICIES, policy_of


def test_a_text_names_a_policy_and_its_options():
    policy = policy_of("bfc:allow_growth=true,fragmentation_fraction=0.25,capacity=1GiB")
    assert policy.name == "bfc"
    assert policy.options == {"allow_growth": True, "fragmentation_fraction": 0.25, "capacity": 1 << 30}
    assert policy_of("first_fit", granule=512).options == {"granule": 512}
    assert policy_of(policy) is policy


@pytest.mark.parametrize(
    "text",
    [
        "worst_fit",
        "bfc:growth=true",
        "bfc:allow_growth=perhaps",
        "first_fit:granule=much",
        "first_fit:granule=0",
        "bfc:fragmentation_fraction=nan",
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
