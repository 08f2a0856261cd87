"""The pane of the selected chunk."""

import json
import re
from html import unescape

import numpy as np
import pytest
from unit.dashboard.pages import column, count, inputs, messages, page, sizes
from unit.dashboard.side_html import Side
from unit.figures.odd_traces import assert_harmless
from unit.figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.analysis import chunk_life
from bfcviz.dashboard.chunk_pane import ChunkList, ChunkPane
from bfcviz.dashboard.table import ROWS
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import EVENT, Kind, bin_of
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model
from bfcviz.model.grouping import HolderChoice, grouping, members
from bfcviz.units import format_bytes

TAGS = {"a", "b", "button", "code", "dd", "details", "div", "dl", "dt", "em", "pre", "span", "summary"}
STACK = "forward (/home/me/train.py:41)\n<module> (/home/me/train.py:90)"


class Shown:
    """A pane at a step of a trace; the heap allocated three chunks and freed the middle one."""

    def __init__(self, name="net/relu", **details):
        heap = PlainHeap(8 * MiB)
        heap.allocate(MiB, "first")
        self.address = heap.allocate(MiB - 200, name, **(details or {"stack": STACK, "shape": "[2,3]"}))
        heap.allocate(2 * MiB, "last")
        heap.free(self.address)
        self.trace = heap.trace()
        self.model = Model(self.trace)
        events = self.trace.read(0, len(self.trace))
        seqs = events["seq"][events["kind"] == Kind.ALLOCATE]
        self.born, self.freed = int(seqs[1]), int(events["seq"][events["kind"] == Kind.FREE][0])
        self.pane = ChunkPane()

    def at(self, step, born=True, address=None):
        self.model.seek(step)
        chosen = Selected(self.address if address is None else address, self.born if born else None)
        self.pane.show(self.model, Look(selected=chosen))
        found, name = {}, None
        for element in Side(self.pane.text.value).found:
            if element["tag"] == "dt":
                name = element["text"]
            if element["tag"] == "dd":
                found[name] = element["text"].replace("\u2068", "").replace("\u2069", "")
        return found

    @property
    def links(self):
        return [each["does"] for each in Side(self.pane.text.value).all("a")]


@pytest.fixture
def shown():
    return Shown()


def test_without_a_selection_there_is_a_hint(shown):
    shown.pane.show(shown.model, Look())
    assert [each["class"] for each in Side(shown.pane.text.value).all("div")] == ["none"]


def test_an_allocation_in_use(shown):
    facts = shown.at(shown.born + 2)
    assert list(facts)[:4] == ["size", "share", "allocated", "freed"]
    assert facts["share"].startswith("50.0%")
    assert "net/relu" in Side(shown.pane.text.value).all("div")[1]["text"]
    for text in ("1.0 MiB", "requested", "200 B wasted"):
        assert text in facts["size"]
    assert facts["code"].startswith("train.py:41")
    assert facts["shape"] == "[2,3]"
    assert facts["before"].endswith("first")
    assert facts["after"].endswith(" free")
    assert {"do": "step", "step": shown.born + 1} in shown.links
    assert {"do": "step", "step": shown.freed + 1} in shown.links


def test_the_whole_stack_is_there_with_python_first_and_compiled_frames_folded():
    compiled = [f"at::native::op{number}(long) (ops.cpp:0)" for number in range(40)]
    stack = "\n".join([*compiled[:20], *STACK.splitlines(), *compiled[20:]])
    shown = Shown(stack=stack)
    shown.at(shown.born + 1)
    python, folded = Side(shown.pane.text.value).all("pre")
    assert [line.strip("\u2068\u2069") for line in python["text"].splitlines()] == STACK.splitlines()
    assert "details" not in python["within"]
    assert [line.strip("\u2068\u2069") for line in folded["text"].splitlines()] == compiled
    assert "details" in folded["within"]


def test_what_uses_the_address_next_is_named_with_its_step():
    heap = PlainHeap(8 * MiB)
    address = heap.allocate(MiB, "first")
    heap.allocate(MiB, "between")
    heap.free(address)
    heap.allocate(MiB, "second")
    shown = Shown()
    shown.trace, shown.model = heap.trace(), Model(heap.trace())
    shown.address, shown.born = address, 2
    facts = shown.at(3)
    assert facts["next here"].startswith("second")
    assert {"do": "step", "step": len(shown.trace)} in shown.links


