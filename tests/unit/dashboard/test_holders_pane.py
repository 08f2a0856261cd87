"""The pane of the holders: what its HTML says, and what it does on messages."""

from dataclasses import replace

import numpy as np
import pytest
from shared import sample_trace
from unit.analysis.built import state
from unit.dashboard.pages import messages
from unit.dashboard.side_html import Side, cells
from unit.figures.drawn import region_map
from unit.figures.odd_traces import assert_harmless
from unit.figures.synthetic import MiB, PlainHeap

from bfcviz.dashboard.holders_pane import HoldersPane
from bfcviz.errors import BfcvizError
from bfcviz.events.origin import STATE_ONLY
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import colouring
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.find_steps import peak
from bfcviz.model.grouping import HolderChoice, grouping, members

TAGS = {
    *("b", "bdi", "button", "col", "colgroup", "div", "i", "span", "table", "tbody", "td", "th", "thead"),
    *("tr", "u"),
}


def heap_with_holders():
    heap = PlainHeap(64 * MiB)
    heap.allocate(8 * MiB, "net/a")
    heap.mark("step", 1)
    heap.allocate(4 * MiB - 100, "net/b", shape="[1,2]")
    heap.allocate(6 * MiB, "adam", shape="[3]")
    heap.allocate(256, "small")
    heap.mark("step", 2)
    return heap


class Shown:
    """A pane, shown at a step of a trace."""

    def __init__(self, trace, step=None, **look):
        self.model = Model(trace)
        self.model.seek(len(trace) if step is None else step)
        self.look = Look(colour="label", **look)
        self.colours = colouring(trace, 0, "label", self.look.paints)
        self.pane = HoldersPane()
        self.show()

    def show(self, **look):
        self.look = Look(colour="label", **look) if look else self.look
        self.pane.show(self.model, self.look, self.colours)
        return self

    @property
    def rows(self):
        return cells(self.pane.body.value)

    def elements(self, tag, within=""):
        return Side(self.pane.body.value).all(tag, within)

    def column(self, name):
        heads = [head["class"].split()[0] for head in self.elements("th")]
        return [row[heads.index(name)] for row in self.rows]


@pytest.fixture
def shown():
    return Shown(heap_with_holders().trace())


def test_a_holder_only_of_the_last_mark_is_no_row():
    heap = PlainHeap(64 * MiB)
    heap.mark("step", 1)
    held = heap.allocate(8 * MiB, "net/gone")
    heap.allocate(MiB, "net/kept")
    heap.mark("step", 2)
    heap.free(held)
    shown = Shown(heap.trace())
    assert shown.rows[0][:2] == ["kept", "1.0 MiB"]
    assert shown.column("growth")[0] == "+1.0 MiB"


def test_rows_name_holders_and_what_they_hold(shown):
    assert shown.column("name") == ["net", "a", "b", "adam", "other (1 holder)"]
    assert shown.column("bytes") == ["12.0 MiB", "8.0 MiB", "4.0 MiB", "6.0 MiB", "256 B"]
    assert shown.column("share") == ["67%", "44%", "22%", "33%", "<1%"]
    assert shown.column("chunks") == ["2", "1", "1", "1", "1"]
    assert shown.column("growth") == ["+4.0 MiB", "0 B", "+4.0 MiB", "+6.0 MiB", "+256 B"]
    assert shown.column("waste") == ["100 B", "0 B", "100 B", "0 B", "0 B"]


def test_without_two_marks_of_one_name_there_is_no_growth(shown):
    shown.model.back(1)  # before the second one
    assert "growth" not in [head["class"] for head in shown.show().elements("th")]


def test_the_head_of_growth_names_both_marks(shown):
    (title,) = (head["title"] for head in shown.elements("th") if head["class"] == "growth")
    events = shown.model.trace.read(0, len(shown.model.trace))
    first, last = (events["seq"][events["kind"] == Kind.MARK] + 1).tolist()
    assert title.index(f"step {last}") < title.index(f"step {first}")


def test_a_row_names_its_holder_in_its_messages(shown):
    rows = [row for row in shown.elements("tr") if "does" in row]
    assert [row["does"]["do"] for row in rows] == ["holder"] * 4
    for row in rows:
        assert row["hover"] == {"do": "hover", "row": row["does"]["row"]}
    choices = [shown.pane.choice(row["does"]["row"]) for row in rows]
    assert [choice.path for choice in choices] == [("net",), ("net", "a"), ("net", "b"), ("adam",)]
    assert {choice.by for choice in choices} == {"op"}
    assert shown.pane.choice(-1) is shown.pane.choice(99) is None


