"""The toolbar: the step that each button and key goes to, and the player."""

import asyncio

import pytest
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard import toolbar as module
from bfcviz.dashboard.toolbar import ANY, MOVES, OF_CHUNK, OF_LABEL, TARGETS, Player, Position, destination
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import Kind
from bfcviz.model.find_steps import peak, worst_fragmentation

TRACE = busy_trace()
LAST = len(TRACE)
EVENTS = TRACE.read(0, LAST)


def position(step, target=ANY, **more):
    return Position(TRACE, 0, step, target, **more)


def test_the_ends_and_the_neighbours():
    assert destination("first", position(300)) == 0
    assert destination("last", position(300)) == LAST
    assert destination("forward", position(300)) == 301
    assert destination("back", position(300)) == 299
    assert destination("forward", position(LAST)) == LAST
    assert destination("back", position(0)) == 0


def test_the_extremes():
    assert destination("worst", position(0)) == worst_fragmentation(TRACE)
    assert destination("peak", position(0)) == peak(TRACE)


@pytest.mark.parametrize("kind", [Kind.SPLIT, Kind.MERGE, Kind.FREE])
def test_next_and_previous_of_a_kind(kind):
    after = destination("next", position(300, kind.name))
    assert EVENTS["kind"][after - 1] == kind
    assert not (EVENTS["kind"][300 : after - 1] == kind).any()
    assert destination("previous", position(after + 1, kind.name)) == after


def test_next_and_previous_of_a_chunk_and_of_a_label():
    event = EVENTS[EVENTS["kind"] == Kind.ALLOCATE][20]
    handle, label, seq = int(event["chunk"]), int(event["label"]), int(event["seq"])
    after = destination("next", position(seq + 1, OF_CHUNK, handle=handle))
    assert handle in (EVENTS["chunk"][after - 1], EVENTS["other"][after - 1])
    if label:
        after = destination("next", position(seq + 1, OF_LABEL, label=label))
        assert EVENTS["label"][after - 1] == label


@pytest.mark.parametrize("target", [OF_CHUNK, OF_LABEL])
def test_without_a_selected_chunk_it_says_what_to_do(target):
    with pytest.raises(BfcvizError, match=r"no (chunk|label) is selected"):
        destination("next", position(300, target))


@pytest.mark.parametrize("move", ["next", "previous"])
def test_nowhere_to_go_is_said(move):
    with pytest.raises(BfcvizError, match=r"no RELEASE event (after|before)"):
        destination(move, position(300, "RELEASE"))


def test_every_target_and_move_has_a_meaning():
    for target in TARGETS:
        for move in MOVES:
            try:
                step = destination(move, position(300, target, handle=1, label=1))
            except BfcvizError:
                continue
            assert 0 <= step <= LAST


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
