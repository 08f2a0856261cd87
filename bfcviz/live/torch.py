"""PyTorch's CUDA memory: served from instrumented heaps, or observed through its own memory history.

By way of a memory pool, which can begin at any time, PyTorch's caching allocator stays between: chunks are its segments
of 2 MiB and more. Memory that `record_stream` was called on is not used again before the end, for PyTorch puts that off
while a pool is in use. When memory runs out PyTorch raises its OutOfMemoryError.

Replacing the allocator shows every tensor; it must be done before CUDA is first used and stays for good, and CUDA
graphs must not be captured meanwhile: a heap cannot keep what they used. There `record_stream` is honoured by events.
When memory runs out RuntimeError is raised ("CUDA out of memory. ..."), by a C++ exception thrown through PyTorch, for
it would take a NULL for an address.
"""

from typing import Literal

from bfcviz.allocator.options import AllocatorOptions
from bfcviz.allocator.sub_allocators import cuda_driver
from bfcviz.allocator.sub_allocators.base import SubAllocator
from bfcviz.allocator.sub_allocators.cuda import Budget, cuda_sub_allocator
from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.recording import Recording
from bfcviz.live.lent import OPTIONS
from bfcviz.live.observed import log_and_labels
from bfcviz.live.stacks import Capture, Chosen
from bfcviz.live.torch_observed import TorchObserved
from bfcviz.live.torch_served import TorchServed, Way
from bfcviz.units import parse_bytes


def serve_torch(
    limit: int | str | None = None,
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    way: Way = "pool",
    capture: Literal["nothing", "label"] = "label",
    options: AllocatorOptions = OPTIONS,
) -> TorchServed:
    """Let PyTorch's CUDA memory come from instrumented heaps, one a stream, for the length of a `with`.

    ::

        with serve_torch(log=recording) as served:
            train()

    Args:
        limit: of each device's heaps together, in bytes or as text. By default all of the device's memory.
        log: where events of the first stream's heap go; a recording brings its labels along. By default, and for the
            heaps of further streams, a ring in memory.
        labels: where the names that `labels.label` gives are interned.
        way: `pool`, or `replace`; see above.
        capture: what is recorded with each allocation: `nothing`, or the `label` in force.
        options: how the heaps behave.

    Raises:
        ValueError: a limit that is no size.
        InvalidRequest: a way there is not.
        LiveError: stacks are wanted, which PyTorch's functions cannot see; on entering: PyTorch is not there, sees no
            GPU, has less than the limit, or cannot be served this way now.
    """
    if way not in ("pool", "replace"):
        raise InvalidRequest(f"PyTorch was to be served by way {way!r}; there are 'pool' and 'replace'")
    size = None if limit is None else parse_bytes(limit)
    if size is not None and not 1 <= size <= 1 << 62:
        raise InvalidRequest(f"a limit of {size} bytes was given; give one from 1 to 2^62")
    log, labels = log_and_labels(log, labels)
    captured = Capture(labels, capture)
    if captured.walker is not None:
        raise LiveError(
            "PyTorch was to be served with Python's stack at each allocation, but it asks for memory without Python's "
            "lock, where there is no stack to be seen: give capture='label', or observe it, observe_torch"
        )
    return TorchServed(size, way, log, captured, options, _memory)


def observe_torch(
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.2,
    max_entries: int = 100_000,
    capture: Chosen = "stack",
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

    Raises:
        InvalidRequest: times or numbers that cannot be.
        LiveError: `capture` is none of these; on entering: PyTorch is not there, sees no GPU, or tells no history.
    """
    if not 0 < every_s < 1 << 31 or max_entries < 1:
        raise InvalidRequest(
            f"every_s={every_s} and max_entries={max_entries} were given; give a time and a number above 0"
        )
    log, labels = log_and_labels(log, labels)
    if capture not in ("nothing", "label", "stack"):
        raise LiveError(f"capture={capture!r} was asked for; choose nothing, label or stack")
    return TorchObserved(log, labels, every_s, max_entries, capture)


class _Gpu:
    """Memory of the machine's GPUs, asked of the driver: PyTorch would begin to use CUDA if it were asked."""

    def total(self, device: int) -> int:
        return cuda_driver.load().total_memory(device)

    def source(self, device: int, budget: Budget) -> SubAllocator:
        return cuda_sub_allocator("device", device, budget=budget)


_memory = _Gpu()
