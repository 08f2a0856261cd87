import pytest

from bfcviz.dashboard import renderer as module
from bfcviz.dashboard.renderer import Pace


class Clock:
    """A stand-in for `time` that the test advances."""

    def __init__(self):
        self.now = self.cpu = 100.0

    def monotonic(self):
        return self.now

    def thread_time(self):
        return self.cpu

    def draw(self, pace, seconds, cpu):
        pace.begin()
        self.now += seconds
        self.cpu += cpu
        wait = pace.end()
        self.now += wait
        return wait


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_cheap_frames_come_at_the_rate(clock):
    assert clock.draw(Pace(10, 0.05), 0.004, 0.001) == pytest.approx(0.096)


def test_frames_that_begin_late_keep_the_rate(clock):
    pace = Pace(10, 0.05)
    began = clock.now
    for _ in range(20):
        clock.draw(pace, 0.004, 0.001)
        clock.now += 0.005
    assert clock.now - began == pytest.approx(2.0, abs=0.01)


def test_frames_that_begin_early_delay_none(clock):
    pace = Pace(10, 0.05)
    for _ in range(20):  # as when it is stopped and started again
        pace.begin()
        wait = pace.end()
    assert wait == pytest.approx(0.1)


def test_after_a_pause_there_is_no_burst(clock):
    pace = Pace(10, 0.05)
    clock.draw(pace, 0.004, 0.001)
    clock.now += 3.0
    assert clock.draw(pace, 0.004, 0.001) == pytest.approx(0.096)


def test_expensive_frames_come_as_often_as_the_budget_allows(clock):
    pace = Pace(10, 0.05)
    began, costs = clock.now, (0.02, 0.05, 0.01, 0.03) * 20
    for cost in costs:
        clock.draw(pace, 2 * cost, cost)
    saved = 0.05 * module.SAVED_S
    assert sum(costs) - saved == pytest.approx((clock.now - began) * 0.05)
    assert (pace.frames, pace.cost_s) == (80, pytest.approx(0.03))


def test_one_expensive_frame_does_not_delay_cheap_ones(clock):
    pace = Pace(10, 0.05)
    for _ in range(3):
        assert clock.draw(pace, 0.03, 0.03) == pytest.approx(0.07)
        for _ in range(9):
            assert clock.draw(pace, 0.001, 0.001) == pytest.approx(0.099)


def test_waiting_for_others_costs_nothing(clock):
    assert clock.draw(Pace(10, 0.05), 0.5, 0.001) == 0


def test_one_very_slow_frame_does_not_stop_the_others(clock):
    assert clock.draw(Pace(10, 0.05), 1.5, 1.5) == pytest.approx(module.LONGEST_S - 1.5)
    assert clock.draw(Pace(0.2, 0.05), 0.1, 0.1) == pytest.approx(4.9)
