"""The status line: what is shown, the error, and rates that are measured once a second."""

import re
from types import SimpleNamespace

from heaps import new_heap

from bfcviz.dashboard import live as module
from bfcviz.dashboard.live import StatusLine
from bfcviz.model.trace_from_source import trace_of


def test_it_shows_events_and_frames_per_second(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    heap = new_heap()
    trace, line = trace_of(heap), StatusLine()
    assert line.text(trace, 0, 0, None).startswith("live: 0 events")
    for number in range(20):
        heap.mark("mark", number)
    trace.refresh()
    now[0] += 0.5
    assert "/s" not in line.text(trace, 20, 16, None)
    now[0] += 1.5
    assert re.findall(r"[\d.]+ (?:events/s|frames/s)", line.text(trace, 20, 16, None)) == [
        "10 events/s",
        "8.0 frames/s",
    ]
    now[0] += 0.1
    assert "10 events/s" in line.text(trace, 20, 16, None)
    assert "ValueError: no frame" in line.text(trace, 20, 16, ValueError("no frame"))


def test_it_counts_the_events_that_the_page_shows():
    """More may have come since the last frame was drawn."""
    heap = new_heap()
    trace, line = trace_of(heap), StatusLine()
    for number in range(20):
        heap.mark("mark", number)
        trace.refresh()
        assert line.text(trace, 3 + number // 2, 1, None).startswith(f"live: {3 + number // 2} events")


def test_a_pause_has_no_rate_and_none_spans_it(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    trace, line = trace_of(new_heap()), StatusLine()
    texts = []
    for paused in (False, True, False, False):
        texts.append(line.text(trace, 0, 0, None, paused=paused))
        now[0] += 2
    assert [text.partition(":")[0] for text in texts] == ["live", "paused", "live", "live"]
    assert ["/s" in text for text in texts] == [False, False, False, True]
