"""The memory pool by which PyTorch takes its segments from our heaps: what it keeps, and what empties it."""

import pytest
from fake_torch import OutOfMemoryError
from heaps import MIB
from processes import needs_compiled

from bfcviz.errors import LiveError
from bfcviz.live.torch.serve import serve_torch

pytestmark = needs_compiled


def test_pytorch_asks_without_its_lock_meanwhile(torch):
    torch.settings["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:100"
    with serve_torch():
        assert torch.settings["release_lock_on_cudamalloc"]
        assert torch.settings["PYTORCH_CUDA_ALLOC_CONF"].startswith("max_split_size_mb:100,")
    assert not torch.settings["release_lock_on_cudamalloc"]
    torch.settings["release_lock_on_cudamalloc"] = True
    with serve_torch():
        pass
    assert torch.settings["release_lock_on_cudamalloc"]  # it was asked for before


def test_empty_cache_gives_back_what_no_tensor_uses(torch):
    with serve_torch("8MiB") as served:
        (heap,) = served.heaps
        torch.kept.add(torch.empty(2 * MIB))
        torch.empty(5 * MIB)
        with pytest.raises(OutOfMemoryError):
            torch.empty(3 * MIB)
        torch.empty_cache()
        assert heap.stats().requested_bytes_in_use == 8 * MIB  # PyTorch keeps a pool in use whole
        served.empty_cache()
        assert heap.stats().requested_bytes_in_use == 2 * MIB
        torch.empty(3 * MIB)  # goes on with our heap
        assert heap.stats().requested_bytes_in_use == 6 * MIB
    assert not torch.pools
    torch.kept.clear()
    served.empty_cache()
    assert (heap.stats().chunks_in_use, heap.stats().pool_bytes) == (0, 0)


def test_an_empty_cache_that_fails_leaves_pytorch_served(torch):
    def fail():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    torch.cuda.empty_cache = fail
    with serve_torch() as served:
        with pytest.raises(RuntimeError, match="illegal memory"):
            served.empty_cache()
        torch.empty(1)
        assert served.heaps[0].stats().chunks_in_use == 1
    assert not torch.pools


def test_a_failure_tells_what_pytorch_caches(torch):
    with pytest.raises(OutOfMemoryError) as caught, serve_torch("8MiB"):  # noqa: PT012
        torch.kept.add(torch.empty(1))
        torch.empty(3 * MIB)
        torch.empty(3 * MIB)
    assert any(
        "4.0 MiB of the heaps are in segments without tensors" in each for each in caught.value.__notes__
    )


def test_an_older_pytorch_says_what_it_lacks(torch):
    del torch.cuda.MemPool
    with pytest.raises(LiveError, match=r"no memory pools .*2\.8"):
        serve_torch().__enter__()
    del torch._C._cuda_customAllocator
    with pytest.raises(LiveError, match="accepts no allocator"):
        serve_torch().__enter__()
