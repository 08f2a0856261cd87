"""PyTorch observed: what it finds, which devices, what is lost, and what the `with` leaves."""

import importlib
import sys
import threading

import numpy as np
import pytest
from threads import wait_for_end
from unit.live.torch.histories import chunks

from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.schema import Kind
from bfcviz.events.storage.recording import Recording
from bfcviz.live.torch.observe import observe_torch

OWN = {"filename": "??", "name": "c10", "line": 0}
STEP = (OWN, {"filename": "/home/me/train.py", "name": "step", "line": 9})


def sizes(source, heap=0):
    return [requested for _, _, requested in chunks(source.heaps[heap])]


def test_it_observes_from_the_state_it_finds(torch):
    old = torch.make(500)
    with observe_torch(every_s=1000) as source:
        kept = {"context": "alloc", "stacks": "python", "max_entries": 100_000}
        assert torch.history == {**kept, "skip_actions": ["free_requested"]}
        (heap,) = source.heaps
        assert (source.way, heap.name, heap.limit) == ("observe", "torch cuda:0", torch.total)
        assert sizes(source) == [500]
        torch.make(1000, STEP)
        torch.cuda.memory._snapshot()  # of other code
        torch.make(2000, STEP)
        torch.drop(old)
        source.settle()
        assert sizes(source) == [1000, 2000]
    assert torch.history is None
    label = heap.labels[heap.moment().chunks[-2]["label"]]
    assert label == ("train.py:9 step", {"stack": "step (/home/me/train.py:9)"})
    assert "PyTorch is observed" in source.description
    assert source.out_of_memory is None
    assert (source.devices[0].lost, source.devices[0].mended) == (0, 0)


@pytest.fixture
def lazy_inductor(torch, monkeypatch, tmp_path):
    """A package torch._inductor that is imported when it is asked for, as PyTorch's; returns whether it is."""
    folder = tmp_path / "_inductor"
    folder.mkdir()
    (folder / "__init__.py").write_text("config = 7\n", encoding="utf-8")
    torch.__path__ = [str(tmp_path)]
    name = "torch._inductor"
    monkeypatch.setitem(sys.modules, name, None)  # restored after the test
    del sys.modules[name]

    def ask(self, attribute):
        if attribute == "_inductor":
            return importlib.import_module(name)
        raise AttributeError(attribute)

    monkeypatch.setattr(type(torch), "__getattr__", ask, raising=False)
    return lambda: name in sys.modules


def test_no_snapshot_imports_torch_inductor(torch, lazy_inductor):
    seen = []

    def as_pytorch():  # it asks for the names of lines of compiled code
        seen.append(hasattr(torch._inductor, "codecache"))
        if len(seen) == 1:
            asked = threading.Thread(target=lambda: seen.append(torch._inductor.config))
            asked.start()
            asked.join()
        return torch.snapshot()

    torch.cuda.memory._snapshot = as_pytorch
    with observe_torch(every_s=1000):
        assert seen == [False, 7]  # another thread gets the package
        assert torch._inductor.config == 7
    assert seen[-1] is False


def test_a_snapshot_does_not_import_torch_inductor(torch, lazy_inductor):
    torch.cuda.memory._snapshot = lambda: hasattr(torch._inductor, "codecache") or torch.snapshot()
    with observe_torch(every_s=1000):
        pass
    assert not lazy_inductor()
    assert "_inductor" not in vars(torch)


def test_where_it_cannot_begin_no_history_is_kept(torch):
    torch.error = RuntimeError("the driver is gone")
    with pytest.raises(RuntimeError, match="the driver is gone"):
        observe_torch().__enter__()
    assert torch.history is None


def test_entered_twice_it_refuses_and_goes_on(torch):
    with observe_torch(every_s=1000) as source:
        with pytest.raises(LiveError, match="PyTorch is observed already"):
            source.__enter__()
        assert torch.history is not None
    assert torch.history is None


def test_each_device_is_a_heap_and_a_recording_gets_the_current_one(torch, tmp_path):
    torch.devices, torch.device = 2, 1
    torch.make(500, device=1)
    with Recording(tmp_path / "run") as recording, observe_torch(log=recording, capture="label") as source:
        assert [heap.name for heap in source.heaps] == ["torch cuda:1", "torch cuda:0"]
        assert (
            np.count_nonzero(recording.trace().read(0, len(recording.trace()))["kind"] == Kind.ALLOCATE) == 1
        )
        assert torch.history["context"] is None


def test_the_devices_of_a_recording_are_in_the_order_of_time(torch, tmp_path):
    torch.devices = 2
    with Recording(tmp_path / "run") as recording, observe_torch(every_s=1000, log=recording) as source:
        assert all(heap.log is recording.log for heap in source.heaps)
        for number in range(6):
            torch.make(1000 + number, STEP, device=number % 2)
            torch.caches[number % 2].ring[-1]["time_us"] += 100 * number  # else two may have the same
        told = sorted(cache.ring[-3 + number]["time_us"] for cache in torch.caches[:2] for number in range(3))
        source.settle()
        events = recording.trace().read(0, len(recording.trace()))
    made = events[events["kind"] == Kind.ALLOCATE]
    assert made[["requested", "pool"]].tolist() == [(1000 + number, number % 2) for number in range(6)]
    assert np.diff(made["time"]).tolist() == (np.diff(told) * 1000).tolist()


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
    with observe_torch(every_s=1000, max_entries=10) as source:
        assert "missed" not in source.description
        last = [torch.make(size) for size in range(1, 30)][-1]
        source.settle()
        assert source.devices[0].lost == 1
        assert sizes(source) == list(range(1, 30))
        torch.drop(last)
    assert "1 times entries were missed" in source.description
    assert sizes(source) == list(range(1, 29))


def test_a_recording_says_that_events_are_missing(torch, tmp_path):
    with (
        Recording(tmp_path / "run") as recording,
        observe_torch(log=recording, every_s=1000, max_entries=10) as source,
    ):
        assert recording.trace().origin.reasons == ()
        for size in range(1, 30):
            torch.make(size)
        source.settle()
        for size in range(1, 30):
            torch.make(size)
        source.settle()
        (reason,) = recording.trace().origin.reasons  # once, and while it is recorded
        assert "missed" in reason
    assert recording.trace().origin.reasons == (reason,)


def test_the_thread_reads_by_itself_and_its_end_is_said(torch):
    source = observe_torch(every_s=0.001)
    with pytest.raises(RuntimeError, match="the driver is gone"), source:  # noqa: PT012
        torch.error = RuntimeError("the driver is gone")
        torch.make(500)
        wait_for_end("bfcviz-torch")
        assert "It ended early: the driver is gone" in source.description
    assert torch.history is None


def test_the_limit_of_the_process_is_the_limit(torch):
    torch.fraction = 0.25
    with observe_torch(every_s=1000) as source, pytest.raises(torch.OutOfMemoryError):
        torch.make(1 << 30)
    assert source.heaps[0].limit == torch.total // 4
    assert source.out_of_memory.requested == 1 << 30
    assert source.out_of_memory.bytes_limit <= torch.total // 4


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_a_pytorch_without_cache_is_refused(torch, monkeypatch, value):
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", value)
    with pytest.raises(LiveError, match="PYTORCH_NO_CUDA_MEMORY_CACHING is set"):
        observe_torch().__enter__()
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
    for options in (
        {"every_s": 0},
        {"every_s": float("nan")},
        {"max_entries": 0},
        {"most_time": 0},
        {"most_time": 2},
    ):
        with pytest.raises(InvalidRequest):
            observe_torch(**options)
