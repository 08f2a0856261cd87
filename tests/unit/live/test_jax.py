"""JAX's live arrays as events and its totals as marks, with a stand-in for JAX."""

import gc
import random
import re
import signal
import sys
from itertools import pairwise
from weakref import ref

import numpy as np
import pytest
from threads import wait_for_end
from unit.live.jax_stand_in import Array, Device, Stack, put_jax, stack

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Status
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.events.trace import Trace
from bfcviz.live import jax
from bfcviz.live.jax import (
    FIRST,
    GAPS,
    NOT_IN_ARRAYS,
    ArrayNames,
    DeviceArrays,
    LiveArrays,
    MadeUpAddresses,
    observe_jax,
)
from bfcviz.live.observed_heap import ObservedHeap
from bfcviz.model import Model
from bfcviz.model.find_steps import peak
from bfcviz.model.trace_from_source import trace_of
from bfcviz.watching.watch_reports import report


@pytest.fixture
def devices():
    return [Device(0, totals={"bytes_in_use": 100, "peak_bytes_in_use": 100, "bytes_limit": 1 << 30})]


@pytest.fixture
def arrays(devices, monkeypatch):
    found = []
    put_jax(monkeypatch, devices, found)
    return found


def marks(heap):
    events = heap.log.copy(0, heap.log.head)
    found = events[events["kind"] == Kind.MARK]
    return [(heap.labels.name(event["label"]), int(event["size"])) for event in found]


def test_totals_become_marks_when_they_change(devices, arrays):
    with observe_jax(log=EventLog(1 << 8), every_s=1000) as source:
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "jax gpu:0", 1 << 30)
        first = marks(heap)
        totals = [("bytes_in_use", 100), ("peak_bytes_in_use", 100), ("bytes_limit", 1 << 30)]
        assert first == [*totals, (NOT_IN_ARRAYS, 100)]
        source.settle()
        assert marks(heap) == first
        devices[0].totals = {**devices[0].totals, "bytes_in_use": 70}
    assert marks(heap) == [*first, ("bytes_in_use", 70), (NOT_IN_ARRAYS, 70)]
    assert source.latest["gpu:0"]["bytes_in_use"] == 70
    assert heap.stats().chunks_in_use == heap.stats().pool_bytes == 0
    assert source.out_of_memory is None


def test_what_no_array_holds_is_a_mark(devices, arrays):
    arrays.append(Array(80, stack(3), devices[0]))
    arrays.append(Array(7, stack(3), devices[0], memory="pinned_host"))
    with observe_jax(every_s=1000) as source:
        assert source.latest["gpu:0"][NOT_IN_ARRAYS] == 20
        assert source.latest["gpu:0"]["bytes_in_pinned_host"] == 7
        arrays.append(Array(80, stack(4), devices[0]))  # it came after JAX had counted
        source.settle()
        assert source.latest["gpu:0"][NOT_IN_ARRAYS] == 0


def test_arrays_are_held_by_lines_of_code(devices, arrays, tmp_path):
    arrays += [Array(300, stack(41), devices[0]), Array(80, stack(7, "<module>"), devices[0])]
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=1000):
        trace = recording.trace()
        assert (trace.origin.status, trace.origin.reasons) == (Status.RECORDING, GAPS.reasons)
        arrays.pop()
    trace = recording.trace()
    model = Model(trace)
    model.seek(peak(trace))
    found = {trace.labels.name(each["label"]): int(each["size"]) for each in model.in_use()}
    assert found == {"train.py:41 forward": 300, "train.py:7": 80}
    model.seek(len(trace))
    assert model.stats().bytes_in_use == 300
    assert (trace.origin.status, trace.origin.reasons) == (Status.DEGRADED, GAPS.reasons)
    assert trace.origin.has_ended_whole
    assert trace.origin.details["facts"][0]["external_fragmentation"] is None


def test_a_ring_says_what_is_missing_too(devices, arrays):
    with observe_jax(every_s=1000) as source:
        trace = trace_of(source.heaps[0])
        assert (trace.origin.status, trace.origin.reasons) == (Status.DEGRADED, GAPS.reasons)
        assert trace.origin.details["facts"][0]["free_bytes"] is None