def test_a_holder_keeps_its_number_at_other_steps(shown):
    row = next(row for row in shown.elements("tr") if "adam" in row["text"])["does"]["row"]
    shown.model.seek(3)
    shown.show()
    shown.pane.show_as("icicle")
    assert shown.pane.choice(row) == HolderChoice("op", ("adam",))


def test_headers_sort(shown):
    by = {head["class"].split()[0]: head for head in shown.elements("th")}
    assert by["bytes"]["aria-sort"] == "descending"
    button = next(each for each in shown.elements("button") if each["text"] == "count")
    assert button["does"] == {"do": "holders_sort", "by": "chunks"}
    shown.pane.sort("bytes")
    assert shown.column("name") == ["adam", "net", "b", "a", "other (1 holder)"]
    assert {head.get("aria-sort") for head in shown.elements("th")} == {None, "ascending"}
    shown.pane.sort("name")
    assert shown.column("name") == ["adam", "net", "a", "b", "other (1 holder)"]
    shown.pane.sort("growth")
    assert shown.column("name")[0] == "adam"
    with pytest.raises(BfcvizError, match=r"'colour'.*bytes"):
        shown.pane.sort("colour")


def test_a_swatch_has_the_colour_of_the_chunks(shown):
    chunks = shown.model.in_use()
    classes = shown.colours.classes(chunks, shown.model.step)
    how = grouping(shown.model.trace, 0, "op")
    for row in (row for row in shown.elements("tr") if "does" in row):
        choice = shown.pane.choice(row["does"]["row"])
        mine = members(how, choice)(chunks)
        sums = np.bincount(classes[mine], weights=chunks["size"][mine])
        assert f"--fill:{shown.colours.paints[int(sums.argmax())].fill};" in row["style"]


def test_the_chosen_holder_is_marked_and_the_filter_can_be_removed(shown):
    choice = HolderChoice("op", ("net", "b"))
    shown.show(holder=choice)
    marked = [row for row in shown.elements("tr") if "chosen" in row.get("class", "")]
    assert [shown.pane.choice(row["does"]["row"]) for row in marked] == [choice]
    button = next(each for each in Side(shown.pane.head.value).all("button") if each["text"] == "show all")
    assert shown.pane.choice(button["does"]["row"]) == choice  # choosing it again removes it


def test_the_holders_of_what_a_search_finds_are_lit(shown):
    shown.show(search="adam")
    (lit,) = (row for row in shown.elements("tr") if "found" in row.get("class", ""))
    assert shown.pane.choice(lit["does"]["row"]) == HolderChoice("op", ("adam",))
    assert "6.0 MiB (6,291,456 B) found by the search" in lit["title"]
    shown.show(search=">7MiB")
    found = [row for row in shown.elements("tr") if "found" in row.get("class", "")]
    assert [shown.pane.choice(row["does"]["row"]).path for row in found] == [("net",), ("net", "a")]
    shown.show(search="none of them")
    assert not any("found" in row.get("class", "") for row in shown.elements("tr"))


def test_only_groupings_that_the_trace_has_are_offered(shown):
    buttons = Side(shown.pane.head.value).all("button")
    offered = [each["does"]["by"] for each in buttons if each["does"]["do"] == "holders_by"]
    assert offered == ["op", "shape"]
    assert [each["does"]["as"] for each in buttons if each["does"]["do"] == "holders_as"] == [
        "list",
        "icicle",
        "what grew",
    ]
    shown.pane.find_by("shape")
    assert shown.column("name")[:2] == ["no shape", "[3]"]
    with pytest.raises(BfcvizError, match=r"'colour'.*op"):
        shown.pane.find_by("colour")
    with pytest.raises(BfcvizError, match=r"'tree'.*icicle"):
        shown.pane.show_as("tree")


