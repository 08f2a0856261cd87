"""MemoryLog: which kernel of which step made a tensor, of what shape and type, and when it went.

The same stands in the heap's trace: kernel, shape and dtype are name and details of the allocation's label, its id is
the event's, and the step is the last mark called `step` before it.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, Self

from bfcviz.allocator.interface.protocol import Allocator
from bfcviz.devices.tensors.memory_place import innermost
from bfcviz.events.labels import Labels
from bfcviz.live.capture.labels import number_in
from bfcviz.units import format_bytes

if TYPE_CHECKING:
    from bfcviz.devices.tensors.buffer import TensorBuffer

UNKNOWN_STEP: Final = -6
"""TensorFlow's UNKNOWN_STEP_ID: of tensors made outside any step."""

STEP: Final = "step"
"""The label of the mark that a step begins with; its value is the step's number."""

UNKNOWN_KERNEL: Final = "Unknown"
"""TensorFlow's name for who made a tensor, where nobody said so."""

_phases = count(1 << 32)  # far from the numbers of `bfcviz.phase`, which may be in the same trace
_KEEP: Final = 1 << 16
_names = Labels()  # of threads' labels, for heaps that have no table of their own


class Record(NamedTuple):
    """One line of the log; sizes in bytes. A `step` line has nothing but its number.

    `allocation_id` is None where the allocator tracks none.
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
            return f"{when}: {which} goes back, {self.dtype} {list(self.shape)} of {self.kernel}"
        return (
            f"{when}: {self.kernel} makes {self.dtype} {list(self.shape)}, {format_bytes(self.requested)} "
            f"in {format_bytes(self.allocated)}, {which}"
        )


class _Thread(threading.local):
    step = UNKNOWN_STEP


_thread = _Thread()


class MemoryLog:
    """Takes down every tensor made and given back, in all threads, for the length of a `with`.

    Args:
        keep: lines to keep at most, the newest.

    Attributes:
        records: the lines.
    """

    _under_way: ClassVar[tuple["MemoryLog", ...]] = ()
    _changing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, keep: int = _KEEP) -> None:
        self.records: deque[Record] = deque(maxlen=keep)
        self._alive: dict[tuple[str, int], Record] = {}

    @property
    def alive(self) -> list[Record]:
        """Tensors made meanwhile that have not gone: at the end of a job, those that leaked."""
        return list(self._alive.copy().values())

    def add(self, record: Record) -> None:
        """Take a line down; it is told who made what goes back."""
        key = (record.allocator, record.address)
        if record.kind == "allocate":
            self._alive[key] = record
        elif record.kind == "free" and (made := self._alive.pop(key, None)) is not None:
            record = made._replace(kind="free", step_id=record.step_id)
        self.records.append(record)

    def __enter__(self) -> Self:
        with MemoryLog._changing:
            MemoryLog._under_way = (*MemoryLog._under_way, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with MemoryLog._changing:
            MemoryLog._under_way = tuple(log for log in MemoryLog._under_way if log is not self)


@contextmanager
def step(number: int, *allocators: Allocator) -> Iterator[None]:
    """What this thread does is part of step `number`; the traces of these heaps get a mark."""
    before, _thread.step = _thread.step, number
    for allocator in allocators:
        mark(allocator, STEP, number)
    for log in MemoryLog._under_way:  # noqa: SLF001
        log.add(Record("step", number))
    try:
        yield
    finally:
        _thread.step = before


def mark(allocator: Allocator, name: str, value: int = 0) -> None:
    """Put a mark into the trace of a heap, if it has one."""
    heap = innermost(allocator)
    if hasattr(heap, "mark"):
        heap.mark(name, value)


@contextmanager
def phase(allocator: Allocator, name: str) -> Iterator[None]:
    """Marks in the trace of a heap where a phase begins and ends, as those of `bfcviz.phase`."""
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


def kernel_now() -> str:
    """What this thread is busy with, by `bfcviz.label`."""
    return _names.name(number_in(_names)) or UNKNOWN_KERNEL


def label_of(allocator: Allocator, kernel: str, dtype: str, shape: tuple[int, ...]) -> str | int:
    """The label of a tensor's allocation: with details where the heap has a table for them."""
    labels: Labels | None = getattr(innermost(allocator), "labels", None)
    if labels is None:
        return kernel
    return labels.intern(kernel, data_type=dtype, shape=f"[{','.join(map(str, shape))}]")


def allocated(buffer: "TensorBuffer", kernel: str, shape: tuple[int, ...]) -> None:
    """Tell all logs of new memory."""
    if MemoryLog._under_way:  # noqa: SLF001
        heap = buffer.allocator
        tracked = heap.tracks_allocation_sizes() and buffer.address != 0
        _tell(
            Record(
                "allocate",
                _thread.step,
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


def freed(buffer: "TensorBuffer") -> None:
    """Tell all logs of memory that goes back."""
    if MemoryLog._under_way:  # noqa: SLF001
        name, element = buffer.allocator.name, buffer.element.name
        _tell(Record("free", _thread.step, dtype=element, allocator=name, address=buffer.address))


def _tell(record: Record) -> None:
    for log in MemoryLog._under_way:  # noqa: SLF001
        log.add(record)
