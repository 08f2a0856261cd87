import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import sample_trace
from unit.whatif.streams import MiB, holes, stream_of

from bfcviz.errors import FileError, InvalidRequest
from bfcviz.whatif import search as trial
from bfcviz.whatif.best_options import best_options
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import stream_of as stream_from
from bfcviz.whatif.search import (
    SHARED,
    SearchControl,
    SearchStopped,
    TrialCache,
    TrialKey,
    TrialRunner,
    bisect_trials,
    expected_steps,
    largest_batch,
    scaled_requests,
    smallest_limit,
    trial_cache,
    trial_options,
)

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


FIRST_FIT = "first_fit:granule=1"


def search(source, policy=FIRST_FIT, **options):
    return smallest_limit(source, policy, cache=TrialCache(), **options)


def test_the_limit_of_a_stream_with_a_hole():
    found = search(holes())
    assert (found.limit_bytes, found.next_smaller) == (6 * MiB, 6 * MiB - 256)
    assert (found.fails_at_request, found.fails_at_event) == (3, 13)
    assert (found.failed_size, found.failed_label) == (3 * MiB, "last")
    assert (found.lower_bound, found.added) == (5 * MiB, MiB)
    assert found.complete
    assert found.replays == len(found.tried)


def test_the_lower_bound_may_fit_and_the_next_smaller_limit_fails_there_too():
    found = search(stream_of(("a", 1), ("a", 2), -1, ("a", 2)), granule="1MiB")
    assert (found.limit_bytes, found.lower_bound, found.added) == (3 * MiB, 3 * MiB, 0)
    assert (found.next_smaller, found.fails_at_request) == (2 * MiB, 1)
    smallest = search(stream_of(("a", 1), -0), granule="1MiB")
    assert (smallest.limit_bytes, smallest.next_smaller, smallest.fails_at_event) == (MiB, None, None)


@pytest.mark.parametrize("name", ["bfc", "bfc:allow_growth=true", FIRST_FIT])
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12), freed=st.sets(st.integers(0, 10), min_size=1)
)
def test_the_limit_fits_and_the_next_smaller_one_fails(name, sizes, freed):
    requests = []
    for number, size in enumerate(sizes):
        requests.append(("a", size))
        if number - 1 in freed:
            requests.append(-(number - 1))
    stream, policy = stream_of(*requests, -(len(sizes) - 1)), policy_of(name)
    found = search(stream, policy, granule=MiB)
    assert policy.serve(stream, found.limit_bytes).fits
    assert found.limit_bytes >= found.lower_bound
    if found.next_smaller is not None:
        assert found.next_smaller == found.limit_bytes - MiB
        failures = policy.serve(stream, found.next_smaller).failures
        assert failures[0] == found.fails_at_request


@dataclass(frozen=True)
class OddLimits:
    """First fit that also fails under each limit that is an even number of MiB below 20."""

    name: str = "odd"
    options: dict = field(default_factory=dict)

    def serve(self, stream, limit=None, **options):
        seems = limit if limit >= 20 * MiB or limit // MiB % 2 else 1
        return replace(policy_of(FIRST_FIT).serve(stream, seems, **options), limit=limit)


def test_a_policy_that_is_not_monotone_gets_two_limits_of_which_one_fails():
    found = search(holes(), OddLimits(), granule=MiB)
    results = {trial.limit: trial.fits for trial in found.tried}
    assert found.limit_bytes % (2 * MiB) == MiB
    assert found.next_smaller == found.limit_bytes - MiB
    assert OddLimits().serve(holes(), found.limit_bytes).fits
    assert not OddLimits().serve(holes(), found.next_smaller).fits
    assert set(results.values()) == {True, False}


@pytest.mark.parametrize("stop", ["stop", "interrupt"])
@pytest.mark.parametrize("after", [0, 2, 8])
def test_a_stopped_search_returns_what_it_knows(stop, after):
    def progress(done, total, text):
        told.append((done, total))
        if done == after:
            if stop == "interrupt":
                raise KeyboardInterrupt
            control.stop()

    told, control = [], SearchControl(progress)
    found = search(holes(), control=control)
    assert not found.complete
    assert len(found.tried) == found.replays == after
    assert told == [(done, total) for done, (_, total) in enumerate(told)]
    assert all(done <= total for done, total in told)
    fitting = [trial.limit for trial in found.tried if trial.fits]
    assert found.limit_bytes == (min(fitting) if fitting else None)
    if after == 8:
        assert found.next_smaller < 6 * MiB <= found.limit_bytes


def test_a_search_is_known_the_second_time(tmp_path):
    first = smallest_limit(holes(), "bfc", cache=tmp_path)
    again = smallest_limit(holes(), "bfc", cache=tmp_path)
    assert (again.limit_bytes, again.tried, again.replays) == (first.limit_bytes, first.tried, 0)
    assert first.replays > 1


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"at_most": "5.5MiB"}, "5.5 MiB"),
        ({"at_most": 4 * MiB}, "4.0 MiB"),
        ({"granule": 0}, "0"),
        ({"granule": -5}, "-5"),
    ],
)
def test_what_cannot_be_searched_is_refused(options, number):
    with pytest.raises(InvalidRequest, match=number):
        search(holes(), **options)


@pytest.mark.parametrize("name", ["conv", "lstm"])
def test_the_samples_need_less_than_they_had(name):
    stream = stream_from(sample_trace(name))
    found = search(stream, "bfc")
    policy = policy_of("bfc")
    assert policy.serve(stream, found.limit_bytes).fits
    assert not policy.serve(stream, found.next_smaller).fits
    row = stream.rows[found.fails_at_request]
    assert (found.failed_size, found.fails_at_event) == (row["size"], row["event"])
    assert stream.live_bytes.max() < found.limit_bytes < stream.limit


