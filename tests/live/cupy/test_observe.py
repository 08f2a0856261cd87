"""CuPy observed: what its memory hooks tell becomes events. Its own pool needs a GPU, so a stand-in tells here."""

import threading

import pytest
from heaps import MIB
from live.cupy_stand_in import cupy, gpu, needs_cupy

from bfcviz.dashboard.live import LiveDashboard
from bfcviz.errors import LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.events.schema import Kind
from bfcviz.live.capture.labels import label
from bfcviz.live.cupy.observe import observe_cupy

pytestmark = needs_cupy
__all__ = ["gpu"]

BASE = 0x7F00_0000_0000


class Pool:
    """Calls the hooks of the acting thread as SingleDeviceMemoryPool does.

    Args:
        device: of its memory; it is the current one where the pool allocates.
        told: what the hooks are told when it allocates; another one with CuPy 14.
    """

    def __init__(self, device=0, told=None):
        self.device = device
        self.told = device if told is None else told

    def hooks(self):
        return cupy.cuda.memory_hook.get_memory_hooks().values()

    def grant(self, address, size):
        for hook in self.hooks():
            hook.alloc_preprocess(device_id=self.told, mem_size=size)
            hook.alloc_postprocess(device_id=self.told, mem_size=size, mem_ptr=address)

    def malloc(self, address, size):
        rounded = -(-size // 512) * 512
        for hook in self.hooks():
            hook.malloc_preprocess(device_id=self.told, size=size, mem_size=rounded)
            hook.malloc_postprocess(
                device_id=self.told, size=size, mem_size=rounded, mem_ptr=address, pmem_id=1
            )

    def free(self, address, size):
        for hook in self.hooks():
            hook.free_preprocess(device_id=self.device, mem_size=size, mem_ptr=address, pmem_id=1)
            hook.free_postprocess(device_id=self.device, mem_size=size, mem_ptr=address, pmem_id=1)


def observed():
    return observe_cupy(log=EventLog(1 << 12))


def events_of(source, number=0):
    return Reader(source.heaps[number].log, 0).read(1000)


def test_what_a_pool_does_becomes_events(gpu):
    pool = Pool()
    with observed() as source:
        pool.grant(BASE, MIB)
        with label("weights"), gpu.on(stream=0x55):
            pool.malloc(BASE, 700)
        pool.malloc(BASE + 1024, 512)
        pool.free(BASE, 1024)
    events = events_of(source)
    assert [Kind(kind).name for kind in events["kind"]] == [
        "EXTEND", "SPLIT", "ALLOCATE", "SPLIT", "ALLOCATE", "FREE",
    ]  # fmt: skip
    first = events[2]
    assert (first["requested"], first["size"], first["stream"]) == (700, 1024, 1)
    assert source.labels.name(int(first["label"])) == "weights"
    (heap,) = source.heaps
    assert (heap.name, heap.limit, heap.inconsistencies.words()) == ("cupy:0", 64 * MIB, "")


def test_it_changes_nothing_and_tells_nothing_afterwards(gpu):
    pool = Pool()
    before = cupy.cuda.get_allocator()
    with observed() as source:
        assert cupy.cuda.get_allocator() == before
        assert [hook.name for hook in pool.hooks()] == ["bfcviz"]
    assert not list(pool.hooks())
    with pytest.raises(ZeroDivisionError), source:
        pool.grant(BASE, MIB // 0)
    assert not list(pool.hooks())
    assert not len(events_of(source))


def test_threads_begun_inside_are_observed_until_the_end(gpu):
    pool, go, over = Pool(), threading.Event(), threading.Event()

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


def test_a_request_that_fails(gpu):
    pool = Pool()
    with observed() as source:
        pool.grant(BASE, MIB)
        assert source.out_of_memory is None
        pool.malloc(0, 2 * MIB)
        pool.malloc(0, 0)
    assert source.out_of_memory.requested == 2 * MIB
    assert source.out_of_memory.free_bytes == MIB
    assert [Kind(kind).name for kind in events_of(source)["kind"]] == ["EXTEND", "OOM"]


def test_what_it_cannot_know_is_counted(gpu):
    pool = Pool()
    with observed() as source:
        pool.free(BASE + 4096, 512)
        pool.grant(BASE, MIB)
        pool.grant(BASE, 2 * MIB)  # so the pool gave the first one back
    doubts = source.heaps[0].inconsistencies
    assert (doubts.unknown_frees, doubts.unseen_releases) == (1, 1)
    assert "not recorded" in source.description


def test_an_allocator_that_is_no_pool_is_told_of(gpu):
    assert "not a memory pool" not in observed().description
    with cupy.cuda.using_allocator(lambda size: None):
        assert "not a memory pool" in observed().description


def test_each_device_has_its_own(gpu):
    with observed() as source:
        with gpu.on(device=1):
            Pool(1).grant(BASE, MIB)
        Pool(0).grant(BASE, MIB)
    assert [heap.name for heap in source.heaps] == ["cupy:0", "cupy:1"]
    dashboard = LiveDashboard(source.heaps, start=False)
    dashboard.refresh()
    dashboard.close()


def test_the_current_device_is_believed_not_what_cupy_14_tells(gpu):
    pool = Pool(1, told=0)
    with observed() as source:
        with gpu.on(device=1):
            pool.grant(BASE, MIB)
            pool.malloc(BASE, 700)
        pool.free(BASE, 1024)  # while another device is current
    first, second = source.heaps
    assert (first.stats().num_allocs, second.stats().num_allocs) == (0, 1)
    assert (second.stats().chunks_in_use, second.inconsistencies.words()) == (0, "")


def test_twice_is_refused(gpu):
    with observed():
        with pytest.raises(LiveError, match="CuPy is observed already"), observed():
            pass
        assert list(Pool().hooks())


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
