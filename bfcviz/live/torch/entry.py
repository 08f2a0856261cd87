"""PyTorch's CUDA memory: served from instrumented heaps, or observed through its own memory history.

By way of a memory pool, which can begin at any time, PyTorch's caching allocator stays between: chunks are its segments
of 2 MiB and more. PyTorch gives none of them back while a pool is in use, whatever `torch.cuda.empty_cache()` is told,
and does not reuse memory that `record_stream` was called on. `empty_cache()` of what `serve_torch` returns gives both
back: it ends the pool and begins another. When memory runs out PyTorch raises its OutOfMemoryError.

Replacing the allocator shows every tensor; it must be done before CUDA is first used and stays for good, and CUDA
graphs must not be captured meanwhile: a heap cannot keep what they used. There `record_stream` is honoured by events.
When memory runs out torch.OutOfMemoryError is raised, too, by a C++ exception thrown through PyTorch, for it would take
a NULL for an address; a RuntimeError where PyTorch is built otherwise than its wheels.
"""

import ctypes
from collections.abc import Iterable
from typing import Literal

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import driver as cuda_driver
from bfcviz.allocator.sub_allocators.cuda.choice import Budget, Memory, cuda_sub_allocator
from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Chosen
from bfcviz.live.observed.heap import log_and_labels
from bfcviz.live.shared.compiled import require_compiled
from bfcviz.live.shared.headroom import CAPABILITY_MAJOR, Room, Share
from bfcviz.live.shared.lent_heap import OPTIONS
from bfcviz.live.torch.observe import TorchObserved
from bfcviz.live.torch.serve import Mechanism, TorchServed


def serve_torch(
    limit: int | str | None = None,
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    mechanism: Mechanism = "pool",
    fraction: float | None = None,
    headroom: int | str | None = None,
    memory: Memory = "device",
    capture: Literal["nothing", "label"] = "label",
    options: AllocatorOptions = OPTIONS,
) -> TorchServed:
    """Let PyTorch's CUDA memory come from instrumented heaps, one a stream, for the length of a `with`.

    ::

        with serve_torch(log=recording) as served:
            train()

    Args:
        limit: of each device's heaps together, in bytes or as text. By default what is free, less what TensorFlow
            leaves to CUDA's libraries and kernels (`live.headroom`).
        log: where events of the first stream's heap go; a recording brings its labels along. By default, and for the
            heaps of further streams, a ring in memory.
        labels: where the names that `labels.label` gives are interned.
        mechanism: `pool`, or `replace`; see above.
        fraction: the limit as a share of all memory of the device; give at most one of the three.
        headroom: bytes, or text, to be left of what is free.
        memory: `device`, `managed`, which may exceed the device, or `virtual`, whose regions grow in place.
        capture: what is recorded with each allocation: `nothing`, or the `label` in force.
        options: how the heaps behave.

    Raises:
        ValueError: a limit that is no size.
        InvalidRequest: a mechanism there is not; memory there is not, or `async`, which belongs to one stream.
        LiveError: bfcviz is not compiled; stacks are wanted, which PyTorch's functions cannot see; on entering:
            PyTorch is not there, sees no GPU, has less than the limit, or cannot be served by this mechanism now.
    """
    require_compiled("Serving PyTorch")
    _check(mechanism, memory)
    share = _share(limit, fraction, headroom)
    log, labels = log_and_labels(log, labels)
    captured = Capture(labels, capture)
    if captured.walker is not None:
        raise LiveError(
            "PyTorch was to be served with Python's stack at each allocation, but it asks for memory without Python's "
            "lock, where there is no stack to be seen: give capture='label', or observe it, observe_torch"
        )
    return TorchServed(share, mechanism, log, captured, options, _memory(memory))


def observe_torch(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.2,
    max_entries: int = 100_000,
    capture: Chosen = "stack",
    devices: Iterable[int] | None = None,
) -> TorchObserved:
    """Watch PyTorch's own caching allocator, through the history it keeps; nothing of it is changed.

    A thread reads the history, `every_s` seconds after the last time; between two readings PyTorch keeps the newest
    `max_entries` events of a device. What is overwritten before it was read is made up for by the state that comes with
    every reading, and said in `says`. A reading copies all that PyTorch keeps and so costs the more the longer the
    history is: for a busy process give fewer entries and read more often.

    Args:
        log: where events of the first device go; a recording brings its labels along. By default, and for further
            devices, a ring in memory.
        labels: where op names and stacks are interned.
        every_s: seconds between two readings.
        max_entries: events of each device that PyTorch keeps.
        capture: `stack` has PyTorch keep Python's stack with every allocation, which names it too; with `label` the
            names are those of torch.cuda.memory's metadata, where somebody sets it; with `nothing` there are none.
        devices: numbers of those to observe, such as `[rank]` under DistributedDataParallel; by default all. No CUDA
            context is created on them.

    Raises:
        InvalidRequest: times or numbers that cannot be; on entering: a device that is not there.
        LiveError: `capture` is none of these; on entering: PyTorch is not there, sees no GPU, or tells no history.
    """
    if not 0 < every_s < 1 << 31 or max_entries < 1:
        raise InvalidRequest(
            f"every_s={every_s} and max_entries={max_entries} were given; give a time and a number above 0"
        )
    log, labels = log_and_labels(log, labels)
    if capture not in ("nothing", "label", "stack"):
        raise LiveError(f"capture={capture!r} was asked for; choose nothing, label or stack")
    return TorchObserved(log, labels, every_s, max_entries, capture, devices)


def _check(mechanism: str, memory: str) -> None:
    if mechanism not in ("pool", "replace"):
        raise InvalidRequest(f"mechanism={mechanism!r} was given to serve PyTorch; give 'pool' or 'replace'")
    if memory not in ("device", "managed", "virtual"):
        raise InvalidRequest(
            f"PyTorch was to be served with memory {memory!r}; there are 'device', 'managed' and 'virtual'. A heap is "
            "made before its stream is known, and 'async' memory is of one stream"
        )


def _share(limit: int | str | None, fraction: float | None, headroom: int | str | None) -> Share:
    share = Share.parse(limit, fraction, headroom)
    if share.limit is not None and not 1 <= share.limit <= 1 << 62:
        raise InvalidRequest(f"a limit of {share.limit} bytes was given; give one from 1 to 2^62")
    return share


class _Gpu:
    """Memory of the machine's GPUs, asked of the driver: PyTorch would begin to use CUDA if it were asked."""

    def __init__(self, kind: Memory) -> None:
        self.kind = kind

    def room(self, device: int) -> Room:
        driver = cuda_driver.load()
        free, total = ctypes.c_size_t(), ctypes.c_size_t(driver.total_memory(device))
        free.value = total.value
        if driver.has_context(device):  # else asking would create one
            with driver.on(device):
                driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return Room(total.value, free.value, driver.attribute(CAPABILITY_MAJOR, device))

    def source(self, device: int, budget: Budget) -> SubAllocator:
        return cuda_sub_allocator(self.kind, device, budget=budget)


_memory = _Gpu
