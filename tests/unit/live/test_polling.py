"""What is asked again and again: when the next call comes."""

import pytest

from bfcviz.live import observed_heap
from bfcviz.live.observed_heap import Polling


@pytest.mark.parametrize(("took", "wait"), [(0.001, 0.5), (2.0, 18.0)])
def test_after_a_long_call_the_next_one_comes_later(took, wait, monkeypatch):
    times = iter([5.0, 5.0 + took])
    monkeypatch.setattr(observed_heap.time, "perf_counter", lambda: next(times))
    assert Polling(lambda: None, 0.5, "polling", share=0.1)._next() == pytest.approx(wait)
