"""A heap in the middle of a trace, and the list of its chunks."""

import pytest
from unit.figures.synthetic import busy_trace

from bfcviz.dashboard.chunk_pane import ChunkList
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
