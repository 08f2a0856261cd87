"""Bytes over the job."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from unit.figures.comparison.policies.compared import FAILS, FITS, JOB, REFUSED

from bfcviz.figures.policy_comparison import (
    COLUMNS,
    ByteAxis,
    CurvePanels,
    curve_table,
    policy_curve_envelope,
)
from bfcviz.figures.theme import LIGHT

CURVES = CurvePanels(JOB, ByteAxis.of(JOB, [FITS, FAILS]), LIGHT)


@given(st.lists(st.integers(0, 1 << 40), max_size=300), st.integers(1, 50))
def test_each_interval_has_its_least_and_greatest_value(values, columns):
    start, low, high = policy_curve_envelope(np.array(values, np.uint64), columns)
    assert len(start) == min(columns, len(values))
    ends = [*start[1:].astype(int), len(values)][: len(start)]
    for begin, end, least, most in zip(start.astype(int), ends, low, high, strict=True):
        assert (least, most) == (min(values[begin:end]), max(values[begin:end]))


def test_the_points_do_not_depend_on_the_number_of_requests():
    many = np.arange(1_000_000, dtype=np.uint64)
    assert policy_curve_envelope(many).shape == (3, COLUMNS)
    assert policy_curve_envelope(many)[2, -1] == 999_999


def test_a_failure_is_where_the_request_would_have_ended():
    panel = CURVES.panel(0, FAILS, legend=True)
    cross = next(trace for trace in panel.traces if trace["mode"] == "markers")
    assert (cross["x"], cross["y"]) == ([3], [6 + 7])
    assert cross["marker"]["color"] == LIGHT.oom


def test_the_axes_have_units_and_are_the_same_for_all():
    panels = [
        CURVES.panel(number, policy, legend=None) for number, policy in enumerate([FITS, FAILS, REFUSED])
    ]
    assert {panel.name for panel in panels} == {"curve_0", "curve_1", "curve_2"}
    assert {str(panel.yaxis) for panel in panels} == {str(panels[0].yaxis)}
    assert "MiB" in panels[0].yaxis["title"]["text"]
    assert not any(trace["showlegend"] for trace in panels[0].traces)


def test_a_policy_without_an_outcome_has_its_message():
    panel = CURVES.panel(0, REFUSED, legend=True)
    assert "needs a limit &lt;b&gt;" in panel.traces[-1]["text"][0]


def test_a_long_name_leaves_room_for_its_peak():
    name = "torch:expandable_segments=true,max_split_size=64MiB,roundup_power2_divisions=4"
    panel = CURVES.panel(0, replace(FITS, name=name), legend=None)
    assert "12.0 MiB" in panel.caption
    title = panel.title.strip("\u2068\u2069")  # the ellipsis is isolated
    assert len(title) == 46
    assert title.startswith("torch:expandabl")
    assert title.endswith("divisions=4")
    assert name in panel.definition


def test_the_heap_of_the_trace_is_titled_by_its_role():
    panel = CURVES.panel(0, replace(FITS, role="as recorded"), legend=None)
    assert panel.title == "as recorded"
    assert FITS.name in panel.definition


def test_the_table_has_the_points_of_all_curves():
    table = curve_table([FITS, FAILS, REFUSED]).to_pandas()
    assert set(table["policy"]) == {FITS.name, FAILS.name}
    mine = table[table["policy"] == FITS.name]
    assert mine["pool_bytes"].tolist() == FITS.reserved.tolist()
    assert mine["most_in_use"].max() == FITS.peak_in_use
