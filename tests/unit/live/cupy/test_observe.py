"""CuPy observed: what its memory hooks tell becomes events. Its own pool needs a GPU, so a stand-in tells here."""

import threading
import time
import weakref
from contextlib import contextmanager

import pytest
from heaps import MIB
from threads import in_threads
from unit.live.cupy_stand_in import cupy, gpu, needs_cupy

from bfcviz.dashboard.live_dashboard import LiveDashboard
from bfcviz.errors import LiveError
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import Kind
from bfcviz.live.cupy import observe_cupy
from bfcviz.live.labels_and_marks import label

pytestmark = needs_cupy
__all__ = ["gpu"]

BASE = 0x7F00_0000_0000


class Pool:
    """Calls the hooks of the acting thread as SingleDeviceMemoryPool does.

    Args:
        gpu: whose driver grants the memory; None: other functions do.
        device: of its memory; it is the current one where the pool allocates.
        told: what the hooks are told when it allocates; another one with CuPy 14.
    """

    def __init__(self, gpu, device=0, told=None, *, by_driver=True):
        self.gpu = gpu
        self.by_driver = by_driver
        self.device = device
        self.told = device if told is None else told
        self.blocks = {}
        self.weakref = weakref.ref(self)
        gpu.pools[id(self)] = self.weakref

    def total_bytes(self):
        return sum(self.blocks.values())

    def hooks(self):
        return cupy.cuda.memory_hook.get_memory_hooks().values()

    def granted(self, address, size):
        self.blocks[address] = size
        if self.by_driver:
            self.gpu.grants[self.device, address] = size

    def release(self, *addresses):
        """Give grants back to the driver; no hook tells it."""
        for address in addresses:
            del self.blocks[address]
            self.gpu.grants.pop((self.device, address), None)

    def malloc(self, address, size, grant=None):
        """Serve a request at an address, 0: fail; after a grant of memory from there on."""
        with self.serving(address, size, grant):
            pass

    @contextmanager
    def serving(self, address, size, grant=None):
        """As `malloc`; within the `with` it has begun, and gets memory from where it is granted."""
        rounded = -(-size // 512) * 512
        for hook in self.hooks():
            hook.malloc_preprocess(device_id=self.told, size=size, mem_size=rounded)
        yield
        if grant is not None:
            for hook in self.hooks():
                hook.alloc_preprocess(device_id=self.told, mem_size=grant)
            self.granted(address, grant)
            for hook in self.hooks():
                hook.alloc_postprocess(device_id=self.told, mem_size=grant, mem_ptr=address)
        for hook in self.hooks():
            hook.malloc_postprocess(
                device_id=self.told, size=size, mem_size=rounded, mem_ptr=address, pmem_id=id(self)
            )

    def free(self, address, size):
        for hook in self.hooks():
            hook.free_preprocess(device_id=self.device, mem_size=size, mem_ptr=address, pmem_id=id(self))
            hook.free_postprocess(device_id=self.device, mem_size=size, mem_ptr=address, pmem_id=id(self))


def observed():
    return observe_cupy(log=EventLog(1 << 12))


def events_of(source, number=0):
    return Reader(source.heaps[number].log, 0).read(1000)


def kinds_of(source, number=0):
    return [Kind(kind).name for kind in events_of(source, number)["kind"]]


def test_what_a_pool_does_becomes_events(gpu):
    pool = Pool(gpu)
    with observed() as source:
        with label("weights"), gpu.on(stream=0x55):
            pool.malloc(BASE, 700, grant=MIB)
        pool.malloc(BASE + 1024, 512)
        pool.free(BASE, 1024)
    assert kinds_of(source) == ["EXTEND", "SPLIT", "ALLOCATE", "SPLIT", "ALLOCATE", "FREE"]
    first = events_of(source)[2]
    assert (first["requested"], first["size"], first["stream"]) == (700, 1024, 1)
    assert source.labels.name(int(first["label"])) == "weights"
    (heap,) = source.heaps
    assert (heap.name, heap.limit, heap.inconsistencies.words()) == ("cupy:0", 64 * MIB, "")


def test_streams_have_numbers_in_the_order_of_their_first_use(gpu):
    pool = Pool(gpu)
    order = [0x700, 0, 0x500, 0x700, *range(0x1000, 0x1040), 0x500, 0]
    with observed() as source:
        pool.malloc(BASE, 512, grant=MIB)
        for turn, stream in enumerate(order, 1):
            with gpu.on(stream=stream):
                pool.malloc(BASE + 512 * turn, 512)
    events = events_of(source)
    numbers = {0: 0}
    for stream in order:
        numbers.setdefault(stream, len(numbers))
    found = events["stream"][events["kind"] == Kind.ALLOCATE].tolist()
    assert found == [0, *(numbers[stream] for stream in order)]


def test_it_changes_nothing_and_tells_nothing_afterwards(gpu):
    pool = Pool(gpu)
    before = cupy.cuda.get_allocator()
    with observed() as source:
        assert cupy.cuda.get_allocator() == before
        (hook,) = pool.hooks()
        assert (hook.name, isinstance(hook, cupy.cuda.MemoryHook)) == ("bfcviz", True)
    assert not list(pool.hooks())
    with pytest.raises(ZeroDivisionError), source:
        pool.malloc(BASE, 512, grant=MIB // 0)
    assert not list(pool.hooks())
    with hook:
        pool.malloc(BASE, 512, grant=MIB)
        pool.free(BASE, 512)
    assert not len(events_of(source))


def test_threads_begun_inside_are_observed_until_the_end(gpu):
    pool, go, over = Pool(gpu), threading.Event(), threading.Event()

    def work():
        pool.malloc(BASE, 512)
        go.set()
        over.wait()
        pool.malloc(BASE + 512, 512)

    with observed() as source:
        thread = threading.Thread(target=work)
        thread.start()
        go.wait()
    over.set()
    thread.join()
    assert source.heaps[0].stats().chunks_in_use == 1


def test_a_request_that_fails_is_one_event(gpu):
    pool = Pool(gpu)
    with observed() as source:
        pool.malloc(BASE, 512, grant=MIB)
        assert source.out_of_memory is None
        pool.malloc(0, 2 * MIB)
        pool.malloc(0, 0)
    failure = source.out_of_memory
    assert (failure.requested, failure.pool_bytes, failure.free_bytes) == (2 * MIB, MIB, MIB - 512)
    assert kinds_of(source) == ["EXTEND", "SPLIT", "ALLOCATE", "OOM"]


def test_a_failure_counts_what_the_pool_released_before_it_tried_again(gpu):
    pool = Pool(gpu)
    with observed() as source:
        for turn in range(3):
            pool.malloc(BASE + turn * MIB, MIB, grant=MIB)
        pool.free(BASE, MIB)
        pool.free(BASE + 2 * MIB, MIB)
        pool.release(BASE, BASE + 2 * MIB)
        pool.malloc(0, 60 * MIB)
        (heap,) = source.heaps
        assert heap.stats().pool_bytes == pool.total_bytes() == MIB
    assert (source.out_of_memory.pool_bytes, source.out_of_memory.free_bytes) == (MIB, 0)
    assert kinds_of(source)[-3:] == ["RELEASE", "RELEASE", "OOM"]
    assert heap.inconsistencies.words() == ""


def test_a_pool_that_gets_its_memory_from_another_fails_once(gpu):
    inner, outer = Pool(gpu), Pool(gpu)
    with observed() as source:
        with outer.serving(0, 3 * MIB):
            inner.malloc(0, 3 * MIB)
        with outer.serving(BASE, 700, grant=MIB):
            inner.malloc(BASE, MIB, grant=2 * MIB)
        assert kinds_of(source) == ["OOM", "EXTEND", "SPLIT", "ALLOCATE"]
        (heap,) = source.heaps
        assert (heap.stats().pool_bytes, heap.inconsistencies.words()) == (MIB, "")
    assert source.out_of_memory.requested == 3 * MIB


def test_what_made_room_for_a_grant_is_released_before_it(gpu):
    pool = Pool(gpu)
    with observed() as source:
        pool.malloc(BASE, 40 * MIB, grant=40 * MIB)
        pool.free(BASE, 40 * MIB)
        pool.release(BASE)
        pool.malloc(BASE + 50 * MIB, 50 * MIB, grant=50 * MIB)
    assert source.heaps[0].stats().peak_pool_bytes == 50 * MIB  # of 64 MiB that the device has


def test_a_release_is_recorded_while_the_program_rests(gpu):
    pool = Pool(gpu)
    with observed() as source:
        pool.malloc(BASE, MIB, grant=MIB)
        pool.free(BASE, MIB)
        pool.release(BASE)
        deadline = time.monotonic() + 30
        while source.heaps[0].stats().pool_bytes and time.monotonic() < deadline:
            time.sleep(0.01)
        assert source.heaps[0].stats().pool_bytes == 0


def test_only_what_the_driver_has_no_more_is_released(gpu):
    pool, other = Pool(gpu), Pool(gpu)
    with observed() as source:
        for turn, each in enumerate((pool, other, pool)):
            each.malloc(BASE + turn * MIB, MIB, grant=MIB)
            each.free(BASE + turn * MIB, MIB)
        pool.release(BASE + 2 * MIB)
        source.settle()
        assert [address for address, _, _ in source.heaps[0].grants()] == [BASE, BASE + MIB]


def test_a_pool_that_is_gone_has_no_memory(gpu):
    pool = Pool(gpu)
    with observed() as source:
        pool.malloc(BASE, 512, grant=MIB)
        pool.release(BASE)  # as soon as its last array goes: CuPy then tells no free
        source.settle()
        (heap,) = source.heaps
        assert (heap.stats().pool_bytes, heap.stats().chunks_in_use) == (0, 0)
    assert (heap.inconsistencies.unseen_frees, heap.inconsistencies.left_out) == (1, 0)


def test_a_pool_over_other_functions_than_the_drivers(gpu):
    pool = Pool(gpu, by_driver=False)
    with observed() as source:
        for turn in range(3):
            pool.malloc(BASE + turn * MIB, MIB, grant=MIB)
        pool.free(BASE, MIB)
        source.settle()
        assert source.heaps[0].stats().pool_bytes == 3 * MIB
        pool.release(BASE)
        source.settle()
        assert source.heaps[0].stats().pool_bytes == 2 * MIB


def test_what_it_cannot_know_is_counted(gpu):
    pool = Pool(gpu)
    with observed() as source:
        pool.free(BASE + 4096, 512)
        pool.malloc(BASE, MIB, grant=MIB)
        pool.free(BASE, MIB)
        pool.malloc(BASE, MIB, grant=2 * MIB)  # so the pool gave the first one back
    doubts = source.heaps[0].inconsistencies
    assert (doubts.unknown_frees, doubts.unseen_releases) == (1, 1)
    assert "not recorded" in source.description


def test_a_report_within_a_report_is_carried_out_just_after(gpu):
    """Garbage collection may run anywhere, and a finalizer free an array."""
    pool = Pool(gpu)
    with observed() as source:
        pool.malloc(BASE, 512, grant=MIB)
        (heap,) = source.heaps
        with heap._alone():
            pool.free(BASE, 512)
            meanwhile = heap.stats().chunks_in_use
        assert (meanwhile, heap.stats().chunks_in_use) == (1, 0)
    assert heap.inconsistencies.words() == ""


def test_threads_and_readers_at_once(gpu):
    pool, count, over = Pool(gpu), 8, threading.Event()
    seen = []

    def read():
        while not over.is_set():
            moment = source.heaps[0].moment()
            seen.append(int(moment.chunks["size"].sum()) - int(moment.regions["size"].sum()))

    def work(number):
        for turn in range(500):
            address = BASE + (number * 500 + turn) * 512
            pool.malloc(address, 512)
            if turn % 2:
                pool.free(address, 512)

    with observed() as source:
        pool.malloc(BASE + 100 * MIB, 512, grant=MIB)
        reader = threading.Thread(target=read)
        reader.start()
        in_threads(work, count)
        over.set()
        reader.join()
    assert set(seen) == {0}
    assert source.heaps[0].stats().chunks_in_use == count * 250 + 1
    assert source.heaps[0].inconsistencies.left_out == 0


def test_an_allocator_that_is_no_pool_is_told_of(gpu):
    assert "not a memory pool" not in observed().description
    with cupy.cuda.using_allocator(lambda size: None):
        assert "not a memory pool" in observed().description


def test_each_device_has_its_own(gpu):
    with observed() as source:
        with gpu.on(device=1):
            Pool(gpu, 1).malloc(BASE, 512, grant=MIB)
        Pool(gpu).malloc(BASE, 512, grant=MIB)
    assert [heap.name for heap in source.heaps] == ["cupy:0", "cupy:1"]
    dashboard = LiveDashboard(source.heaps, start=False)
    dashboard.refresh()
    dashboard.close()


def test_the_current_device_is_believed_not_what_cupy_14_tells(gpu):
    pool = Pool(gpu, 1, told=0)
    with observed() as source:
        with gpu.on(device=1):
            pool.malloc(BASE, 700, grant=MIB)
        pool.free(BASE, 1024)  # while another device is current
    first, second = source.heaps
    assert (first.stats().num_allocs, second.stats().num_allocs) == (0, 1)
    assert (second.stats().chunks_in_use, second.inconsistencies.words()) == (0, "")


def test_another_hook_of_that_name_is_told_of(gpu):
    class Mine(cupy.cuda.MemoryHook):
        name = "bfcviz"

    with (
        Mine(),
        pytest.raises(LiveError, match="a memory hook named 'bfcviz' in this thread already"),
        observed(),
    ):
        pass
    with observed():
        pass
