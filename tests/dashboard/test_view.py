import numpy as np
from plotly.basedatatypes import Undefined

from bfcviz.dashboard.view import PLACES, difference, restyling


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


def test_panels_do_not_overlap():
    for number, one in enumerate(PLACES):
        for other in PLACES[number + 1 :]:
            beside = one.right <= other.left or other.right <= one.left
            above = one.top + one.height <= other.top or other.top + other.height <= one.top
            assert beside or above
