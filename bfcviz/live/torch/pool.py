"""The memory pool through which PyTorch's own caching allocator gets its segments from us."""

from collections.abc import Callable
from functools import partial
from typing import Any

from bfcviz.errors import LiveError


class TorchPool:
    """A MemPool of all devices and threads; PyTorch's own caching allocator asks us for its segments.

    `torch.cuda.use_mem_pool` would route the calling thread alone, and so not what autograd's threads allocate.
    """

    def __init__(self, torch: Any, allocator: Any) -> None:
        make = getattr(torch.cuda, "MemPool", None)
        self._api = torch._C  # noqa: SLF001
        # Before 2.8 it has another name, and a pool's segments come from us for one thread alone.
        self._end: Any = getattr(self._api, "_cuda_endAllocateToPool", None)
        if make is None or self._end is None or not hasattr(self._api, "_cuda_beginAllocateToPool"):
            raise LiveError(
                f"PyTorch {torch.__version__} has no memory pools to serve it by (since 2.8 it does): give "
                "mechanism='replace' "
                "before CUDA is first used, or observe it: observe_torch"
            )
        self._torch = torch
        self._make: Callable[[], Any] = partial(make, allocator)
        self._pool: Any = self._make()
        self._devices = range(torch.cuda.device_count())
        self._unlocked = _Unlocked(torch)

    def begin(self) -> None:
        """From here on all that is allocated comes from it."""
        self._unlocked.begin()
        self._open()

    def end(self) -> None:
        """Nothing new does. What PyTorch caches of it goes with torch.cuda.empty_cache(), once no tensor is in it."""
        self._close()
        self._unlocked.end()

    def renew(self) -> None:
        """Let PyTorch give back all that no tensor uses, and go on with a new pool.

        PyTorch gives no segment of a pool back as long as the pool is in use, and puts memory off that
        `record_stream` was called on. No other thread may allocate meanwhile: PyTorch forgets an empty pool although a
        thread may be getting a segment for it, as PyTorch's lock is released there, and would crash.
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
    """Lets PyTorch ask for segments without its own lock, by its setting for that.

    A heap that grows may have to wait for Python's lock, and whoever holds that may wait for PyTorch's.
    """

    _SETTING = "release_lock_on_cudamalloc"

    def __init__(self, torch: Any) -> None:
        old = getattr(torch._C, "_cuda_cudaCachingAllocator_set_allocator_settings", None)  # noqa: SLF001
        self._set: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", old)  # noqa: SLF001
        self._settings = torch.cuda.memory._snapshot().get("allocator_settings", {})  # noqa: SLF001
        self._is_wanted = self._set is not None and self._settings.get(self._SETTING) is False

    def begin(self) -> None:
        self._say("True")

    def end(self) -> None:
        self._say("False")

    def _say(self, value: str) -> None:
        if self._is_wanted:  # what is not named again falls back to its default
            named = self._settings.get("PYTORCH_CUDA_ALLOC_CONF", "")
            self._set(",".join(filter(None, (named, f"{self._SETTING}:{value}"))))
