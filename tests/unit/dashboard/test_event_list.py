"""The row of an event in the list of events."""

import re

import numpy as np
import pytest
from unit.dashboard.pages import column, count, inputs, messages, page, sizes
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.dashboard import event_list as module
from bfcviz.dashboard.event_list import EventList
from bfcviz.dashboard.table import ROWS
from bfcviz.errors import TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model.grouping import HolderChoice


@pytest.fixture(scope="module")
def trace():
    return busy_trace()


@pytest.fixture
def listed(trace):
    return EventList(trace)


def marked(listed):
    return [row["does"]["step"] for row in page(listed).rows if "here" in row.get("class", "").split()]


def type_into(asked, text):
    asked.box.value = text


def test_it_begins_with_the_first_events(listed, trace):
    assert column(listed, "step") == [f"{step}" for step in range(1, sizes(listed)["made"] + 1)]
    assert count(listed) == f"All {len(trace)} events"
    assert marked(listed) == []


def test_the_event_that_led_to_the_step_is_marked_and_on_the_page(listed, trace):
    for step in (1, 300, len(trace), 299):
        listed.show(step)
        assert marked(listed) == [step]
        assert sizes(listed)["top"] < step <= sizes(listed)["top"] + ROWS
    listed.show(0)
    assert marked(listed) == []
    assert column(listed, "step")[0] == "1"


def test_the_events_of_the_selected_chunk_are_marked(listed, trace):
    events = trace.read(0, len(trace))
    freed = events[events["kind"] == Kind.FREE][3]
    born = int(events["seq"][(events["kind"] == Kind.ALLOCATE) & (events["other"] == freed["other"])][0])
    look = Look(selected=Selected(int(freed["address"]), born))
    for step in (born + 1, int(freed["seq"]) + 1, int(freed["seq"]) + 4):
        listed.show(step, look)
        selected = [row["does"]["step"] for row in page(listed).rows if "selected" in row.get("class", "")]
        assert set(selected) <= {born + 1, int(freed["seq"]) + 1}
        assert selected
        assert marked(listed) == [step]


def test_holder_and_search_of_the_view_filter_the_list(listed, trace):
    listed.show(300, Look(holder=HolderChoice("op", ("layer_5",))))
    assert set(column(listed, "label")) == {"layer_5/MatMul"}
    assert set(column(listed, "kind")) == {"ALLOCATE", "FREE"}
    assert "held by layer_5" in count(listed)
    listed.show(300, Look(search="LAYER_2/"))
    assert set(column(listed, "label")) == {"layer_2/MatMul"}
    assert "<mark>layer_2/</mark>" in listed.page.value
    listed.kinds[Kind.FREE].value = True
    assert set(column(listed, "kind")) == {"FREE"}
    listed.clear()
    assert set(column(listed, "label")) == {"layer_2/MatMul"}  # a filter of the whole view
    listed.show(300)
    assert count(listed) == f"All {len(trace)} events"


def test_the_page_stays_while_the_step_is_on_it(listed):
    listed.show(300)
    before = column(listed, "step")
    listed.show(301)
    assert column(listed, "step") == before


def test_clicking_a_row_leads_to_its_step(listed):
    listed.show(300)
    for row in page(listed).rows:
        assert row["does"] == {"do": "step", "step": int(row["cells"][0])}
        assert row["tabindex"] == "0"


def test_the_count_says_how_many_events_pass_which_filters(listed, trace):
    listed.kinds[Kind.OOM].value = True
    listed.kinds[Kind.SPLIT].value = True
    kinds = trace.read(0, len(trace))["kind"]
    wanted = np.flatnonzero(np.isin(kinds, [Kind.OOM, Kind.SPLIT]))
    assert list(listed.found) == wanted.tolist()
    assert count(listed) == f"{len(wanted)} of {len(trace)} events: kind SPLIT or OOM"
    assert set(column(listed, "kind")) <= {"SPLIT", "OOM"}
    type_into(listed.filters.least, "64 KiB")
    assert count(listed).endswith("events: kind SPLIT or OOM, size at least 64.0 KiB")


def test_labels_are_searched(listed):
    type_into(listed.filters.text, "LAYER_2/")
    assert set(column(listed, "label")) == {"layer_2/MatMul"}
    assert "label contains 'LAYER_2/'" in count(listed)


