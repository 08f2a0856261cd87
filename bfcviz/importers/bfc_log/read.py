"""Read a log of TensorFlow, XLA or JAX: each dump of a heap becomes a pool of the trace."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bfcviz.errors import FileError, TraceError
from bfcviz.events.labels import Labels
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, STATE_ONLY, Origin, Pool, Status
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.formats import onnxruntime
from bfcviz.formats.xla import JAX_WORDS, REACTANT, TENSORFLOW_WORDS
from bfcviz.importers.bfc_log.dump import Dump, DumpCollector, Note
from bfcviz.importers.bfc_log.failed_pool import RERUN, FailedPool, attach_errors, buffer_tables, failed_pool
from bfcviz.importers.bfc_log.grammar import (
    CHUNK_LINES,
    MARKER,
    LogRecord,
    LogText,
    TensorMemory,
    log_text,
    records,
    tensor_memory,
)
from bfcviz.importers.bfc_log.vlog import holds_regions, holds_requests, read_vlog
from bfcviz.importers.file_content import MEMORY_EVENTS, UNPACKED_TEXT, Limits, read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.join_heaps import in_record_order, one_after_another
from bfcviz.importers.messages import device_at_start
from bfcviz.importers.recorded_history import RecordedHistory

# ------------------------------------------------------------------------------
# Read `__LOG_MEMORY__` lines as the history of the allocators that they name.
#
# A log of TensorFlow 1 with `TF_CPP_MIN_VLOG_LEVEL=1` has a line for each tensor that is allocated and freed, with
# address, sizes and kernel. It holds neither regions nor failed requests.


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


# ------------------------------------------------------------------------------
# Choose how to read a log: as a history, or as the states of its dumps.

HistoryReader = Callable[[Iterable[LogRecord], Path, Sequence[str]], Trace]


def history_reader(text: str) -> HistoryReader | None:
    """What reads the history in a log; None if it holds none, or only regions beside the dump of a failure."""
    if holds_requests(text):
        return read_vlog
    if holds_log_memory(text):
        return read_log_memory
    return read_vlog if holds_regions(text) and "ran out of memory trying" not in text else None


# ------------------------------------------------------------------------------
# Read a log of TensorFlow, XLA or JAX: each dump of a heap becomes a pool of the trace.

_NO_NAME: Final = "BFC allocator"


def read_log(path: Path) -> Trace:
    """The trace in a log: the history of its heaps, or else one pool for each dump, in the order of the file.

    Raises:
        FileError: the file cannot be read, or holds no line about the memory of a BFC allocator.
    """
    content = read_content(path, unpacked=UNPACKED_TEXT)
    log = log_text(content.data)
    read_history = history_reader(log.text)
    if read_history is not None:
        return read_history(records(log), path, [] if content.cut is None else [content.cut])
    collector = DumpCollector()
    collector.take_all(records(log, CHUNK_LINES.pattern))
    dumps = attach_errors(collector.dumps, collector.texts)
    dumps += _for_notes(dumps, collector.notes)
    if not dumps:
        raise FileError(path, "", f"the log holds no dump of a BFC allocator and no failed request; {RERUN}")
    labels = Labels()
    kept = dumps[:MAX_POOLS]
    try:
        pools = _failed_pools(kept, collector.notes, labels)
        reasons = _bfc_log_reasons(pools)
        if collector.left_out or len(dumps) > MAX_POOLS:
            reasons.append(_dumps_left_out(dumps, collector))
        status = _bfc_log_status(pools, reasons)
        if content.cut is not None:
            reasons.append(content.cut)
            status = Status.TRUNCATED if status is Status.COMPLETE else status
        origin = Origin(
            format=Format.TENSORFLOW_LOG.value,
            source=path.name,
            status=status,
            reasons=tuple(reasons),
            pools=tuple(each.pool for each in pools),
            details=_bfc_log_details(kept, pools, log),
        )
        return Trace.from_events(_joined_pool_events(pools), labels, origin)
    except TraceError as error:
        raise FileError(path, f"from line {dumps[0].line}", str(error)) from None


def _for_notes(dumps: list[Dump], notes: list[Note]) -> list[Dump]:
    """A heap without a dump for each allocator that only has lines beside dumps."""
    known = {dump.name for dump in dumps}
    names = dict.fromkeys(note.name for note in notes if note.name not in known)
    if dumps or len(names) > 1:
        names.pop("", None)  # belongs to the others
    first = {note.name: note for note in reversed(notes)}
    return [Dump(first[name].line, first[name].time, name) for name in names]


def _failed_pools(dumps: list[Dump], notes: list[Note], labels: Labels) -> list[FailedPool]:
    counts: dict[str, int] = defaultdict(int)
    writers = len({dump.writer for dump in dumps}) > 1
    mine = _notes_of(dumps, notes)
    found = []
    for place, dump in enumerate(dumps):
        name = dump.name or _NO_NAME
        if writers and dump.writer:
            name = f"{name} {dump.writer}"
        counts[name] += 1
        number = counts[name]
        shown = name if number == 1 else f"{name} (dump {number})"
        found.append(failed_pool(dump, shown, number, mine[place], labels))
    return found


def _notes_of(dumps: list[Dump], notes: list[Note]) -> dict[int, list[Note]]:
    """Each note belongs to the next dump of its allocator, or to the last one."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, dump in enumerate(dumps):
        for key in {(dump.name, dump.writer), (dump.name, ""), ("", dump.writer), ("", "")}:
            places[key].append(place)
    mine: dict[int, list[Note]] = defaultdict(list)
    for note in notes:
        fitting = places.get((note.name, note.writer)) or places.get((note.name, "")) or places["", ""]
        later = (place for place in fitting if dumps[place].line > note.line)
        mine[next(later, fitting[-1])].append(note)
    return mine


