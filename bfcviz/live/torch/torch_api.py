"""The PyTorch functions that bfcviz uses, checked before anything changes; all uses of PyTorch's private names.

`refuse_to_share`: torch.multiprocessing sends a CUDA handle for the memory where the segment starts, and the tensor's
offset from the segment's start. CUDA's handle stands for the whole allocation: our region, which contains many
segments. Another process would read wrong addresses.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from inspect import signature
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import Any, Final

from bfcviz.errors import LiveError
from bfcviz.formats.torch import CONF_NAMES, UNCACHED
from bfcviz.live.deferred_frees import RelaxedEvent, StreamEvent

_THROWER: Final = "_ZSt21__throw_runtime_errorPKc"
"""std::__throw_runtime_error(const char *), of the C++ library's stable ABI."""

_CPP: Final = "libstdc++.so.6"
_STRING: Final = "St7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE"

OWN_ERROR: Final = (
    (_CPP, "__cxa_allocate_exception"),
    (_CPP, "__cxa_throw"),
    (_CPP, f"_ZN{_STRING}C1EPKcRKS3_"),
    (_CPP, f"_ZN{_STRING}D1Ev"),
    ("libc10.so", f"_ZN3c105ErrorC1ENS_14SourceLocationEN{_STRING}E"),
    ("libc10_cuda.so", "_ZTVN3c1016OutOfMemoryErrorE"),
)
"""The symbols needed to throw c10::OutOfMemoryError, with their libraries: see torch_error.h."""


def torch_with_cuda(wish: str) -> Any:
    """The module `torch`, where it sees a CUDA device.

    Raises:
        LiveError: it is not installed, or sees no CUDA device.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise LiveError(f"PyTorch cannot be {wish}, it is not installed: pip install torch") from error
    if not torch.cuda.is_available():
        raise LiveError(
            f"PyTorch {torch.__version__} cannot be {wish}: it sees no CUDA device: no GPU, no driver, or a build "
            "without CUDA; torch.cuda.is_available() is False. NumPy needs no GPU: serve_numpy"
        )
    return torch


def allocator_of(torch: Any, functions: tuple[int, int, int]) -> Any:
    """PyTorch's own object around alloc, free and record_stream; kept forever, because PyTorch keeps no copy.

    Raises:
        LiveError: this PyTorch accepts no allocator.
    """
    make = getattr(torch._C, "_cuda_customAllocator", None)  # noqa: SLF001
    if make is None:
        raise LiveError(
            f"PyTorch {torch.__version__} accepts no allocator (since 2.0 it does): observe it with observe_torch"
        )
    alloc, free, record = functions
    made = make(alloc, free)
    made.set_record_stream_fn(record)
    _kept.append(made)
    return made


_kept: list[Any] = []


def replace(torch: Any, allocator: Any) -> None:
    """Replace PyTorch's allocator, until the process ends.

    Raises:
        LiveError: CUDA memory was used before.
    """
    memory = torch.cuda.memory
    try:
        memory.change_current_allocator(memory._CUDAAllocator(allocator))  # noqa: SLF001
    except RuntimeError as error:
        raise LiveError(
            "PyTorch's allocator cannot be replaced: it has been used already, and PyTorch does not change one in use. "
            "Replace it before the first CUDA tensor, or give mechanism='pool', which can begin at any time"
        ) from error


def empty_cache(torch: Any) -> int:
    """Let PyTorch's own allocator return its idle segments to the devices; returns how many bytes."""
    if not torch.cuda.is_initialized():
        return 0
    devices = range(torch.cuda.device_count())
    before = sum(int(torch.cuda.memory_reserved(device)) for device in devices)
    torch.cuda.empty_cache()
    after = sum(int(torch.cuda.memory_reserved(device)) for device in devices)
    return max(before - after, 0)  # another thread may have allocated


@contextmanager
def device_named(torch: Any, device: int) -> Iterator[None]:
    """Let PyTorch take a device for the current one, without a context on it, which takes some 400 MiB."""
    before = torch.cuda.current_device()
    maybe_exchange = getattr(torch.cuda, "_maybe_exchange_device", None)
    if device == before:
        yield
    elif maybe_exchange is None:  # an older PyTorch
        with torch.cuda.device(device):
            yield
    else:
        maybe_exchange(device)
        try:
            yield
        finally:
            torch.cuda._exchange_device(before)  # noqa: SLF001


