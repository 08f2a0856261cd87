"""PyTorch on our heaps, with a stand-in for PyTorch: by a pool, in place of its allocator, and refused arguments."""

import pytest
from fake_cuda import RELAXED
from fake_torch import Event, OutOfMemoryError
from heaps import MIB, assert_model_agrees
from processes import needs_compiled

import bfcviz
from bfcviz.errors import AllocatorError, InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.labels import label
from bfcviz.live.served_heap import DeferredFrees
from bfcviz.live.torch.serve import serve_torch

pytestmark = needs_compiled


# -- by a pool ------------------------------------------------------------------------------------------------------


def test_segments_are_chunks_of_our_heap(torch):
    with serve_torch(log=EventLog(1 << 10)) as served:
        assert (served.way, "memory pool" in served.description) == ("serve", True)
        (heap,) = served.heaps
        assert (heap.name, heap.limit) == ("torch cuda:0", torch.total)
        with label("encoder"):
            first = torch.empty(100)
        second = torch.empty(3 * MIB)
        assert heap.stats().bytes_in_use == 6 * MIB
        assert [heap.requested_size(address) for address in (first, second)] == [2 * MIB, 4 * MIB]
        assert heap.labels.names[1] == "encoder"
    assert torch.empty(100) is None  # PyTorch's own again
    torch.empty_cache()
    assert heap.stats().chunks_in_use == 0
    assert_model_agrees(heap)


def test_watch_gives_what_serves_it(torch):
    """Its `empty_cache` gives back what PyTorch's own does not."""
    with bfcviz.watch(torch="serve", limit="16MiB", dashboard=False) as w:
        (served,) = w.sources
        torch.empty(1)
        torch.empty_cache()
        assert served.heaps[0].stats().chunks_in_use == 1
        served.empty_cache()
        assert served.heaps[0].stats().pool_bytes == 0


def test_watch_serves_it_in_place_of_its_allocator(torch):
    with bfcviz.watch(torch={"way": "replace"}, limit="8MiB", dashboard=False) as w:
        torch.empty(1000)
        assert "until the process ends" in w.says
    assert w.report().stats.requested_bytes_in_use == 1000


def test_a_recording_gets_the_first_heap(torch, tmp_path):
    with Recording(tmp_path / "run") as recording:
        with serve_torch(log=recording) as served:
            torch.empty(1)
        assert served.labels is recording.labels
        assert len(recording.trace()) == served.heaps[0].log.head > 0


def test_out_of_memory_is_pytorchs_error_with_our_numbers(torch):
    with pytest.raises(OutOfMemoryError) as caught, serve_torch("8MiB") as served:  # noqa: PT012
        assert served.out_of_memory is None
        torch.empty(5 * MIB)
        torch.empty(5 * MIB)
    error = served.out_of_memory
    assert isinstance(error, OutOfMemory)
    assert (error.requested, error.bytes_limit) == (6 * MIB, 8 * MIB)
    assert "6.0 MiB requested" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError) as caught, served:
        raise RuntimeError
    assert not hasattr(caught.value, "__notes__")


