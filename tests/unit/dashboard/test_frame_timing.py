import pytest

from bfcviz.dashboard import renderer as module
from bfcviz.dashboard.renderer import IDLE_S, WHOLE_S, FrameChoice, FrameKind


class Clock:
    """A stand-in for `time` that the test advances."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def frames(choice, clock, came, seconds=0.1, cost_s=0.01, **how):
    """The frames drawn; `came`: one letter per frame, `.` if no event came."""
    drawn = []
    for letter in came:
        clock.now += seconds
        frame = choice.due(came=letter != ".", **{"followed": True} | how)
        if frame is not FrameKind.NOTHING:
            choice.drew(frame, cost_s)
        drawn.append(frame)
    return drawn


def test_the_first_frame_after_idle_is_whole(clock):
    choice = FrameChoice()
    assert frames(choice, clock, "..x") == [FrameKind.NOTHING, FrameKind.NOTHING, FrameKind.WHOLE]
    assert not choice.moving


def test_an_active_heap_moves_the_map_and_the_rest_once_per_second(clock):
    choice = FrameChoice()
    drawn = frames(choice, clock, "x" * 31)
    assert drawn[0] is FrameKind.WHOLE
    assert drawn.count(FrameKind.MOVING) == pytest.approx(3 / WHOLE_S, abs=1)
    assert drawn.count(FrameKind.MOVING) + drawn.count(FrameKind.MAP) == 30
    assert choice.moving


def test_expensive_frames_are_drawn_less_often(clock):
    cheap, dear = FrameChoice(), FrameChoice()
    assert frames(dear, clock, "x" * 50, cost_s=0.04).count(FrameKind.MOVING) < frames(
        cheap, clock, "x" * 50
    ).count(FrameKind.MOVING)


def test_an_idle_heap_gets_one_whole_frame(clock):
    choice = FrameChoice()
    frames(choice, clock, "xxxx")
    drawn = frames(choice, clock, "." * 20)
    assert drawn.index(FrameKind.WHOLE) in (2, 3)
    assert [frame for frame in drawn if frame is not FrameKind.NOTHING] == [FrameKind.WHOLE]
    assert not choice.moving


def test_an_active_heap_is_recognised_at_a_low_frame_rate(clock):
    drawn = frames(FrameChoice(), clock, "xxx", seconds=3 * IDLE_S)
    assert drawn[1:] != [FrameKind.WHOLE] * 2


def test_an_earlier_step_is_redrawn_whole_once_per_second(clock):
    drawn = frames(FrameChoice(), clock, "x" * 30, followed=False)
    assert set(drawn) == {FrameKind.WHOLE, FrameKind.NOTHING}
    assert drawn.count(FrameKind.WHOLE) <= 4


def test_the_last_frame_is_whole(clock):
    choice = FrameChoice()
    frames(choice, clock, "xxx")
    assert frames(choice, clock, ".", ended=True) == [FrameKind.WHOLE]
    assert frames(choice, clock, ".", ended=True) == [FrameKind.NOTHING]


def test_a_failed_frame_is_drawn_again(clock):
    choice = FrameChoice()
    clock.now += 1
    assert choice.due(came=True, followed=True) is FrameKind.WHOLE
    clock.now += 1
    assert choice.due(came=False, followed=True) is FrameKind.WHOLE
