"""Live arrays, reading by reading: which come and go, on which device, and that nothing is kept or asked too much."""

import gc
import random
import signal
from weakref import ref

import numpy as np
import pytest
from unit.live.jax_stand_in import Array, Device, stack

from bfcviz.events.labels import Labels
from bfcviz.events.schema import Kind
from bfcviz.live.jax import ArrayNames, DeviceArrays, LiveArrays
from bfcviz.live.observed_heap import ObservedHeap

GPUS = (Device(0), Device(1))


class Reader:
    """Two devices, the arrays that live, and what was recorded."""

    def __init__(self):
        self.arrays = []
        labels = Labels()
        self.heaps = [ObservedHeap(labels=labels) for _ in GPUS]
        self.devices = [DeviceArrays(heap, "device") for heap in self.heaps]
        listed = lambda: [each for each in reversed(self.arrays) if not each.deleted]  # noqa: E731
        self.live = LiveArrays(listed, dict(zip(GPUS, self.devices, strict=True)), ArrayNames(labels))

    def add(self, size, line, *devices, **more):
        self.arrays.append(Array(size, stack(line), *(devices or GPUS[:1]), **more))
        return self.arrays[-1]

    def read(self, device=0):
        """The bytes in use after a reading; and of each event that it wrote: its kind, size and name."""
        heap = self.heaps[device]
        before = heap.log.head
        self.live.read()
        kinds = {Kind.ALLOCATE: "+", Kind.FREE: "-"}
        found = [
            (kinds[Kind(event["kind"])], int(event["size"]), heap.labels.name(int(event["label"])))
            for event in heap.log.copy(before, heap.log.head)
            if event["kind"] in kinds
        ]
        assert heap.inconsistencies.left_out == 0
        assert heap.stats().bytes_in_use == self.devices[device].num_bytes
        return heap.stats().bytes_in_use, found


def changes(events):
    """What each event adds to the bytes in use."""
    sizes = events["size"].astype(np.int64)
    return sizes * (events["kind"] == Kind.ALLOCATE) - sizes * (events["kind"] == Kind.FREE)


@pytest.fixture
def reader():
    return Reader()


def test_arrays_come_and_go(reader):
    reader.add(400, 1)
    reader.add(100, 2)
    assert reader.read() == (500, [("+", 400, "train.py:1 forward"), ("+", 100, "train.py:2 forward")])
    assert reader.read() == (500, [])
    del reader.arrays[0]
    assert reader.read() == (100, [("-", 400, "train.py:1 forward")])


def test_an_array_that_is_donated_goes_and_its_result_comes(reader):
    old = reader.add(400, 1)
    reader.read()
    old.deleted = True
    reader.add(400, 2)
    used, found = reader.read()
    assert (used, [each[0] for each in found]) == (400, ["-", "+"])
    assert reader.heaps[0].stats().peak_bytes_in_use == 400


def test_what_is_deleted_after_it_was_listed_is_left_out(reader):
    array = reader.add(400, 1)
    reader.live._listed = lambda: [setattr(array, "deleted", True) or array]
    assert reader.read() == (0, [])
    assert reader.live.unread == 0


def test_what_jax_does_not_say_is_counted_and_asked_again(reader):
    array = reader.add(400, 1)
    array.error = "not supported"
    assert (reader.read(), reader.live.unread) == ((0, []), 1)
    array.error = None
    assert (reader.read()[0], reader.live.unread) == (400, 0)


def test_arrays_without_bytes_have_no_events(reader):
    reader.add(0, 1)
    assert reader.read() == (0, [])
    reader.arrays.clear()
    assert reader.read() == (0, [])


def test_an_id_that_is_used_again_is_another_array(reader):
    reader.add(400, 1)
    reader.read()
    (known,) = reader.live._known.values()
    new = reader.add(100, 2)
    del reader.arrays[0]
    reader.live._known = {id(new): known}  # Python gave the new array the old one's id
    assert reader.read()[0] == 100
    assert list(reader.live._known) == [id(new)]