def test_a_report_gives_no_made_up_numbers(devices, arrays):
    arrays += [Array(size << 20, stack(size), devices[0]) for size in (5, 2)]
    with observe_jax(every_s=1000) as source:
        arrays[0] = Array(7 << 20, stack(7), devices[0])
        source.settle()
        found = report(trace_of(source.heaps[0]))
    held = [(each.name, each.num_bytes >> 20) for each in found.holders]
    assert held == [("train.py:7 forward", 7), ("train.py:2 forward", 2)]
    assert (found.stats.pool_bytes >> 20, found.stats.free_bytes >> 20) == (14, 5)  # of the made-up places
    card = " ".join(re.sub("<[^>]*>", " ", found._repr_html_().partition("</style>")[2]).split())
    for text in (str(found), card):
        assert "9.0 MiB in use" in text
        assert "14.0 MiB" not in text
    assert "5.0 MiB" not in str(found)
    assert card.count("unknown") == 2  # the largest free chunk, and free


def test_a_cpu_is_observed_by_its_arrays(devices, arrays):
    devices[:] = [Device(0, "cpu")]
    arrays += [Array(300, stack(41), devices[0])]
    with observe_jax(every_s=1000) as source:
        (heap,) = source.heaps
        assert (heap.name, heap.limit, heap.stats().bytes_in_use) == ("jax cpu:0", None, 300)
    assert marks(heap) == []


def test_each_device_lists_the_arrays_of_its_platform(devices, arrays, tmp_path):
    devices += [Device(0, "cpu"), Device(1, totals={"bytes_in_use": 5})]
    arrays += [Array(1 << at, stack(1), device) for at, device in enumerate(devices)]
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=1000) as source:
        assert [(heap.name, heap.limit) for heap in source.heaps] == [
            ("jax gpu:0", 1 << 30),
            ("jax cpu:0", None),
            ("jax gpu:1", None),
        ]
        assert [heap.stats().bytes_in_use for heap in source.heaps] == [1, 2, 4]
    with observe_jax([1], every_s=1000) as source:
        assert [(heap.name, heap.stats().bytes_in_use) for heap in source.heaps] == [("jax gpu:1", 4)]


def test_arrays_of_which_jax_says_nothing_are_counted(devices, arrays):
    arrays += [Array(300, stack(41), devices[0]) for _ in range(2)]
    arrays[0].error = "not supported"
    with observe_jax(every_s=1000) as source:
        assert "1 of its arrays" in source.description


def test_a_jax_that_lists_no_arrays_is_observed_by_its_totals(devices, monkeypatch, tmp_path):
    devices.append(Device(0, "cpu"))
    put_jax(monkeypatch, devices)
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=1000) as source:
        assert [heap.name for heap in source.heaps] == ["jax gpu:0"]
        assert "bytes_in_use" in source.latest["gpu:0"]
        assert NOT_IN_ARRAYS not in source.latest["gpu:0"]
        assert "does not list" in source.description
    assert recording.trace().origin.status is Status.DEGRADED


def test_it_can_be_entered_again_but_not_twice(devices, arrays):
    source = observe_jax(log=EventLog(1 << 8), every_s=1000)
    for total in (5, 6):
        devices[0].totals = {"bytes_in_use": total}
        arrays[:] = [Array(total, stack(total), devices[0])]
        with source:
            with pytest.raises(LiveError, match="JAX is observed already"):
                source.__enter__()
            assert source.latest["gpu:0"]["bytes_in_use"] == total
            assert source.heaps[0].stats().bytes_in_use == total


def failing(*_):
    raise RuntimeError("gone")


def test_a_reading_that_fails_is_said_also_in_the_recording(devices, arrays, monkeypatch, tmp_path):
    arrays.append(Array(300, stack(41), devices[0]))
    with Recording(tmp_path / "run") as recording, observe_jax(log=recording, every_s=0.001) as source:
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["jax"], "live_arrays", failing)
            wait_for_end("bfcviz-jax")
        assert "It ended early: gone" in source.description
    origin = Trace.open(tmp_path / "run").origin
    assert not origin.has_ended_whole
    assert "gone" in origin.reasons[-1]


def test_totals_that_cannot_be_told_do_not_end_the_readings(devices, arrays):
    arrays.append(Array(300, stack(41), devices[0]))
    devices[0].totals = RuntimeError("UNIMPLEMENTED")
    with observe_jax(every_s=1000) as source:
        source.settle()
        assert source.heaps[0].stats().bytes_in_use == 300
    assert "early" not in source.description


