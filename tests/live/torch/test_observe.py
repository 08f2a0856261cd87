"""PyTorch's history taken over: real histories, read in pieces as if polled; lost entries; what the `with` leaves."""

import pickle
import random
import sys

import numpy as np
import pytest
from fake_torch import FakeTorch
from heaps import model_of
from shared import SHARED
from threads import wait_for_end

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.log import EventLog
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live.common.observed_heap import ObservedHeap
from bfcviz.live.torch.block_rules import Rules
from bfcviz.live.torch.history import DeviceHistory
from bfcviz.live.torch.observe import observe_torch
from bfcviz.live.torch.segments_and_blocks import bytes_in_use

MIB = 1 << 20
REAL = [
    ("torch_cs336_ctx128_fullstep", 0),  # begins during a step, 430 segments are released
    ("torch_octree_nca_67k", 0),
    ("torch_code_location_2.6M", 0),  # expandable segments
    ("torch_code_location_2.6M", 1),  # which give some back, and still run out of memory
    ("torch_code_location_2.6M", 2),
]
real = pytest.mark.parametrize(("name", "device"), REAL, ids=[f"{name}-{device}" for name, device in REAL])


class NoGlobals(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} in a snapshot")


class History:
    """A real snapshot: a device's trace, and the segments at its end and at any step before."""

    def __init__(self, name, device):
        path = SHARED / "real" / "snapshots" / f"{name}.pickle"
        if not path.exists():
            pytest.skip(f"no {path.name} beside this checkout")
        with path.open("rb") as file:
            found = NoGlobals(file).load()
        self.settings = found["allocator_settings"]
        self.trace = found["device_traces"][device]
        self.segments = [segment for segment in found["segments"] if segment["device"] == device]

    def start(self):
        """The segments before the first entry: what the trace did is undone."""
        used = {at: block for segment in self.segments for at, block in in_use(segment)}
        grants = {segment["address"]: segment for segment in self.segments}
        for entry in reversed(self.trace):
            if entry["action"] == "alloc":
                del used[entry["addr"]]
            elif entry["action"] == "free_completed":
                used[entry["addr"]] = {"size": entry["size"], "state": "active_allocated"}
            elif entry["action"] == "segment_alloc":
                del grants[entry["addr"]]
            elif entry["action"] == "segment_free":
                grants[entry["addr"]] = granted(entry)
            elif entry["action"] == "segment_map":
                grants.clear()  # these traces begin where nothing was mapped
        return [with_blocks(segment, used) for segment in grants.values()]

    def states(self, sizes):
        """The segments before each entry, and at last at the end; `sizes`: of the blocks allocated, in their order."""
        start, sizes = self.start(), iter(sizes)
        used = {at: block for segment in start for at, block in in_use(segment)}
        grants = {segment["address"]: segment for segment in start}
        for entry in self.trace:
            yield lambda: [with_blocks(segment, used) for segment in grants.values()]
            at, size, action = entry["addr"], entry["size"], entry["action"]
            if action == "alloc":
                used[at] = {"size": next(sizes), "requested_size": size, "state": "active_allocated"}
            elif action == "free_completed":
                del used[at]
            elif action == "segment_alloc":
                grants[at] = granted(entry)
            elif action == "segment_free":
                del grants[at]
        yield lambda: self.segments


def granted(entry):
    return {"address": entry["addr"], "total_size": entry["size"], "stream": entry["stream"]}


def in_use(segment):
    at = segment["address"]
    for block in segment["blocks"]:
        if block["state"] != "inactive":
            yield at, block
        at += block["size"]


def with_blocks(segment, used):
    at, stop, blocks = segment["address"], segment["address"] + segment["total_size"], []
    for address in sorted(address for address in used if at <= address < stop):
        if address > at:
            blocks.append({"address": at, "size": address - at, "state": "inactive"})
        blocks.append({**used[address], "address": address})
        at = address + used[address]["size"]
    if at < stop:
        blocks.append({"address": at, "size": stop - at, "state": "inactive"})
    return {**segment, "blocks": blocks}


def observed():
    return DeviceHistory(ObservedHeap(EventLog(1 << 16), name="torch cuda:0", unit=512), 0, 0)


