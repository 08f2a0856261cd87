"""RMM observed by its log, which is read as it grows; with a stand-in for RMM."""

import pytest
from fake_rmm import CallbackMemoryResource, LoggingResourceAdaptor

from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.live.rmm import LogFile, observe_rmm


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


LINES = """Thread,Time,Action,Pointer,Size,Stream
13395,16:53:04.281065,allocate,0x7f0000064000,100,0
13395,16:53:04:281072,allocate,0x7f0000065000,300,0x1
13395,23:59:59.281076,deallocate,0x7f0000064000,100,0
13395,00:00:01.281178,allocate failure,(nil),20000,0
13395,00:00:02,resize,0x0,1,0
what is this
13395,00:00:03.000000,free,0x7f00000"""


def take(log):
    for when, request in log.read():
        log.report(when, request)


def test_lines_of_all_versions_are_read(tmp_path):
    path = tmp_path / "rmm.dev0.csv"
    path.write_text(LINES)
    log = LogFile(path, ObservedHeap(EventLog(1 << 8), unit=256), 0)
    take(log)
    with path.open("a") as file:  # the last line becomes whole
        file.write("65000,300,0x1\n")
    take(log)
    events = log.heap.log.copy(0, log.heap.log.head)
    kinds = events["kind"].tolist()
    assert [kinds.count(kind) for kind in (Kind.ALLOCATE, Kind.FREE, Kind.OOM)] == [2, 2, 1]
    day, second = 86_400, 1_000_000_000
    seconds = (events["time"][events["kind"] == Kind.FREE] // second).tolist()
    assert seconds == [day - 1, day + 3]
    assert log.unreadable == 2
    assert log.heap.stats().bytes_in_use == 0
