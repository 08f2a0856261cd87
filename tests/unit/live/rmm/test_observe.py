"""RMM observed, by either mechanism: devices, refusals, and the holders of a recording; with a stand-in for RMM."""

import gc
import random
import signal
import threading
import weakref

import pytest
from fake_cuda import FakeCuda
from fake_rmm import CallbackMemoryResource, HostMemory, LoggingResourceAdaptor, Stream
from heaps import MIB, model_of
from interrupts import until_ctrl_c
from processes import needs_compiled

import bfcviz
from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.errors import BfcvizError, FileError, InvalidRequest, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live.labels_and_marks import label
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.live.rmm import PolledRmmLog, observe_rmm
from bfcviz.live.stack_capture import Stacks

MECHANISMS = pytest.mark.parametrize("mechanism", ["callback", "log"])


def load_table(rmm):
    return rmm.buffer(3000), rmm.buffer(5000)


def join_tables(rmm):
    return rmm.buffer(70_000)


@needs_compiled
def test_a_default_recording_names_its_holders_by_line_of_code(rmm, tmp_path):
    path = tmp_path / "run"
    with bfcviz.watch(rmm=True, path=path, dashboard=False):
        table, joined = load_table(rmm), join_tables(rmm)
        with bfcviz.label("cache"):
            kept = rmm.buffer(256)
    found = bfcviz.holders(path, "peak").to_arrow().to_pylist()
    lines = {function: function.__code__.co_firstlineno + 1 for function in (load_table, join_tables)}
    assert {row["name"]: (row["bytes"], row["chunks"]) for row in found[1:]} == {
        f"test_observe.py:{lines[load_table]} load_table": (3072 + 5120, 2),
        f"test_observe.py:{lines[join_tables]} join_tables": (70_144, 1),
        "cache": (256, 1),
    }
    for buffer in (*table, joined, kept):
        rmm.drop(buffer)


@pytest.fixture
def driver(monkeypatch):
    """A machine with four GPUs, of which the process uses one."""
    library = FakeCuda(devices=4)
    made = Driver(library)
    with made.on(0):
        pass
    monkeypatch.setattr(cuda_driver, "load", lambda: made)
    return made


@MECHANISMS
def test_devices_in_use_are_observed_and_no_context_is_created_on_others(rmm, driver, mechanism):
    rmm.devices = 4
    with driver.on(2):
        pass
    with observe_rmm(mechanism=mechanism) as source:
        assert [heap.name for heap in source.heaps] == ["rmm:0", "rmm:2"]
        assert "Device 1, 3 was not in use" in source.description
        rmm.buffer(1000, device=2)
    assert [heap.stats().num_allocs for heap in source.heaps] == [0, 1]
    assert rmm.contexts == {0, 2}


@MECHANISMS
def test_the_devices_that_are_named_are_observed(rmm, driver, mechanism):
    rmm.devices = 4
    with observe_rmm(mechanism=mechanism, devices=[3]) as source:
        assert [heap.name for heap in source.heaps] == ["rmm:3"]
        assert "not in use" not in source.description
    assert rmm.contexts == {0, 3}
    with pytest.raises(InvalidRequest, match=r"device 4 .* 4, counted from 0"):
        observe_rmm(mechanism=mechanism, devices=[4]).__enter__()


@pytest.mark.parametrize(("mechanism", "made"), [("callback", "Callback"), ("log", "Logging")])
def test_where_one_device_cannot_be_observed_none_is(rmm, monkeypatch, mechanism, made):
    rmm.devices, before, resource_at = 2, dict(rmm.resources), rmm.mr.get_per_device_resource
    source = observe_rmm(mechanism=mechanism, devices=[0, 1])
    with monkeypatch.context() as broken:
        broken.setattr(
            rmm.mr, "get_per_device_resource", lambda device: resource_at(device) if device == 0 else 1 // 0
        )
        with pytest.raises(ZeroDivisionError):
            source.__enter__()
    assert rmm.resources == before
    with source:
        assert made in str(rmm.resources[1].__class__.__mro__)
        rmm.buffer(1000)
    assert source.heaps[0].stats().num_allocs == 1


@MECHANISMS
def test_a_resource_that_other_code_puts_in_place_stays(rmm, mechanism):
    with observe_rmm(mechanism=mechanism):
        rmm.resources[0] = theirs = CallbackMemoryResource(None, None)
    assert rmm.resources[0] is theirs


def test_observing_twice_is_refused_whatever_the_mechanism(rmm):
    for first, second in (("callback", "log"), ("log", "callback")):
        with observe_rmm(mechanism=first), pytest.raises(LiveError, match="RMM is observed already"):
            observe_rmm(mechanism=second).__enter__()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mechanism": "both"}, ["mechanism='both'", "'callback'", "'log'"]),
        ({"mechanism": "log", "every_s": 0}, ["every_s=0"]),
        ({"mechanism": "log", "every_s": float("nan")}, ["every_s=nan"]),
        ({"every_s": 1}, ["every_s=1", "mechanism='log'"]),
        ({"mechanism": "log", "capture": "stack"}, ["capture='stack'", "mechanism='callback'"]),
        ({"mechanism": "log", "capture": Stacks()}, ["mechanism='callback'"]),
        ({"capture": "all"}, ["capture='all'"]),
    ],
)
def test_options_that_cannot_be_are_refused(rmm, options, named):
    with pytest.raises(BfcvizError) as caught:
        observe_rmm(**options)
    assert [word for word in named if word not in str(caught.value)] == []


