import numpy as np
from figures.synthetic import busy_trace
from plotly.basedatatypes import Undefined

from bfcviz.dashboard.study import Study
from bfcviz.dashboard.view import View, difference, restyling
from bfcviz.figures.look import Look
from bfcviz.figures.theme import LIGHT


def test_only_what_differs_is_sent():
    x = np.arange(3.0)
    before = {"x": x, "y": np.array([1.0, np.nan]), "name": "a", "text": ["t"]}
    after = {"x": x, "y": np.array([1.0, np.nan]), "name": "b", "text": ["t"]}
    assert difference(before, after) == {"name": "b"}


def test_an_array_is_not_mistaken_for_a_list():
    assert "x" in difference({"x": [1.0]}, {"x": np.array([1.0])})


def test_changed_traces_send_all_keys_that_change_anywhere():
    one, two, three = {"x": 1, "y": 2}, {"x": 1, "text": 5}, {"x": 9, "y": 9}
    values, changed = restyling([(one, one | {"x": 7}), (two, two | {"text": 6}), (three, three)])
    assert changed == [0, 1]
    assert values == {"text": [Undefined, 6], "x": [7, 1]}


def test_a_panel_joins_when_it_is_first_shown_and_then_only_hides():
    study = Study(busy_trace(), 0)
    study.model.seek(300)
    look = Look()
    view = View(study.panels(["region_map", "stats"], look), "heap_pair", LIGHT, rows=TWO)
    traces = len(view.widget.data)
    view.show(study.panels(["rate"], look), "one", LIGHT, rows=ONE)
    assert len(view.widget.data) > traces
    assert not any(trace.visible for trace in view.widget.data[:traces])
    assert view.widget.layout.xaxis.visible is False
    assert view.widget.layout.xaxis3.visible is True
    joined = len(view.widget.data)
    view.show(study.panels(["region_map", "stats"], look), "heap_pair", LIGHT, rows=TWO)
    assert len(view.widget.data) == joined
    assert view.widget.layout.xaxis.visible is True
    assert view.widget.layout.xaxis3.visible is False