def _bfc_log_reasons(pools: list[FailedPool]) -> list[str]:
    reasons = []
    for each in pools:
        wrong = [*each.findings.wrong, *filter(None, [each.findings.cut])]
        reasons += [f"{each.pool.name}: {why}" for why in wrong]
    return reasons


def _dumps_left_out(dumps: list[Dump], collector: DumpCollector) -> str:
    more = dumps[MAX_POOLS:]
    line = more[0].line if more else collector.left_out_line
    return (
        f"the log holds more than {MAX_POOLS} dumps and failures, the most that a trace can hold: at least "
        f"{len(more) + collector.left_out:,} from line {line:,} on were left out; cut the log there to open them"
    )


def _bfc_log_status(pools: list[FailedPool], reasons: list[str]) -> Status:
    if not reasons:
        return Status.COMPLETE
    only_end = len(reasons) == 1 and pools[-1].findings.cut and not pools[-1].findings.wrong
    return Status.TRUNCATED if only_end else Status.DEGRADED


def _bfc_log_details(dumps: list[Dump], pools: list[FailedPool], log: LogText) -> dict[str, Any]:
    failures, end, text, device = [], 0, log.text, device_at_start(log.text)
    for each in pools:
        end += len(each.events)
        if each.failure is not None:
            failures.append(replace(each.failure, event=end - 1, **device).to_json())
    details: dict[str, Any] = {
        "history": STATE_ONLY,
        "facts": [each.facts for each in pools],
        "totals": [each.totals for each in pools],
        "failures": failures,
        "framework": _bfc_log_framework(text),
        "framework_version": _bfc_log_framework_version(text),
        "stats": [each.stats for each in pools],
        "lines": [dump.line for dump in dumps],
        "occupancy": [dump.strip for dump in dumps],
    }
    tables = buffer_tables(text)
    return details | ({"buffers": tables} if tables else {})


def _bfc_log_framework(text: str) -> str:
    if onnxruntime.SOURCE in text:
        return "onnxruntime"
    if any(word in text for word in TENSORFLOW_WORDS):
        return "tensorflow"
    if REACTANT in text:
        return "reactant"
    return "jax" if any(word in text for word in JAX_WORDS) else "tensorflow"


_FIRST_OF_2: Final = "2019-09"
"""The month of TensorFlow 2.0."""

_MONTH: Final = re.compile(r"^(20[12]\d-\d\d)-\d\d \d\d:", re.MULTILINE)


def _bfc_log_framework_version(text: str) -> str:
    """`1.x` for a log that TensorFlow 1 wrote, as its date or the way it prints nodes tells; "" for others."""
    month = _MONTH.search(text)
    is_old = "[[Node:" in text or (month is not None and month[1] < _FIRST_OF_2)
    return "1.x" if is_old else ""


def _joined_pool_events(pools: list[FailedPool]) -> Events:
    """The events of all pools; times count from the first one, and do not decrease within a pool."""
    events = one_after_another([each.events for each in pools])
    times = events["time"]
    known = times[times != 0]
    if len(known):
        first = int(known.min())
        events["time"] = (times - first) * (times != 0)
    return events
