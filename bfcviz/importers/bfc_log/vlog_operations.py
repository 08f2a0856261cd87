"""Collect what each heap did from a VLOG stream of `bfc_allocator.cc` (`TF_CPP_VMODULE=bfc_allocator=4`).

What a level adds to those below it (tsl/framework/bfc_allocator.cc):

=====  =========================================================================================================
level  records
=====  =========================================================================================================
1      `Creating new BFCAllocator named: <name>`, `Extending allocation by <size> bytes for <name>.`,
       `Allocated memory at <P> to <Q>`
2      `New Peak memory usage of <bytes> bytes for <name>`, `Deallocate region with ptr = <P>`
3      `AllocateRaw <name>  <bytes>`, the same with the address (0: it failed), `DeallocateRaw <name> <bytes>`
4      `Returning: <P>`, `F: <strip>`, `[mem-debug] AllocateRaw,<name>,<bytes>,<P>,<stack>`, and of DeallocateRaw
=====  =========================================================================================================

The heap holds its lock for `Returning:` and `F:`, so their order is that of its operations. The other records of an
operation are written before or after, and those of other threads may lie between them.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from bfcviz.events.labels import Labels
from bfcviz.importers.bfc_log.grammar import LogRecord, tensor_memory
from bfcviz.importers.file_content import LABELS, MAX_NAME_BYTES, MEMORY_EVENTS, TEXT, Limits
from bfcviz.importers.tensorflow.requests import ABSENT
from bfcviz.native import MIN_CHUNK
from bfcviz.units import parse_bytes

# ------------------------------------------------------------------------------
# What a VLOG stream holds: heaps, and the operations of each.


class Act(Enum):
    """What a heap did."""

    ALLOCATE = "allocate"
    FREE = "free"
    FAIL = "fail"
    EXTEND = "extend"
    RELEASE = "release"


@dataclass(slots=True)
class VlogOperation:
    """One thing that a heap did.

    Attributes:
        order: its place in the log, in the order of the heap's lock.
        address: 0 if unknown or none.
        requested: bytes asked for; EXTEND: granted.
        bytes_in_use: after it; ABSENT if not logged.
        rounded: FAIL: the request after rounding; None if not logged.
        is_exact: FAIL: `requested` is not a printed size of three or four digits.
        is_soft: FAIL: the caller has another way without this memory.
    """

    act: Act
    order: int
    address: int = 0
    requested: int = 0
    label: int = 0
    thread: int = 0
    bytes_in_use: int = ABSENT
    rounded: int | None = None
    is_exact: bool = True
    is_soft: bool = False
    op: str = ""


@dataclass
class VlogHeap:
    """What the log holds of one heap.

    Attributes:
        name: of the allocator.
        writer: tag of its process.
        created: the log holds its creation.
        has_level_4: the log holds the address of each free.
        operations: in the order of the log.
        allocating: threads in the middle of an allocation, with its size.
    """

    name: str
    writer: str
    created: bool = False
    has_level_4: bool = False
    operations: list[VlogOperation] = field(default_factory=list)
    allocating: dict[str, str] = field(default_factory=dict)

    def unfinished_frees(self) -> list[VlogOperation]:
        """Frees that end a thread's part of the log, before the record with their address."""
        last = {each.thread: each for each in self.operations}
        frees = (each for each in last.values() if each.act is Act.FREE and not each.address)
        return list(frees) if self.has_level_4 else []


@dataclass
class VlogStream:
    """All heaps of a log.

    Attributes:
        heaps: in the order of their first records.
        times: ns of each record by `order`; the time before it where a record has none.
        threads: name of each thread by number, from 1.
        left_out: number of unusable records, by reason.
        uncertain_failures: failed requests that may have been optional ones.
        last_line: of the file, of the last record.
    """

    heaps: list[VlogHeap]
    times: list[int]
    threads: dict[int, str]
    left_out: Counter[str]
    uncertain_failures: int = 0
    last_line: int = 0


# ------------------------------------------------------------------------------
# VlogThread: a thread of a VLOG stream, with its operations whose records are not complete yet.

