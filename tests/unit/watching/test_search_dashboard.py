import asyncio
from threading import Event

import pytest
from unit.whatif.streams import MiB, holes

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.search.trial import TrialCache


class Waits:
    """First fit that waits for `go` before its third replay."""

    name, options = "waits", {}

    def __init__(self):
        self.go, self.served, self.reached = Event(), 0, Event()

    def serve(self, stream, limit=None, **options):
        self.served += 1
        if self.served == 3:
            self.reached.set()
            self.go.wait(30)
        return policy_of("first_fit", granule=1).serve(stream, limit, **options)


def test_it_shows_the_result_at_the_end():
    view = bfcviz.follow_search(bfcviz.smallest_limit, holes(), "first_fit:granule=1", cache=TrialCache())
    found = view.result(30)
    assert found.limit_bytes == 6 * MiB
    assert (view.running, view.button.disabled, view.bar.value) == (False, True, view.bar.max)
    assert f"{6 * MiB:,}" in view.line.value
    assert asyncio.run(_awaited(view)) is found
    view.close()


async def _awaited(view):
    return await view


def test_its_button_stops_the_search_which_returns_what_it_knows():
    policy = Waits()
    view = bfcviz.follow_search(bfcviz.smallest_limit, holes(), policy, cache=TrialCache())
    assert policy.reached.wait(30)
    view.draw_frame()
    assert (view.running, view.bar.value) == (True, 2)
    assert view.bar.max >= 3
    view.button.click()
    policy.go.set()
    found = view.result(30)
    assert (found.complete, len(found.tried)) == (False, 3)
    view.close()


def test_an_error_is_shown_escaped_and_raised():
    view = bfcviz.follow_search(bfcviz.smallest_limit, holes(), "<b>", cache=TrialCache())
    with pytest.raises(InvalidRequest):
        view.result(30)
    view.draw_frame()
    assert "&lt;b&gt;" in view.line.value
    assert "<b>" not in view.line.value
    assert view.bar.bar_style == "danger"
    view.close()
    assert view.children == ()
