from unit.whatif.streams import MiB, holes

from bfcviz.whatif.best_options import best_options
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.search import SearchControl, TrialCache, largest_batch, smallest_limit

FIRST_FIT = "first_fit:granule=1MiB"


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
    text = str(smallest_limit(holes(), FIRST_FIT, cache=TrialCache()))
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
    text = str(largest_batch(holes(), FIRST_FIT, "30MiB", batch=8, labels=["last"], cache=TrialCache()))
    assert "batch of 72" in text
    assert "'last'" in text
    text = str(best_options(holes(), "first_fit", "8MiB", cache=TrialCache()))
    assert "8.0 MiB" in text
    assert "granule=" in text


def test_names_from_a_trace_cannot_move_the_cursor():
    stream = holes()
    stream.labels.intern("x")
    stream.rows["label"][3] = stream.labels.intern("\x1b[2Jred")
    assert "\x1b" not in str(smallest_limit(stream, FIRST_FIT, cache=TrialCache()))


def test_a_stopped_search_says_so():
    control = SearchControl()
    control.stop()
    found = smallest_limit(holes(), FIRST_FIT, control=control, cache=TrialCache())
    assert found.limit_bytes is None
    assert "stopped" in str(found)
    assert "stopped" in str(largest_batch(holes(), FIRST_FIT, 8 * MiB, control=control, cache=TrialCache()))
    assert "stopped" in str(best_options(holes(), "first_fit", control=control, cache=TrialCache()))
