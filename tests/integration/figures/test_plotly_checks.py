"""Figures are made without plotly's checks: here plotly checks them, and makes the same of them."""

import json

import plotly.graph_objects as go
import pytest
from shared import sample_trace
from unit.figures.odd_traces import ODD

import bfcviz
from bfcviz.figures import FIGURES, panel
from bfcviz.figures.colouring import COLOURINGS
from bfcviz.figures.view_options import Look
from bfcviz.model import Model


def first_difference(one, other, path=""):
    """Where two figures as dicts differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(one[key], other[key], f"{path}.{key}") for key in one]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = [(*pair, f"{path}[{number}]") for number, pair in enumerate(zip(one, other, strict=True))]
    else:
        return "" if repr(one) == repr(other) else f"{path}: {one!r:.200} and {other!r:.200}"
    return next((found for pair in pairs if (found := first_difference(*pair))), "")


@pytest.fixture
def checked(monkeypatch):
    """The titles of the figures that were made and checked; of equal ones, the first is checked."""
    titles, known = [], set()

    class Checked(panel.Picture):
        def __init__(self, data=None, layout=None, **options):
            super().__init__(data=data, layout=layout, **options)
            made = self.to_json()
            if made not in known:
                plotlys = go.Figure(data, layout).to_json()
                assert first_difference(json.loads(plotlys), json.loads(made)) == ""
            known.add(made)
            titles.append(layout["annotations"][0]["text"])

    monkeypatch.setattr(panel, "Picture", Checked)
    return titles


def test_of_a_failed_run(checked):
    trace = sample_trace("oom_log")
    model = Model(trace)
    model.seek(len(trace))
    for number, colour in enumerate(COLOURINGS, 1):
        for kind in FIGURES.values():
            kind.draw(model, Look(colour=colour, wanted=1 << 20))
        assert len(checked) >= number * len(FIGURES)


@pytest.mark.parametrize("name", ["odd_labels", "empty", "no_addresses"])
def test_of_odd_traces(name, checked):
    trace = ODD[name]()
    model = Model(trace)
    model.seek(len(trace) // 2)
    for kind in FIGURES.values():
        kind.draw(model, Look(axis="time", theme="dark"))
    assert len(checked) >= len(FIGURES)


def test_of_policies(checked):
    comparison = bfcviz.compare_policies(sample_trace("oom_log"))
    comparison.figure()
    assert checked


def test_a_change_by_the_user_is_checked():
    picture = bfcviz.draw("region_map", sample_trace("oom_log"))
    with pytest.raises(ValueError, match="widht"):
        picture.update_layout(widht=300)
    with pytest.raises(ValueError, match="colour"):
        picture.data[0].update(colour="red")
