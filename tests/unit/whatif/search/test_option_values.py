import pytest

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.search.best_options import NOT_CHOSEN, VALUES, option_values, values_of


@pytest.mark.parametrize("name", POLICIES)
def test_every_value_is_one_of_its_option_and_the_default_comes_first(name):
    for option, values in option_values(name).items():
        assert values[0] == POLICIES[name].options[option]
        assert len(set(values)) == len(values) > 1
        for value in values:
            if value is not None:
                assert policy_of(name, **{option: value}).options == {option: value}


def test_the_tables_name_options_that_exist():
    for table in (VALUES, NOT_CHOSEN):
        for name, options in table.items():
            assert set(options) <= set(POLICIES[name].options)


def test_options_are_chosen_with_or_without_values():
    assert option_values("bfc", ["allow_growth"]) == {"allow_growth": [False, True]}
    assert option_values("first_fit", {"granule": ["1MiB", 512]}) == {"granule": [1 << 20, 512]}
    assert values_of("first_fit", "granule")[0] == POLICIES["first_fit"].options["granule"]


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("worst_fit", None),
        ("bfc", ["colour"]),
        ("bfc", {"allow_growth": ["perhaps"]}),
        ("bfc", {"allow_growth": []}),
    ],
)
def test_what_is_wrong_is_named(policy, options):
    with pytest.raises(InvalidRequest, match=r"worst_fit|colour|allow_growth"):
        option_values(policy, options)


def test_an_option_without_values_to_try_asks_for_them():
    with pytest.raises(InvalidRequest, match="capacity"):
        option_values("bfc", ["capacity"])
