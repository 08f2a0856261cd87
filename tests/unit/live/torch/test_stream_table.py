"""The functions PyTorch calls: a heap for each stream, frees that wait for other streams, errors, threads."""

import random
import signal
import sys
import threading

import pytest
from heaps import KIB, MIB, assert_model_agrees, new_heap
from processes import needs_compiled
from unit.live.torch.stream_service import NUMBERS, Service

from bfcviz.events.schema import Kind
from bfcviz.live import labels as names
from bfcviz.live.framework_hooks import StreamTable

pytestmark = needs_compiled


@pytest.fixture
def service():
    made = Service()
    yield made
    made.table.stop(made.deferred)


def test_every_stream_of_every_device_has_a_heap(service):
    addresses = [
        service.alloc(1000, device, stream) for device, stream in ((0, 0), (0, 5), (0, 9), (1, 0), (0, 5))
    ]
    assert len(set(addresses)) == 5
    assert None not in addresses
    assert sorted(service.in_use()) == [(0, 0), (0, 5), (0, 9), (1, 0)]
    found = {
        (stream_heap.device, stream_heap.stream): stream_heap.allocator
        for stream_heap in service.table.in_use()
    }
    assert {key: heap.stats().chunks_in_use for key, heap in found.items()} == {
        (0, 0): 1, (0, 5): 2, (0, 9): 1, (1, 0): 1,
    }  # fmt: skip
    assert found[0, 0] is service.heaps[0]  # the oldest spare one is taken first


def test_ctrl_c_while_python_is_asked_reaches_the_program(service, monkeypatch):
    monkeypatch.setattr(service.deferred, "add_heap", lambda *_: signal.raise_signal(signal.SIGINT))
    for _ in range(2):
        service.alloc(1000, stream=next(NUMBERS))
    interrupted = []
    try:
        assert service.alloc(1000, stream=7) is None
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        interrupted.append(7)
    assert interrupted == [7]
    assert service.alloc(1000, stream=service.in_use()[0][1])


def test_an_error_while_python_is_asked_is_printed(service, monkeypatch):
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: printed.append(told.exc_value))

    def fail(*_):
        raise OSError("no memory left")

    monkeypatch.setattr(service.deferred, "add_heap", fail)
    assert [service.alloc(1000, stream=stream) is None for stream in (1, 2, 3)] == [False, False, True]
    assert [str(each) for each in printed] == ["no memory left"]


def test_what_one_stream_frees_no_other_gets(service):
    chooser, held, owner = random.Random(3), [], {}
    for _ in range(3000):
        if len(held) > 30 or (held and chooser.random() < 0.4):
            address, stream = held.pop(chooser.randrange(len(held)))
            service.free(address, stream=stream)
        stream = chooser.choice((0, 11, 22))
        address = service.alloc(chooser.randrange(1, 20 * KIB), stream=stream)
        assert owner.setdefault(address, stream) == stream
        assert address not in [other for other, _ in held]
        held.append((address, stream))
    for address, stream in held:
        service.free(address, stream=stream)
    for heap in service.heaps:
        assert heap.stats().chunks_in_use == 0
        assert_model_agrees(heap)


def test_memory_comes_home_after_the_service(service):
    address = service.alloc(100, stream=3)
    service.table.stop(service.deferred)
    assert service.alloc(100, stream=3) is None
    other = Service()
    theirs = other.alloc(100, stream=3)
    service.free(address, stream=3)
    assert service.table.in_use()[0].allocator.stats().chunks_in_use == 0
    other.free(theirs, stream=8)  # RMM frees on whatever stream
    assert other.table.in_use()[0].allocator.stats().chunks_in_use == 0


def test_a_heap_is_removed_when_its_service_ended_and_nothing_is_in_use(service):
    address = service.alloc(100, stream=3)
    heap = service.table.in_use()[0].allocator
    assert not service.table.remove(heap)
    service.table.stop(service.deferred)
    assert not service.table.remove(heap)
    service.free(address, stream=3)
    references = sys.getrefcount(heap)
    assert service.table.remove(heap)
    assert sys.getrefcount(heap) == references - 1
    assert not service.table.remove(heap)
    assert service.table.in_use() == []


def test_a_late_free_does_not_wait_for_ever_for_the_thread_that_acts_on_it(service):
    addresses = [service.alloc(100, stream=3) for _ in range(2)]
    heap = service.table.in_use()[0].allocator
    service.table.stop(service.deferred)
    frees = service.table.late_frees()
    next(frees)
    for address in addresses:
        service.free(address, stream=3)
    next(frees)  # they were told all the same
    frees.close()
    assert heap.stats().chunks_in_use == 0


