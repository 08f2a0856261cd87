"""PyTorch observed: what it finds, which devices, what is lost, and what the `with` leaves."""

import sys

import numpy as np
import pytest
from live.torch.histories import chunks, entry, shown
from threads import wait_for_end

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live.torch.observe import observe_torch


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
    assert label == ("train.py:9 step", {"stack": "step (/home/me/train.py:9)"})
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
