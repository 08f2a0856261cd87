"""What the page gets to show steps by itself: the heap, and how the map looks."""

import json

import numpy as np
import pytest
from shared import sample_trace
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard import Inspector, scrubbing
from bfcviz.dashboard.scrubbing import Scrubbing
from bfcviz.exporters.interactive_page import page_heap
from bfcviz.figures.colouring import faded


@pytest.fixture
def view():
    inspector = Inspector(sample_trace("conv"), step=40_000)
    inspector.sent = []
    inspector.scrubbing = Scrubbing(inspector.sent.append)
    yield inspector
    inspector.close()


def sent(view):
    """The message that came last, and its data."""
    message = view.sent[-1]
    return message, json.loads(message["data"]) if "data" in message else None


def check_classes(view, look):
    """The page gives each chunk in use the class that the map has at this step."""
    chunks = view.panel_data.model.chunks()
    used = chunks[chunks["in_use"]]
    colours = view.panel_data.colours(view.look)
    colouring = look["colouring"]
    table = np.array(colouring["table"])
    values = {"label": used["label"], "state": np.zeros(len(used), int)}[colouring["of"]]
    np.testing.assert_array_equal(table[values], colours.classes(used, view.step))
    assert colouring["fills"] == {look["theme"]: [paint.fill for paint in colours.paints]}


def test_the_page_gets_the_heap_once_and_its_looks_as_they_change(view):
    view.receive({"do": "scrub", "script": True})
    message, data = sent(view)
    assert message["scrub"] == "events"
    assert "Scrubber" in message["module"]
    assert (data["first"], data["last"]) == (data["trace_first"], data["trace_last"]) == (0, len(view._trace))
    check_classes(view, data["look"])

    view.redraw()
    assert len(view.sent) == 1  # nothing changed
    view.theme = "dark"
    message, look = sent(view)
    assert message["scrub"] == "look"
    check_classes(view, look)
    view.colour = "state"
    check_classes(view, sent(view)[1])
    view.step = 30_000
    view.colour = "holder"
    check_classes(view, sent(view)[1])
    view.receive({"do": "scrub"})
    message, data = sent(view)
    assert message["scrub"] == "events"
    assert "module" not in message


def test_a_chosen_chunk_and_holder_are_told(view):
    view.receive({"do": "scrub"})
    used = view.panel_data.model.in_use()
    address, born = int(used["address"][3]), int(used["born"][3])
    view.receive({"do": "select", "address": str(address), "born": born})
    assert sent(view)[1]["selected"] == {"address": address, "born": born}
    assert sent(view)[1]["faded"] is None
    view.receive({"do": "holder", "row": 0})
    table = np.array(sent(view)[1]["faded"])
    outside = faded(view._trace, view.pool, view.look, used)
    assert 0 < outside.sum() < len(used)
    np.testing.assert_array_equal(table[used["label"]], outside)


@pytest.mark.parametrize("change", [{"colour": "age"}, {"wanted": 1 << 20}])
def test_what_only_python_draws_is_asked_of_python(view, change):
    for name, value in change.items():
        setattr(view, name, value)
    view.receive({"do": "scrub"})
    assert view.sent == [{"scrub": "none"}]


def test_a_heap_is_read_once_for_a_look_that_only_python_draws(view, monkeypatch):
    read = []
    monkeypatch.setattr(scrubbing, "page_heap", lambda *given: read.append(given) or page_heap(*given))
    view.colour = "age"
    for _ in range(3):
        view.receive({"do": "scrub"})
    assert len(read) == 1
    view.colour = "state"
    view.receive({"do": "scrub"})
    assert (len(read), sent(view)[0]["scrub"]) == (2, "events")


def test_a_search_ends_it_and_its_end_begins_it_again(view):
    view.receive({"do": "scrub"})
    view.receive({"do": "search", "text": "conv"})
    assert sent(view)[1] == {"same": False}
    view.receive({"do": "search"})
    check_classes(view, sent(view)[1])


def test_of_a_long_trace_the_page_gets_the_events_around_the_step(view, monkeypatch):
    monkeypatch.setattr("bfcviz.dashboard.scrubbing._MOST_EVENTS", 1000)
    for step, window in ((40_000, (39_500, 40_500)), (10, (0, 1000)), (65_400, (64_583, 65_583))):
        view.step = step
        view.receive({"do": "scrub"})
        data = sent(view)[1]
        assert (data["first"], data["last"]) == window
        assert data["heap"]["count"] == 1000


def test_another_heap_is_asked_for_anew(view):
    view.receive({"do": "scrub"})
    view.change_trace(busy_trace())
    assert sent(view)[0] == {"scrub": "none"}