def total_memory(torch: Any, device: int) -> int:
    """Total bytes of a device, as PyTorch says. `mem_get_info` would create a CUDA context on it, some 400 MiB."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def allowed_memory(torch: Any, device: int) -> int:
    """Bytes that PyTorch may take of a device: all, or what torch.cuda.set_per_process_memory_fraction says."""
    ask = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # since 2.8
    total = total_memory(torch, device)
    return total if ask is None else min(total, int(ask(device) * total))


def begin_history(torch: Any, *, stacks: bool, max_entries: int) -> None:
    """Turn PyTorch's memory history on, with nothing in it; frees are recorded when they take effect."""
    record = torch.cuda.memory._record_memory_history  # noqa: SLF001
    known = signature(record).parameters
    options: dict[str, Any] = {"context": "alloc" if stacks else None, "stacks": "python"}
    if "skip_actions" in known:
        options["skip_actions"] = ["free_requested"]
    if "clear_history" in known:
        options["clear_history"] = True
    else:
        record(None)
    record("all", max_entries=max_entries, **options)


def end_history(torch: Any) -> None:
    """Turn PyTorch's memory history off; that clears it."""
    torch.cuda.memory._record_memory_history(None)  # noqa: SLF001


def observe_failures(torch: Any, call: Callable[..., object]) -> None:
    """Call this for each request to PyTorch that fails, in its thread, before it raises; until the process ends.

    PyTorch cannot detach an observer, and calls those of other code, too.
    """
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)  # noqa: SLF001
    if attach is not None:
        attach(call)


def snapshot(torch: Any) -> Mapping[str, Any]:
    """PyTorch's whole history, and the segments just after it."""
    with _without_inductor(torch):
        found: Mapping[str, Any] = torch.cuda.memory._snapshot()  # noqa: SLF001
    return found


def segments(torch: Any) -> Sequence[Mapping[str, Any]]:
    """PyTorch's segments of all devices, if possible without copying the history; leaves a `snapshot` entry in it."""
    ask = torch.cuda.memory.memory_snapshot
    options = {"include_traces": False} if "include_traces" in signature(ask).parameters else {}
    with _without_inductor(torch):
        found: Sequence[Mapping[str, Any]] = ask(**options)
    return found


def counters(torch: Any, device: int) -> Mapping[str, Any]:
    """The counters of PyTorch's allocator, without creating a context on the device."""
    found: Mapping[str, Any] = torch.cuda.memory.memory_stats_as_nested_dict(device)
    return found


class _NotImported(ModuleType):
    """Stands for torch._inductor while a thread takes a snapshot; other threads get the module, as without it."""

    def __init__(self) -> None:
        super().__init__("torch._inductor")
        self._thread = get_ident()

    def __getattr__(self, name: str) -> Any:
        if get_ident() == self._thread:
            raise AttributeError(name)
        return getattr(import_module("torch._inductor"), name)


@contextmanager
def _without_inductor(torch: Any) -> Iterator[None]:
    """Keep PyTorch's private snapshot function from importing torch._inductor.

    To name lines of compiled code, PyTorch asks for `torch._inductor.codecache`, which imports the first, takes seconds
    and breaks an import of torch._dynamo in another thread, which `torch.optim.Adam` does. Where it was not imported,
    there is no compiled code.
    """
    if "_inductor" in vars(torch):
        yield
        return
    stand_in = _NotImported()
    torch._inductor = stand_in  # noqa: SLF001
    try:
        yield
    finally:
        if vars(torch).get("_inductor") is stand_in:  # another thread may have imported it
            del torch._inductor  # noqa: SLF001


def keeps_history(torch: Any) -> bool:
    """Whether PyTorch records a memory history already; False if this version cannot tell."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)  # noqa: SLF001
    return bool(ask()) if ask is not None else False


def backend(torch: Any) -> str:
    """PyTorch's allocator: `native`, `cudaMallocAsync`, or `pluggable` for one that was plugged in."""
    ask = getattr(torch.cuda.memory, "get_allocator_backend", None)
    return "native" if ask is None else str(ask())