def test_a_recording_with_stacks_alone_is_shown_by_stack():
    heap = PlainHeap(8 * MiB)
    for line in (3, 5):
        heap.allocate(line * MiB // 4)
        heap.events[-1]["label"] = heap.labels.intern("", stack=f"f (a.py:{line})\nmain (a.py:9)")
    shown = Shown(heap.trace())
    assert shown.column("name") == ["f (a.py:5)", "f (a.py:3)"]


def test_an_icicle_has_every_large_holder_as_wide_as_its_bytes(shown):
    shown.pane.show_as("icicle")
    boxes = [box for box in shown.elements("div") if "style" in box and "left" in box["style"]]
    found = {}
    for box in boxes:
        style = dict(each.split(":") for each in box["style"].split(";"))
        found[box["text"]] = (style["left"], style["width"], style["top"])
    total = 18 * MiB + 256
    assert found["net"] == ("0.000%", f"{12 * MiB / total:.3%}", "20px")
    assert found["b"] == (f"{8 * MiB / total:.3%}", f"{4 * MiB / total:.3%}", "40px")
    for box in boxes[1:]:
        assert box["hover"] == {"do": "hover", "row": box["does"]["row"]}


def test_what_did_not_change_is_not_sent(shown, monkeypatch):
    assert messages(monkeypatch, shown.show) == []
    shown.model.seek(3)
    assert [widget for widget, _ in messages(monkeypatch, shown.show)] == [shown.pane.body]


def test_a_step_counts_only_the_events_since_the_last_one(shown, monkeypatch):
    def refuse(_):
        raise AssertionError("all chunks were counted")

    shown.show()
    monkeypatch.setattr(Model, "in_use", refuse)
    monkeypatch.setattr(Model, "chunks", refuse)
    shown.model.back(2)  # the mark, and the last allocation
    assert shown.show().column("name")[-1] == "adam"


def test_an_empty_heap_says_so(shown):
    shown.model.seek(0)
    shown.show()
    assert Side(shown.pane.body.value).all("table") == []
    shown.pane.show_as("icicle")
    assert Side(shown.pane.body.value).all("div")[0]["class"] == "none"


def test_a_heap_that_the_file_does_not_show_is_not_called_empty():
    trace = state([], facts={"bytes_in_use": None, "pool_bytes": None})
    shown = Shown(trace)
    assert "The file does not show what is in use." in shown.pane.body.value
    assert "Click a holder" not in shown.pane.head.value
    (note,) = (each for each in region_map(shown.model).select_traces({"mode": "text"}) if len(each.text))
    assert list(note.text) == ["the file does not show the heap"]


def test_before_a_heap_is_shown_a_message_does_nothing():
    pane = HoldersPane()
    pane.sort("name")
    pane.show_as("icicle")
    pane.find_by("stack")
    assert (pane.body.value, pane.choice(0)) == ("", None)


def test_labels_cannot_inject():
    heap = PlainHeap(8 * MiB)
    heap.allocate(MiB, "<img src=x onerror=alert(1)>' onclick='x/b\u202e\"")
    heap.allocate(MiB, "\ud800/<script>", shape="'><b>")
    shown = Shown(heap.trace())
    for kind in ("list", "icicle"):
        shown.pane.show_as(kind)
        assert_harmless(shown.pane.body.value, TAGS)
    shown.show(holder=HolderChoice("op", ("<img src=x onerror=alert(1)>' onclick='x",)))
    assert_harmless(shown.pane.head.value, TAGS)


@pytest.mark.parametrize("name", ["conv", "lstm", "transformer"])
def test_a_real_run_needs_little_html(name):
    trace = sample_trace(name)
    shown = Shown(trace, peak(trace))
    for kind in ("list", "icicle"):
        shown.pane.show_as(kind)
        assert len(shown.pane.body.value) < 30_000


@pytest.mark.parametrize(("named", "by_size"), [(1, True), (20, False)])
def test_a_state_of_mostly_unnamed_memory_is_listed_by_size(named, by_size):
    """A history keeps its list by name: how much has none differs from step to step."""
    heap = PlainHeap(64 * MiB)
    heap.allocate(named * MiB, "kept")
    for size in (2, 8, 2, 2):
        heap.allocate(size * MiB)
    trace = heap.trace()
    assert "no label" in Shown(trace).column("name")
    details = dict(trace.origin.details) | {"history": STATE_ONLY}
    state = Trace.from_events(trace.read(0, len(trace)), trace.labels, replace(trace.origin, details=details))
    shown = Shown(state)
    assert (shown.column("name")[:2] == ["chunks of 8.0 MiB", "chunks of 2.0 MiB"]) == by_size
    shown.pane.find_by("op")
    assert sorted(shown.column("name")) == ["kept", "no label"]


def test_memory_without_names_is_listed_by_size():
    heap = PlainHeap(64 * MiB)
    for size in (2, 8, 2, 2):
        heap.allocate(size * MiB)
    shown = Shown(heap.trace())
    assert shown.column("name") == ["chunks of 8.0 MiB", "chunks of 2.0 MiB"]
    assert shown.column("chunks") == ["1", "3"]


def heap_of_layers():
    """At the end one layer has nearly all memory, another one a small chunk, whose address is the second value."""
    heap = PlainHeap(64 * MiB)
    heap.mark("step", 1)
    before = [heap.allocate(size * MiB, f"layer1/{name}") for name, size in (("a", 3), ("b", 5))]
    small = heap.allocate(256, "layer1/c")
    heap.allocate(7 * MiB, "layer2/e")
    before.append(heap.allocate(12 * MiB, "layer2/h"))
    heap.mark("step", 2)
    heap.allocate(5 * MiB, "layer2/i")
    heap.free(before.pop(1))
    heap.free(before.pop())
    heap.mark("step", 3)
    heap.allocate(6 * MiB, "layer2/j")
    heap.free(before.pop())
    heap.mark("step", 4)
    return heap, small


def test_rows_have_the_names_of_the_map_where_one_group_is_left():
    heap, small = heap_of_layers()
    names = ["layer2/e", "layer2/i", "layer2/j"]
    assert sorted(Shown(heap.trace()).column("name")[:3]) == names
    heap.free(small)
    shown = Shown(heap.trace())  # it was never shown at a step with another layer
    assert sorted(shown.column("name")[:3]) == names
    drawn = [text for each in region_map(shown.model).select_traces({"mode": "text"}) for text in each.text]
    assert {text.split(",")[0] for text in drawn} >= set(names)


@pytest.mark.parametrize("back", [0, 3])
def test_the_rows_add_up_to_the_whole_and_growth_counts_what_is_gone_apart(back):
    heap, _ = heap_of_layers()
    shown = Shown(heap.trace(), len(heap.events) - back)
    amounts = shown.pane._found.amounts
    rows = [row for row in shown.elements("tr") if "title" in row and "style" in row]
    inside = ["inside" in row["class"] for row in rows]
    numbers = {name: [signed(text) for text in shown.column(name)] for name in ("bytes", "growth", "chunks")}
    wanted = amounts.bytes[0], shown.pane._found.growth[0], amounts.chunks[0]
    for values, total in zip(numbers.values(), wanted, strict=True):
        top = [value for value, is_inside in zip(values, inside, strict=True) if not is_inside]
        assert sum(top) == pytest.approx(total, abs=MiB // 20)  # rows are rounded
        if any(inside):
            first = inside.index(True)
            stop = first + inside[first:].index(False)
            assert sum(values[first:stop]) == values[first - 1]
    growth = dict(zip(shown.column("name"), shown.column("growth"), strict=True))
    assert growth == (
        {
            "layer2/e": "0 B",
            "layer2/i": "+5.0 MiB",
            "layer2/j": "+6.0 MiB",
            "other (1 holder)": "0 B",
            "gone (3 holders)": "-20.0 MiB",
        }
        if back == 0
        else {
            "layer2": "-7.0 MiB",
            "e": "0 B",
            "i": "+5.0 MiB",
            "j": "0 B",
            "gone (1 holder)": "-12.0 MiB",
            "layer1": "-5.0 MiB",
        }
    )


def signed(text):
    """The number of a cell."""
    number, *unit = text.replace(",", "").split()
    return float(number) * {"MiB": MiB, "KiB": 1024}.get("".join(unit), 1)


def shown_growth(trace, since):
    shown = Shown(trace)
    shown.show(since=since)
    return shown


def test_names_of_what_grew_are_told_apart():
    heap = PlainHeap(64 * MiB)
    heap.allocate(MiB, "functional_1/before")
    since = len(heap.events)
    names = [f"functional_1/block/{'part/' * 12}conv_{each}/{'part/' * 12}BiasAdd" for each in (1, 2)]
    for name in (*names, "functional_1/conv2d_1_1/BiasAdd", "functional_1/conv2d_2_1/BiasAdd"):
        heap.allocate(MiB, name)
    shown = shown_growth(heap.trace(), since)
    found = shown.column("name")
    assert len(set(found)) == 4
    assert {"conv2d_1_1/BiasAdd", "conv2d_2_1/BiasAdd"} < set(found)
    titles = [row["title"] for row in shown.elements("tr") if "title" in row]
    assert sum("functional_1/conv2d_1_1/BiasAdd" in title for title in titles) == 1


def test_columns_of_what_grew_that_are_empty_in_every_row_are_left_out():
    heap = PlainHeap(64 * MiB)
    kept = heap.allocate(MiB, "kept")
    since = len(heap.events)
    new = heap.allocate(MiB, "new")

    def heads(trace, step=None):
        shown = Shown(trace, step)
        shown.show(since=since)
        shown.pane.sort("gone")
        return [head["class"] for head in shown.elements("th")]

    assert heads(heap.trace()) == ["name", "grew", "new", "never_freed"]
    step = len(heap.events)
    heap.free(new)
    assert heads(heap.trace(), step) == ["name", "grew", "new"]
    heap.free(kept)
    assert heads(heap.trace()) == ["name", "grew", "gone"]
