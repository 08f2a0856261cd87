"""The answer to "would it fit?" has the colour of free memory, of a failure, or none."""

import re

import pytest
from unit.analysis.built import MIB, state
from unit.dashboard.side_html import Side

from bfcviz.dashboard.fit_pane import STYLE, FitPane
from bfcviz.figures.theme import DARK, LIGHT
from bfcviz.figures.view_options import Look
from bfcviz.model import Model

UNKNOWN = {"free_bytes": None, "largest_free_chunk": None}


@pytest.mark.parametrize(
    ("size", "limit", "facts", "colour"),
    [
        (8, 28, None, "free-line"),
        (20, 64, None, "free-line"),  # the pool grows
        (20, 28, None, "oom"),
        (80, 64, None, "oom"),  # never
        (20, None, None, "muted"),
        (8, 28, UNKNOWN, "muted"),
    ],
)
def test_the_edge_of_the_answer_has_the_colour_of_its_verdict(size, limit, facts, colour):
    trace = state([[16, -12]], limit=limit, facts=facts)
    model = Model(trace)
    model.seek(len(trace))
    pane = FitPane()
    pane.show(model, Look(wanted=size * MIB))
    (box,) = Side(pane.widget.value).all("div")
    edges = dict(re.findall(r"\[role=status\]\.(\w+) { border-color: var\(--([\w-]+)\)", STYLE))
    assert edges.get(box["class"], "muted") == colour
    assert edges.keys() == {"fits", "fails"}
    assert all(f"--oom:{theme.oom};" in STYLE for theme in (LIGHT, DARK))
