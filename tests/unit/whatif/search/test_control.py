import pytest

from bfcviz.whatif.search.trial import SearchControl, SearchStopped


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