def test_an_error_inside_is_not_covered(devices, arrays, monkeypatch):
    with pytest.raises(ZeroDivisionError), observe_jax(every_s=1000) as source:  # noqa: PT012
        monkeypatch.setattr(sys.modules["jax"], "live_arrays", failing)
        print(1 // 0)
    assert "It ended early: gone" in source.description


def test_what_tells_nothing_is_refused(devices, monkeypatch):
    cpu = Device(0, "cpu")
    put_jax(monkeypatch, [])
    with pytest.raises(LiveError, match="no device"):
        observe_jax()
    put_jax(monkeypatch, [cpu])
    for asked in (None, [0], [devices[0], cpu]):
        with pytest.raises(LiveError, match="live_arrays") as refused:
            observe_jax(asked)
        assert "cpu:0" in str(refused.value)
    with pytest.raises(InvalidRequest, match="device 3"):
        observe_jax([3])
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(LiveError, match="pip install jax"):
        observe_jax()
    for every_s in (0, float("nan")):
        with pytest.raises(InvalidRequest):
            observe_jax(every_s=every_s)


# ------------------------------------------------------------------------------
# Live arrays, reading by reading: which come and go, on which device, and that nothing is kept or asked too much.


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


# ------------------------------------------------------------------------------
# Names of arrays: the line of the program, the stack, shape and data type; each stack is read once.


def test_the_line_of_the_program_names_an_array():
    labels = Labels()
    label = labels[ArrayNames(labels).number(stack(41, "Net.forward"), (3, 4), "float32")]
    assert label.name == "train.py:41 Net.forward"
    assert (label.details["shape"], label.details["data_type"]) == ("[3,4]", "float32")
    assert label.details["stack"].split("\n") == [
        "bind (/env/site-packages/jax/_src/core.py:5)",
        "Net.forward (/home/me/train.py:41)",
        "<module> (/home/me/train.py:99)",
    ]


def test_without_a_stack_the_type_and_shape_name_it():
    labels = Labels()
    names = ArrayNames(labels)
    label = labels[names.number(None, (3, 4), "float32", 8)]
    assert label.name == "float32[3,4]"
    assert (label.details["devices"], "stack" in label.details) == ("8", False)
    assert labels.name(names.number(Stack(()), (), "int8")) == "int8[]"


def test_a_stack_is_read_once(monkeypatch):
    names = ArrayNames(Labels())
    one, same, other = stack(1), stack(1), stack(2)
    numbers = [
        names.number(each, shape, "float32") for each in (one, same, other) for shape in ((1,), (2,), (1,))
    ]
    assert numbers == [1, 2, 1, 1, 2, 1, 3, 4, 3]
    assert (len(one.read), len(same.read), len(other.read)) == (1, 0, 1)
    monkeypatch.setattr(jax, "MOST", 4)
    assert names.number(stack(3), (1,), "float32") == 5  # the tables were full, and are emptied
    assert names.number(one, (1,), "float32") == 1
    assert len(one.read) == 2


# ------------------------------------------------------------------------------
# Made-up places: they never overlap, and those of gone arrays are used again.


def test_places_never_overlap_and_stay_few():
    chance = random.Random(5)
    addresses, there, most = MadeUpAddresses(), {}, 0
    for _ in range(4000):
        if there and chance.random() < 0.5:
            start = chance.choice(list(there))
            addresses.give_back(start, there.pop(start))
        else:
            size = chance.choice([1, 4, 100, 4096, 5000])
            there[addresses.take(size)] = size
        most = max(most, sum(there.values()))
        ends = sorted((start, start + size) for start, size in there.items())
        assert all(stop <= start for (_, stop), (start, _) in pairwise(ends))
    assert ends[0][0] >= FIRST
    assert ends[-1][1] - FIRST <= 2 * most
    for start, size in there.items():
        addresses.give_back(start, size)
    assert addresses.take(1 << 40) == FIRST


def test_the_smallest_gap_that_fits_is_taken():
    addresses = MadeUpAddresses()
    starts = [addresses.take(size) for size in (100, 1, 50, 1, 70, 1)]
    assert starts == [FIRST + at for at in (0, 100, 101, 151, 152, 222)]
    for at, size in ((0, 100), (2, 50), (4, 70)):
        addresses.give_back(starts[at], size)
    assert addresses.take(60) == starts[4]
    assert addresses.take(101) == FIRST + 223
    addresses.give_back(starts[1], 1)  # joins the gaps beside it
    assert addresses.take(151) == FIRST
