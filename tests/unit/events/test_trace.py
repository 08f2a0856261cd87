"""Traces in memory: ranges, blocks, names."""

import pytest
from unit.events.fabricate import fabricate_trace

from bfcviz.errors import FileError, TraceError
from bfcviz.events.origin import Pool
from bfcviz.events.trace import BLOCK, Trace

COUNT = 2 * BLOCK + 100


@pytest.fixture(scope="module")
def trace():
    return fabricate_trace(COUNT)


def test_any_range_inside_and_none_outside(trace):
    assert len(trace) == COUNT
    assert len(trace.read(0, 0)) == len(trace.read(COUNT, COUNT)) == 0
    for start, stop in ((-1, 1), (5, 4), (0, COUNT + 1), (COUNT + 1, COUNT + 1)):
        with pytest.raises(TraceError, match=rf"\[{start}, {stop}\).*{COUNT} events"):
            trace.read(start, stop)


@pytest.mark.parametrize(("start", "stop"), [(0, None), (3, COUNT - 3), (BLOCK, 2 * BLOCK), (7, 7)])
def test_blocks_are_bounded_and_join_to_the_range(trace, start, stop):
    blocks = list(trace.blocks(start, stop))
    assert all(0 < len(block) <= BLOCK for block in blocks)
    joined = [seq for block in blocks for seq in block["seq"].tolist()]
    assert joined == list(range(start, COUNT if stop is None else stop))


def test_an_empty_trace():
    trace = fabricate_trace(0)
    assert len(trace) == len(trace.read(0, 0)) == len(list(trace.blocks())) == len(trace.to_pandas()) == 0
    assert trace.keyframe_before(0) is None
    assert trace.refresh() == 0


def test_it_says_what_it_is():
    trace = fabricate_trace(1200, source="run.xplane.pb", pools=(Pool("a"), Pool("b")))
    assert repr(trace) == "<Trace of run.xplane.pb: 1,200 events, complete>"


def test_opening_nothing(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        Trace.open(tmp_path / "nothing")