def test_each_device_has_its_part_and_shards_count_once(reader):
    whole = reader.add(300, 1, *GPUS)
    shards = [reader.add(300, 1, gpu) for gpu in GPUS]  # `addressable_shards` made them
    other = reader.add(300, 2, GPUS[1])
    assert reader.read()[0] == 300
    assert reader.heaps[1].stats().bytes_in_use == 600
    label = reader.heaps[0].labels[1]
    assert label.details["devices"] == "2"
    reader.arrays = [shards[1], other]
    del whole, shards
    assert reader.read()[0] == 0
    assert reader.heaps[1].stats().bytes_in_use == 600  # the shard outlives its array


def test_only_one_array_a_device_can_be_a_shard_of_another(reader):
    reader.add(300, 1, *GPUS)
    reader.add(300, 1, GPUS[0])  # may be its shard
    reader.add(300, 1, GPUS[0])
    assert reader.read()[0] == 600
    assert reader.heaps[1].stats().bytes_in_use == 300


def test_ctrl_c_waits_for_the_end_of_a_reading(reader, monkeypatch):
    reader.add(300, 1)
    reader.read()
    reader.arrays.clear()
    reader.add(10, 2)
    allocate = ObservedHeap.allocate

    def interrupted(*arguments, **more):
        signal.raise_signal(signal.SIGINT)
        return allocate(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(ObservedHeap, "allocate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reader.read()
    assert reader.read()[0] == 10


def test_a_device_that_is_not_observed_is_left_out(reader):
    reader.add(300, 1, Device(5))
    assert reader.read() == (0, [])


def test_arrays_in_memory_of_the_host_are_only_counted(reader):
    reader.add(300, 1, memory="pinned_host")
    reader.add(50, 1, memory=None)
    assert reader.read()[0] == 50
    assert reader.devices[0].elsewhere == {"pinned_host": 300}
    reader.arrays.clear()
    assert reader.read()[0] == 0
    assert reader.devices[0].elsewhere == {"pinned_host": 0}


def test_a_reading_keeps_no_array_alive(reader):
    array = reader.add(400, 1)
    there = ref(array)
    del array
    gc.disable()
    try:
        reader.read()
        reader.arrays.clear()
        assert there() is None
    finally:
        gc.enable()


def test_errors_keep_no_array_alive(reader):
    array = reader.add(400, 1)
    there = ref(array)
    array.error = "gone"
    array.is_deleted = lambda: 1 // 0
    del array
    assert (reader.read(), reader.live.unread) == ((0, []), 1)
    reader.arrays.clear()
    assert there() is None


def test_no_reading_draws_more_than_was_there_before_or_after_it(reader):
    chance = random.Random(3)
    for _ in range(40):
        before = [heap.stats().bytes_in_use for heap in reader.heaps]
        heads = [heap.log.head for heap in reader.heaps]
        reader.arrays = [each for each in reader.arrays if chance.random() < 0.3]
        for line in range(chance.randrange(12)):
            devices = chance.choice([GPUS[:1], GPUS[1:], GPUS])
            reader.add(chance.choice([1, 8, 100, 4000]), line, *devices, shape=(line, len(devices)))
        reader.read()
        for heap, used, head in zip(reader.heaps, before, heads, strict=True):
            levels = used + np.cumsum(changes(heap.log.copy(head, heap.log.head)))
            assert max(levels, default=0) <= max(used, heap.stats().bytes_in_use)


def test_a_loop_that_replaces_its_arrays_is_not_drawn_empty(reader):
    sizes = [400, 50, 400, 100]
    for step in range(3):
        reader.arrays.clear()
        for size in sizes:
            reader.add(size, step)
        reader.read()
    log = reader.heaps[0].log
    levels = np.cumsum(changes(log.copy(0, log.head))).tolist()
    assert max(levels) == sum(sizes)
    assert min(levels[levels.index(sum(sizes)) :]) == sum(sizes) - max(sizes)
