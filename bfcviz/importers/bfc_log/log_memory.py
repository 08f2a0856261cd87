"""Read `__LOG_MEMORY__` lines as the history of the allocators that they name.

A log of TensorFlow 1 with `TF_CPP_MIN_VLOG_LEVEL=1` has a line for each tensor that is allocated and freed, with
address, sizes and kernel. It holds neither regions nor failed requests.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bfcviz.errors import FileError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Origin, Pool, Status
from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.grammar import MARKER, LogRecord, TensorMemory, tensor_memory
from bfcviz.importers.file_content import MEMORY_EVENTS, Limits
from bfcviz.importers.file_format import Format
from bfcviz.importers.heap_state import in_record_order
from bfcviz.importers.recorded_history import RecordedHistory


def holds_log_memory(text: str) -> bool:
    """Whether a log holds allocations of tensors."""
    return f"{MARKER} MemoryLogTensorAllocation" in text or f"{MARKER} MemoryLogRawAllocation" in text


def read_log_memory(records: Iterable[LogRecord], path: Path, cut: Sequence[str] = ()) -> Trace:
    """The history in the `__LOG_MEMORY__` lines of a log.

    Args:
        records: of the file, in order.
        path: of the file.
        cut: why the end of the file is missing, if it is.

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
        details={"framework": "tensorflow", "facts": [dict.fromkeys(REGION_FACTS) for _ in shown]},
    )
    return Trace.from_events(
        in_record_order([heap.history.events() for heap in shown], reader.times), labels, origin
    )


class _TensorHeap:
    """The history of one allocator."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.history = RecordedHistory()
        self.allocations = 0
        self._live: dict[int, int] = {}  # allocation id -> address
        self._ids: dict[int, int] = {}  # the same, by address
        self._concluded = 0

    def allocate(self, found: TensorMemory, label: int) -> None:
        """Take an allocation. The same number again is the same memory, used by another kernel."""
        number = found.allocation_id
        if number and self._live.get(number) == found.address:
            return
        ledger = self.history.ledger
        if found.address in ledger.in_use:  # its free was not logged
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
        """Take a free."""
        address = self._live.pop(number, 0)
        self._ids.pop(address, None)
        self.history.ledger.free(address)

    def reasons(self) -> list[str]:
        """What the lines do not say."""
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
    """Takes records one by one."""

    def __init__(self, labels: Labels, limits: Limits) -> None:
        self.heaps: dict[tuple[str, str], _TensorHeap] = {}
        self.times: list[int] = []
        self.left_out = Counter[str]()
        self._labels = labels
        self._limits = limits
        self._step = labels.intern("step")
        self._last: tuple[int, bool] = 0, True

    def take(self, record: LogRecord) -> None:
        """Take one record, of any kind."""
        time = record.time if record.time is not None else self.times[-1] if self.times else 0
        self.times.append(time)
        found = tensor_memory(record.message)
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
        """Why the end is missing."""
        line, is_whole = self._last
        return [] if is_whole else [f"the log is cut off in line {line}"]

    def _allocate(self, record: LogRecord, found: TensorMemory) -> None:
        if found.has_memory:
            self._heap(record, found).allocate(found, found.label(self._labels, self._limits))
        elif found.address or found.requested or not found.is_whole:
            self.left_out["allocations without an address or a size, or with impossible ones"] += 1

    def _heap(self, record: LogRecord, found: TensorMemory) -> _TensorHeap:
        key = record.writer, found.allocator
        heap = self.heaps.get(key)
        if heap is None:
            heap = self.heaps[key] = _TensorHeap(" ".join(filter(None, key)) or "allocator without a name")
        heap.history.at(len(self.times) - 1)
        return heap

    def _mark(self, step: int) -> None:
        """Mark the begin of a step in the first heap."""
        heap = next(iter(self.heaps.values()), None)
        if heap is not None and step > 0:
            heap.history.at(len(self.times) - 1)
            heap.history.mark(self._step, step)