def test_without_a_chunk_the_holder_that_filters_is_told(shown):
    shown.model.seek(shown.freed)
    shown.pane.show(shown.model, Look(holder=HolderChoice("op", ("net",))))
    side = Side(shown.pane.text.value)
    assert side.all("div")[1]["text"].strip("\u2068\u2069") == "net"
    assert "25.0%" in side.all("dd")[0]["text"]
    assert side.all("dd")[1]["text"] == "1: 1 x 1.0 MiB"
    assert side.all("pre")[0]["text"].count("train.py") == 2
    shown.pane.show(shown.model, Look(holder=HolderChoice("op", ("nothing",))))
    assert len(Side(shown.pane.text.value).all("dd")) == 1


def test_neighbours_can_be_selected(shown):
    shown.at(shown.freed)
    selects = [link for link in shown.links if link["do"] == "select"]
    assert [int(link["address"]) for link in selects] == [shown.address - MiB, shown.address + MiB]


def test_an_allocation_that_was_freed_has_no_neighbours(shown):
    facts = shown.at(len(shown.trace))
    assert "after" not in facts
    assert "not in use" in facts["size"]


def test_a_free_chunk(shown):
    facts = shown.at(len(shown.trace), born=False)
    assert Side(shown.pane.text.value).all("div")[1]["text"] == "free chunk"
    assert facts["size"].endswith("free")
    assert "thread" not in facts
    assert {"do": "step", "step": shown.freed + 1} in shown.links


def test_a_chunk_that_does_not_exist_is_said_so(shown):
    assert shown.at(len(shown.trace), address=12345) == {}
    assert Side(shown.pane.text.value).all("div")[0]["class"] == "none"


def test_its_end_is_searched_once(shown, monkeypatch):
    searched = []
    search = chunk_life.life_of
    monkeypatch.setattr(
        "bfcviz.dashboard.chunk_pane.life_of", lambda *args: searched.append(1) or search(*args)
    )
    ages = [shown.at(step)["allocated"] for step in (shown.born + 1, shown.born + 2)]
    assert searched == [1]
    assert ages[0] != ages[1]
    assert "not in use" in shown.at(len(shown.trace))["size"]


def test_what_did_not_change_is_not_sent(shown, monkeypatch):
    shown.at(shown.born + 1)
    assert messages(monkeypatch, lambda: shown.at(shown.born + 1)) == []


def test_labels_cannot_inject():
    shown = Shown(
        "<img src=x onerror=alert(1)>' onclick='x", stack="' onclick='<b> (a.py:1)", **{"<b>": "<i>"}
    )
    shown.at(shown.born + 1)
    assert_harmless(shown.pane.text.value, TAGS)
    assert "<img src=x" in Side(shown.pane.text.value).all("div")[1]["text"]


# ------------------------------------------------------------------------------
# A heap in the middle of a trace, and the list of its chunks.


@pytest.fixture(scope="module")
def model():
    model = Model(busy_trace())
    model.seek(400)
    return model


@pytest.fixture
def listed(model):
    listed = ChunkList(model.trace)
    listed.show(model)
    return listed


def look_at(chunk):
    return Look(selected=Selected(int(chunk["address"]), int(chunk["born"]) if chunk["in_use"] else None))


def marked(listed, css="selected"):
    return [int(row["does"]["address"]) for row in page(listed).rows if css in row.get("class", "")]


def test_before_a_heap_is_shown_it_is_empty(model):
    listed = ChunkList(model.trace)
    assert count(listed) == "All 0 chunks"
    assert page(listed).rows == []


def test_headers_sort_and_show_the_first_rows(listed):
    heads = {head["text"].rstrip("▲▼"): head for head in page(listed).heads}
    assert heads["address"]["does"] == {"do": "sort", "list": "chunks", "by": "address"}
    assert [name for name, head in heads.items() if head["sort"]] == ["size"]
    listed.scroll(200)
    listed.sort("requested")
    requested = [chunk["requested"] for chunk in listed.listed.chunks]
    assert column(listed, "requested")[0] == format_bytes(int(max(requested)))
    assert (sizes(listed)["first"], sizes(listed)["top"]) == (0, 0)
    assert listed.page.value.count("aria-sort") == 1
    assert {head["text"] for head in page(listed).heads} >= {"requested▼", "size"}
    listed.sort("requested")
    assert "requested▲" in {head["text"] for head in page(listed).heads}
    listed.sort("label")
    assert "label▲" in {head["text"] for head in page(listed).heads}


