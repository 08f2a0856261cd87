import asyncio
import gc
import weakref
from threading import Event

import pytest
from unit.whatif.sweep.streams import MiB, Raises, numbers, random_stream

import bfcviz
from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policy_table import policy_of

ARGUMENTS = ([random_stream(1), random_stream(2)], ["bfc", "first_fit", Raises()], ["100%", "150%", "16MiB"])


class Waits:
    """First fit that waits for `go` before its second trace."""

    name, options = "waits", {}

    def __init__(self):
        self.go, self.served, self.reached = Event(), 0, Event()

    def serve(self, stream, limit=None, *, record=False, stop_at_failure=False):
        self.served += 1
        if self.served == 2:
            self.reached.set()
            self.go.wait(30)
        return policy_of("first_fit").serve(stream, limit)


def test_it_shows_all_results_at_the_end():
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


def test_it_follows_a_running_sweep_and_stops_it():
    policy = Waits()
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


def test_a_mistake_in_the_arguments_is_shown_and_raised():
    view = bfcviz.follow_sweep(random_stream(1), "worst_fit")
    with pytest.raises(InvalidRequest):
        view.result(30)
    view.draw_frame()
    assert "worst_fit" in view.line.value
    view.close()


def test_it_can_be_awaited():
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
