import json
import re
from html import unescape

import numpy as np
import pytest
from unit.dashboard.pages import column, count, inputs, messages, page, sizes
from unit.figures.synthetic import MiB, PlainHeap, trace_of

from bfcviz.dashboard.chunk_pane import ChunkList
from bfcviz.dashboard.table import ROWS
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import EVENT, Kind
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model
from bfcviz.model.grouping import HolderChoice, grouping, members
from bfcviz.units import format_bytes


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


def test_labels_cannot_inject():
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
