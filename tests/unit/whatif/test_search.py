import json
from dataclasses import replace

import pytest
from unit.whatif.streams import MiB, holes

from bfcviz.errors import FileError
from bfcviz.whatif import search as trial
from bfcviz.whatif.best_options import best_options
from bfcviz.whatif.largest_batch import largest_batch
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.search import (
    SHARED,
    SearchControl,
    SearchStopped,
    TrialCache,
    TrialKey,
    TrialRunner,
    bisect_trials,
    expected_steps,
    trial_cache,
    trial_options,
)
from bfcviz.whatif.smallest_limit import smallest_limit

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


@pytest.mark.parametrize("threshold", [1, 2, 500, 999, 1000])
def test_neighbours_are_found_in_both_directions(threshold):
    tried = []

    def works(number):
        tried.append(number)
        return number >= threshold

    assert bisect_trials(0, 1000, works) == (threshold - 1, threshold)
    assert len(tried) <= expected_steps(0, 1000) == 10
    assert bisect_trials(1001, 0, lambda number: number <= threshold) == (threshold + 1, threshold)


def test_nothing_is_tried_between_neighbours():
    assert bisect_trials(7, 8, None) == (7, 8)
    assert expected_steps(7, 8) == 0


def test_progress_is_told_and_the_total_is_never_less_than_what_is_done():
    told = []
    control = SearchControl(lambda *progress: told.append(progress))
    control.report(1, 5, "a")
    control.report(7, 5, "b")
    assert told == [(1, 5, "a"), (7, 7, "b")]


def test_a_stopped_search_ends_and_is_told_nothing_more():
    told = []
    control = SearchControl(lambda *progress: told.append(progress))
    control.stop()
    with pytest.raises(SearchStopped):
        control.report(0, 1, "a")
    assert (control.stopped, told) == (True, [])


def test_progress_itself_can_stop_the_search():
    control = SearchControl(lambda *_: control.stop())
    with pytest.raises(SearchStopped):
        control.report(0, 1, "a")


KEY = TrialKey("digest", "bfc", "{}", 5)


def test_results_are_kept_by_all_parts_of_the_key():
    cache = TrialCache()
    cache.put(KEY, {"fits": True})
    assert cache.get(KEY) == {"fits": True}
    for change in ({"stream": "b"}, {"policy": "b"}, {"options": "b"}, {"limit": None}):
        assert cache.get(KEY._replace(**change)) is None


def test_files_are_read_by_another_cache_unless_they_are_damaged_or_old(tmp_path, monkeypatch):
    TrialCache(tmp_path / "new" / "folder").put(KEY, {"fits": True})
    folder = tmp_path / "new" / "folder"
    assert TrialCache(folder).get(KEY) == {"fits": True}
    monkeypatch.setattr(trial, "version", lambda _: "another")
    assert TrialCache(folder).get(KEY) is None
    monkeypatch.undo()
    (file,) = folder.iterdir()
    for text in (
        "",
        "[]",
        '{"key": [], "result": {"fits": true}}',
        '{"key": ',
        '{"result": 5}',
        "[" * 10_000,
    ):
        file.write_text(text)
        assert TrialCache(folder).get(KEY) is None
    found = TrialCache(folder)
    found.put(KEY, {"fits": False})
    assert json.loads(file.read_text())["result"] == {"fits": False}


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file"):
        TrialCache(tmp_path / "file")


def test_the_oldest_result_is_dropped(monkeypatch):
    monkeypatch.setattr(trial, "MOST_KEPT", 3)
    cache = TrialCache()
    for limit in range(5):
        cache.put(KEY._replace(limit=limit), {})
    assert [cache.get(KEY._replace(limit=limit)) for limit in range(5)] == [None, None, {}, {}, {}]


def test_defaults_are_part_of_the_options():
    assert trial_options(policy_of("bfc")) == trial_options(policy_of("bfc:allow_growth=false"))
    assert trial_options(policy_of("bfc")) != trial_options(policy_of("bfc:allow_growth=true"))


def test_a_policy_that_is_not_of_the_table_has_no_key():
    own = policy_of("first_fit")
    assert trial_options(own) is not None
    assert trial_options(replace(own, make=lambda driver: None)) is None
    assert trial_options(replace(own, name="mine")) is None
    assert trial_options(replace(own, options={"colour": 1})) is None


def test_a_cache_is_shared_or_made(tmp_path):
    cache = TrialCache()
    assert trial_cache(cache) is cache
    assert trial_cache(None) is SHARED
    trial_cache(tmp_path).put(KEY, {})
    assert len(list(tmp_path.iterdir())) == 1


FIRST_FIT_POLICY = "first_fit:granule=1MiB"


def test_results_say_their_numbers():
    text = str(smallest_limit(holes(), FIRST_FIT_POLICY, cache=TrialCache()))
    for number in (
        "6.0 MiB",
        f"{6 * MiB:,}",
        f"{6 * MiB - 256:,}",
        "request 3",
        "event 13",
        "last",
        f"{5 * MiB:,}",
    ):
        assert number in text
    assert "not compared with a real" in text
    assert "not compared with a real" not in str(smallest_limit(holes(), "cupy", cache=TrialCache()))
    text = str(
        largest_batch(holes(), FIRST_FIT_POLICY, "30MiB", batch=8, labels=["last"], cache=TrialCache())
    )
    assert "batch of 72" in text
    assert "'last'" in text
    text = str(best_options(holes(), "first_fit", "8MiB", cache=TrialCache()))
    assert "8.0 MiB" in text
    assert "granule=" in text


def test_names_from_a_trace_cannot_move_the_cursor():
    stream = holes()
    stream.labels.intern("x")
    stream.rows["label"][3] = stream.labels.intern("\x1b[2Jred")
    assert "\x1b" not in str(smallest_limit(stream, FIRST_FIT_POLICY, cache=TrialCache()))


def test_a_stopped_search_says_so():
    control = SearchControl()
    control.stop()
    found = smallest_limit(holes(), FIRST_FIT_POLICY, control=control, cache=TrialCache())
    assert found.limit_bytes is None
    assert "stopped" in str(found)
    assert "stopped" in str(
        largest_batch(holes(), FIRST_FIT_POLICY, 8 * MiB, control=control, cache=TrialCache())
    )
    assert "stopped" in str(best_options(holes(), "first_fit", control=control, cache=TrialCache()))
