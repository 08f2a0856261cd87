"""A part of a trace: at each of its steps the heap is that of the whole."""

import numpy as np
import pytest
from shared import sample_trace
from unit.exporters.snapshots import chunks_at
from unit.figures.synthetic import busy_trace, trace_of
from unit.model.one_pass import find

import bfcviz
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.exporters.convert import convert, part_of
from bfcviz.model.model import Model

FIELDS = ["address", "size", "requested", "label", "thread", "stream", "region", "in_use"]


@pytest.fixture(scope="module")
def sample():
    return sample_trace("lstm")


@pytest.mark.parametrize("steps", [(0, 500), (9000, 12000), (20000, 20000)])
def test_every_step_has_the_heap_of_the_whole(sample, steps):
    start, stop = steps
    part = part_of(sample, start, stop)
    before = len(part) - (stop - start)
    whole, model = Model(sample), Model(part)
    for step in range(start, stop + 1, 250):
        whole.seek(step)
        model.seek(before + step - start)
        assert (whole.chunks()[FIELDS] == model.chunks()[FIELDS]).all()
        assert (whole.regions() == model.regions()).all()
    model.seek(0)
    assert len(model.chunks()) == 0


def test_frees_name_their_allocations(sample):
    part = part_of(sample, 9000, 12000)
    events = part.read(0, len(part))
    frees = events[events["kind"] == Kind.FREE]
    allocated = events[frees["other"]]
    assert len(frees)
    assert (allocated["kind"] == Kind.ALLOCATE).all()
    assert (allocated["address"] == frees["address"]).all()
    assert len(find(part, 0, 0, len(part)).lifetimes) == int((events["kind"] == Kind.ALLOCATE).sum())


def test_all_steps_are_the_trace_itself(sample):
    assert part_of(sample, 0, len(sample)) is sample


def test_it_says_that_it_is_a_part(tmp_path):
    trace = busy_trace(100)
    notes = convert(trace, tmp_path / "part.parquet", 50, 90)
    part = bfcviz.open(tmp_path / "part.parquet")
    assert part.origin.status == Status.DEGRADED
    assert notes == [*part.origin.reasons]
    assert "from step 50 to 90" in notes[0]
    assert chunks_at(part, len(part)) == chunks_at(trace, 90)
    assert part_of(trace, 0, 90).origin.status == Status.TRUNCATED


def test_several_heaps_keep_their_handles():
    one = busy_trace(60, seed=1)
    events = np.array(one.read(0, len(one)))
    other = events.copy()
    other["pool"] = 1
    both = np.empty(2 * len(events), events.dtype)
    both[::2], both[1::2] = events, other
    place = np.arange(len(both))
    frees = both["kind"] == Kind.FREE
    both["other"][frees] = 2 * both["other"][frees] + place[frees] % 2
    both["seq"] = place

    trace = trace_of(both, one.labels, pools=2)
    part = part_of(trace, 60, 120)
    for pool in (0, 1):
        assert chunks_at(part, len(part), pool) == chunks_at(trace, 120, pool)
