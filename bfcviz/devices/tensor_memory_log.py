"""MemoryLog: a line for each tensor allocated and freed, with step, kernel, shape and type.

The heap's trace has the same facts: kernel, shape and dtype are name and details of the allocation's label, the
allocation id is the event's, and the step is the last mark named `step` before it.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import ClassVar, Final, Literal, NamedTuple, Protocol, Self

from bfcviz.allocator.interface import Allocator
from bfcviz.devices.element_types import ElementType
from bfcviz.devices.memory_access import innermost
from bfcviz.events.label_table import Labels
from bfcviz.live.labels_and_marks import number_in
from bfcviz.units import format_bytes

UNKNOWN_STEP: Final = -6  # TensorFlow's UNKNOWN_STEP_ID: the step of tensors created outside any step

STEP: Final = "step"  # label of the mark at the start of a step; its value is the step's number

UNKNOWN_KERNEL: Final = "Unknown"  # TensorFlow's kernel name for tensors without one

_phases = count(1 << 32)  # above the numbers of `bfcviz.phase`, which may be in the same trace
_KEEP: Final = 1 << 16
_names = Labels()  # labels of threads, for heaps without a label table


class Record(NamedTuple):
    """One line of the log of the memory of tensors; sizes in bytes. A `step` line has only its number.

    `allocation_id` is None if the allocator does not track it.
    """

    kind: Literal["step", "allocate", "free"]
    step_id: int
    kernel: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    requested: int = 0
    allocated: int = 0
    allocation_id: int | None = None
    allocator: str = ""
    address: int = 0

    def __str__(self) -> str:
        if self.kind == "step":
            return f"step {self.step_id} begins"
        when = "outside any step" if self.step_id == UNKNOWN_STEP else f"step {self.step_id}"
        which = f"allocation {self.allocation_id} of {self.allocator}"
        if self.kind == "free":
            return f"{when}: {which} is freed, {self.dtype} {list(self.shape)} of {self.kernel}"
        return (
            f"{when}: {self.kernel} allocates {self.dtype} {list(self.shape)}, {format_bytes(self.requested)} "
            f"in {format_bytes(self.allocated)}, {which}"
        )


class _CurrentStep(threading.local):
    """The step that each thread creates tensors in."""

    step = UNKNOWN_STEP


_current = _CurrentStep()


class MemoryLog:
    """Records every tensor allocated and freed, in all threads, while its `with` is open.

    Args:
        keep: most lines to keep; older ones are dropped.
    """

    _active: ClassVar[tuple["MemoryLog", ...]] = ()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, keep: int = _KEEP) -> None:
        self.records: deque[Record] = deque(maxlen=keep)
        self._alive: dict[tuple[str, int], Record] = {}

    @property
    def alive(self) -> list[Record]:
        """Tensors allocated since the start and not freed; at the end of a job, the leaks."""
        return list(self._alive.copy().values())

    def add(self, record: Record) -> None:
        """Add a line to the log of tensors; a `free` line gets the kernel, shape and id of its allocation."""
        key = (record.allocator, record.address)
        if record.kind == "allocate":
            self._alive[key] = record
        elif record.kind == "free" and (made := self._alive.pop(key, None)) is not None:
            record = made._replace(kind="free", step_id=record.step_id)
        self.records.append(record)

    def __enter__(self) -> Self:
        with MemoryLog._lock:
            MemoryLog._active = (*MemoryLog._active, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with MemoryLog._lock:
            MemoryLog._active = tuple(log for log in MemoryLog._active if log is not self)


@contextmanager
def step(number: int, *allocators: Allocator) -> Iterator[None]:
    """Make this thread's tensors part of step `number`; add a mark to the traces of these heaps."""
    before, _current.step = _current.step, number
    for allocator in allocators:
        mark(allocator, STEP, number)
    for log in MemoryLog._active:  # noqa: SLF001
        log.add(Record("step", number))
    try:
        yield
    finally:
        _current.step = before


def mark(allocator: Allocator, name: str, value: int = 0) -> None:
    """Add a mark to the trace of the heap that tensors come from, if it has one."""
    heap = innermost(allocator)
    if hasattr(heap, "mark"):
        heap.mark(name, value)


@contextmanager
def phase(allocator: Allocator, name: str) -> Iterator[None]:
    """Mark begin and end of a phase in the trace of the tensors' heap, as `bfcviz.phase` does."""
    heap = innermost(allocator)
    if not (hasattr(heap, "mark") and hasattr(heap, "labels")):
        yield
        return
    number = next(_phases)
    heap.mark(heap.labels.intern(f"{name} begins", begins=name), number)
    try:
        yield
    finally:
        heap.mark(heap.labels.intern(f"{name} ends", ends=name), number)


def current_kernel() -> str:
    """The kernel that tensors created now belong to: the name of this thread's innermost `bfcviz.label`."""
    return _names.name(number_in(_names)) or UNKNOWN_KERNEL


def label_of(allocator: Allocator, kernel: str, dtype: str, shape: tuple[int, ...]) -> str | int:
    """The label of a tensor's allocation; with details if the heap has a label table."""
    labels: Labels | None = getattr(innermost(allocator), "labels", None)
    if labels is None:
        return kernel
    return labels.intern(kernel, data_type=dtype, shape=f"[{','.join(map(str, shape))}]")


class LoggedBuffer(Protocol):
    """The memory of a tensor, as the log knows it."""

    allocator: Allocator
    address: int
    element: ElementType

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of the tensor."""


def log_allocation(buffer: LoggedBuffer, kernel: str, shape: tuple[int, ...]) -> None:
    """Record a tensor's allocation in all active logs."""
    if MemoryLog._active:  # noqa: SLF001
        heap = buffer.allocator
        tracked = heap.tracks_allocation_sizes() and buffer.address != 0
        _add_to_memory_logs(
            Record(
                "allocate",
                _current.step,
                kernel,
                buffer.element.name,
                shape,
                buffer.nbytes,
                heap.allocated_size(buffer.address) if tracked else buffer.nbytes,
                heap.allocation_id(buffer.address) if tracked else None,
                heap.name,
                buffer.address,
            )
        )


def log_free(buffer: LoggedBuffer) -> None:
    """Record a tensor's free in all active logs."""
    if MemoryLog._active:  # noqa: SLF001
        name, element = buffer.allocator.name, buffer.element.name
        _add_to_memory_logs(
            Record("free", _current.step, dtype=element, allocator=name, address=buffer.address)
        )


def _add_to_memory_logs(record: Record) -> None:
    """Add a line on a tensor to all active logs."""
    for log in MemoryLog._active:  # noqa: SLF001
        log.add(record)
