import numpy as np
import pytest
from dashboard.pages import column, count, inputs, messages, page
from figures.synthetic import MiB, PlainHeap, busy_trace, trace_of

from bfcviz.dashboard.tables.chunk_list import ChunkList
from bfcviz.errors import BfcvizError
from bfcviz.events.schema import EVENT
from bfcviz.figures.style.view_options import Look, Selected
from bfcviz.model import Model


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


def marked(listed):
    return [int(row["does"]["address"]) for row in page(listed).rows if row.get("class") == "here"]


def test_before_a_heap_is_shown_it_is_empty(model):
    listed = ChunkList(model.trace)
    assert count(listed) == "All 0 chunks"
    assert page(listed).rows == []


def test_headers_sort(listed):
    heads = page(listed).heads
    assert heads[1]["does"] == {"do": "sort", "list": "chunks", "by": "size"}
    assert [head["sort"] for head in heads] == ["ascending"] + [None] * 11
    listed.sort("size")
    assert page(listed).heads[1] == {"text": "size▼", "sort": "descending", "does": heads[1]["does"]}
    assert listed.page.value.count("aria-sort") == 1
    sizes = listed.listed.page(0, 14)["size"].tolist()
    assert sizes == sorted(listed.listed.chunks["size"].tolist(), reverse=True)[:14]
    listed.sort("size")
    assert page(listed).heads[1]["sort"] == "ascending"
    listed.sort("label")
    assert page(listed).heads[6]["sort"] == "ascending"


def test_the_menu_sorts_too(listed):
    listed.order.value = ("waste", True)
    assert page(listed).heads[3]["sort"] == "descending"


def test_an_unknown_column_cannot_be_sorted_by(listed):
    with pytest.raises(BfcvizError, match=r"'colour'.* address, size"):
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
    listed.sort("size")
    with model.visiting(200):
        listed.show(model)
        in_use = model.chunks()["in_use"]
        assert count(listed).startswith(f"{np.count_nonzero(in_use)} of {len(in_use)} ")
        assert listed.listed.page(0, 1)["size"] == model.chunks()["size"][in_use].max()


def test_a_new_selection_is_marked_and_comes_onto_the_page(listed, model):
    chunk = model.chunks()[-1]
    listed.show(model, look_at(chunk))
    assert marked(listed) == [int(chunk["address"])]
    listed.scroll(-1000)
    assert marked(listed) == []
    listed.show(model, look_at(chunk))  # an old one does not
    assert marked(listed) == []
    listed.show(model, look_at(model.chunks()[0]))
    assert marked(listed) == [int(model.chunks()[0]["address"])]


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


def test_scrolling(listed, model):
    listed.scroll(2)
    assert column(listed, "address")[0] == f"{model.chunks()['address'][2]:#x}"
    listed.scroller.slider.value = listed.scroller.slider.max
    assert column(listed, "address")[-1] == f"{model.chunks()['address'][-1]:#x}"


def test_a_change_is_one_message_a_widget(listed, model, monkeypatch):
    for do in (lambda: listed.sort("size"), lambda: listed.scroll(5), lambda: listed.show(model)):
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
    assert len(found) >= 12
    for each in found:
        assert getattr(each, "tooltip", None) or each.tooltips, each