def test_what_ends_the_with_is_not_hidden_by_a_gpu_that_answers_nothing_any_more(torch, monkeypatch):
    def fail(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(DeferredFrees, "free_ready", fail)
    with pytest.raises(ZeroDivisionError), serve_torch():
        print(1 // 0)
    with pytest.raises(RuntimeError, match="illegal memory"), serve_torch():
        pass
    assert not torch.pools


def test_tensors_outlive_the_with_and_it_can_be_entered_again(torch):
    served = serve_torch()
    for number in (1, 2):
        with pytest.raises(ZeroDivisionError), served:  # noqa: PT012
            torch.kept.add(torch.empty(1))
            print(1 // 0)
        assert served.heaps[0].stats().num_allocs == number
        assert not torch.pools
    heap = served.heaps[0]
    with pytest.raises(AllocatorError, match=r"2 chunks \(4\.0 MiB\) are in use by PyTorch"):
        heap.close()
    torch.kept.clear()
    torch.empty_cache()
    heap.close()


def test_a_second_service_is_refused(torch):
    with serve_torch() as served:
        for other in (serve_torch(), served):
            with pytest.raises(LiveError, match="PyTorch is served already"):
                other.__enter__()
        torch.empty(1)
        assert served.heaps[0].stats().num_allocs == 1


def test_it_counts_and_gives_back_as_pytorch_does(torch):
    with serve_torch("8MiB") as served:
        torch.kept.add(torch.empty(1))
        torch.empty(3 * MIB)
        assert (served.memory_allocated(), served.memory_reserved(0)) == (2 * MIB, 6 * MIB)
        torch.kept.clear()
        served.empty_cache()
        assert (served.memory_allocated(), served.memory_reserved()) == (0, 0)
        assert torch.empty(1) is not None
    assert serve_torch().memory_reserved() == 0


# -- in place of its allocator --------------------------------------------------------------------------------------


def test_replaced_it_serves_every_tensor_for_good(torch):
    served = serve_torch("8MiB", mechanism="replace")
    with served:
        assert "until the process ends" in served.description
        first = torch.empty(1000)
    second = torch.empty(1000)
    heap = served.heaps[0]
    assert [heap.requested_size(address) for address in (first, second)] == [1000, 1000]
    with served:  # again: nothing is to be done
        torch.delete(first, 1000)
    with pytest.raises(LiveError, match="was replaced before"):
        serve_torch().__enter__()
    torch.delete(second, 1000)
    assert heap.stats().chunks_in_use == 0


def test_replaced_it_serves_even_if_a_heap_could_not_be_made_ahead(torch, monkeypatch):
    served = serve_torch("8MiB", mechanism="replace")
    with monkeypatch.context() as broken:
        broken.setattr(torch.host, "source", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            served.__enter__()
    torch.current_allocator.free(torch.empty(1000), 1000, 0, None)
    with served:
        assert served.heaps[0].stats().num_allocs == 1


def test_replaced_it_honours_record_stream(torch, monkeypatch):
    modes = []
    ask = lambda event: (modes.append(torch.library.mode), event.done)[1]  # noqa: E731
    monkeypatch.setattr(Event, "query", ask)
    with serve_torch("8MiB", mechanism="replace") as served:
        address = torch.empty(1000)
        torch.current_allocator.record(address, 99)
        torch.delete(address, 1000)
        (event,) = torch.events
        assert event.stream == (0, 99)
        assert served.heaps[0].stats().chunks_in_use == 1
        served.settle()
        assert served.heaps[0].stats().chunks_in_use == 1
        event.done = True
        served.settle()
        assert served.heaps[0].stats().chunks_in_use == 0
    assert set(modes) == {RELAXED}  # in another mode it breaks a capture of any thread


def test_stacks_cannot_be_seen(torch):
    with pytest.raises(LiveError, match="capture='label'"):
        serve_torch(capture="stack")
    with serve_torch(capture="nothing") as served, label("encoder"):
        torch.empty(1)
    assert len(served.labels) == 1


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"memory": "async"}, InvalidRequest),
        ({"fraction": 0}, InvalidRequest),
        ({"limit": "1GiB", "headroom": "1GiB"}, InvalidRequest),
        ({"memory": "host"}, InvalidRequest),
        ({"mechanism": "both"}, InvalidRequest),
        ({"limit": "much"}, ValueError),
        ({"limit": -1}, ValueError),
    ],
)
def test_what_cannot_be_is_refused(arguments, error):
    with pytest.raises(error):
        serve_torch(**arguments)


def test_a_pool_without_cache_is_refused(torch, monkeypatch):
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    with pytest.raises(LiveError, match=r"PYTORCH_NO_CUDA_MEMORY_CACHING is set.*mechanism='replace'"):
        serve_torch().__enter__()
    assert not torch.pools


@pytest.mark.parametrize("mechanism", ["pool", "replace"])
def test_an_allocator_that_other_code_plugged_in_is_left_alone(torch, mechanism):
    torch.backend = "pluggable"
    torch.cuda.memory_reserved = None  # PyTorch then has no statistics
    with pytest.raises(LiveError, match="replaced its allocator"):
        serve_torch(mechanism=mechanism).__enter__()
    assert (torch.current_allocator, torch.pools, torch.made) == (None, {}, [])