def refuse_plugged(torch: Any) -> None:
    """Raise LiveError if other code replaced PyTorch's allocator: it then has neither memory pools nor statistics."""
    if backend(torch) == "pluggable":
        raise LiveError(
            "PyTorch cannot be served: other code replaced its allocator (torch.cuda.memory.change_current_allocator), "
            "and PyTorch accepts no second one. Leave that call out"
        )


def refuse_async(torch: Any, wish: str, instead: str) -> None:
    """Raise LiveError if PyTorch uses the driver's allocator, which has neither memory pools nor a history."""
    if backend(torch) == "cudaMallocAsync":
        raise LiveError(
            f"PyTorch cannot be {wish}: {' or '.join(CONF_NAMES)} sets "
            "backend:cudaMallocAsync: memory then comes from the CUDA driver, and PyTorch has no memory pools and no "
            f"history for it. Start the program without that setting{instead}"
        )


def refuse_uncached(wish: str, instead: str) -> None:
    """Raise LiveError if PyTorch asks the driver for each tensor: it then uses no pool and records no history."""
    name = next((name for name in UNCACHED if name in os.environ), None)
    if name is not None:
        raise LiveError(
            f"PyTorch cannot be {wish}: {name} is set, so each tensor comes from the CUDA driver, and PyTorch uses no "
            f"memory pools and records no history. Start the program without that variable{instead}"
        )


def thrower(torch: Any, make: Callable[[tuple[int, ...]], int]) -> int:
    """Address of a C function whose C++ exception PyTorch turns into OutOfMemoryError, or else into RuntimeError.

    `make` makes such a function from the addresses of OWN_ERROR.
    """
    try:
        return make(tuple(_torch_symbol_address(torch, library, symbol) for library, symbol in OWN_ERROR))
    except (OSError, AttributeError):
        pass  # another version or build of PyTorch
    try:
        return _torch_symbol_address(torch, _CPP, _THROWER)
    except (OSError, AttributeError) as error:
        raise LiveError(
            "PyTorch's allocator cannot be replaced: libstdc++.so.6 was not found, whose exceptions report to PyTorch "
            "that memory ran out. Give mechanism='pool'"
        ) from error


def _torch_symbol_address(torch: Any, library: str, symbol: str) -> int:
    path = library if library == _CPP else str(Path(torch.__file__).parent / "lib" / library)
    return ctypes.cast(getattr(ctypes.CDLL(path), symbol), ctypes.c_void_p).value or 0


class TorchStreams:
    """PyTorch's functions on streams, by their CUDA handles."""

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda

    def record(self, device: int, stream: int) -> StreamEvent:
        """Record a PyTorch event behind all work in a stream so far."""
        with self._cuda.device(device):
            event = self._cuda.Event()
            event.record(self._cuda.ExternalStream(stream, device=device))
        return RelaxedEvent(event.query, event.synchronize)

    def synchronize(self, device: int) -> None:
        """Wait for all of PyTorch's work on a device."""
        self._cuda.synchronize(device)


def refuse_to_share(torch: Any, is_served: Callable[[int], bool]) -> None:
    """Make PyTorch raise LiveError when served memory is shared; until the process ends, as tensors outlive a `with`.

    `is_served` says whether an address is in a heap of ours.
    """
    storage = getattr(torch, "UntypedStorage", None)
    share = getattr(storage, "_share_cuda_", None)
    if share is None or hasattr(share, "__wrapped__"):
        return

    @wraps(share)
    def refuse_or_share(self: Any, *arguments: Any, **options: Any) -> Any:
        address = self.data_ptr()
        if is_served(address):
            raise LiveError(
                f"a CUDA tensor at 0x{address:x} cannot be shared with another process, because bfcviz serves its "
                "memory: CUDA shares whole allocations, and the other process would read the wrong addresses. Send a "
                "copy (tensor.cpu()), or watch PyTorch without serving it: observe_torch"
            )
        return share(self, *arguments, **options)

    storage._share_cuda_ = refuse_or_share  # type: ignore[union-attr]
