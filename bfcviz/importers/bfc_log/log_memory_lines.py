"""Read the `__LOG_MEMORY__` lines of a log as the history of the allocators that they name.

TensorFlow's `log_memory.cc` writes them, in TensorFlow 1 with `TF_CPP_MIN_VLOG_LEVEL=1`, later with
`TF_CPP_MAX_VLOG_LEVEL=1`: a line for each tensor that is allocated and freed, with address, sizes and kernel. They hold
neither regions nor failed requests.

::

    __LOG_MEMORY__ MemoryLogTensorAllocation { step_id: 2 kernel_name: "a0" tensor { dtype: DT_FLOAT
        shape { dim { size: 250000 } } allocation_description { requested_bytes: 1000000 allocated_bytes: 1000192
        allocator_name: "GPU_0_bfc" allocation_id: 3 has_single_reference: true ptr: 30076651520 } } }
    __LOG_MEMORY__ MemoryLogTensorDeallocation { allocation_id: 3 allocator_name: "GPU_0_bfc" }

The text has the fields of tensorflow/core/framework/log_memory.proto; a field with the value 0 is left out.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Origin, Pool, Status, end_missing
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.log_lines import LogRecord
from bfcviz.importers.event_makers import RecordedHistory, in_record_order
from bfcviz.importers.file_content import LABELS, MAX_NAME_BYTES, MEMORY_EVENTS, TEXT, Limits
from bfcviz.importers.file_format import Format

MARKER = "__LOG_MEMORY__"
_MESSAGE = re.compile(rf"{MARKER} MemoryLog(\w{{1,40}}) {{")
_NUMBER = re.compile(
    r"\b(step_id|requested_bytes|allocated_bytes|num_bytes|allocation_id|ptr): (-?\d{1,20})\b"
)
_TEXT = re.compile(r'\b(kernel_name|operation|allocator_name): "([^"\n]*)"')
_DTYPE = re.compile(r"\bdtype: (?:DT_)?(\w{1,40})")
_SHAPE = re.compile(r"\bshape \{([^\n]*?)\} (?:allocation_description|\})")
_SIZE = re.compile(r"\bsize: (-?\d{1,20})")


class TensorMemoryLine(NamedTuple):
    """One `__LOG_MEMORY__` line of a log. Numbers are 0 and texts "" where they are left out."""

    # `TensorAllocation`, `TensorDeallocation`, `TensorOutput`, `RawAllocation`, `RawDeallocation`, `Step`.
    kind: str
    step: int
    requested: int
    allocated: int  # bytes of the chunk; the requested bytes if the allocator does not tell
    allocation_id: int
    address: int
    kernel: str  # name of the operation
    allocator: str
    dtype: str
    shape: str
    is_whole: bool  # the message is complete

    @property
    def has_memory(self) -> bool:
        """Whether address and sizes of the line can be those of an allocation; a tensor without elements has none."""
        half = 1 << 63  # processes use the lower half of all addresses
        return self.address > 0 and 0 < self.requested <= self.allocated < half - self.address

    def label(self, labels: Labels, limits: Limits) -> int:
        """The number of the label of a `__LOG_MEMORY__` line; 0 without a name.

        Raises:
            FileError: the log holds more labels than a file of its size may.
        """
        details = {"data_type": self.dtype, "shape": self.shape}
        details = {name: text for name, text in details.items() if text}
        if not self.kernel and not details:
            return 0
        known = len(labels)
        number = labels.intern(self.kernel, **details)
        if len(labels) > known:
            limits.count(LABELS, 1)
            limits.count(TEXT, len(self.kernel) + len(self.shape))
        return number


def tensor_memory_line(message: str) -> TensorMemoryLine | None:
    """The `__LOG_MEMORY__` line in a log record; None if it has none."""
    found = _MESSAGE.match(message)
    if found is None:
        return None
    text = message.split("\n", 1)[0][: 4 * MAX_NAME_BYTES]
    numbers = {name: int(value) for name, value in _NUMBER.findall(text)}
    texts = {name: value[:MAX_NAME_BYTES] for name, value in _TEXT.findall(text)}
    dtype, shape = _DTYPE.search(text), _SHAPE.search(text)
    requested = numbers.get("requested_bytes", numbers.get("num_bytes", 0))
    return TensorMemoryLine(
        kind=found[1],
        step=numbers.get("step_id", 0),
        requested=requested,
        allocated=numbers.get("allocated_bytes", requested),
        allocation_id=numbers.get("allocation_id", 0),
        address=numbers.get("ptr", 0),
        kernel=texts.get("kernel_name", texts.get("operation", "")),
        allocator=texts.get("allocator_name", ""),
        dtype=dtype[1].lower() if dtype else "",
        shape="[" + ",".join(_SIZE.findall(shape[1])) + "]" if shape else "",
        is_whole=text.rstrip().endswith("}") and text.count("{") == text.count("}"),
    )


def holds_log_memory(text: str) -> bool:
    """Whether a log holds `__LOG_MEMORY__` lines with allocations of tensors."""
    return f"{MARKER} MemoryLogTensorAllocation" in text or f"{MARKER} MemoryLogRawAllocation" in text


def read_log_memory(records: Iterable[LogRecord], path: Path, cut: Sequence[str] = ()) -> Trace:
    """The history in the `__LOG_MEMORY__` lines of a log; arguments as for `read_vlog`.

    Raises:
        FileError: there is no allocation in it, or the file holds more than one of its size may.
    """
    labels = Labels()
    reader = _TensorMemoryReader(labels, Limits.of(path))
    for record in records:
        reader.take(record)
    # The heaps of devices come first.
    heaps = sorted(reader.heaps.values(), key=lambda heap: "bfc" not in heap.name.lower())
    if not any(heap.allocations for heap in heaps):
        raise FileError(path, "", "a log of TensorFlow without a line that says where a tensor was allocated")
    shown = heaps[:MAX_POOLS]
    missing = (*cut, *reader.cut())
    left_out = [f"left out: {count} {what}" for what, count in reader.left_out.items()]
    if len(heaps) > MAX_POOLS:
        left_out.append(
            f"{len(heaps) - MAX_POOLS} of {len(heaps)} heaps were left out; a trace holds {MAX_POOLS}"
        )
    origin = Origin(
        format=Format.TENSORFLOW_LOG.value,
        source=path.name,
        status=Status.DEGRADED,
        reasons=(*missing, *(reason for heap in shown for reason in heap.reasons()), *left_out),
        pools=tuple(Pool(heap.name, options={"allocator_name": heap.name}) for heap in shown),
        details={
            "framework": "tensorflow",
            "facts": [dict.fromkeys(REGION_FACTS) for _ in shown],
            **end_missing(missing),
        },
    )
    return Trace.from_events(
        in_record_order([heap.history.events() for heap in shown], reader.times), labels, origin
    )


class _TensorHeap:
    """The history of one allocator that `__LOG_MEMORY__` lines name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.history = RecordedHistory()
        self.allocations = 0
        self._live: dict[int, int] = {}  # allocation id -> address
        self._ids: dict[int, int] = {}  # the same, by address
        self._concluded = 0

    def allocate(self, found: TensorMemoryLine, label: int) -> None:
        """Take the line of an allocation. The same number again is the same memory, used by another kernel."""
        number = found.allocation_id
        if number and self._live.get(number) == found.address:
            return
        ledger = self.history.ledger
        if ledger.is_in_use(found.address):  # its free was not logged
            ledger.free(found.address)
            self._live.pop(self._ids.pop(found.address, 0), None)
            self._concluded += 1
        self.allocations += 1
        before = ledger.inconsistencies.left_out
        ledger.allocate(found.address, found.allocated, found.requested, label)
        if number and ledger.inconsistencies.left_out == before:
            self._live[number] = found.address
            self._ids[found.address] = number

    def free(self, number: int) -> None:
        """Take a free of a `__LOG_MEMORY__` line."""
        address = self._live.pop(number, 0)
        self._ids.pop(address, None)
        self.history.ledger.free(address)

    def reasons(self) -> list[str]:
        """What the `__LOG_MEMORY__` lines do not say."""
        regions = (
            f"heap {self.name!r}: the log does not hold regions; the picture shows the memory that its "
            f"{self.allocations} tensors used. The memory of kernels without a tensor is missing"
        )
        reasons = [regions]
        if self._concluded:
            reasons.append(
                f"heap {self.name!r}: {self._concluded} frees were concluded from later allocations"
            )
        if words := self.history.inconsistencies.words():
            reasons.append(f"heap {self.name!r}: {words}")
        return reasons