def chunks(heap):
    """What is in use: (address, size, requested)."""
    found = heap.moment().chunks
    found = found[found["in_use"]]
    return found[["address", "size", "requested_size"]].tolist()


def assert_model_agrees(heap):
    theirs, ours = model_of(heap).chunks(), heap.moment().chunks
    for mine, name in (("address", "address"), ("size", "size"), ("handle", "handle"), ("in_use", "in_use")):
        np.testing.assert_array_equal(ours[mine], theirs[name])


def blocks_of(segments):
    return sorted(
        (at, block["size"], block["requested_size"]) for segment in segments for at, block in in_use(segment)
    )


# -- real histories -------------------------------------------------------------------------------------------------


def mark(segments):
    """The entry that telling a state leaves in the history."""
    return {"action": "snapshot", "addr": 0, "size": bytes_in_use(segments), "stream": 0, "time_us": 1}


def whole(history):
    """All of it in one reading, and another that finds the state of the first."""
    taken, start = observed(), history.start()
    taken.read([], start, history.settings)
    trace = [mark(start), *history.trace]
    taken.read(trace, history.segments, history.settings)
    taken.read([*trace, mark(history.segments)], history.segments, history.settings)
    return taken


@real
def test_a_history_ends_in_the_state_pytorch_tells(name, device):
    history = History(name, device)
    taken = whole(history)
    assert (taken.mended, taken.lost, taken.heap.inconsistencies.words()) == (0, 0, "")
    assert chunks(taken.heap) == blocks_of(history.segments)
    pool = taken.heap.stats().pool_bytes - taken.unmapped
    assert pool == sum(segment["total_size"] for segment in history.segments)
    assert_model_agrees(taken.heap)


def sizes_in(heap):
    events = heap.log.copy(0, heap.log.head)
    return events[events["kind"] == Kind.ALLOCATE]["size"].tolist()


def polled(history, ring, most):
    """Read from time to time: the newest `ring` entries, and up to five entries later the state."""
    known = sum(1 for segment in history.start() for _ in in_use(segment))
    chooser, taken, seen, shown, due, told = random.Random(7), observed(), [], [], 0, 0
    for step, state in enumerate(history.states(sizes_in(whole(history).heap)[known:])):
        if step == due:
            shown, told = seen[-ring:], min(step + chooser.randrange(6) * (step > 0), len(history.trace))
        if step == told:
            taken.read(shown, state(), history.settings)
            seen.append(mark(state()))
            if step == due:  # nothing happened in between
                assert chunks(taken.heap) == blocks_of(state())
            due, told = step + chooser.randrange(6, most), -1
        seen += history.trace[step : step + 1]
    for _ in range(2):
        taken.read(seen[-ring:], history.segments, history.settings)
        seen.append(mark(history.segments))
    return taken


def test_polled_it_is_the_same_as_at_once():
    history = History("torch_cs336_ctx128_fullstep", 0)
    taken, at_once = polled(history, ring=5000, most=3000), whole(history)
    assert (taken.mended, taken.lost) == (0, 0)
    ours, theirs = (
        heap.log.copy(0, heap.log.head)[["kind", "address", "size", "requested", "chunk"]].tolist()
        for heap in (taken.heap, at_once.heap)
    )
    assert ours == theirs


def test_what_the_ring_lost_is_taken_from_the_state():
    history = History("torch_cs336_ctx128_fullstep", 0)
    taken = polled(history, ring=300, most=1000)
    assert taken.lost > 10
    assert taken.mended > 0
    assert taken.heap.inconsistencies.words() == ""
    assert chunks(taken.heap) == blocks_of(history.segments)
    assert_model_agrees(taken.heap)


def test_a_failure_is_an_event_with_its_numbers():
    taken = whole(History("torch_code_location_2.6M", 1))
    error = taken.out_of_memory
    assert (error.requested, error.rounded) == (5_308_694_528, 5_308_694_528)
    assert 0 < error.free_bytes < error.requested
    assert error.pool_bytes <= error.bytes_limit
    events = taken.heap.log.copy(0, taken.heap.log.head)
    (event,) = events[events["kind"] == Kind.OOM]
    assert event["requested"] == error.requested
    label = taken.heap.labels[event["label"]]
    assert label.name == "update_nodes (models.py)"
    assert "/torch/nn/modules/module.py:" in label.details["stack"]


