import pytest
from shared import short_trace
from unit.whatif.streams import MiB, holes

from bfcviz.errors import InvalidRequest
from bfcviz.whatif import best_options as module
from bfcviz.whatif.best_options import GOALS, NOT_CHOSEN, VALUES, best_options, option_values, values_of
from bfcviz.whatif.policy_table import POLICIES, policy_of
from bfcviz.whatif.requests import stream_of as stream_from
from bfcviz.whatif.search import SearchControl, TrialCache
from bfcviz.whatif.smallest_limit import smallest_limit

GRANULES = {"granule": ["4MiB", "1MiB", "16MiB"]}


def search(policy="first_fit", limit="64MiB", **options):
    return best_options(holes(), policy, limit, cache=TrialCache(), **{"options": GRANULES, **options})


def test_all_combinations_are_ranked_by_the_goal():
    found = search()
    assert found.options == {"granule": MiB}
    assert [row.trial.peak_reserved for row in found.table] == [6 * MiB, 8 * MiB, 16 * MiB]
    assert (found.method, found.complete, found.replays) == ("grid", True, 3)
    fewest = search(goal="driver_calls")
    assert fewest.options == {"granule": 16 * MiB}


def test_what_fails_comes_after_what_fits_and_none_may_fit():
    found = best_options(holes(), "bfc", "6.5MiB", options=["allow_growth"], cache=TrialCache())
    assert found.options == {"allow_growth": False}
    assert [row.trial.fits for row in found.table] == [True, False]
    none = search(limit="5MiB")
    assert (none.best, none.options, len(none.table)) == (None, None, 3)


def test_a_policy_that_refuses_is_a_row_with_its_message():
    found = best_options(holes(), "bfc", options=["allow_growth"], cache=TrialCache())
    assert found.options == {"allow_growth": True}
    refused = found.table[-1]
    assert (refused.trial, refused.options) == (None, {"allow_growth": False})
    assert "allow_growth" in refused.error


@pytest.mark.parametrize("goal", GOALS)
def test_a_coordinate_search_finds_the_same_where_options_do_not_depend_on_each_other(goal, monkeypatch):
    stream = stream_from(short_trace("lstm", 20_000))
    grid = best_options(stream, "bfc", "24MiB", goal=goal, cache=TrialCache())
    monkeypatch.setattr(module, "MOST_COMBINATIONS", 2)
    found = best_options(stream, "bfc", "24MiB", goal=goal, cache=TrialCache())
    assert (grid.method, found.method) == ("grid", "coordinate")
    assert GOALS[goal](found.best.trial) == GOALS[goal](grid.best.trial)
    assert found.replays < len(grid.table)


def test_options_that_are_given_stay():
    found = best_options(holes(), "bfc:allow_growth=true", "64MiB", cache=TrialCache())
    assert "allow_growth" not in found.options
    assert all(row.trial.options["allow_growth"] for row in found.table)


def test_the_smallest_limit_is_a_goal():
    stream = stream_from(short_trace("lstm", 20_000))
    found = best_options(
        stream, "bfc", "24MiB", options=["allow_growth"], goal="smallest_limit", cache=TrialCache()
    )
    expected = {
        value: smallest_limit(stream, policy_of("bfc", allow_growth=value), cache=TrialCache()).limit_bytes
        for value in (False, True)
    }
    assert {row.options["allow_growth"]: row.trial.limit for row in found.table} == expected
    assert found.best.trial.limit == min(expected.values())


def test_a_goal_that_does_not_exist_is_named():
    with pytest.raises(InvalidRequest, match="speed"):
        search(goal="speed")


def test_a_stopped_search_returns_what_was_tried():
    control = SearchControl(lambda done, *_: done == 2 and control.stop())
    found = search(control=control)
    assert (len(found.table), found.complete) == (2, False)
    assert found.options == {"granule": MiB}


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


def test_the_best_options_can_be_given_back():
    for policy in ("torch", "first_fit:granule=1MiB", "bfc:version=1.10"):
        found = best_options(holes(), policy, "64MiB", cache=TrialCache())
        named = str(found).splitlines()[0].rpartition(": ")[2]
        again = policy_of(named).serve(holes(), 64 * MiB, stop_at_failure=True)
        assert again.peak_reserved == found.best.trial.peak_reserved
        assert "None" not in str(found)


def test_ties_with_the_best_are_marked():
    found = best_options(holes(), "torch", "64MiB", options=["roundup_power2_divisions"], cache=TrialCache())
    lines = str(found).splitlines()[3:]
    least = found.best.trial.peak_reserved
    ties = [row.trial.peak_reserved == least for row in found.table]
    assert [("ties with" in line) for line in lines[1 : len(ties)]] == ties[1:]
    assert ties[1]
