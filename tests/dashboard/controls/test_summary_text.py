"""The text above the figure: event, totals, and the notice of an incomplete trace."""

import re

import pytest
from figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.dashboard import Inspector
from bfcviz.events.origin import Origin, Status
from bfcviz.events.trace import Trace
from bfcviz.model.explain.text.event import explain


@pytest.mark.parametrize("status", [Status.TRUNCATED, Status.DEGRADED])
def test_an_incomplete_trace_says_so_and_why(status):
    whole = busy_trace(20)
    origin = Origin(status=status, reasons=("it broke <off>", "a disk was full"), pools=whole.origin.pools)
    inspector = Inspector(Trace.from_events(whole.read(0, len(whole)), whole.labels, origin))
    shown = inspector.summary.notice
    assert shown.layout.display is None
    assert f"This trace is {status}" in shown.value
    assert "it broke &lt;off&gt;; a disk was full" in shown.value


def test_the_notice_of_a_complete_trace_takes_no_space():
    assert Inspector(busy_trace(20)).summary.notice.layout.display == "none"


def test_the_event_text_cannot_inject_html():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "<img src=x onerror=alert(1)>")
    trace = heap.trace()
    inspector = Inspector(trace, 3)
    assert "<img" in explain(trace, 2)
    assert "<img" not in inspector.summary.event.value
    assert "&lt;img src=x onerror=alert(1)&gt;" in inspector.summary.event.value


def test_the_totals_include_their_definitions():
    inspector = Inspector(busy_trace(), 300)
    assert re.search(
        r"external fragmentation \d+\.\d% \(1 - largest free chunk / free\)",
        inspector.summary.numbers.value,
    )
