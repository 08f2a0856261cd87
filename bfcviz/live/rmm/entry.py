"""RMM, watched: served from instrumented heaps, or observed through its own log.

RMM serves cuDF, and, where they are told to, CuPy (`rmm.allocators.cupy`) and PyTorch (`rmm.allocators.torch`): all of
them are seen together.
"""

from collections.abc import Iterable

from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda.choice import Budget, Memory, cuda_sub_allocator
from bfcviz.errors import InvalidRequest
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.capture.stacks import Capture, Chosen, Stacks
from bfcviz.live.observed.heap import ObservedHeap, log_and_labels
from bfcviz.live.rmm.api import Rmm, handle_of
from bfcviz.live.rmm.observe import UNIT, RmmObserved
from bfcviz.live.rmm.serve import RmmHeap, RmmServed
from bfcviz.live.shared.headroom import Share
from bfcviz.live.shared.heap_maker import Maker
from bfcviz.live.shared.lent_heap import OPTIONS


def serve_rmm(
    limit: int | str | None = None,
    *,
    fraction: float | None = None,
    headroom: int | str | None = None,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    memory: Memory = "device",
    capture: Chosen | Stacks = "label",
    options: AllocatorOptions = OPTIONS,
) -> RmmServed:
    """Let RMM's memory come from instrumented heaps, one a stream, for the length of a `with`.

    RMM calls Python for each request (CallbackMemoryResource), which NVIDIA means for finding faults, not for speed.
    Where memory runs out RMM raises MemoryError, with our numbers in its text.

    Args:
        limit: of each device's heaps together, in bytes or as text. By default all that is free when its first heap is
            made, less what TensorFlow leaves to CUDA's libraries and kernels too (see `headroom`).
        fraction: the limit as a share of all memory of the device; give at most one of the three.
        headroom: bytes, or text, to be left of what is free.
        log: where events of the default stream's heap go, on the device that is current now; a recording brings its
            labels along. Heaps of further streams have rings in memory.
        labels: where the names that `labels.label` gives are interned.
        memory: `device`, `managed`, `async` or `virtual`; see `sub_allocators.cuda`.
        capture: what is recorded with each allocation: `nothing`, `label`, `stack`, or `Stacks` that say which frames.
        options: how the heaps behave.

    Raises:
        LiveError: RMM is not there, sees no GPU or less memory than the limit; or, on entering, it is served already.
        InvalidRequest: a limit, fraction or headroom that cannot be, or several of them.
        ValueError: a limit that is no size.
    """
    share = Share.parse(limit, fraction, headroom)
    rmm = Rmm("served")
    logs, table = log_and_labels(log, labels)
    seen = Stacks(hide=("rmm", "cudf", "numpy")) if capture == "stack" else capture

    def source(device: int, stream: int, budget: Budget) -> SubAllocator:
        return cuda_sub_allocator(memory, device, handle_of(stream), budget=budget)

    def limit_of(device: int) -> int:
        return share.of(device, rmm.room(device), memory)

    make = Maker(RmmHeap, "rmm", source, limit_of, logs, table, options)
    return RmmServed(rmm, make, Capture(table, seen))


def observe_rmm(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.1,
    devices: Iterable[int] | None = None,
) -> RmmObserved:
    """Record what RMM's own resources are asked for, for the length of a `with`; a log adaptor is put around them.

    A thread reads the log `every_s` seconds after the last time. What was allocated before is not known; where it is
    freed meanwhile that is counted, and said in `says`.

    Args:
        log: where events of the device that is current now go; a recording brings its labels along. Further devices
            have rings in memory.
        labels: the table of labels; RMM's log names nobody.
        every_s: seconds between two readings.
        devices: numbers of those to observe, each of which gets a CUDA context. By default the current one and those
            that this process uses already.

    Raises:
        LiveError: RMM is not there or sees no GPU, or, on entering, it is observed already.
        InvalidRequest: a time that cannot be; on entering: a device that is not there.
    """
    if not 0 < every_s < 1 << 31:
        raise InvalidRequest(f"every_s={every_s} was given; give a time above 0, in seconds")
    rmm = Rmm("observed")
    first: EventLog | None
    first, table = log_and_labels(log, labels)

    def make(device: int) -> ObservedHeap:
        nonlocal first
        given, first = first, None
        return ObservedHeap(given, table, name=f"rmm:{device}", limit=rmm.total_memory(device), unit=UNIT)

    return RmmObserved(rmm, make, every_s, devices)