def test_the_largest_chunk_is_the_first_row(listed, model):
    sizes_of = sorted(model.chunks()["size"].tolist(), reverse=True)
    page_of = listed.listed.page(0, 14)["size"].tolist()
    assert page_of == sizes_of[:14]
    assert column(listed, "size")[0] == format_bytes(sizes_of[0])


def test_an_unknown_column_cannot_be_sorted_by(listed):
    with pytest.raises(BfcvizError, match=r"'colour'.* size"):
        listed.sort("colour")


def test_the_count_says_how_many_chunks_pass_which_filters(listed, model):
    listed.state.value = "free"
    free = int(np.count_nonzero(~model.chunks()["in_use"]))
    assert count(listed) == f"{free} of {len(model.chunks())} chunks: free"
    assert set(column(listed, "state")) == {"free"}
    listed.state.value = "in use"
    listed.filters.text.box.value = "layer_5"
    assert set(column(listed, "label")) == {"layer_5/MatMul"}
    assert count(listed).endswith("chunks: in use, label contains 'layer_5'")
    listed.filters.least.box.value = "nonsense"
    assert "role='alert'" in listed.filters.least.error.value
    assert set(column(listed, "label")) == {"layer_5/MatMul"}
    listed.clear()
    assert count(listed) == f"All {len(model.chunks())} chunks"


def test_filters_and_order_last_over_steps(listed, model):
    listed.state.value = "in use"
    with model.visiting(200):
        listed.show(model)
        in_use = model.chunks()["in_use"]
        assert count(listed).startswith(f"{np.count_nonzero(in_use)} of {len(in_use)} ")
        assert listed.listed.page(0, 1)["size"] == model.chunks()["size"][in_use].max()


def test_a_new_selection_is_marked_and_comes_into_sight(listed, model):
    listed.sort("address")
    chunk = model.chunks()[-1]
    listed.show(model, look_at(chunk))
    assert marked(listed) == [int(chunk["address"])]
    place = sizes(listed)
    assert place["top"] <= len(model.chunks()) - 1 < place["top"] + ROWS
    listed.scroll(0)
    assert marked(listed) == []
    listed.show(model, look_at(chunk))  # an old one does not
    assert marked(listed) == []
    listed.show(model, look_at(model.chunks()[0]))
    assert marked(listed) == [int(model.chunks()[0]["address"])]


def test_the_chunk_of_this_step_is_marked_and_is_not_the_selection(listed, model):
    with model.visiting(200):
        while model.trace.read(model.step - 1, model.step)["kind"][0] != Kind.ALLOCATE:
            model.forward()
        event = model.trace.read(model.step - 1, model.step)[0]
        listed.show(model, look_at(model.chunks()[-1]))
        listed.sort("born")
        listed.sort("born")  # the newest first
        assert marked(listed, "here") == [int(event["address"])]
        assert set(marked(listed, "here")).isdisjoint(marked(listed))


def test_the_count_says_that_the_selected_chunk_is_not_listed(listed, model):
    used = next(chunk for chunk in model.chunks() if chunk["in_use"])
    listed.show(model, look_at(used))
    listed.state.value = "free"
    assert count(listed).endswith("; the selected chunk is not among them")
    listed.state.value = "all"
    assert marked(listed) == [int(used["address"])]
    listed.show(model, Look(selected=Selected(int(used["address"]), int(used["born"]) + 1)))
    assert marked(listed) == []
    assert count(listed).endswith("; the selected chunk is not among them")


def test_rows_are_made_where_the_page_is_scrolled_to(listed, model):
    listed.sort("address")
    count = len(model.chunks())
    assert sizes(listed)["count"] == count
    listed.scroll(10**9)
    place = sizes(listed)
    assert place["first"] + place["made"] == count
    assert place["above"] + place["made"] * place["row"] == place["height"] == count * place["row"]
    assert column(listed, "address")[-1] == f"{model.chunks()['address'][-1]:#x}"
    before = listed.page.value
    listed.scroll(place["first"] + 1)
    assert listed.page.value == before  # they are made already