# ------------------------------------------------------------------------------
# RMM observed by callbacks, which pass each request to RMM's own resource; with a stand-in for RMM.


def events_of(source, kind):
    (heap,) = source.heaps
    events = heap.log.copy(0, heap.log.head)
    return events[events["kind"] == kind]


def test_requests_are_passed_and_recorded_at_once(rmm):
    before, memory = rmm.resources[0], rmm.memory[0]
    with observe_rmm(log=EventLog(1 << 10)) as source:
        assert rmm.resources[0] is not before
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "rmm:0", 1 << 30)
        with label("join"):
            first = rmm.buffer(1000, 7)
        second, third = rmm.buffer(300, 9), rmm.buffer(20)
        assert memory.in_use == {first[1]: 1000, second[1]: 300, third[1]: 20}
        assert heap.stats().requested_bytes_in_use == 1320
        rmm.drop(second, 9)
        assert (heap.stats().bytes_in_use, second[1] in memory.in_use) == (1024 + 256, False)
    assert rmm.resources[0] is before
    allocated = events_of(source, Kind.ALLOCATE)
    assert allocated["stream"].tolist() == [1, 2, 0]
    assert heap.labels.name(int(allocated["label"][0])) == "join"
    assert model_of(heap).stats().bytes_in_use == heap.stats().bytes_in_use
    for buffer in (first, third):  # they outlive the `with`, and still reach their memory
        rmm.drop(buffer)
    assert memory.in_use == {}


