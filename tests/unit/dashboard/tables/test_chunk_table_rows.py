"""The row of a chunk in the list of chunks."""

from unit.dashboard.pages import count, page

from bfcviz.events.schema import bin_of
from bfcviz.units import format_bytes


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