def test_the_count_says_that_the_event_is_filtered_out(listed, trace):
    listed.show(300)
    listed.kinds[Kind.OOM].value = True
    assert marked(listed) == []
    assert "the event that led to step 300 is not among them" in count(listed)
    rows = page(listed).rows
    assert [row.get("class") for row in rows] == ["after-here"]
    assert rows[0]["does"]["step"] == len(trace)


def test_show_all_clears_every_filter_in_one_search(listed, trace, monkeypatch):
    listed.kinds[Kind.FREE].value = True
    type_into(listed.filters.text, "layer")
    type_into(listed.filters.most, "1 MiB")
    searches = []
    search = module.matching
    monkeypatch.setattr(module, "matching", lambda *a, **k: searches.append(1) or search(*a, **k))
    listed.clear()
    assert count(listed) == f"All {len(trace)} events"
    assert searches == [1]


def test_a_step_is_one_message_a_widget(listed, monkeypatch):
    listed.show(300)
    sent = messages(monkeypatch, lambda: listed.show(301))
    assert [widget for widget, _ in sent] == [listed.page]
    sent = messages(monkeypatch, lambda: listed.show(500))
    assert len({id(widget) for widget, _ in sent}) == len(sent)
    assert messages(monkeypatch, lambda: listed.show(500)) == []


def test_labels_cannot_inject():
    heap = PlainHeap(MiB)
    heap.allocate(256, "<script>alert(1)</script>' onclick='x", stack="<img src=x onerror=alert(1)>\nline 2")
    heap.allocate(256, "\u202e\u0644\u0627' ><b>")
    listed = EventList(heap.trace())
    assert page(listed).tags == {
        "div", "table", "colgroup", "col", "thead", "tbody", "tr", "th", "td", "span", "i", "bdi",
    }  # fmt: skip
    assert "\u202e" not in listed.page.value
    assert "<script>alert(1)</script>' onclick='x" in column(listed, "label")


def test_a_long_name_keeps_its_end_in_sight():
    heap = PlainHeap(MiB)
    heap.allocate(256, "/".join(["scope"] * 60) + "/Conv2D_last")
    html = EventList(heap.trace()).page.value
    assert re.search("/Conv2D_last\u2069?</bdi></span>", html)  # the ellipsis of a narrow cell is at the left


def test_an_empty_trace_has_a_table_without_rows():
    listed = EventList(trace_of(np.zeros(0, EVENT)))
    listed.show(0)
    assert page(listed).rows == []
    assert count(listed) == "All 0 events"
    assert sizes(listed)["height"] == 0


def two_pools():
    events = np.zeros(20, EVENT)
    events["seq"], events["kind"], events["bin"] = range(20), Kind.MARK, -1
    events["pool"] = np.arange(20) % 2
    return trace_of(events, pools=2)


def test_the_count_says_that_events_of_other_pools_are_left_out():
    listed = EventList(two_pools())
    assert count(listed) == "10 of 20 events: pool 'pool 0'"
    listed = EventList(two_pools(), 1)
    assert column(listed, "step") == [f"{step}" for step in range(2, 21, 2)]
    assert count(listed) == "10 of 20 events: pool 'pool 1'"


class Growing:
    """A trace that shows only its first `length` events; those before `first` are dropped."""

    def __init__(self, trace, length):
        self._trace, self.length, self.first = trace, length, 0
        self.labels, self.origin = trace.labels, trace.origin

    def __len__(self):
        return self.length

    def read(self, start, stop):
        assert self.first <= start <= stop <= self.length
        return self._trace.read(start, stop)

    def blocks(self, start=0, stop=None):
        stop = self.length if stop is None else stop
        if start < stop:
            yield self.read(start, stop)


def test_a_trace_that_grows_is_looked_through_once(trace):
    growing = Growing(trace, 300)
    listed = EventList(growing)
    listed.kinds[Kind.FREE].value = True
    listed.scroll(5)
    top = column(listed, "step")[0]
    growing.length, growing.read = len(trace), lambda a, b: (a >= 300 or b <= 300) and trace.read(a, b)
    listed.trace_grew()
    kinds = trace.read(0, len(trace))["kind"]
    assert listed.found.tolist() == np.flatnonzero(kinds == Kind.FREE).tolist()
    assert column(listed, "step")[0] == top
    assert f"of {len(trace)} events" in count(listed)


