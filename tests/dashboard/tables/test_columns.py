"""The row of a chunk and of an event, in their lists."""

import pytest
from dashboard.pages import count, page
from figures.synthetic import MiB, PlainHeap, busy_trace

from bfcviz.dashboard.tables.chunk_list import ChunkList
from bfcviz.dashboard.tables.event_list import EventList
from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind, bin_of
from bfcviz.model import Model
from bfcviz.units import format_bytes


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
