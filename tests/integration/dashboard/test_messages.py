"""Messages from the page: any content is handled without an exception, and valid ones are carried out."""

import math
from itertools import cycle, product

import pytest
from unit.dashboard.pages import assert_fit_for_a_page
from unit.figures.odd_traces import ODD
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard import Inspector

VALUES = (
    *(None, math.nan, math.inf, -math.inf, -1, 0, 1, 1.5, 1e300, 1 << 64, -(1 << 70), 10**400, True),
    *("", "abc", "1", "0x10", "1" * 5000, "chunks", "²", [], [1, 2], {}, {"x": 1}),
)


ACTIONS = (
    *("theme", "width", "key", "click", "cursor", "zoom", "whole", "step", "select", "sort", "scroll"),
    *(
        "views",
        "brush",
        "details",
        "hover",
        "holder",
        "holders_sort",
        "holders_by",
        "holders_as",
        "ask",
        "release",
        "scrub",
    ),
)


FIELDS = (
    *("theme", "width", "key", "panel", "x", "y", "ranges", "step", "address", "born", "list", "rows"),
    *("views", "from", "to", "row", "as", "size", "held", "way", "script"),
)


def invalid_messages():
    yield from VALUES
    for what in VALUES:
        yield {"do": what}
        for do in ACTIONS:
            yield {"do": do} | dict.fromkeys((*FIELDS, "by"), what)
        for panel in ("1", "2", "7", "8", "9", "0", "-1", "²", "x"):
            yield {"do": "zoom", "ranges": {panel: what}}
        for panel in ("1", "2", "8", "0"):
            for ends in (what, [what, 1], [0, what], [what, what], [1, 2, 3]):
                yield {"do": "zoom", "ranges": {panel: {"x": ends, "y": [0, 1]}}}
                yield {"do": "zoom", "ranges": {panel: {"x": [0, 1], "y": ends}}}
    yield from ({"do": do} for do in ACTIONS)


def clicks_and_zooms_far_off():
    places = (-1e18, -5, 0, 1e-9, 0.5, 1e9, 1e18), (-1e18, -5, 0.5, 1e18)
    for panel in range(1, 11):
        for x, y in product(*places):
            yield {"do": "click", "panel": panel, "x": x, "y": y}
        for x, y in zip(places[0], cycle(places[1]), strict=False):  # each axis is checked on its own
            yield {"do": "zoom", "ranges": {str(panel): {"x": [x, x + 1], "y": [y, y + 1]}}}
            yield {"do": "zoom", "ranges": {str(panel): {"x": [x, y], "y": [y, x]}}}


def far_off():
    yield from clicks_and_zooms_far_off()
    for begin in (-1e18, -5, 0, 0.5, 1e18):
        for end in (-1e18, 0, 0.5, 1e18):
            yield {"do": "brush", "from": begin, "to": end}
    for address in ("0", str((1 << 64) - 1)):
        for born in (None, 0, 1, 1 << 63):
            yield {"do": "select", "address": address, "born": born}
    for rows in (-(1 << 53), 1 << 53):
        for name in ("chunks", "events"):
            yield {"do": "scroll", "list": name, "rows": rows}


@pytest.mark.parametrize(
    ("name", "messages"), [("empty", far_off), ("no_time_at_all", far_off), ("odd_labels", invalid_messages)]
)
def test_no_message_raises_or_prevents_drawing(name, messages):
    trace = ODD[name]()
    inspector = Inspector(trace, len(trace), views="everything")
    for number, message in enumerate(messages()):
        if number % 50 == 0:
            inspector.act("whole")
            inspector.axis = ("step", "time")[number // 50 % 2]
        inspector.receive(message)
    assert_fit_for_a_page(inspector)
    inspector.act("whole")
    inspector.receive({"do": "step", "step": 0})
    assert inspector.step == 0


def test_an_invalid_message_is_quoted_in_the_error():
    inspector = Inspector(busy_trace(20), 5)
    inspector.receive({"do": "step", "step": "<b>"})
    assert inspector.step == 5
    assert "&lt;b&gt;" in inspector.header.step_line.value
    assert "whole number" in inspector.header.step_line.value
    inspector.receive({"do": "explode"})
    assert "explode" in inspector.header.step_line.value


def test_hidden_axes_in_a_zoom_are_ignored():
    inspector = Inspector(busy_trace(20))
    shown = {
        "1": {"x": [0, 1], "y": [3, 0]},
        "6": {"x": [None, None], "y": [0, 1]},
        "99": {"x": [0, 1], "y": [0, 1]},
    }
    inspector.receive({"do": "zoom", "ranges": shown})
    assert inspector.look.map_window is not None
