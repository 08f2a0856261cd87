import asyncio

import pytest

from bfcviz.dashboard import controls as module
from bfcviz.dashboard.controls import Player
from bfcviz.errors import BfcvizError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "FRAME_S", 0.0)
    monkeypatch.setattr(module, "YIELD_S", 0.0)


async def until(met):
    """Lets the event loop go on until the condition is met."""
    while not met():  # noqa: ASYNC110  what is waited for is a plain object
        await asyncio.sleep(0)


class Walk:
    def __init__(self, end):
        self.at, self.end, self.stops = 0, end, 0
        self.player = Player(self.step, self.stopped)

    def step(self):
        self.at += 1
        return self.at < self.end

    def stopped(self):
        self.stops += 1


def test_it_plays_to_the_end_and_stops():
    walk = Walk(5)

    async def run():
        walk.player.play()
        assert walk.player.playing
        walk.player.play()  # a second one changes nothing
        await until(lambda: not walk.player.playing)

    asyncio.run(run())
    assert (walk.at, walk.stops) == (5, 1)


def test_a_pause_comes_between_two_steps():
    walk = Walk(1_000_000)

    async def run():
        walk.player.play()
        await until(lambda: walk.at >= 3)
        walk.player.pause()
        await until(lambda: walk.stops)

    asyncio.run(run())
    assert 3 <= walk.at < 10
    assert not walk.player.playing


def test_a_step_that_fails_ends_it():
    stops = []

    def fail():
        raise ValueError("no such step")

    player = Player(fail, lambda: stops.append(True))

    async def run():
        player.play()
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        with pytest.raises(ValueError, match="no such step"):
            await task

    asyncio.run(run())
    assert stops == [True]
    assert not player.playing


def test_without_an_event_loop_it_says_so():
    with pytest.raises(BfcvizError, match="event loop"):
        Player(lambda: False, lambda: None).play()
