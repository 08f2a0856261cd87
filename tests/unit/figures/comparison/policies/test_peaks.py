"""Bars of peaks and shares."""

import math
from dataclasses import replace

from unit.figures.comparison.policies.compared import FAILS, FITS, JOB, REFUSED

from bfcviz.figures.policy_comparison import peaks_panel, row_height, shares_panel
from bfcviz.figures.theme import LIGHT

MiB = 1 << 20


def trace_of(panel, name):
    return next(trace for trace in panel.traces if trace["name"].startswith(name))


def test_the_parts_of_a_bar_add_up_to_the_peak():
    panel = peaks_panel(JOB, [FITS, FAILS], LIGHT)
    assert panel.x_unit == MiB
    parts = [trace_of(panel, name) for name in ("in use: requested", "in use: rounding", "not in use")]
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
    assert [trace["y"] for trace in shares.traces[:3]] == [[1.5]] * 3


def test_the_shares_are_in_percent():
    shares = shares_panel([FITS], LIGHT)
    names = [trace["name"].partition(" = ")[0] for trace in shares.traces[:3]]
    assert names == ["not in use", "external", "internal"]
    found = [trace["x"][0] for trace in shares.traces[:3]]
    assert all(math.isclose(one, other) for one, other in zip(found, [100 / 3, 25, 25], strict=True))


def test_a_policy_that_fails_is_hatched_and_named_in_both_panels():
    for panel in (peaks_panel(JOB, [FITS, FAILS], LIGHT), shares_panel([FITS, FAILS], LIGHT)):
        bars = [trace for trace in panel.traces if trace["type"] == "bar"]
        assert [trace["marker"]["pattern"]["shape"] for trace in bars] == [["", "/"]] * 3
        (texts,) = [trace for trace in panel.traces if trace.get("mode") == "text"]
        at = texts["y"].index(1.5)
        assert "out of" in texts["text"][at]
        assert "memory" in texts["text"][at]


def test_texts_stand_right_of_all_bars_and_lines():
    panel = peaks_panel(JOB, [FITS, FAILS], LIGHT)
    (texts,) = [trace for trace in panel.traces if trace.get("mode") == "text"]
    ends = [
        start + size for each in panel.traces[:3] for start, size in zip(each["base"], each["x"], strict=True)
    ]
    lines = [x for name in ("limit", "least possible") for x in trace_of(panel, name)["x"]]
    assert min(texts["x"]) > max(ends + lines)


def test_driver_calls_are_beside_the_peak():
    called = replace(FITS, driver_calls=1857, stall_s=0.9285)
    (texts,) = [t for t in peaks_panel(JOB, [called], LIGHT).traces if t.get("mode") == "text"]
    for what in ("12.0 MiB", "1,857", "928 ms"):
        assert what in texts["text"][0]


def test_a_row_has_room_for_all_lines_of_its_name():
    long = replace(FITS, name="bfc:allow_growth=true,garbage_collection=true", role="own rules")
    assert len(long.lines) == 4
    assert row_height([FITS, long]) > row_height([FITS])
