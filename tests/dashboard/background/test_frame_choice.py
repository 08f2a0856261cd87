import pytest

from bfcviz.dashboard.background import frame_choice as module
from bfcviz.dashboard.background.frame_choice import IDLE_S, WHOLE_S, Frame, FrameChoice


class Clock:
    """Stands in for `time`: passes only when told."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def frames(choice, clock, came, seconds=0.1, cost_s=0.01, **how):
    """What is drawn, one frame after the other; `came`: a letter a frame, `.` where nothing came."""
    drawn = []
    for letter in came:
        clock.now += seconds
        frame = choice.due(came=letter != ".", **{"followed": True} | how)
        if frame is not Frame.NOTHING:
            choice.drew(frame, cost_s)
        drawn.append(frame)
    return drawn


def test_what_comes_after_a_rest_is_shown_whole(clock):
    choice = FrameChoice()
    assert frames(choice, clock, "..x") == [Frame.NOTHING, Frame.NOTHING, Frame.WHOLE]
    assert not choice.moving


def test_a_heap_at_work_is_a_moving_map_and_the_rest_once_a_second(clock):
    choice = FrameChoice()
    drawn = frames(choice, clock, "x" * 31)
    assert drawn[0] is Frame.WHOLE
    assert drawn.count(Frame.MOVING) == pytest.approx(3 / WHOLE_S, abs=1)
    assert drawn.count(Frame.MOVING) + drawn.count(Frame.MAP) == 30
    assert choice.moving


def test_dear_pictures_make_the_rest_rarer(clock):
    cheap, dear = FrameChoice(), FrameChoice()
    assert frames(dear, clock, "x" * 50, cost_s=0.04).count(Frame.MOVING) < frames(
        cheap, clock, "x" * 50
    ).count(Frame.MOVING)


def test_when_it_rests_the_whole_picture_comes_once(clock):
    choice = FrameChoice()
    frames(choice, clock, "xxxx")
    drawn = frames(choice, clock, "." * 20)
    assert drawn.index(Frame.WHOLE) in (2, 3)
    assert [frame for frame in drawn if frame is not Frame.NOTHING] == [Frame.WHOLE]
    assert not choice.moving


def test_a_heap_at_work_is_known_however_seldom_it_is_looked_at(clock):
    drawn = frames(FrameChoice(), clock, "xxx", seconds=3 * IDLE_S)
    assert drawn[1:] != [Frame.WHOLE] * 2


def test_who_looks_back_gets_whole_pictures_once_a_second(clock):
    drawn = frames(FrameChoice(), clock, "x" * 30, followed=False)
    assert set(drawn) == {Frame.WHOLE, Frame.NOTHING}
    assert drawn.count(Frame.WHOLE) <= 4


def test_the_end_shows_all(clock):
    choice = FrameChoice()
    frames(choice, clock, "xxx")
    assert frames(choice, clock, ".", ended=True) == [Frame.WHOLE]
    assert frames(choice, clock, ".", ended=True) == [Frame.NOTHING]


def test_a_picture_that_failed_is_made_up_for(clock):
    choice = FrameChoice()
    clock.now += 1
    assert choice.due(came=True, followed=True) is Frame.WHOLE
    clock.now += 1
    assert choice.due(came=False, followed=True) is Frame.WHOLE
