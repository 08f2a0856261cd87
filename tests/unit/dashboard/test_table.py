"""Which rows of a list a page holds, and where they lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.dashboard.pages import count, page
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard.event_list import EventList
from bfcviz.dashboard.table import BEYOND, ROW_PX, ROWS, RowsInView

counts = st.one_of(st.integers(0, 200), st.integers(0, 10**10))


def view_of(count, top=0):
    view = RowsInView()
    view.set_count(count)
    view.scrolled_to(top)
    return view


@given(counts, st.integers(0, 10**11))
def test_the_rows_in_sight_are_made(count, top):
    view = view_of(count, top)
    assert view.top == min(top, max(count - ROWS, 0))
    made, seen = view.made, range(view.top, min(view.top + ROWS, count))
    assert made.start <= seen.start
    assert seen.stop <= made.stop <= count
    assert len(made) <= ROWS + 2 * BEYOND


@given(counts, st.integers(0, 10**11))
def test_the_rows_lie_inside_the_list_and_a_page_can_show_it(count, top):
    view = view_of(count, top)
    assert 0 <= view.above <= view.above + len(view.made) * ROW_PX <= view.height < 17_000_000
    if view.made.start == 0:
        assert view.above == 0
    if view.made.stop == count:
        assert view.above + len(view.made) * ROW_PX == view.height


@given(st.integers(0, 300_000), st.integers(0, 300_000))
def test_a_row_of_a_list_of_usual_length_lies_below_all_rows_before_it(count, top):
    view = view_of(count, top)
    assert (view.height, view.above) == (count * ROW_PX, view.made.start * ROW_PX)


def test_a_short_scroll_needs_no_new_rows():
    view = view_of(1000, 500)
    assert not view.scrolled_to(500 + BEYOND)
    assert view.scrolled_to(501 + BEYOND)
    assert view.made.start == 501
    assert not view.scrolled_to(501)
    assert view.scrolled_to(500)


def test_only_python_counts_as_a_move():
    view = view_of(1000, 500)
    assert view.moves == 0
    view.set_count(1000, near=505)  # in sight
    assert (view.moves, view.top) == (0, 500)
    view.set_count(1000, near=900)
    assert (view.moves, view.moved_to) == (1, view.top)
    assert view.top <= 900 < view.top + ROWS
    view.set_count(50)
    assert (view.moves, view.top) == (2, 50 - ROWS)


def test_rows_that_went_at_the_beginning_leave_the_others_in_sight():
    view = view_of(1000, 500)
    view.drop(100)
    assert (view.top, view.count) == (400, 900)
    view.drop(600)
    assert view.top == 0


# ------------------------------------------------------------------------------
# The filters, in the list of events.


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


@pytest.fixture
def listed(trace):
    return EventList(trace)


def type_into(control, text):
    control.box.value = text


@pytest.mark.parametrize("text", ["64 KB?", "-1", "lots", "9" * 400])
def test_a_bad_size_shows_an_error_and_changes_nothing(listed, text):
    type_into(listed.filters.least, "64 KiB")
    before = listed.page.value
    type_into(listed.filters.least, text)
    assert "role='alert'" in listed.filters.least.error.value
    assert listed.page.value == before
    assert "at least 64.0 KiB" in count(listed)
    type_into(listed.filters.least, "")
    assert listed.filters.least.error.value == ""
    assert count(listed).startswith("All")


def test_a_bad_size_cannot_inject(listed):
    type_into(listed.filters.most, "<img src=x onerror=alert(1)>")
    assert "<img" not in listed.filters.most.error.value


def test_threads_are_numbers(listed):
    type_into(listed.filters.thread, "0")
    assert count(listed).endswith("events: thread 0")
    type_into(listed.filters.thread, "main")
    assert "whole number" in listed.filters.thread.error.value
    type_into(listed.filters.thread, "99999999999")
    assert count(listed).startswith("0 of")
    assert page(listed).rows == []