def test_after_the_service_a_request_makes_no_heap(service):
    service.table.stop(service.deferred)
    assert service.alloc(1000, stream=99) is None
    assert len(service.heaps) == 2


def test_out_of_memory_is_null_and_known(service):
    held = service.alloc(600 * KIB)
    assert service.alloc(500 * KIB) is None
    assert service.alloc(0) is None
    service.free(None)
    number, *numbers = service.table.in_use()[0].failure
    assert number > 0
    assert numbers == [500 * KIB, MIB, MIB, 0]
    service.free(held)
    assert service.alloc(500 * KIB) is not None


def test_a_stream_without_a_heap_gets_nothing():
    service = Service(spare=1, more=False)
    assert service.alloc(100, stream=1) is not None
    assert service.alloc(100, stream=2) is None
    service.table.stop(service.deferred)


def test_allocations_carry_the_threads_label():
    service = Service(spare=0)
    heap = new_heap()
    service.table = StreamTable(next(NUMBERS), names.use(heap.labels))
    service.table.add(heap, 0)
    service.table.serve(0, service.deferred)
    with names.label("encoder"):
        service.alloc(100)
    service.alloc(100)
    service.table.stop(service.deferred)
    events = heap.log.copy(0, heap.log.head)
    found = events[events["kind"] == Kind.ALLOCATE]["label"]
    assert [heap.labels.name(number) for number in found] == ["encoder", ""]


# -- memory that a second stream reads ------------------------------------------------------------------------------


def test_a_free_waits_for_the_streams_that_read_the_memory(service):
    address = service.alloc(1000, stream=1)
    service.record(address, 2)
    service.record(address, 1)  # its own: says nothing
    service.free(address, stream=1)
    (event,) = service.streams.events
    assert event.stream == 2
    assert service.alloc(1000, stream=1) != address
    event.done = True
    assert service.alloc(1000, stream=1) == address


def test_where_memory_runs_out_such_frees_are_waited_for(service):
    address = service.alloc(MIB)
    service.record(address, 2)
    service.free(address)
    assert service.alloc(MIB) == address
    assert service.streams.events[0].waited


def test_a_stream_that_is_gone_is_waited_for_with_its_device(service):
    address = service.alloc(1000)
    service.record(address, 2)
    service.streams.gone = True
    service.free(address)
    assert service.streams.synchronized == [0]
    assert service.alloc(1000) == address


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_memory_whose_readers_cannot_be_waited_for_stays_in_use(service, monkeypatch):
    address = service.alloc(1000)
    service.record(address, 2)
    service.streams.gone = True
    monkeypatch.setattr(service.streams, "synchronize", lambda device: 1 // 0)
    service.free(address)
    assert service.heaps[0].stats().chunks_in_use == 1


def test_an_event_that_cannot_be_asked_loses_no_memory(service, monkeypatch):
    addresses = [service.alloc(1000) for _ in range(3)]
    for number, address in enumerate(addresses):
        service.record(address, 2 + number % 2)
        service.free(address)
    first, broken, third = service.streams.events
    first.done = third.done = True
    monkeypatch.setattr(broken, "query", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        service.deferred.free_ready(0, 0, 0)
    assert service.heaps[0].stats().chunks_in_use == 1
    monkeypatch.setattr(broken, "query", lambda: True)
    assert service.deferred.free_ready(0, 0, 0)
    assert service.heaps[0].stats().chunks_in_use == 0


def test_a_note_goes_with_its_memory(service):
    address = service.alloc(1000)
    service.record(address, 2)
    service.free(address)
    service.streams.events[0].done = True
    assert service.alloc(1000) == address
    service.free(address)
    assert len(service.streams.events) == 1


# -- threads and ends -----------------------------------------------------------------------------------------------


def test_threads_allocate_without_python():
    service = Service(spare=4, limit=64 * MIB)
    wrong = []

    def work(stream):
        chooser = random.Random(stream)
        held = {}
        for _ in range(2000):
            size = chooser.randrange(1, 5000)
            address = service.alloc(size, stream=stream)
            if address is None or address in held:
                wrong.append(address)
            held[address] = size
            if len(held) > 20:
                address = chooser.choice(list(held))
                service.free(address, held.pop(address), stream=stream)
        for address, size in held.items():
            service.free(address, size, stream=stream)

    threads = [threading.Thread(target=work, args=(number % 4,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sorted(service.in_use()) == [(0, stream) for stream in range(4)]
    for heap in service.heaps:
        assert heap.stats().chunks_in_use == 0
        heap.check_invariants()
    service.table.stop(service.deferred)