class _TensorMemoryReader:
    """Takes the records of a log with `__LOG_MEMORY__` lines one by one."""

    def __init__(self, labels: Labels, limits: Limits) -> None:
        self.heaps: dict[tuple[str, str], _TensorHeap] = {}
        self.times = array("q")
        self.left_out = Counter[str]()
        self._labels = labels
        self._limits = limits
        self._step = labels.intern("step")
        self._last: tuple[int, bool] = 0, True

    def take(self, record: LogRecord) -> None:
        """Take one record of a log, which may be a `__LOG_MEMORY__` line."""
        time = record.time if record.time is not None else self.times[-1] if self.times else 0
        self.times.append(time)
        found = tensor_memory_line(record.message)
        self._last = record.line, found is None or found.is_whole
        if found is None:
            return
        self._limits.count(MEMORY_EVENTS, 1)
        if found.kind == "Step":
            self._mark(found.step)
        elif found.kind in ("TensorAllocation", "RawAllocation"):
            self._allocate(record, found)
        elif found.kind in ("TensorDeallocation", "RawDeallocation"):
            if found.allocation_id:
                self._heap(record, found).free(found.allocation_id)
            else:
                self.left_out["frees without the number of their allocation"] += 1

    def cut(self) -> list[str]:
        """Why the end of the `__LOG_MEMORY__` lines is missing."""
        line, is_whole = self._last
        return [] if is_whole else [f"the log is cut off in line {line}"]

    def _allocate(self, record: LogRecord, found: TensorMemoryLine) -> None:
        if found.has_memory:
            self._heap(record, found).allocate(found, found.label(self._labels, self._limits))
        elif found.address or found.requested or not found.is_whole:
            self.left_out["allocations without an address or a size, or with impossible ones"] += 1

    def _heap(self, record: LogRecord, found: TensorMemoryLine) -> _TensorHeap:
        key = record.writer, found.allocator
        heap = self.heaps.get(key)
        if heap is None:
            heap = self.heaps[key] = _TensorHeap(" ".join(filter(None, key)) or "allocator without a name")
        heap.history.at(len(self.times) - 1)
        return heap

    def _mark(self, step: int) -> None:
        """Mark the begin of a step of `__LOG_MEMORY__` lines in the first heap."""
        heap = next(iter(self.heaps.values()), None)
        if heap is not None and step > 0:
            heap.history.at(len(self.times) - 1)
            heap.history.mark(self._step, step)