# -- expandable segments --------------------------------------------------------------------------------------------


def remapped(*changes):
    """20 MiB are mapped, then parts are unmapped ("-") and mapped ("+"): kind, start, stop in MiB."""
    taken = observed()
    taken.read([], [], {"expandable_segments": True})
    trace = [mark([]), entry("segment_map", 0, 20 * MIB)]
    for kind, start, stop in changes:
        action = "segment_map" if kind == "+" else "segment_unmap"
        trace.append(entry(action, start * MIB, (stop - start) * MIB, time_us=len(trace)))
    taken.read([*trace, entry("oom", size=64 * MIB, device_free=0)], [], {"expandable_segments": True})
    return taken


@pytest.mark.parametrize(
    ("changes", "unmapped", "pool"),
    [
        (["-4:12"], 8, 20),
        (["-4:12", "+4:8"], 4, 20),  # a part of what was unmapped comes back
        (["-4:12", "+6:8"], 6, 20),
        (["-4:12", "+2:14"], 0, 20),
        (["-4:12", "-8:16"], 12, 20),  # both tell of 8 to 12
        (["-4:8", "-8:12", "+4:12"], 0, 20),
        (["-0:12", "-12:20"], 0, 0),  # all of it is gone, piece by piece
        (["-0:12", "-12:20", "+4:8"], 0, 4),
        (["-16:24"], 4, 20),  # more than there was
    ],
)
def test_parts_of_an_expandable_segment_come_and_go(changes, unmapped, pool):
    taken = remapped(*((change[0], *map(int, change[1:].split(":"))) for change in changes))
    assert (taken.unmapped, taken.heap.stats().pool_bytes) == (unmapped * MIB, pool * MIB)
    error = taken.out_of_memory
    assert error.free_bytes == error.pool_bytes == (pool - unmapped) * MIB
    assert taken.heap.inconsistencies.words() == ""
    assert_model_agrees(taken.heap)


def test_a_block_in_use_is_mapped_whatever_was_told():
    taken = observed()
    settings = {"expandable_segments": True}
    taken.read([], [], settings)
    trace = [mark([]), entry("segment_map", 0, 20 * MIB), entry("segment_unmap", 0, 12 * MIB)]
    taken.read([*trace, entry("alloc", 8 * MIB, 12 * MIB)], [], settings)
    assert taken.unmapped == 8 * MIB


def test_what_is_unmapped_is_corrected_by_the_state():
    taken, settings = observed(), {"expandable_segments": True}
    whole, part = (
        {"address": 0x7000_0000, "total_size": size * MIB, "stream": 0, "blocks": []} for size in (20, 4)
    )
    apart = {**part, "address": 0x7000_0000 + 14 * MIB}
    for segments, unmapped in (([whole], 0), ([part, apart], 12), ([whole], 0)):
        taken.read(
            [entry("oom", size=unmapped)], segments, settings
        )  # nothing of the reading before: it was lost
        assert taken.unmapped == unmapped * MIB


# -- how blocks are cut ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "requested", "free", "block"),
    [
        (Rules(), 1, 2 * MIB, 512),
        (Rules(), 513, 2 * MIB, 1024),
        (Rules(), 1000, 1024, 1024),
        (Rules(), 600, 1536, 1024),
        (Rules(), 9 * MIB, 10 * MIB, 10 * MIB),  # the rest, 1 MiB, is not split off
        (Rules(), 9 * MIB, 10 * MIB + 512, 9 * MIB),
        (Rules(expandable=True), 9 * MIB, 9 * MIB + 512, 9 * MIB),
        (Rules(max_split=8 * MIB), 9 * MIB, 20 * MIB, 20 * MIB),
        (Rules(max_split=8 * MIB), 7 * MIB, 20 * MIB, 7 * MIB),
        (Rules(), 3 * MIB, 0, 3 * MIB),  # where the free block is not known
        (Rules(divisions=(4,) * 16), 1200 * 1024, 1 << 30, 1280 * 1024),
        (Rules(divisions=(4,) * 16), 1024 * 1024, 1 << 30, 1024 * 1024),
        (Rules(divisions=(0, 8, *[0] * 14)), 1200 * 1024, 1 << 30, 1200 * 1024),
        (Rules(divisions=(0, 8, *[0] * 14)), 2 * MIB + 1, 1 << 30, 2 * MIB + MIB // 4),
        (Rules(divisions=(4,) * 16), 1500, 2 * MIB, 1536),  # too small for steps
    ],
)
def test_blocks_are_cut_as_pytorch_does(rules, requested, free, block):
    assert rules.block(requested, free) == block


