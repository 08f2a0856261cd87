"""What bfcviz asks of PyTorch, checked before anything is changed. Much of it has no public name: it stands here."""

import ctypes
from importlib import import_module
from typing import Any

from bfcviz.errors import LiveError
from bfcviz.live.keeper import Event

_THROWER = "_ZSt21__throw_runtime_errorPKc"
"""std::__throw_runtime_error(const char *), of the C++ library's stable ABI."""


def torch_with_cuda(wish: str) -> Any:
    """The module.

    Raises:
        LiveError: it is not installed, or sees no CUDA device.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise LiveError(f"PyTorch was to be {wish}, but is not installed: pip install torch") from error
    if not torch.cuda.is_available():
        raise LiveError(
            f"PyTorch {torch.__version__} was to be {wish}, but sees no CUDA device: no GPU, no driver, or "
            "a build without "
            "CUDA; torch.cuda.is_available() is False. NumPy can be served without one: serve_numpy"
        )
    return torch


def allocator_of(torch: Any, functions: tuple[int, int, int]) -> Any:
    """PyTorch's own object around alloc, free and record_stream; kept for good, for it keeps no copy of its own.

    Raises:
        LiveError: this PyTorch takes no allocator.
    """
    make = getattr(torch._C, "_cuda_customAllocator", None)  # noqa: SLF001
    if make is None:
        raise LiveError(
            f"PyTorch {torch.__version__} takes no allocator (since 2.0 it does): observe it, observe_torch"
        )
    alloc, free, record = functions
    made = make(alloc, free)
    made.set_record_stream_fn(record)
    _kept.append(made)
    return made


_kept: list[Any] = []


class Pool:
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
                "way='replace' "
                "before CUDA is first used, or observe it: observe_torch"
            )
        self._pool = make(allocator)
        self._devices = range(torch.cuda.device_count())
        self._unlocked = _Unlocked(torch)

    def begin(self) -> None:
        """From here on all that is allocated comes from it."""
        self._unlocked.begin()
        for device in self._devices:
            self._api._cuda_beginAllocateToPool(device, self._pool.id)  # noqa: SLF001

    def end(self) -> None:
        """Nothing new does."""
        for device in self._devices:
            self._end(device, self._pool.id)
            self._api._cuda_releasePool(device, self._pool.id)  # noqa: SLF001
        self._unlocked.end()


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


def replace(torch: Any, allocator: Any) -> None:
    """Let an allocator be PyTorch's only one, for good.

    Raises:
        LiveError: CUDA memory was used before.
    """
    memory = torch.cuda.memory
    try:
        memory.change_current_allocator(memory._CUDAAllocator(allocator))  # noqa: SLF001
    except RuntimeError as error:
        raise LiveError(
            "PyTorch's allocator was to be replaced, but it has been used already, and PyTorch swaps none "
            "in use: do so "
            "before the first CUDA tensor, or give way='pool', which can begin at any time"
        ) from error


def keeps_history(torch: Any) -> bool:
    """Whether somebody has a memory history kept; False where this PyTorch does not say."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)  # noqa: SLF001
    return bool(ask()) if ask is not None else False


def is_replaced(torch: Any) -> bool:
    """Whether PyTorch's allocator is one that was plugged in, which keeps no history."""
    ask = getattr(torch.cuda.memory, "get_allocator_backend", None)
    return ask is not None and ask() == "pluggable"


def thrower() -> int:
    """Address of a C function that throws a std::runtime_error, which PyTorch turns into a RuntimeError."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL("libstdc++.so.6"), _THROWER), ctypes.c_void_p).value or 0
    except (OSError, AttributeError) as error:
        raise LiveError(
            "PyTorch's allocator was to be replaced, but no libstdc++.so.6 was found whose exceptions it "
            "would understand "
            "when memory runs out: give way='pool'"
        ) from error


class TorchStreams:
    """PyTorch's streams, by their CUDA handles."""

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda

    def record(self, device: int, stream: int) -> Event:
        """An event behind all that was put into a stream so far."""
        with self._cuda.device(device):
            event: Event = self._cuda.Event()
            event.record(self._cuda.ExternalStream(stream, device=device))  # type: ignore[attr-defined]
        return event

    def synchronize(self, device: int) -> None:
        """Wait for everything on a device."""
        self._cuda.synchronize(device)
