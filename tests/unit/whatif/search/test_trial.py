import pytest
from unit.whatif.streams import MiB, holes

from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.search.trial import SearchControl, TrialCache, TrialRunner

POLICY = policy_of("first_fit", granule=MiB)


def run(cache, limit):
    runner = TrialRunner(cache, SearchControl())
    trial = runner.run(holes(), POLICY, limit, "")
    return trial, runner.replays


def test_a_trial_ends_at_its_first_failure():
    failed, _ = run(TrialCache(), 5 * MiB)
    assert (failed.fits, failed.failed_at, failed.served, failed.limit) == (False, 3, 4, 5 * MiB)
    assert (failed.peak_reserved, failed.peak_in_use) == (3 * MiB, 3 * MiB)
    fits, _ = run(TrialCache(), 6 * MiB)
    assert (fits.fits, fits.failed_at, fits.served) == (True, -1, 4)
    assert fits.reserved_not_in_use == pytest.approx(1 - 5 / 6)


def test_the_second_time_it_comes_from_the_cache(tmp_path):
    cache = TrialCache(tmp_path)
    made, replays = run(cache, 6 * MiB)
    assert replays == 1
    assert run(cache, 6 * MiB) == (made, 0)
    assert run(TrialCache(tmp_path), 6 * MiB) == (made, 0)
    assert run(cache, 7 * MiB)[1] == 1


@pytest.mark.parametrize("change", [{"fits": "yes"}, {"served": 1.5}, {"more": 1}, {"limit_": 3}])
def test_a_result_of_another_shape_is_not_used(tmp_path, change):
    cache = TrialCache()
    made, _ = run(cache, 6 * MiB)
    (key,) = cache._known
    cache.put(key, {**vars(made), **change})
    assert run(cache, 6 * MiB) == (made, 1)