def test_rules_come_from_the_settings():
    assert Rules.of({}) == Rules()
    steps = {str(1 << i): 4 if i == 3 else 0 for i in range(16)}
    found = Rules.of(
        {"expandable_segments": True, "max_split_size": 64 * MIB, "roundup_power2_divisions": steps}
    )
    assert found == Rules(expandable=True, max_split=64 * MIB, divisions=(0, 0, 0, 4, *[0] * 12))
    assert Rules.of({"max_split_size": -1, "roundup_power2_divisions": dict.fromkeys(steps, 0)}) == Rules()


# -- the with -------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch(monkeypatch):
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def shown(*entries, blocks=(), device=0, devices=1):
    """A snapshot: entries, and one segment of 2 MiB whose blocks in use begin at its start."""
    at = 0x7000_0000
    made = [{"size": size, "requested_size": size, "state": "active_allocated"} for size in blocks]
    made.append({"size": 2 * MIB - sum(blocks), "requested_size": 0, "state": "inactive"})
    segment = {"device": device, "address": at, "total_size": 2 * MIB, "stream": 0, "blocks": made}
    traces = [[] for _ in range(devices)]
    traces[device] = list(entries)
    return {"segments": [segment], "device_traces": traces}


def entry(action, at=0, size=0, **more):
    return {"action": action, "addr": 0x7000_0000 + at, "size": size, "stream": 0, "time_us": 5, **more}


def test_it_observes_from_the_state_it_finds(torch):
    own = {"filename": "??", "name": "c10", "line": 0}
    frames = [own, {"filename": "/home/me/train.py", "name": "step", "line": 9}]
    old, first = entry("alloc", 0, 512), entry("snapshot", size=512, time_us=6)
    theirs = entry("snapshot", size=99, time_us=5)  # of other code
    new = entry("alloc", 512, 1024, frames=frames, time_us=7)
    torch.snapshots = [
        shown(old, blocks=[512]),
        shown(old, theirs, first, new, blocks=[512, 1024]),
        shown(old, theirs, first, new, entry("snapshot", size=1536, time_us=9), blocks=[512, 1024]),
    ]
    with observe_torch(every_s=1000) as source:
        assert torch.history == {"context": "alloc", "stacks": "python", "max_entries": 100_000}
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "torch cuda:0", torch.total)
        assert [size for _, size, _ in chunks(heap)] == [512]
        source.settle()
        assert [size for _, size, _ in chunks(heap)] == [512, 1024]
    assert torch.history is None
    label = heap.labels[heap.log.copy(0, heap.log.head)[-1]["label"]]
    assert label == ("step (train.py)", {"stack": "step (/home/me/train.py:9)"})
    assert "PyTorch is observed" in source.description
    assert source.out_of_memory is None
    assert (source.devices[0].lost, source.devices[0].mended) == (0, 0)


@pytest.fixture
def symbolizer(torch, monkeypatch, tmp_path):
    """A module torch._inductor.codecache; returns whether it is imported."""
    folder = tmp_path / "_inductor"
    folder.mkdir()
    for name in ("__init__", "codecache"):
        (folder / f"{name}.py").touch()
    torch.__path__ = [str(tmp_path)]
    names = ("torch._inductor", "torch._inductor.codecache")
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)  # restored after the test
        del sys.modules[name]
    return lambda: names[1] in sys.modules


@pytest.mark.parametrize(
    ("capture", "theirs", "imported"), [("stack", 0, 1), ("label", 0, 0), ("label", 1, 1)]
)
def test_what_a_snapshot_of_stacks_imports_is_there_before_the_thread(
    torch, symbolizer, capture, theirs, imported
):
    torch.history = {"theirs": True} if theirs else None
    seen = []
    torch.cuda.memory._snapshot = lambda: seen.append(symbolizer()) or torch.snapshot()
    with observe_torch(every_s=1000, capture=capture):
        assert seen == [imported]


