"""The whole figure of a comparison."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.whatif.streams import MiB, numbered_stream

from bfcviz.figures.compared_policies import (
    COLUMNS,
    MOST_ROWS,
    ByteAxis,
    CurvePanels,
    DrawnJob,
    DrawnPolicy,
    PolicyHeap,
    comparison_figure,
    curve_table,
    curves_figure,
    peaks_panel,
    policy_curve_envelope,
    policy_maps_figure,
    row_height,
    shares_panel,
)
from bfcviz.figures.theme import LIGHT
from bfcviz.figures.view_options import Look
from bfcviz.whatif.outcome import RecordedOutcome
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, FREE

# ------------------------------------------------------------------------------
# Policies for tests of figures, as plain data.


JOB = DrawnJob("a job", 5, 5 * MiB, 16 * MiB)


def _bytes(*sizes):
    return np.array(sizes, np.uint64) * np.uint64(MiB)


FITS = DrawnPolicy(
    "fits", _bytes(8, 12, 12, 12, 4), _bytes(4, 8, 6, 2, 0), requested_at_peak=6 * MiB, scattered_share=0.25
)
FAILS = DrawnPolicy(
    "fails:option=1",
    _bytes(8, 16, 16, 16),
    _bytes(4, 8, 6, 6),
    requested_at_peak=6 * MiB,
    scattered_share=0.5,
    failed=3,
    failed_size=7 * MiB,
)
REFUSED = DrawnPolicy("refused", _bytes(), _bytes(), message="needs a limit <b>")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("policies", [[FITS], [FITS, FAILS, REFUSED], [REFUSED], [FITS, FAILS] * 4])
def test_every_panel_is_inside_and_named(theme, policies):
    table = pa.table({"policy": [policy.name for policy in policies]})
    picture = comparison_figure(JOB, policies, table, Look(theme=theme))
    assert len(picture.notes) == 2 + len(policies)
    assert picture.table is table
    assert "16.0 MiB" in picture.facts
    for axis in [picture.layout[name] for name in picture.layout if name.startswith("yaxis")]:
        assert 0 <= axis.domain[0] < axis.domain[1] <= 1


def test_no_policy_is_an_empty_figure():
    assert len(comparison_figure(JOB, []).notes) == 2


def test_curves_alone():
    assert len(curves_figure(JOB, [FITS, FAILS]).notes) == 2


def test_the_verdict_is_the_title_and_the_best_policy_the_first_row():
    job = replace(JOB, verdict="<i>Least memory")
    plan = replace(FITS, name="packed", is_allocator=False)
    picture = comparison_figure(job, [plan, FAILS, REFUSED, FITS])
    verdict = picture.layout.annotations[-1]
    assert "&lt;i&gt;Least memory" in verdict.text
    assert picture.layout.title.text is None  # an export puts the facts there
    rows = picture.layout.yaxis.ticktext
    assert [row.partition("<br>")[0].rstrip(":") for row in rows] == ["fits", "fails", "refused", "packed"]


# ------------------------------------------------------------------------------
# Bytes over the job.


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
    assert title.startswith("torch:expand")
    assert title.endswith("divisions=4")
    assert name in panel.definition
    failed = CURVES.panel(0, replace(FAILS, name=name), legend=None)
    assert failed.caption == "out of memory"  # without its request: that has no room


def test_curves_and_maps_in_rows_name_their_vertical_axis_once_a_row():
    figure = comparison_figure(JOB, [replace(FITS, name=name) for name in ("a", "b", "c")])
    named = [axis.title.text or "" for axis in figure.select_yaxes()][-3:]
    assert named == ["bytes (MiB)", "", "bytes (MiB)"]


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


# ------------------------------------------------------------------------------
# Region maps of several heaps side by side.


REQUESTS = [
    *((ALLOCATE, block, (block % 7 + 1) * MiB) for block in range(40)),
    *((FREE, block, 0) for block in range(0, 40, 3)),
]
NAMES = ["bfc:allow_growth=true", "torch", "exact_size", "first_fit"]


@pytest.fixture(scope="module")
def heaps():
    stream = numbered_stream(REQUESTS)
    found = []
    for name in NAMES:
        recorded = RecordedOutcome(policy_of(name).serve(stream, record=True))
        found.append((PolicyHeap(name, recorded.trace, recorded.step_after(len(REQUESTS) - 1)), recorded))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_table_has_the_chunks_of_each(heaps, theme):
    picture = policy_maps_figure([heap for heap, _ in heaps], "the end", Look(theme=theme, colour="holder"))
    table = picture.table.to_pandas()
    for heap, recorded in heaps:
        mine = table[table["policy"] == heap.name]
        assert mine["size"].sum() == recorded.outcome.reserved[-1]
        assert mine["size"][mine["state"] == "in use"].sum() == recorded.outcome.in_use[-1]


def test_all_maps_have_the_same_scale_and_colours(heaps):
    picture = policy_maps_figure([heap for heap, _ in heaps], "the end")
    ranges = {axis.range for axis in (picture.layout.xaxis, picture.layout.xaxis2, picture.layout.xaxis4)}
    assert len(ranges) == 1
    rows = picture.layout.yaxis.range[0]
    assert rows <= MOST_ROWS
    each = len(picture.data) // len(heaps)
    fills = [
        [trace.fillcolor for trace in picture.data[start : start + each] if trace.type == "scatter"]
        for start in range(0, len(picture.data), each)
    ]
    assert all(colours == fills[0] for colours in fills)


def test_the_area_of_free_chunks_is_their_bytes(heaps):
    heap, recorded = heaps[0]
    picture = policy_maps_figure([heap], "the end")
    free = next(trace for trace in picture.data if trace.name == "free")
    x, y = free.x, free.y
    area = sum(abs(x[at + 3] - x[at]) for at in range(len(x) - 3) if y[at] > y[at + 1] and x[at] == x[at + 1])
    expected = int(recorded.outcome.reserved[-1]) - int(recorded.outcome.in_use[-1])
    assert area * MiB == expected


def test_a_heap_without_a_region_says_so():
    stream = numbered_stream([(ALLOCATE, 0, MiB)])
    recorded = RecordedOutcome(policy_of("first_fit").serve(stream, record=True))
    picture = policy_maps_figure([PolicyHeap("first_fit", recorded.trace, 0)], "the start")
    assert "no region at this step" in [text for trace in picture.data for text in trace.text or ()]


def test_regions_narrower_than_their_frame_have_none():
    tiny = numbered_stream([*((ALLOCATE, block, 512) for block in range(30)), (ALLOCATE, 30, 8 * MiB)])
    recorded = RecordedOutcome(policy_of("exact_size").serve(tiny, record=True))
    picture = policy_maps_figure(
        [PolicyHeap("exact_size", recorded.trace, recorded.step_after(30))], "the end"
    )
    frames = [trace for trace in picture.data if trace.name == "region"][-1]
    assert recorded.regions.max() == 30
    gaps = int(np.isnan(np.array(frames.x, float)).sum())  # between the frames of pieces
    assert gaps < 30


# ------------------------------------------------------------------------------
# Bars of peaks and shares.


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
    for what in ("12.0 MiB", "1,857", "928.5 ms"):
        assert what in texts["text"][0]


def test_a_row_has_room_for_all_lines_of_its_name():
    long = replace(FITS, name="bfc:allow_growth=true,garbage_collection=true", role="own rules")
    assert len(long.lines) == 4
    assert row_height([FITS, long]) > row_height([FITS])
