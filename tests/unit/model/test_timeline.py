"""Ranges that `timeline` refuses; tests/properties checks its values."""

import pytest
from unit.figures.synthetic import busy_trace

from bfcviz.errors import TraceError
from bfcviz.model import timeline


@pytest.mark.parametrize(
    ("start", "stop", "points"), [(-1, None, 5), (5, 4, 5), (0, 10_000, 5), (0, None, 0)]
)
def test_a_range_outside_the_trace_is_refused(start, stop, points):
    with pytest.raises(TraceError, match="timeline of steps"):
        timeline(busy_trace(20), 0, start, stop, points)
