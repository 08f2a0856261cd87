"""The row of a chunk, in the list of chunks."""

import pytest
from dashboard.pages import count, page
from figures.synthetic import busy_trace

from bfcviz.dashboard.tables.chunk_list import ChunkList
from bfcviz.events.schema import bin_of
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
    for chunk, row in zip(chunks, page(listed).rows, strict=False):
        cells, size = row["cells"], int(chunk["size"])
        assert cells[:2] == [f"{chunk['address']:#x}", format_bytes(size)]
        assert cells[5] == f"{bin_of(size)}"
        if chunk["in_use"]:
            assert cells[2] == format_bytes(int(chunk["requested"]))
            assert cells[3] == format_bytes(size - int(chunk["requested"]))
            assert cells[4] == "in use"
            assert cells[6] == model.trace.labels.name(int(chunk["label"]))
            assert cells[7:9] == [f"{chunk['born'] + 1}", f"{400 - int(chunk['born']) - 1}"]
        else:
            assert cells[2:5] == ["-", "-", "free"]
            assert cells[6:9] == ["-", "-", "-"]
            assert cells[10:] == ["-", "-"]


def test_clicks_select_and_jump(listed, model):
    for chunk, row in zip(model.chunks(), page(listed).rows, strict=False):
        born = int(chunk["born"]) if chunk["in_use"] else None
        assert row["does"] == {"do": "select", "address": str(chunk["address"]), "born": born}
        assert row["tabindex"] == "0"
        assert row["jumps"] == ([] if born is None else [{"do": "step", "step": born + 1}])