def test_out_of_memory_reaches_the_program_with_an_event_and_its_numbers(rmm):
    rmm.resources[0] = HostMemory(MIB).resource
    with observe_rmm() as source:
        held = rmm.buffer(MIB // 2)
        with pytest.raises(MemoryError, match=f"{MIB} bytes were requested"):
            rmm.buffer(MIB)
        rmm.drop(held)
        rmm.buffer(MIB)
    failure = source.out_of_memory
    assert (failure.requested, failure.pool_bytes, failure.free_bytes) == (MIB, MIB // 2, 0)
    assert events_of(source, Kind.OOM)["requested"].tolist() == [MIB]


def test_another_error_reaches_the_program_and_is_no_failure_of_memory(rmm):
    rmm.resources[0] = CallbackMemoryResource(lambda *_: 1 // 0, None)
    with observe_rmm() as source, pytest.raises(RuntimeError, match="division"):
        rmm.buffer(MIB)
    assert source.out_of_memory is None
    assert source.heaps[0].log.head == 0


def test_a_failed_request_keeps_nothing_of_the_program_alive(rmm):
    class Table:
        pass

    def step():
        table = Table()
        kept.append(weakref.ref(table))
        with pytest.raises(MemoryError):
            rmm.buffer(1 << 40)

    kept = []
    with observe_rmm() as source:
        step()
        gc.collect()
        assert (kept[0](), source.out_of_memory.requested) == (None, 1 << 40)


def test_memory_from_before_is_unknown_and_its_frees_are_counted(rmm):
    old = rmm.buffer(1000)
    with observe_rmm() as source:
        rmm.drop((rmm.resources[0], *old[1:]))  # as PyTorch does: it asks for the device's resource
    assert rmm.memory[0].in_use == {}
    found = source.heaps[0].inconsistencies
    assert (found.unknown_frees, found.left_out) == (1, 1)
    assert found.words() in source.description


def test_frees_after_the_with_are_recorded_when_it_is_entered_again(rmm):
    source = observe_rmm()
    with source:
        buffers = [rmm.buffer(1000) for _ in range(4)]
    rmm.drop(buffers[0])
    rmm.drop(rmm.buffer(1000))  # nothing observes it
    with source:
        assert source.heaps[0].stats().chunks_in_use == 3
        rmm.drop(buffers[1])
        rmm.buffer(1000)
        assert source.heaps[0].stats().chunks_in_use == 3
    assert source.heaps[0].inconsistencies.left_out == 0


def test_what_is_built_on_the_resource_inside_the_with_works_after_it(rmm):
    with observe_rmm() as source:
        below = rmm.resources[0]
        rmm.resources[0] = CallbackMemoryResource(below.allocate, below.deallocate)  # another adaptor
        rmm.drop(rmm.buffer(1000))
    kept = rmm.buffer(1000)
    with source:  # a request passes the resources of both, and is recorded once
        rmm.drop(rmm.buffer(1000))
    rmm.drop(kept)
    assert source.heaps[0].stats().num_allocs == 2
    assert source.heaps[0].inconsistencies.left_out == 0
    assert rmm.memory[0].in_use == {}


def test_a_pool_of_the_program_lives_as_long_as_its_memory_and_no_longer(rmm):
    rmm.resources[0] = pool = HostMemory().resource
    gone = weakref.ref(pool)
    with observe_rmm():
        buffer = rmm.buffer(1000)
    rmm.resources[0] = rmm.resources[1]
    del pool
    address = buffer[1]
    free = buffer[0].deallocate_func  # all that C++ may have
    del buffer
    gc.collect()
    assert gone() is not None
    free(address, 1000, None)
    del free
    gc.collect()
    assert gone() is None


def test_a_buffer_keeps_neither_the_heap_nor_its_log_alive(rmm):
    with observe_rmm() as source:
        buffer = rmm.buffer(1000)
    gone = weakref.ref(source.heaps[0])
    del source
    gc.collect()
    assert gone() is None
    rmm.drop(buffer)
    assert rmm.memory[0].in_use == {}


def test_an_rmm_whose_streams_have_no_handles_is_observed(rmm, monkeypatch):
    monkeypatch.delattr(Stream, "__cuda_stream__")  # RMM 25.10 and before
    with observe_rmm() as source:
        buffers = [rmm.buffer(1000, stream) for stream in (0, 7, 9)]
        assert events_of(source, Kind.ALLOCATE)["stream"].tolist() == [0, 1, 1]
        assert "25.12" in source.description
    for buffer in buffers:
        rmm.drop(buffer)


def test_requests_without_bytes_are_passed_and_not_recorded(rmm):
    rmm.resources[0] = CallbackMemoryResource(lambda *_: 0, lambda *_: None)
    with observe_rmm() as source:
        rmm.drop(rmm.buffer(0))
        assert source.heaps[0].log.head == 0
    assert source.heaps[0].inconsistencies.left_out == 0


def test_threads_allocate_and_free_at_the_same_time(rmm):
    errors = []

    def work(seed):
        draw, held = random.Random(seed), []
        try:
            for _ in range(150):
                if held and draw.random() < 0.5:
                    rmm.drop(held.pop(draw.randrange(len(held))), seed)
                else:
                    held.append(rmm.buffer(draw.randrange(1, 5000), seed))
            for buffer in held:
                rmm.drop(buffer, seed)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with observe_rmm() as source:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (heap,) = source.heaps
        assert (errors, heap.stats().chunks_in_use, heap.inconsistencies.left_out) == ([], 0, 0)
        assert model_of(heap).stats().bytes_in_use == heap.stats().bytes_in_use
    assert rmm.memory[0].in_use == {}
    assert set(events_of(source, Kind.ALLOCATE)["stream"].tolist()) == {1, 2, 3, 4}


def test_what_cannot_be_recorded_is_said_and_the_program_goes_on(rmm, tmp_path, monkeypatch):
    with Recording(tmp_path / "run") as recording, observe_rmm(log=recording) as source:
        held = rmm.buffer(1000)

        def fail(*_arguments, **_options):
            raise FileError(tmp_path, "", "the disk is full")

        monkeypatch.setattr(source.heaps[0], "allocate", fail)
        monkeypatch.setattr(source.heaps[0], "free", fail)
        rmm.drop(rmm.buffer(1000))  # its free is not reported: the allocation was not recorded
        rmm.drop(held)
    assert rmm.memory[0].in_use == {}
    assert source.mechanism.devices[0].lost == 2
    assert "the disk is full" in source.description


def test_a_resource_that_fails_to_free_raises_nothing_into_cpp(rmm):
    rmm.resources[0] = CallbackMemoryResource(lambda *_: 1 << 40, lambda *_: 1 // 0)
    with observe_rmm() as source:
        rmm.drop(rmm.buffer(1000))
    assert source.mechanism.devices[0].lost == 1
    assert source.heaps[0].stats().chunks_in_use == 0


def test_ctrl_c_in_a_request_neither_loses_memory_nor_becomes_another_error(rmm):
    def allocate(num_bytes, stream):
        signal.raise_signal(signal.SIGINT)
        return rmm.memory[0].allocate(num_bytes, stream)

    rmm.resources[0] = CallbackMemoryResource(allocate, rmm.memory[0].free)
    with observe_rmm() as source:
        until_ctrl_c(lambda: rmm.buffer(1000))
        assert source.heaps[0].stats().requested_bytes_in_use == 1000
        (address,) = rmm.memory[0].in_use
        rmm.drop((rmm.resources[0], address, 1000))
    assert (rmm.memory[0].in_use, source.heaps[0].stats().chunks_in_use) == ({}, 0)


# ------------------------------------------------------------------------------
# RMM observed by its log, which is read as it grows; with a stand-in for RMM.


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


def test_where_one_device_cannot_be_logged_none_is(rmm):
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
    log = PolledRmmLog(path, ObservedHeap(EventLog(1 << 8), unit=256), 0)
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
