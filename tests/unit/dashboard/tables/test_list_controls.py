"""The filters, in the list of events."""

import pytest
from unit.dashboard.pages import count, page
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard.event_list import EventList


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