def test_where_it_cannot_begin_no_history_is_kept(torch):
    torch.snapshots = [RuntimeError("the driver is gone")]
    with pytest.raises(RuntimeError, match="the driver is gone"):
        observe_torch().__enter__()
    assert torch.history is None


def test_entered_twice_it_refuses_and_goes_on(torch):
    with observe_torch(every_s=1000) as source:
        with pytest.raises(LiveError, match="PyTorch is observed already"):
            source.__enter__()
        assert torch.history is not None
    assert torch.history is None


def test_a_history_of_other_code_continues(torch):
    torch.history = {"theirs": True}
    with observe_torch(every_s=1000):
        assert torch.history == {"theirs": True}
    assert torch.history == {"theirs": True}


def test_each_device_is_a_heap_and_a_recording_gets_the_current_one(torch, tmp_path):
    torch.devices, torch.device = 2, 1
    torch.snapshots = [shown(entry("snapshot"), blocks=[512], device=1, devices=2)]
    with Recording(tmp_path / "run") as recording, observe_torch(log=recording, capture="label") as source:
        assert [heap.name for heap in source.heaps] == ["torch cuda:1", "torch cuda:0"]
        assert (
            np.count_nonzero(recording.trace().read(0, len(recording.trace()))["kind"] == Kind.ALLOCATE) == 1
        )
        assert torch.history["context"] is None


def test_observing_creates_no_context_on_devices_that_are_not_used(torch):
    torch.devices = 4
    with observe_torch(every_s=1000) as source:
        assert [device.number for device in source.devices] == [0, 1, 2, 3]
    assert torch.contexts == {0}


def test_the_devices_that_are_named_are_observed(torch):
    torch.devices, torch.device = 4, 3
    with observe_torch(every_s=1000, devices=[1, 3, 1]) as source:
        assert [heap.name for heap in source.heaps] == ["torch cuda:3", "torch cuda:1"]
    for devices, facts in (([4], "device 4 .* 4, counted from 0"), ([], "no device .* 4, counted from 0")):
        with pytest.raises(InvalidRequest, match=facts):
            observe_torch(devices=devices).__enter__()
        assert torch.history is None


def test_what_was_lost_is_said(torch):
    torch.snapshots = [
        shown(entry("alloc", time_us=1)),
        shown(entry("alloc", time_us=8), blocks=[1024]),  # the entry of the state before is gone
        shown(entry("alloc", time_us=8), entry("snapshot", size=1024, time_us=9), blocks=[1024]),
    ]
    with observe_torch(every_s=1000) as source:
        source.settle()
    assert "overwritten" in source.description
    assert [size for _, size, _ in chunks(source.heaps[0])] == [1024]


def test_the_thread_reads_by_itself_and_its_end_is_said(torch):
    torch.snapshots = [shown(entry("snapshot")), RuntimeError("the driver is gone")]
    source = observe_torch(every_s=0.001)
    with pytest.raises(RuntimeError, match="the driver is gone"), source:  # noqa: PT012
        wait_for_end("bfcviz-torch")
        assert "It ended early: the driver is gone" in source.description
    assert torch.history is None


def test_what_cannot_be_observed_is_refused(torch):
    torch.current_allocator = object()
    with pytest.raises(LiveError, match=r"history.* replaced"):
        observe_torch().__enter__()
    torch.current_allocator, torch.backend = None, "cudaMallocAsync"
    with pytest.raises(LiveError, match="backend:cudaMallocAsync"):
        observe_torch().__enter__()
    torch.devices = 0
    with pytest.raises(LiveError, match="sees no CUDA device"):
        observe_torch().__enter__()
    assert torch.history is None
    with pytest.raises(LiveError, match="choose nothing, label or stack"):
        observe_torch(capture="all")
    for options in ({"every_s": 0}, {"every_s": float("nan")}, {"max_entries": 0}):
        with pytest.raises(InvalidRequest):
            observe_torch(**options)
