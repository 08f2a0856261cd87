"""Bars of peaks and shares."""

import math

from figures.comparison.policies.compared import FAILS, FITS, JOB, REFUSED

from bfcviz.figures.comparison.policies.peaks import peaks_panel, shares_panel
from bfcviz.figures.style.theme import LIGHT

MiB = 1 << 20


def trace_of(panel, name):
    return next(trace for trace in panel.traces if trace["name"].startswith(name))


def test_the_parts_of_a_bar_add_up_to_the_peak():
    panel = peaks_panel(JOB, [FITS, FAILS], LIGHT)
    assert panel.x_unit == MiB
    parts = [trace_of(panel, name) for name in ("requested", "rounding", "unused")]
    assert [part["x"][0] for part in parts] == [6, 2, 4]
    assert [part["base"][0] for part in parts] == [0, 6, 8]


def test_failures_are_marked_and_named():
    panel = peaks_panel(JOB, [FITS, FAILS], LIGHT)
    crosses = trace_of(panel, "out of memory")
    assert (crosses["x"], crosses["y"]) == ([16], [1.5])
    assert crosses["marker"]["color"] == LIGHT.oom
    texts = next(trace for trace in panel.traces if trace["mode" if "mode" in trace else "type"] == "text")
    assert "request 3" in texts["text"][1]
    assert texts["textfont"]["color"] == [LIGHT.text, LIGHT.oom]


def test_the_limit_and_the_least_possible_are_lines():
    panel = peaks_panel(JOB, [FITS], LIGHT)
    assert trace_of(panel, "limit")["x"] == [16, 16]
    assert trace_of(panel, "least possible")["x"] == [5, 5]


def test_a_policy_without_an_outcome_has_its_message_and_no_shares():
    panel = peaks_panel(JOB, [REFUSED, FITS], LIGHT)
    texts = next(trace["text"] for trace in panel.traces if trace.get("mode") == "text")
    assert "needs a limit &lt;b&gt;" in texts[0]
    shares = shares_panel([REFUSED, FITS], LIGHT)
    assert [trace["y"] for trace in shares.traces] == [[1.5]] * 3


def test_the_shares_are_in_percent():
    shares = shares_panel([FITS], LIGHT)
    assert [trace["name"].split()[0] for trace in shares.traces] == ["F2", "F1", "F3"]
    found = [trace["x"][0] for trace in shares.traces]
    assert all(math.isclose(one, other) for one, other in zip(found, [100 / 3, 25, 25], strict=True))