_RECENT = 64
"""The most operations in each queue of a thread."""

_Recent = deque[VlogOperation]


class VlogThread:
    """What one thread is doing. Where records name no threads, this is what all do; so it holds some operations.

    Attributes:
        number: of the thread, from 1.
        heap: of its last record with a name.
        last: its last operation.
        allocated: operations whose record of level 4 was not seen yet.
        freed: the same.
        failed: the record of the failure was seen, but not yet that of the end of the request.
        peak: bytes in use, from a record of level 2.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.heap: VlogHeap | None = None
        self.last: VlogOperation | None = None
        self.allocated, self.freed, self.failed = (_Recent(maxlen=_RECENT) for _ in range(3))
        self.peak = ABSENT


def taken(recent: _Recent, address: int | None, requested: int) -> VlogOperation | None:
    """Take the first operation with this address and size; None: any address."""
    for place, operation in enumerate(recent):
        if operation.requested == requested and address in (None, operation.address):
            del recent[place]
            return operation
    return None


# ------------------------------------------------------------------------------
# Labels from the C++ stacks that `bfc_allocator.cc` logs at level 4.

_BEGIN, _END = "*** Begin stack trace ***", "*** End stack trace ***"
_INSIDE = re.compile(
    r"(?:tsl|tensorflow|stream_executor|xla)::(?:CurrentStackTrace|BFCAllocator::|Tensor::Tensor\()"
)
_COMPUTE = re.compile(r"(.{1,1000}?)::Compute(?:Async)?\(")
_NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|\w{1,200})::")
_DEVICE = re.compile(r"\b\w{1,40}Device(?:, )?")
_OUTER = re.compile(r"^(?:tensorflow|tsl|xla|stream_executor)::")


class LogStackLabels:
    """Interns each distinct stack once: the name is the operation that allocated, the detail `stack` the frames."""

    def __init__(self, labels: Labels, limits: Limits) -> None:
        self._labels = labels
        self._limits = limits
        self._known: dict[str, int] = {}

    def label(self, text: str) -> int:
        """The label of the stack in a record after its address; 0 if it has none. Frames without a name are dropped.

        Raises:
            FileError: the log holds more labels than a file of its size may.
        """
        begin = text.find(_BEGIN)
        if begin < 0:
            return 0
        end = text.find(_END, begin)
        raw = text[begin + len(_BEGIN) : end if end >= 0 else len(text)][:MAX_NAME_BYTES]
        number = self._known.get(raw)
        if number is None:
            number = self._known[raw] = self._new(raw)
        return number

    def _new(self, raw: str) -> int:
        frames = [frame for line in raw.splitlines() if (frame := line.strip())]
        frames = [frame for frame in frames if not _INSIDE.match(frame)]
        if not frames:
            return 0
        stack = "\n".join(frames)
        self._limits.count(LABELS, 1)
        self._limits.count(TEXT, len(stack))
        return self._labels.intern(_name(frames), stack=stack)


def _name(frames: list[str]) -> str:
    """The kernel that computes, or else the function that allocated."""
    for frame in frames:
        found = _COMPUTE.match(frame)
        if found and (kernel := _DEVICE.sub("", _NAMESPACE.sub("", found[1]))):
            return kernel.replace("<>", "").replace(" >", ">")
    return _OUTER.sub("", frames[0].split("(", 1)[0]) or frames[0]


# ------------------------------------------------------------------------------
# Collect what each heap did from a VLOG stream of `bfc_allocator.cc` (`TF_CPP_VMODULE=bfc_allocator=4`).

_HALF_SPACE = 1 << 63  # processes use the lower half of all addresses
_MOST_SOFT = 10  # TensorFlow reports no more optional requests of a process that failed

_POINTER = r"(0x[0-9a-fA-F]{1,16}|\(nil\)|[0-9A-Fa-f]{16}|0)"
_CREATED = re.compile(r"Creating new BFCAllocator named: (\S{1,200})")
_EXTENDING = re.compile(r"Extending allocation by [^\n]{1,40}? bytes(?: for (\S{1,200}?))?\.?\s")
_GRANTED = re.compile(rf"Allocated memory at {_POINTER} to {_POINTER}")
_RELEASED = re.compile(rf"Deallocate region with ptr = {_POINTER}")
_PEAK = re.compile(r"New Peak memory usage of (\d{1,19}) bytes for (\S{1,200})")
_ALLOCATE = re.compile(
    rf"AllocateRaw (\S{{1,200}}) +(\d{{1,20}})(?: alignment=\d{{1,20}})?(?: +{_POINTER})?[ \r]*(?:\n|$)"
)
_FREE = re.compile(r"DeallocateRaw (\S{1,200}) +(\d{1,20})\s")
_DEBUG = re.compile(rf"\[mem-debug\] (AllocateRaw|DeallocateRaw),([^,\n]{{1,200}}),(\d{{1,20}}),{_POINTER},")
_RETURNING = re.compile(rf"Returning: {_POINTER}")
_FAILED = re.compile(
    r"Allocator \(([^)\n]{1,200})\) ran out of memory trying to allocate ([\d.,]{1,30} ?[KMGTPE]?i?B)"
    r"(?: \(rounded to (\d{1,20})\))?(?:[^\n]{0,80}?requested by op (\S{1,2000}))?"
)
_SOFT = "The caller indicates that this is not a failure"
_STRIP = re.compile(r"F: [*x_<]")


def collect_operations(records: Iterable[LogRecord], labels: Labels, limits: Limits) -> VlogStream:
    """All heaps of a log, with what they did.

    Raises:
        FileError: the log holds more than a file of this size may.
    """
    collector = _OperationCollector(labels, limits)
    for record in records:
        collector.take(record)
    return collector.stream


class _OperationCollector:
    """Takes records one by one."""

    def __init__(self, labels: Labels, limits: Limits) -> None:
        self.stream = VlogStream([], [], {}, Counter())
        self._limits = limits
        self._labels = labels
        self._allocated: dict[tuple[str, int], VlogOperation] = {}  # the last at each address
        self._stacks = LogStackLabels(labels, limits)
        self._newest: dict[tuple[str, str], VlogHeap] = {}
        self._threads: dict[tuple[str, str], VlogThread] = {}
        self._returned: dict[
            tuple[str, int], tuple[int, int]
        ] = {}  # by writer and address: order, bytes in use
        self._regions: dict[tuple[str, int], VlogHeap] = {}
        self._soft = Counter[str]()

    def take(self, record: LogRecord) -> None:
        """Take one record, of any kind."""
        order, times = len(self.stream.times), self.stream.times
        time = record.time if record.time is not None else times[-1] if times else 0
        times.append(time)
        self.stream.last_line = record.line
        if record.file == "log_memory":
            self._name(record)
        if record.file not in ("bfc_allocator", "gpu_bfc_allocator"):
            return
        for pattern, take in _TAKERS:
            if found := pattern.match(record.message):
                take(self, record, found, order)
                return

    def _name(self, record: LogRecord) -> None:
        """Name an allocation by its kernel, which another part of TensorFlow logs after it."""
        found = tensor_memory(record.message)
        if found is not None and found.kind == "TensorAllocation":
            allocation = self._allocated.pop((record.writer, found.address), None)
            if allocation is not None and not allocation.label and allocation.requested == found.requested:
                allocation.label = found.label(self._labels, self._limits)

    # -- heaps and threads ------------------------------------------------------------------------------------

    def _heap(self, record: LogRecord, name: str, thread: VlogThread | None = None) -> VlogHeap:
        """The newest heap of this name in this process."""
        key = record.writer, name
        if key not in self._newest:
            self._add(key)
        heap = self._newest[key]
        if thread is not None:
            thread.heap = heap
        return heap

    def _add(self, key: tuple[str, str]) -> VlogHeap:
        heap = self._newest[key] = VlogHeap(key[1], key[0])
        self.stream.heaps.append(heap)
        return heap

    def _thread(self, record: LogRecord) -> VlogThread:
        key = record.writer, record.thread
        if key not in self._threads:
            number = len(self._threads) + 1 if record.thread else 0
            self._threads[key] = VlogThread(min(number, (1 << 16) - 1))
            if number:
                self.stream.threads[min(number, (1 << 16) - 1)] = " ".join(filter(None, key))
        return self._threads[key]

    def _operation(self, heap: VlogHeap, thread: VlogThread, operation: VlogOperation) -> None:
        self._limits.count(MEMORY_EVENTS, 1)
        operation.thread = thread.number
        heap.operations.append(operation)
        thread.last = operation

    def _unusable(self, why: str) -> None:
        self.stream.left_out[why] += 1

    # -- records ----------------------------------------------------------------------------------------------

    def _take_created(self, record: LogRecord, found: re.Match[str], _: int) -> None:
        key = record.writer, found[1]
        heap = self._newest.get(key)
        if heap is None or heap.operations:  # the same program was started again
            heap = self._add(key)
        heap.created = True
        self._thread(record).heap = heap

    def _take_extending(self, record: LogRecord, found: re.Match[str], _: int) -> None:
        if found[1]:
            self._heap(record, found[1], self._thread(record))

    def _take_granted(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread = self._thread(record)
        start, stop = _address(found[1]), _address(found[2])
        if thread.heap is None or not 0 < start < stop <= _HALF_SPACE:
            self._unusable("grants of memory without an allocator, or at impossible addresses")
            return
        self._regions[record.writer, start] = thread.heap
        self._operation(thread.heap, thread, VlogOperation(Act.EXTEND, order, start, stop - start))

    def _take_released(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread, start = self._thread(record), _address(found[1])
        heap = self._regions.pop((record.writer, start), thread.heap)
        if heap is None:
            self._unusable("releases of memory without an allocator")
        else:
            self._operation(heap, thread, VlogOperation(Act.RELEASE, order, start))

    def _take_peak(self, record: LogRecord, found: re.Match[str], _: int) -> None:
        number = int(found[1])
        if number < _HALF_SPACE:
            self._thread(record).peak = number

    def _take_returning(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread = self._thread(record)
        self._returned[record.writer, _address(found[1])] = order, thread.peak
        thread.peak = ABSENT

    def _take_allocate(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread = self._thread(record)
        heap = self._heap(record, found[1], thread)
        if found[3] is None:
            heap.allocating[record.thread] = found[2]
            thread.peak = ABSENT
        else:
            self._end_allocate(record, (heap, thread), int(found[2]), _address(found[3]), order)

    def _end_allocate(
        self,
        record: LogRecord,
        of: tuple[VlogHeap, VlogThread],
        requested: int,
        address: int,
        order: int,
    ) -> None:
        heap, thread = of
        heap.allocating.pop(record.thread, None)
        returned, in_use = self._returned.pop((record.writer, address), (order, thread.peak))
        thread.peak = ABSENT
        if requested == 0:  # gets no memory, and changes nothing
            return
        if requested + address >= _HALF_SPACE:
            self._unusable("allocations of impossible sizes or addresses")
        elif address:
            operation = VlogOperation(Act.ALLOCATE, returned, address, requested, bytes_in_use=in_use)
            self._operation(heap, thread, operation)
            thread.allocated.append(operation)
            self._allocated[record.writer, address] = operation
        else:
            self._end_failed(record, of, requested, order)

    def _end_failed(
        self, record: LogRecord, of: tuple[VlogHeap, VlogThread], requested: int, order: int
    ) -> None:
        heap, thread = of
        rounded = -(-requested // MIN_CHUNK) * MIN_CHUNK
        for place, failed in enumerate(thread.failed):
            if failed.rounded in (None, rounded):
                failed.requested, failed.is_exact = requested, True
                del thread.failed[place]
                break
        else:
            failed = VlogOperation(Act.FAIL, order, 0, requested)
            self._operation(heap, thread, failed)
            self._count_uncertain(record)
        thread.allocated.append(failed)

    def _take_free(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread = self._thread(record)
        heap = self._heap(record, found[1], thread)
        requested = int(found[2])
        if 0 < requested < _HALF_SPACE:
            operation = VlogOperation(Act.FREE, order, 0, requested)
            self._operation(heap, thread, operation)
            thread.freed.append(operation)

    def _take_debug(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        """A record of level 4: it repeats one of level 3, and adds the stack, or the address of a free."""
        thread = self._thread(record)
        heap = self._heap(record, found[2], thread)
        heap.has_level_4 = True
        requested, address = int(found[3]), _address(found[4])
        if found[1] == "DeallocateRaw":
            self._end_free((heap, thread), requested, address, order)
            return
        known = taken(thread.allocated, address, requested)
        if known is None:  # a log without its records of level 3
            self._end_allocate(record, (heap, thread), requested, address, order)
            known = taken(thread.allocated, address, requested)
        if known is not None:
            known.label = self._stacks.label(record.message[found.end() :])

    def _end_free(self, of: tuple[VlogHeap, VlogThread], requested: int, address: int, order: int) -> None:
        heap, thread = of
        if not (0 < address < _HALF_SPACE and 0 < requested < _HALF_SPACE):
            return
        freed = taken(thread.freed, None, requested)
        if freed is None:
            freed = VlogOperation(Act.FREE, order, 0, requested)
            self._operation(heap, thread, freed)
        freed.address = address

    def _take_strip(self, record: LogRecord, _: re.Match[str], order: int) -> None:
        """The end of a free."""
        thread = self._thread(record)
        last = thread.last
        if record.thread and last is not None and last.act is Act.FREE:
            last.order = order

    def _take_failed(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread = self._thread(record)
        heap = self._heap(record, found[1], thread)
        requested = min(_human(found[2]), _HALF_SPACE - 1)
        if _SOFT in record.message:
            self._soft[record.writer] += 1
            failed = taken(thread.failed, None, requested)
            if failed is not None:  # its own record of failure needs level 2
                failed.is_soft = True
                thread.failed.append(failed)
                self.stream.uncertain_failures -= self._soft[record.writer] > _MOST_SOFT
            return
        heap.allocating.pop(record.thread, None)
        rounded = int(found[3]) if found[3] and int(found[3]) < _HALF_SPACE else None
        failed = VlogOperation(
            Act.FAIL, order, 0, requested, rounded=rounded, is_exact=False, op=found[4] or ""
        )
        self._operation(heap, thread, failed)
        thread.failed.append(failed)
        self._count_uncertain(record)

    def _count_uncertain(self, record: LogRecord) -> None:
        self.stream.uncertain_failures += self._soft[record.writer] >= _MOST_SOFT


_TAKERS = (
    (_ALLOCATE, _OperationCollector._take_allocate),  # noqa: SLF001  the table of its methods
    (_FREE, _OperationCollector._take_free),  # noqa: SLF001
    (_DEBUG, _OperationCollector._take_debug),  # noqa: SLF001
    (_RETURNING, _OperationCollector._take_returning),  # noqa: SLF001
    (_STRIP, _OperationCollector._take_strip),  # noqa: SLF001
    (_PEAK, _OperationCollector._take_peak),  # noqa: SLF001
    (_GRANTED, _OperationCollector._take_granted),  # noqa: SLF001
    (_EXTENDING, _OperationCollector._take_extending),  # noqa: SLF001
    (_RELEASED, _OperationCollector._take_released),  # noqa: SLF001
    (_CREATED, _OperationCollector._take_created),  # noqa: SLF001
    (_FAILED, _OperationCollector._take_failed),  # noqa: SLF001
)


def _address(pointer: str) -> int:
    """The address that `<<` printed; 0 for a null pointer."""
    return 0 if pointer == "(nil)" else int(pointer, 16)


def _human(size: str) -> int:
    """Bytes of a printed size; some locales print a comma."""
    try:
        return parse_bytes(size.replace(",", "."))
    except (ValueError, OverflowError):
        return 0
