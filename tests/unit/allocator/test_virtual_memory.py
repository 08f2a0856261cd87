"""Virtual memory: regions mapped into reserved addresses, joined, shared, and undone where a step fails."""

import gc

import pytest
from fake_cuda import GRANULE, FakeCuda
from heaps import MIB, new_heap
from unit.allocator.made_sub_allocators import make

from bfcviz.allocator import cuda_driver
from bfcviz.allocator.cuda import VirtualSubAllocator
from bfcviz.allocator.cuda_driver import Driver
from bfcviz.errors import InvalidRequest, OutOfMemory


def test_virtual_memory_grows_in_place_so_that_free_ends_are_joined():
    library = FakeCuda()
    with new_heap(64 * MIB, make("virtual", library), allow_growth=True) as heap:
        heap.free(heap.allocate(2 * MIB))
        heap.allocate(3 * MIB)
        assert len(heap.regions()) == 1
        assert heap.stats().pool_bytes == 6 * MIB
        assert len(library.mapped) == 2
        assert library.accessible == set(library.mapped)
    assert (library.mapped, library.handles) == ({}, {})


def test_joined_regions_go_back_as_they_came_and_their_addresses_are_used_again():
    library = FakeCuda()
    source = make("virtual", library)
    with new_heap(16 * MIB, source, allow_growth=True, garbage_collection=True) as heap:
        held = [heap.allocate(2 * MIB), heap.allocate(4 * MIB)]
        assert len(heap.regions()) == 1
        for address in held:
            heap.free(address)
        assert heap.allocate(15 * MIB) == source.start
        assert library.calls.count("cuMemUnmap") == 2
        assert library.calls.index("cuStreamSynchronize") < library.calls.index("cuMemUnmap")


def test_addresses_are_reserved_from_the_first_grant_to_the_last_release():
    library = FakeCuda()
    heap = new_heap(16 * MIB, make("virtual", library), allow_growth=True)
    assert library.reserved == {}
    for _ in range(2):
        first, second = heap.allocate(MIB), heap.allocate(3 * MIB)
        assert list(library.reserved.values()) == [2 * library.memory]
        heap.free(first)
        heap.trim()
        assert len(library.reserved) == 1
        heap.free(second)
        heap.trim()
        assert (library.reserved, library.mapped) == ({}, {})
    heap.allocate(MIB)
    heap.close()
    del heap
    gc.collect()
    assert library.reserved == {}


@pytest.mark.parametrize("stream", ["its own", "a thread's", "destroyed"])
def test_only_the_stream_of_the_memory_is_waited_for_so_that_captures_of_others_go_on(stream):
    library = FakeCuda()
    own = library.add_stream(flags=0)
    source = make("virtual", library, stream=2 if stream == "a thread's" else own)
    region = source.allocate(256, MIB)
    if stream == "destroyed":
        del library.streams[own]
    else:
        library.contexts.append(library.CONTEXT)
        library.launch(source.stream)
        library.contexts.clear()
    other = library.add_stream(flags=int(stream != "destroyed"))
    library.begin_capture(other)
    source.free(*region)
    assert library.used == (2 * MIB if stream == "destroyed" else 0)  # all other work must be waited for
    assert library.end_capture(other) == 0
    source.close()
    assert library.used == 0


@pytest.mark.parametrize("grows", [False, True])
def test_where_a_new_stream_has_the_handle_of_a_destroyed_one_the_device_is_waited_for(grows):
    library = FakeCuda()
    stream = library.add_stream()
    source = make("virtual", library, stream=stream)
    regions = [source.allocate(256, MIB)]
    library.streams[stream + 1] = old = library.streams.pop(stream)  # destroyed: its work goes on
    old.told += 1
    library.add_stream(stream)
    regions += [source.allocate(256, MIB) for _ in range(grows)]
    other = library.add_stream(flags=0)
    library.begin_capture(other)
    for region in regions:
        source.free(*region)
    assert len(library.mapped) == len(regions)
    assert library.end_capture(other) == 0
    source.free_waiting()
    assert (old.done, library.mapped) == (1, {})


def test_a_driver_that_does_not_number_streams_waits_for_the_handle():
    library = FakeCuda(lacks=["cuStreamGetId"])
    stream = library.add_stream()
    source = make("virtual", library, stream=stream)
    source.free(*source.allocate(256, MIB))
    assert (library.synchronized, library.mapped) == ([stream], {})


def test_memory_is_unmapped_after_the_work_on_it():
    library = FakeCuda()
    stream = library.add_stream()
    source = make("virtual", library, stream=lambda: stream)  # a heap of PyTorch gets its stream later
    region = source.allocate(256, MIB)
    library.launch(stream)
    source.free(*region)
    assert library.synchronized == [stream]
    assert library.streams[stream].done == 1


def test_addresses_end_where_they_were_reserved():
    library = FakeCuda()
    source = VirtualSubAllocator(0, reserve=3 * MIB, driver=Driver(library))
    assert source.reserved == 2 * GRANULE
    with new_heap(64 * MIB, source, allow_growth=True) as heap:
        heap.allocate(4 * MIB)
        with pytest.raises(OutOfMemory):
            heap.allocate(MIB)
    with pytest.raises(InvalidRequest, match="reserve"):
        VirtualSubAllocator(0, reserve=0, driver=Driver(library))


@pytest.mark.parametrize(("posix", "rdma"), [(1, 1), (1, 0), (0, 0)])
def test_virtual_memory_may_be_exported_and_used_by_network_cards_where_the_device_can(posix, rdma):
    library = FakeCuda(attributes={103: posix, 110: rdma})
    make("virtual", library).allocate(256, MIB)
    assert list(library.properties.values()) == [(posix, rdma)]


def test_all_devices_that_can_may_access_virtual_memory_by_default():
    library = FakeCuda(devices=3)
    where, _ = make("virtual", library, device=1).allocate(256, MIB)
    assert library.access[where] == {0, 1, 2}
    library.has_peers = False
    alone, _ = make("virtual", library, device=2).allocate(256, MIB)
    assert library.access[alone] == {2}


def test_reserved_addresses_go_with_the_driver_at_the_end():
    library = FakeCuda()
    source = make("virtual", library)
    source.allocate(256, MIB)
    source._mapped.clear()
    library.fails["cuCtxPushCurrent_v2"] = cuda_driver.DEINITIALIZED
    source.close()
    assert source.start == 0
