"""Requests that failed in the trace: a job may have gone on without them."""

import numpy as np
import pytest
from heaps import MIB

import bfcviz
from bfcviz.model.trace_from_source import trace_of
from bfcviz.whatif.policy_table import replay
from bfcviz.whatif.requests import FREE, are_failed, failed_note, stream_of


@pytest.fixture
def tolerated():
    """8 MiB: four blocks, a workspace that does not fit and is not needed, and the end of the job."""
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 8 * MIB)
    kept = [heap.allocate(MIB, label=f"kept {number}") for number in range(4)]
    assert heap.try_allocate(64 * MIB, label="workspace") is None
    for address in kept:
        heap.free(address)
    return trace_of(heap)


def test_without_them_the_job_needs_what_it_had(tolerated):
    stream = stream_of(tolerated)
    assert (len(stream), int(are_failed(stream.rows).sum())) == (10, 2)
    assert stream.live_bytes.max() == 68 * MIB
    assert "4.0 MiB" in failed_note(stream)
    assert failed_note(stream) in stream.notes
    rest = stream.without_failed()
    assert (len(rest), rest.live_bytes.max()) == (8, 4 * MIB)
    assert failed_note(rest) == ""
    assert failed_note(stream) not in rest.notes
    assert replay(rest, "bfc", 8 * MIB).fits
    assert not replay(stream, "bfc", 8 * MIB).fits


def test_blocks_and_regions_keep_their_requests(tolerated):
    stream = stream_of(tolerated)
    rest = stream.without_failed()
    frees = rest.rows["kind"] == FREE
    assert rest.rows["block"][~frees].tolist() == rest.rows["block"][frees].tolist() == [0, 1, 2, 3]
    assert rest.rows["event"].tolist() == [
        event
        for event, failed in zip(stream.rows["event"], are_failed(stream.rows), strict=True)
        if not failed
    ]
    for before, after in zip(stream.regions, rest.regions, strict=True):
        assert stream.rows["event"][before["request"]] == rest.rows["event"][after["request"]]


def test_a_stream_without_failures_stays_itself():
    heap = bfcviz.BFCAllocator(bfcviz.SimulatedSubAllocator(), 8 * MIB)
    heap.free(heap.allocate(MIB))
    stream = stream_of(trace_of(heap))
    assert stream.without_failed() is stream
    assert (failed_note(stream), stream.notes) == ("", ())
    assert not are_failed(np.zeros(0, stream.rows.dtype)).any()