def test_dropped_events_are_not_listed_and_counted(trace):
    growing = Growing(trace, 300)
    listed = EventList(growing)
    listed.show(200)
    top = column(listed, "step")[0]
    growing.length, growing.first = 400, 100
    listed.trace_grew()
    assert listed.found[0] == 100
    assert column(listed, "step")[0] == top
    assert count(listed) == "All 300 events; the 100 before them are no longer kept"
    growing.first = 350
    listed.scroll(1)
    assert column(listed, "step")[0] == "351"


def test_a_newer_search_ends_the_search_before_it(listed, monkeypatch):
    """As with two threads: while one searches the events, another changes the filter."""
    asked = []

    def matching(*arguments, **how):
        progress = arguments[3]
        asked.append(arguments[2].text)
        if len(asked) == 1:
            assert progress(1)
            type_into(listed.filters.text, "second")
            assert not progress(2)
        return np.array([len(asked)], np.uint32)

    monkeypatch.setattr(module, "matching", matching)
    type_into(listed.filters.text, "first")
    assert asked == ["first", "second"]
    assert listed.found.tolist() == [2]
    assert "'second'" in count(listed)


def test_a_long_search_shows_its_progress(listed, monkeypatch):
    counts = []

    def matching(*arguments, **how):
        arguments[3](500)
        counts.append(count(listed))
        return np.zeros(0, np.uint32)

    monkeypatch.setattr(module, "_PROGRESS_S", -1)
    monkeypatch.setattr(module, "matching", matching)
    type_into(listed.filters.text, "x")
    assert counts == ["searched 500 of 609 events …"]
    assert count(listed).startswith("0 of 609")


def test_events_that_cannot_be_read_show_the_error(listed, trace, monkeypatch):
    def refuse(*_):
        raise TraceError("event 7 is <odd>")

    before = listed.page.value
    monkeypatch.setattr(type(trace), "read", refuse)
    listed.scroll(100)
    assert "role='alert'" in listed.count.value
    assert count(listed) == "event 7 is <odd>"
    type_into(listed.filters.text, "x")
    assert count(listed) == "event 7 is <odd>"
    assert listed.page.value == before


def test_threads_are_named_on_hover(trace):
    growing = Growing(trace, 10)
    growing.origin = type(
        "Origin", (), {"details": {"threads": {"0": "main & co"}}, "pools": trace.origin.pools}
    )
    assert "title='0: main &amp; co'" in EventList(growing).page.value


def test_every_input_has_a_name(listed):
    found = inputs(listed.widget)
    assert len(found) >= 13
    for each in found:
        assert each.tooltip, each


def test_a_row_shows_every_field_of_its_event():
    trace = busy_trace()
    listed = EventList(trace)
    event = next(event for event in trace.read(10, 60) if event["kind"] == Kind.ALLOCATE)
    after = int(event["seq"]) + 1
    listed.show(after)
    row = next(row for row in page(listed).rows if row["does"]["step"] == after)
    step, time, kind, label, size, requested, words, address, thread, stream = row["cells"]
    assert (step, time, kind, address) == (
        f"{after}",
        f"0.0{after - 1} ms",
        "ALLOCATE",
        f"{event['address']:#x}",
    )
    assert size.split()[1] in {"B", "KiB", "MiB"}
    assert requested.split()[1] in {"B", "KiB", "MiB"}
    assert label == trace.labels.name(int(event["label"]))
    assert (thread, stream) == ("0", "0")
    assert words.startswith("from bin ")


def test_an_event_without_an_address_shows_none():
    heap = PlainHeap(MiB, labels=Labels())
    heap.allocate(4 * MiB)
    listed = EventList(heap.trace())
    oom = next(row["cells"] for row in page(listed).rows if row["cells"][2] == "OOM")
    assert oom[3:6] == ["-", "-", "4.0 MiB"]
    assert oom[6].startswith("free 1.0 MiB, largest 1.0 MiB")
    assert oom[7] == "-"
