from whatif.streams import MiB, holes

from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.search.best_options import best_options
from bfcviz.whatif.search.control import SearchControl
from bfcviz.whatif.search.largest_batch import largest_batch
from bfcviz.whatif.search.result_cache import ResultCache
from bfcviz.whatif.search.smallest_limit import smallest_limit
from bfcviz.whatif.search.text import policy_text

FIRST_FIT = "first_fit:granule=1048576"


def test_a_policy_is_written_as_it_is_read():
    for text in (FIRST_FIT, "bfc", "bfc:allow_growth=true,fragmentation_fraction=0.25"):
        policy = policy_of(text)
        assert policy_text(policy.name, policy.options) == text


def test_results_say_their_numbers():
    text = str(smallest_limit(holes(), FIRST_FIT, cache=ResultCache()))
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
    text = str(largest_batch(holes(), FIRST_FIT, "30MiB", batch=8, labels=["last"], cache=ResultCache()))
    assert "batch of 72" in text
    assert "'last'" in text
    text = str(best_options(holes(), "first_fit", "8MiB", cache=ResultCache()))
    assert "8.0 MiB" in text
    assert "granule=" in text


def test_names_from_a_trace_cannot_move_the_cursor():
    stream = holes()
    stream.labels.intern("x")
    stream.rows["label"][3] = stream.labels.intern("\x1b[2Jred")
    assert "\x1b" not in str(smallest_limit(stream, FIRST_FIT, cache=ResultCache()))


def test_a_stopped_search_says_so():
    control = SearchControl()
    control.stop()
    found = smallest_limit(holes(), FIRST_FIT, control=control, cache=ResultCache())
    assert found.limit_bytes is None
    assert "stopped" in str(found)
    assert "stopped" in str(largest_batch(holes(), FIRST_FIT, 8 * MiB, control=control, cache=ResultCache()))
    assert "stopped" in str(best_options(holes(), "first_fit", control=control, cache=ResultCache()))