def training(limit=None):
    """Weights of 10 MiB, and 4 MiB that grow."""
    return stream_of(("a", 10, "weights"), "step", ("a", 4, "activation"), -1, limit=limit)


def largest_batch_of(limit, **options):
    return largest_batch(training(), FIRST_FIT, limit, cache=TrialCache(), **options)


def test_the_largest_batch_and_the_failure_of_the_next_one():
    found = largest_batch_of("30MiB", batch=8)
    assert (found.largest, found.factor, found.next_factor) == (40, 5.0, 41 / 8)
    assert (found.fails_at_request, found.fails_at_event) == (2, 12)
    assert (found.failed_size, found.failed_label) == (4 * MiB * 41 // 8, "activation")
    assert (found.limit, found.batch, found.complete) == (30 * MiB, 8, True)


def test_factors_have_two_decimals():
    found = largest_batch_of(17 * MiB)
    assert (found.factor, found.next_factor, found.largest) == (1.75, 1.76, None)


def test_a_batch_that_does_not_fit_shrinks():
    found = largest_batch_of("13MiB", batch=8)
    assert (found.largest, found.factor, found.next_factor) == (6, 0.75, 7 / 8)
    assert largest_batch_of("10MiB", batch=8).largest == 0


def test_the_limit_of_the_trace_is_the_default():
    found = largest_batch(training(18 * MiB), FIRST_FIT, batch=1, cache=TrialCache())
    assert (found.limit, found.largest) == (18 * MiB, 2)
    with pytest.raises(InvalidRequest, match="limit"):
        largest_batch(training(), FIRST_FIT)


def test_labels_choose_what_grows():
    assert largest_batch_of("24MiB", batch=10, labels=["weights"]).largest == 20


@pytest.mark.parametrize(
    ("limit", "options"), [("9MiB", {}), ("1GiB", {"batch": 0}), ("1GiB", {"labels": ["x"]})]
)
def test_no_batch_of_this_can_be_searched(limit, options):
    with pytest.raises(InvalidRequest):
        largest_batch_of(limit, **options)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_stopped_search_of_a_batch_returns_what_it_knows(after):
    control = SearchControl(lambda done, *_: done == after and control.stop())
    found = largest_batch_of("1GiB", batch=1000, control=control)
    assert not found.complete
    assert found.replays == after
    assert (found.factor is None) == (after == 0)
    assert found.factor is None or found.factor >= 1


def test_a_sample_grows_until_the_next_batch_fails():
    stream, policy = stream_from(sample_trace("lstm")), policy_of("bfc:allow_growth=true")
    found = largest_batch(stream, policy, "24MiB", batch=32, cache=TrialCache())
    scaled = scaled_requests(stream)
    assert policy.serve(scaled.times(found.largest, 32), 24 * MiB).fits
    assert policy.serve(scaled.times(found.largest + 1, 32), 24 * MiB).failures[0] == found.fails_at_request
    assert found.largest > 32


TRAINING = stream_of(
    ("a", 10, "weights"),
    "step",
    ("a", 3, "net/activation"),
    ("a", 2, "optimizer"),
    -1,
    "step",
    ("a", 3, "net/activation"),
    ("a", 1, "net/loss"),
)
"""Blocks 0 and 2 are weights and state; the trace ends in the middle of the second step."""


def sizes(stream):
    return (stream.rows["size"][stream.rows["kind"] == 0] / MiB).tolist()


def test_weights_and_state_stay_and_the_blocks_of_steps_grow():
    scaled = scaled_requests(TRAINING)
    assert sizes(scaled.times(3, 2)) == [10, 4.5, 2, 4.5, 1.5]
    assert sizes(scaled.times(0, 1)) == [10, 0, 2, 0, 0]
    assert sizes(TRAINING) == [10, 3, 2, 3, 1]
    assert scaled.peak_growing() == 4 * MiB
    assert "'step'" in scaled.assumption
    assert "12.0 MiB" in scaled.assumption


def test_without_marks_what_is_freed_grows():
    scaled = scaled_requests(stream_of(("a", 10), ("a", 1), -1, ("a", 2), -2))
    assert sizes(scaled.times(2, 1)) == [10, 2, 4]
    assert "10.0 MiB" in scaled.assumption


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["weights"], [20, 3, 2, 3, 1]), (["net/*", "optimizer"], [10, 6, 4, 6, 2]), (["*"], [20, 6, 4, 6, 2])],
)
def test_chosen_labels_grow(labels, expected):
    assert sizes(scaled_requests(TRAINING, labels).times(2, 1)) == expected


def test_sizes_are_rounded_up():
    stream = stream_of(("a", 1), -0)
    for numerator, denominator in [(1, 3), (2, 7), (10_000_001, 10_000_000), (1 << 30, (1 << 30) - 1)]:
        (found,) = scaled_requests(stream).times(numerator, denominator).rows["size"][:1]
        assert found == -(-MiB * numerator // denominator)


def test_what_cannot_grow_is_refused():
    with pytest.raises(InvalidRequest, match="'nothing'"):
        scaled_requests(TRAINING, ["weights", "nothing"])
    with pytest.raises(InvalidRequest, match="'step'"):
        scaled_requests(stream_of(("a", 1), -0, "step"))
    with pytest.raises(InvalidRequest, match="2\\^62"):
        scaled_requests(TRAINING).times(1 << 50, 1)


def test_everything_else_of_the_requests_stays():
    scaled = scaled_requests(TRAINING).times(2, 1)
    for name in set(TRAINING.rows.dtype.names) - {"size"}:
        assert np.array_equal(scaled.rows[name], TRAINING.rows[name])
    assert scaled.digest != TRAINING.digest


FIRST_FIT_POLICY = "first_fit:granule=1MiB"


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
