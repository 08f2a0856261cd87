"""RMM observed by its log, which is read as it grows; with a stand-in for RMM."""

import pytest
from fake_rmm import CallbackMemoryResource, LoggingResourceAdaptor

from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.live.rmm import observe_rmm


def test_the_log_is_read_as_it_grows(rmm):
    before = rmm.resources[0]
    with observe_rmm(log=EventLog(1 << 10), mechanism="log", every_s=1000) as source:
        assert isinstance(rmm.resources[0], LoggingResourceAdaptor)
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "rmm:0", 1 << 30)
        buffer = rmm.buffer(1000, 7)
        source.settle()
        assert heap.stats().bytes_in_use == 1024
        rmm.drop(buffer)
    assert rmm.resources[0] is before
    assert heap.stats().bytes_in_use == 0
    events = heap.log.copy(0, heap.log.head)
    (event,) = events[events["kind"] == Kind.ALLOCATE]
    assert (event["requested"], event["stream"]) == (1000, 1)
    assert "RMM is observed" in source.description
    assert source.out_of_memory is None


def test_a_failed_request_is_an_event(rmm):
    rmm.resources[0] = CallbackMemoryResource(
        lambda n, s: (_ for _ in ()).throw(MemoryError(n)), lambda *a: None
    )
    with observe_rmm(mechanism="log", every_s=1000) as source, pytest.raises(MemoryError):
        rmm.buffer(5000)
    assert (source.out_of_memory.requested, source.out_of_memory.rounded) == (5000, 5120)


def test_what_was_there_before_is_said(rmm):
    old = rmm.buffer(1000)
    with observe_rmm(mechanism="log", every_s=1000) as source:
        rmm.drop((rmm.resources[0], *old[1:]))
    found = source.heaps[0].inconsistencies
    assert (found.unknown_frees, found.left_out) == (1, 1)
    assert found.words() in source.description
    with source:  # it goes on with the same heap
        rmm.buffer(1000)
    assert source.heaps[0].stats().num_allocs == 1


def test_where_one_device_cannot_be_observed_none_is(rmm):
    rmm.devices, before = 2, dict(rmm.resources)
    make = rmm.mr.LoggingResourceAdaptor
    rmm.mr.LoggingResourceAdaptor = lambda *arguments: make(*arguments) if rmm.device == 0 else 1 // 0
    source = observe_rmm(mechanism="log", devices=[0, 1])
    with pytest.raises(ZeroDivisionError):
        source.__enter__()
    assert rmm.resources == before
    rmm.mr.LoggingResourceAdaptor = make
    with source:
        rmm.buffer(1000)
