"""TorchPool: the memory pool by which PyTorch's own caching allocator gets its segments from our heaps."""

from collections.abc import Callable
from functools import partial
from typing import Any

from bfcviz.errors import LiveError


class TorchPool:
    """A MemPool of all devices and threads; PyTorch's own caching allocator gets its segments from our heaps.

    `torch.cuda.use_mem_pool` would route only the calling thread, and not the threads of autograd.
    """

    def __init__(self, torch: Any, allocator: Any) -> None:
        make = getattr(torch.cuda, "MemPool", None)
        self._api = torch._C  # noqa: SLF001
        # Before 2.8 it has another name, and a pool serves one thread only.
        self._end: Any = getattr(self._api, "_cuda_endAllocateToPool", None)
        if make is None or self._end is None or not hasattr(self._api, "_cuda_beginAllocateToPool"):
            raise LiveError(
                f"PyTorch {torch.__version__} has no memory pools for this (since 2.8 it does): give "
                "mechanism='replace' before the first use of CUDA, or observe it: observe_torch"
            )
        self._torch = torch
        self._make: Callable[[], Any] = partial(make, allocator)
        self._pool: Any = self._make()
        self._devices = range(torch.cuda.device_count())
        self._unlocked = _Unlocked(torch)

    def begin(self) -> None:
        """Allocate everything from the pool from now on."""
        self._unlocked.begin()
        self._open()

    def end(self) -> None:
        """Allocate nothing more from the pool. torch.cuda.empty_cache() frees its cached segments without tensors."""
        self._close()
        self._unlocked.end()

    def renew(self) -> None:
        """Let PyTorch free all segments without tensors, and continue with a new pool.

        PyTorch frees no segment of a pool in use, and defers frees of memory that `record_stream` was called on. No
        other thread may allocate meanwhile: PyTorch deletes an empty pool even if another thread is allocating a
        segment for it, because its lock is released there, and would crash.
        """
        new = self._make()
        self._close()
        self._pool = new
        try:
            self._torch.cuda.empty_cache()
        finally:
            self._open()

    def _open(self) -> None:
        for device in self._devices:
            self._api._cuda_beginAllocateToPool(device, self._pool.id)  # noqa: SLF001

    def _close(self) -> None:
        for device in self._devices:
            self._end(device, self._pool.id)
            self._api._cuda_releasePool(device, self._pool.id)  # noqa: SLF001


class _Unlocked:
    """Lets PyTorch allocate segments without holding its own lock, by its setting for that.

    A heap that grows may have to wait for the GIL, and the thread that holds the GIL may wait for PyTorch's lock.
    """

    _SETTING = "release_lock_on_cudamalloc"

    def __init__(self, torch: Any) -> None:
        old = getattr(torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None)  # noqa: SLF001
        self._set: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", old)  # noqa: SLF001
        self._settings = torch.cuda.memory._snapshot().get("allocator_settings", {})  # noqa: SLF001
        self._is_wanted = self._set is not None and self._settings.get(self._SETTING) is False

    def begin(self) -> None:
        self._apply("True")

    def end(self) -> None:
        self._apply("False")

    def _apply(self, value: str) -> None:
        if self._is_wanted:  # settings that are not repeated fall back to their defaults
            named = self._settings.get("PYTORCH_CUDA_ALLOC_CONF", "")
            self._set(",".join(filter(None, (named, f"{self._SETTING}:{value}"))))