def test_holder_and_search_of_the_view_filter_the_list(listed, model):
    choice = HolderChoice("op", ("layer_5",))
    listed.show(model, Look(holder=choice))
    assert set(column(listed, "label")) == {"layer_5/MatMul"}
    in_use = model.in_use()
    mine = members(grouping(model.trace, 0, "op"), choice)(in_use)
    assert sizes(listed)["count"] == np.count_nonzero(mine)
    assert json.loads(re.search("data-bfcviz='([^']*)'", unescape(listed.count.value))[1]) == {"do": "holder"}
    listed.show(model, Look(search="LAYER_2/"))
    assert set(column(listed, "label")) == {"layer_2/MatMul"}
    assert "<mark>layer_2/</mark>" in listed.page.value
    assert json.loads(re.search("data-bfcviz='([^']*)'", unescape(listed.count.value))[1]) == {"do": "search"}
    listed.show(model, Look(search="layer_2", holder=choice))
    assert column(listed, "label") == []
    listed.show(model)
    assert count(listed) == f"All {len(model.chunks())} chunks"


def test_the_filter_of_the_view_cannot_inject(listed, model):
    listed.show(model, Look(search="<img src=x>'", holder=HolderChoice("op", ("<script>'",))))
    assert "<img" not in listed.count.value
    assert "<script" not in listed.count.value


def test_a_change_is_one_message_a_widget(listed, model, monkeypatch):
    for do in (lambda: listed.sort("size"), lambda: listed.scroll(100), lambda: listed.show(model)):
        sent = messages(monkeypatch, do)
        assert len({id(widget) for widget, _ in sent}) == len(sent)
    assert sent == []


def test_labels_cannot_inject_into_the_list():
    heap = PlainHeap(MiB)
    heap.allocate(256, "<img src=x onerror=alert(1)>' onclick='x")
    trace = heap.trace()
    model = Model(trace)
    model.seek(len(trace))
    listed = ChunkList(trace)
    listed.show(model)
    assert "img" not in page(listed).tags
    assert "<img src=x onerror=alert(1)>' onclick='x" in column(listed, "label")
    listed.filters.text.box.value = "<img src"
    assert "<img" not in listed.count.value
    assert column(listed, "state") == ["in use"]


def test_labels_that_come_later_are_found():
    heap = PlainHeap(MiB)
    heap.allocate(256, "first")
    trace = heap.trace()
    listed = ChunkList(trace)
    listed.filters.text.box.value = "second"
    heap.allocate(256, "second")
    trace = heap.trace()  # with the same labels, which have grown
    model = Model(trace)
    model.seek(len(trace))
    listed.show(model)
    assert column(listed, "label") == ["second"]


def test_one_of_several_heaps_is_named():
    trace = trace_of(np.zeros(0, EVENT), pools=2)
    listed = ChunkList(trace, 1)
    assert count(listed) == "All 0 chunks of pool 'pool 1'"
    listed.show(Model(trace, 0))
    assert count(listed) == "All 0 chunks of pool 'pool 0'"


def test_every_input_has_a_name(listed):
    found = inputs(listed.widget)
    assert len(found) >= 6
    for each in found:
        assert getattr(each, "tooltip", None) or each.tooltips, each


# ------------------------------------------------------------------------------
# The row of a chunk in the list of chunks.


def test_a_row_shows_every_field_of_its_chunk(listed, model):
    chunks = model.chunks()
    assert count(listed) == f"All {len(chunks)} chunks"
    listed.sort("address")
    names = [head["text"].rstrip("▲▼") for head in page(listed).heads]
    for chunk, row in zip(chunks, page(listed).rows, strict=False):
        cells, size = dict(zip(names, row["cells"], strict=True)), int(chunk["size"])
        assert (cells["address"], cells["size"]) == (f"{chunk['address']:#x}", format_bytes(size))
        assert cells["bin"] == f"{bin_of(size)}"
        if chunk["in_use"]:
            assert cells["requested"] == format_bytes(int(chunk["requested"]))
            assert cells["waste"] == format_bytes(size - int(chunk["requested"]))
            assert cells["state"] == "in use"
            assert cells["label"] == model.trace.labels.name(int(chunk["label"]))
            assert (cells["born"], cells["age"]) == (f"{chunk['born'] + 1}", f"{399 - int(chunk['born'])}")
        else:
            assert cells["state"] == "free"
            for name in ("requested", "waste", "label", "born", "age", "thread", "stream"):
                assert cells[name] == "-"


def test_clicks_select_and_jump(listed, model):
    listed.sort("address")
    for chunk, row in zip(model.chunks(), page(listed).rows, strict=False):
        born = int(chunk["born"]) if chunk["in_use"] else None
        assert row["does"] == {"do": "select", "address": str(chunk["address"]), "born": born}
        assert row["tabindex"] == "0"
        assert row["jumps"] == ([] if born is None else [{"do": "step", "step": born + 1}])
