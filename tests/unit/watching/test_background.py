"""A search and a sweep in the background: progress, the stop button, the result."""

import asyncio
import gc
import weakref
from threading import Event

import pytest
from unit.whatif.streams import MiB, holes
from unit.whatif.sweep_streams import Raises, numbers, random_stream

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.search import TrialCache

ARGUMENTS = ([random_stream(1), random_stream(2)], ["bfc", "first_fit", Raises()], ["100%", "150%", "16MiB"])


class Waits:
    """First fit that waits for `go` before replay `number`."""

    name, options = "waits", {}

    def __init__(self, number):
        self.number, self.go, self.served, self.reached = number, Event(), 0, Event()

    def serve(self, stream, limit=None, **options):
        self.served += 1
        if self.served == self.number:
            self.reached.set()
            self.go.wait(30)
        return policy_of("first_fit", granule=1).serve(stream, limit, **options)


def test_a_search_shows_its_result_at_the_end():
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
    policy = Waits(3)
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


def test_an_error_of_a_search_is_shown_escaped_and_raised():
    view = bfcviz.follow_search(bfcviz.smallest_limit, holes(), "<b>", cache=TrialCache())
    with pytest.raises(InvalidRequest):
        view.result(30)
    view.draw_frame()
    assert "&lt;b&gt;" in view.line.value
    assert "<b>" not in view.line.value
    assert view.bar.bar_style == "danger"
    view.close()
    assert view.children == ()


def test_a_sweep_shows_all_results_at_the_end():
    view = bfcviz.follow_sweep(*ARGUMENTS)
    found = view.result(30)
    assert numbers(found) == numbers(bfcviz.sweep(*ARGUMENTS)) == numbers(view.results)
    assert (view.bar.value, view.bar.max, view.running) == (18, 18, False)
    assert "18 of 18 points" in view.line.value
    assert "6 with an error" in view.line.value
    assert view.button.disabled
    assert list(view.figure.layout.xaxis.ticktext) == ["bfc", "first_fit", "raises"]
    assert [line[2] for line in view.figure.data[0].text] == ["error", "error"]
    view.close()


def test_a_view_follows_a_running_sweep_and_stops_it():
    policy = Waits(2)
    view = bfcviz.follow_sweep([random_stream(1), random_stream(2)], policy, [8 * MiB, 16 * MiB, 32 * MiB])
    assert policy.reached.wait(30)
    view.draw_frame()
    assert (view.running, view.bar.value, view.bar.max) == (True, 1, 6)
    assert list(view.figure.layout.yaxis.ticktext) == ["waits"]  # one trace so far: its policies are the rows
    view.button.click()
    policy.go.set()
    found = view.result(30)
    assert (len(found), found.complete) == (2, False)
    assert "2 of 6 points" in view.line.value
    view.close()


def test_a_mistake_in_the_arguments_of_a_sweep_is_shown_and_raised():
    view = bfcviz.follow_sweep(random_stream(1), "worst_fit")
    with pytest.raises(InvalidRequest):
        view.result(30)
    view.draw_frame()
    assert "worst_fit" in view.line.value
    view.close()


def test_a_sweep_can_be_awaited():
    async def main():
        return await bfcviz.follow_sweep(random_stream(1), "first_fit", "16MiB")

    assert len(asyncio.run(main())) == 1


def test_an_unused_view_is_freed():
    view = bfcviz.follow_sweep(random_stream(1), "first_fit", "16MiB")
    view.result(30)
    reference = weakref.ref(view)
    view.close()
    del view
    gc.collect()
    assert reference() is None
