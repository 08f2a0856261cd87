"""Read a VLOG stream of `bfc_allocator.cc` as the full history of the heaps in it."""

import re
from array import array
from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import FileError
from bfcviz.events.label_table import Labels
from bfcviz.events.ledger import SortedAddresses
from bfcviz.events.origin import MAX_POOLS, REGION_FACTS, Origin, Pool, RecordedFailure, Status, end_missing
from bfcviz.events.schema import EVENT, Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.formats import tensorflow
from bfcviz.importers.bfc_log.log_lines import LogRecord
from bfcviz.importers.bfc_log.log_memory_lines import tensor_memory_line
from bfcviz.importers.event_makers import RecordedHistory, in_record_order, numbered_names, without
from bfcviz.importers.file_content import LABELS, MAX_NAME_BYTES, MEMORY_EVENTS, TEXT, Limits
from bfcviz.importers.file_format import Format
from bfcviz.importers.tensorflow.reconstruct import (
    ABSENT,
    Checks,
    HeapRules,
    RecordedRequestRows,
    compare,
    match_frees,
    replay,
    unknown_requests,
)
from bfcviz.units import parse_bytes

# ------------------------------------------------------------------------------
# What a VLOG stream holds: heaps, and the operations of each.


class Act(Enum):
    """What a heap did, by its VLOG stream."""

    ALLOCATE = "allocate"
    FREE = "free"
    FAIL = "fail"
    EXTEND = "extend"
    RELEASE = "release"


@dataclass(slots=True)
class VlogOperation:
    """One thing that a heap did, by its VLOG stream."""

    act: Act
    order: int  # its place in the log, in the order of the heap's lock
    address: int = 0  # 0 if unknown or none
    requested: int = 0  # bytes asked for; EXTEND: granted
    label: int = 0
    thread: int = 0
    bytes_in_use: int = ABSENT  # after it; ABSENT if not logged
    rounded: int | None = None  # FAIL: the request after rounding; None if not logged
    is_exact: bool = True  # FAIL: `requested` is not a printed size of three or four digits
    is_soft: bool = False  # FAIL: the caller has another way without this memory
    op: str = ""


@dataclass
class VlogHeap:
    """What a VLOG stream holds of one heap."""

    name: str  # of the allocator
    writer: str  # tag of its process
    created: bool = False  # the log holds its creation
    has_level_4: bool = False  # the log holds the address of each free
    operations: list[VlogOperation] = field(default_factory=list)  # in the order of the log
    # Threads in the middle of an allocation, with its size.
    allocating: dict[str, str] = field(default_factory=dict)

    def unfinished_frees(self) -> list[VlogOperation]:
        """Frees that end a thread's part of the log, before the record with their address."""
        last = {each.thread: each for each in self.operations}
        frees = (each for each in last.values() if each.act is Act.FREE and not each.address)
        return list(frees) if self.has_level_4 else []


_RECENT = 64
"""The most operations in each queue of a thread."""

_Recent = deque[VlogOperation]


class VlogThread:
    """What one thread of a VLOG stream does; what all do, where records name no threads: so it holds some operations.

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


class VlogLabels:
    """Interns each stack of a VLOG stream once: the name is the operation that allocated, the detail its frames."""

    def __init__(self, labels: Labels, limits: Limits) -> None:
        self._labels = labels
        self._limits = limits
        self._known: dict[str, int] = {}

    def label(self, text: str) -> int:
        """The label of the stack in a VLOG record; 0 if it has none. Frames without a name are dropped.

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
        return self._labels.intern(_vlog_stack_name(frames), stack=stack)


def _vlog_stack_name(frames: list[str]) -> str:
    """The name of a stack in a VLOG stream: the kernel that computes, or else the function that allocated."""
    for frame in frames:
        found = _COMPUTE.match(frame)
        if found and (kernel := _DEVICE.sub("", _NAMESPACE.sub("", found[1]))):
            return kernel.replace("<>", "").replace(" >", ">")
    return _OUTER.sub("", frames[0].split("(", 1)[0]) or frames[0]


# ------------------------------------------------------------------------------
# Collect what each heap did from a VLOG stream of `bfc_allocator.cc` (`TF_CPP_VMODULE=bfc_allocator=4`).
#
# What a level adds to those below it (tsl/framework/bfc_allocator.cc):
#
# =====  =========================================================================================================
# level  records
# =====  =========================================================================================================
# 1      `Creating new BFCAllocator named: <name>`, `Extending allocation by <size> bytes for <name>.`,
#        `Allocated memory at <P> to <Q>`
# 2      `New Peak memory usage of <bytes> bytes for <name>`, `Deallocate region with ptr = <P>`
# 3      `AllocateRaw <name>  <bytes>`, the same with the address (0: it failed), `DeallocateRaw <name> <bytes>`
# 4      `Returning: <P>`, `F: <strip>`, `[mem-debug] AllocateRaw,<name>,<bytes>,<P>,<stack>`, and of DeallocateRaw
# =====  =========================================================================================================
#
# The heap holds its lock for `Returning:` and `F:`, so their order is that of its operations. The other records of
# an operation are written before or after, and those of other threads may lie between them.

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


class VlogStream:
    """All heaps of a VLOG stream, with what they did; takes its records one by one.

    Attributes:
        heaps: in the order of their first records.
        times: ns of each record by `order`; the time before it where a record has none.
        threads: name of each thread by number, from 1.
        left_out: number of unusable records, by reason.
        uncertain_failures: failed requests that may have been optional ones.
        last_line: of the file, of the last record.
    """

    def __init__(self, labels: Labels, limits: Limits) -> None:
        self.heaps: list[VlogHeap] = []
        self.times = array("q")
        self.threads: dict[int, str] = {}
        self.left_out = Counter[str]()
        self.uncertain_failures = 0
        self.last_line = 0
        self._limits = limits
        self._labels = labels
        self._allocated: dict[tuple[str, int], VlogOperation] = {}  # the last at each address
        self._stacks = VlogLabels(labels, limits)
        self._newest: dict[tuple[str, str], VlogHeap] = {}
        self._threads: dict[tuple[str, str], VlogThread] = {}
        # By writer and address: order, bytes in use.
        self._returned: dict[tuple[str, int], tuple[int, int]] = {}
        self._regions: dict[tuple[str, int], VlogHeap] = {}
        self._soft = Counter[str]()

    def take(self, record: LogRecord) -> None:
        """Take one record of a VLOG stream, of any kind."""
        self.last_line, time, file, message, _, _ = record
        times = self.times
        order = len(times)
        times.append(time if time is not None else times[-1] if times else 0)
        if file == "log_memory":
            self._name(record)
        if file not in ("bfc_allocator", "gpu_bfc_allocator"):
            return
        for pattern, take in _TAKERS.get(message[:_KEY], ()):
            if found := pattern.match(message):
                take(self, record, found, order)
                return

    def _name(self, record: LogRecord) -> None:
        """Name an allocation of a VLOG stream by its kernel, which another part of TensorFlow logs after it."""
        found = tensor_memory_line(record.message)
        if found is not None and found.kind == "TensorAllocation":
            allocation = self._allocated.pop((record.writer, found.address), None)
            if allocation is not None and not allocation.label and allocation.requested == found.requested:
                allocation.label = found.label(self._labels, self._limits)

    # -- heaps and threads ------------------------------------------------------------------------------------

    def _heap(self, record: LogRecord, name: str, thread: VlogThread | None = None) -> VlogHeap:
        """The newest heap of this name in this process of a VLOG stream."""
        key = record.writer, name
        heap = self._newest.get(key) or self._add(key)
        if thread is not None:
            thread.heap = heap
        return heap

    def _add(self, key: tuple[str, str]) -> VlogHeap:
        heap = self._newest[key] = VlogHeap(key[1], key[0])
        self.heaps.append(heap)
        return heap

    def _thread(self, record: LogRecord) -> VlogThread:
        key = record.writer, record.thread
        thread = self._threads.get(key)
        if thread is None:
            number = min(len(self._threads) + 1, (1 << 16) - 1) if record.thread else 0
            thread = self._threads[key] = VlogThread(number)
            if number:
                self.threads[number] = " ".join(filter(None, key))
        return thread

    def _operation(self, heap: VlogHeap, thread: VlogThread, operation: VlogOperation) -> None:
        self._limits.count(MEMORY_EVENTS, 1)
        operation.thread = thread.number
        heap.operations.append(operation)
        thread.last = operation

    def _unusable(self, why: str) -> None:
        self.left_out[why] += 1

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
        start, stop = _vlog_printed_address(found[1]), _vlog_printed_address(found[2])
        if thread.heap is None or not 0 < start < stop <= _HALF_SPACE:
            self._unusable("grants of memory without an allocator, or at impossible addresses")
            return
        self._regions[record.writer, start] = thread.heap
        self._operation(thread.heap, thread, VlogOperation(Act.EXTEND, order, start, stop - start))

    def _take_released(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread, start = self._thread(record), _vlog_printed_address(found[1])
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
        self._returned[record.writer, _vlog_printed_address(found[1])] = order, thread.peak
        thread.peak = ABSENT

    def _take_allocate(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread = self._thread(record)
        heap = self._heap(record, found[1], thread)
        if found[3] is None:
            heap.allocating[record.thread] = found[2]
            thread.peak = ABSENT
        else:
            self._end_allocate(record, (heap, thread), int(found[2]), _vlog_printed_address(found[3]), order)

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
        rounded = tensorflow.round_up(requested)
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
        """A VLOG record of level 4: it repeats one of level 3, and adds the stack, or the address of a free."""
        thread = self._thread(record)
        heap = self._heap(record, found[2], thread)
        heap.has_level_4 = True
        requested, address = int(found[3]), _vlog_printed_address(found[4])
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
        """The end of a free in a VLOG stream."""
        thread = self._thread(record)
        last = thread.last
        if record.thread and last is not None and last.act is Act.FREE:
            last.order = order

    def _take_failed(self, record: LogRecord, found: re.Match[str], order: int) -> None:
        thread = self._thread(record)
        heap = self._heap(record, found[1], thread)
        requested = min(_vlog_printed_bytes(found[2]), _HALF_SPACE - 1)
        if _SOFT in record.message:
            self._soft[record.writer] += 1
            failed = taken(thread.failed, None, requested)
            if failed is not None:  # its own record of failure needs level 2
                failed.is_soft = True
                thread.failed.append(failed)
                self.uncertain_failures -= self._soft[record.writer] > _MOST_SOFT
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
        self.uncertain_failures += self._soft[record.writer] >= _MOST_SOFT


_KEY = 3  # characters that begin a message
_TAKERS = {
    "All": (
        (_ALLOCATE, VlogStream._take_allocate),  # noqa: SLF001  the table of its methods
        (_GRANTED, VlogStream._take_granted),  # noqa: SLF001
        (_FAILED, VlogStream._take_failed),  # noqa: SLF001
    ),
    "Dea": (
        (_FREE, VlogStream._take_free),  # noqa: SLF001
        (_RELEASED, VlogStream._take_released),  # noqa: SLF001
    ),
    "[me": ((_DEBUG, VlogStream._take_debug),),  # noqa: SLF001
    "Ret": ((_RETURNING, VlogStream._take_returning),),  # noqa: SLF001
    "F: ": ((_STRIP, VlogStream._take_strip),),  # noqa: SLF001
    "New": ((_PEAK, VlogStream._take_peak),),  # noqa: SLF001
    "Ext": ((_EXTENDING, VlogStream._take_extending),),  # noqa: SLF001
    "Cre": ((_CREATED, VlogStream._take_created),),  # noqa: SLF001
}
"""The patterns of the messages that begin with these characters: most messages match none."""


def _vlog_printed_address(pointer: str) -> int:
    """The address that `<<` printed in a VLOG stream; 0 for a null pointer."""
    return 0 if pointer == "(nil)" else int(pointer, 16)


def _vlog_printed_bytes(size: str) -> int:
    """Bytes of a size that a VLOG stream printed; some locales print a comma."""
    try:
        return parse_bytes(size.replace(",", "."))
    except (ValueError, OverflowError):
        return 0


# ------------------------------------------------------------------------------
# Find the chunk of each free that a VLOG stream of level 3 records only with its size.
#
# A free of N bytes freed one of the allocations of N bytes in use. Where there are several, later allocations tell
# which: memory that is allocated again was freed before. What remains open is decided in favour of the oldest.


class PlacedVlogFrees(NamedTuple):
    """Frees without an address: `guessed`: could be of several chunks; `unknown`: of a size that is not in use."""

    guessed: int
    unknown: int


def place_frees(operations: Sequence[VlogOperation]) -> PlacedVlogFrees:
    """Set the address of every free of a VLOG stream that has none, among the operations of one heap, in order."""
    if all(operation.address or operation.act is not Act.FREE for operation in operations):
        return PlacedVlogFrees(0, 0)
    finder = _Finder()
    for number, operation in enumerate(operations):
        if operation.act is Act.ALLOCATE:
            finder.allocate(number, operation)
        elif operation.act is Act.FREE:
            finder.free(number, operation)
    return finder.finish()


class _Finder:
    """Finds the addresses of frees in a VLOG stream that has none."""

    def __init__(self) -> None:
        self._live: dict[int, tuple[int, VlogOperation]] = {}  # by address: number and allocation
        self._starts = SortedAddresses()
        self._waiting: defaultdict[int, list[tuple[int, VlogOperation]]] = defaultdict(list)  # frees, by size
        self._guessed = 0
        self._unknown = 0

    def allocate(self, number: int, operation: VlogOperation) -> None:
        """Chunks in use where this allocation of a VLOG stream lies were freed before."""
        start, stop = operation.address, operation.address + operation.requested
        before = self._starts.at_or_before(start)
        there = []
        if before >= 0 and before + self._live[before][1].requested > start:
            there.append(before)
        for address in self._starts.at_or_after(start):
            if address >= stop:
                break
            if address != before or not there:
                there.append(address)
        for address in there:
            self._resolve(address)
        self._add(number, operation)

    def free(self, number: int, operation: VlogOperation) -> None:
        if operation.address:
            self._remove(operation.address)
        else:
            insort(self._waiting[operation.requested], (number, operation), key=lambda each: each[0])

    def finish(self) -> PlacedVlogFrees:
        """Place the frees of a VLOG stream that no later allocation explains."""
        live: defaultdict[int, deque[tuple[int, VlogOperation]]] = defaultdict(deque)
        for number, allocation in sorted(self._live.values(), key=lambda each: each[0]):
            live[allocation.requested].append((number, allocation))
        for size, frees in self._waiting.items():
            candidates = live[size]
            for number, free in frees:
                if candidates and candidates[0][0] < number:
                    self._guessed += len(candidates) > 1
                    free.address = candidates.popleft()[1].address
                else:
                    self._unknown += 1
        return PlacedVlogFrees(self._guessed, self._unknown)

    def _add(self, number: int, operation: VlogOperation) -> None:
        if operation.address in self._live:  # no free explains it
            self._remove(operation.address)
        self._live[operation.address] = number, operation
        self._starts.add(operation.address)

    def _remove(self, address: int) -> None:
        if address in self._live:
            del self._live[address]
            self._starts.remove(address)

    def _resolve(self, address: int) -> None:
        """Give the chunk at `address` the first waiting free of a VLOG stream of its size that came after it."""
        number, allocation = self._live[address]
        frees = self._waiting[allocation.requested]
        at = bisect_left(frees, number, key=lambda each: each[0])
        if at < len(frees):
            self._guessed += len(frees) - at > 1  # which of the frees
            frees.pop(at)[1].address = address
        self._remove(address)


# ------------------------------------------------------------------------------
# Build the events of one heap from what a VLOG stream says of it.
#
# A stream that holds the creation of the heap and all its requests is replayed in our own heap, whose regions come
# from the stream. If every address equals the recorded one, the replay also gives the sizes of the chunks, which a
# stream does not hold. Otherwise a ledger takes the recorded regions and addresses, and computes the sizes by
# TensorFlow's rules.

_UNLIMITED = 1 << 62
_REQUESTS = (Act.ALLOCATE, Act.FREE, Act.FAIL)
_UNKNOWN = (*REGION_FACTS, "bytes_in_use", "peak_bytes_in_use", "requested_bytes_in_use", "chunks_in_use")
"""Facts that a stream without the beginning, or without requests, does not tell."""


@dataclass
class VlogEvents:
    """The events of a heap of a VLOG stream, with the `order` of the record in `time`."""

    events: Events
    failures: list[RecordedFailure]  # in the order of the OOM events; their `event` is not set
    # How a replay compares with the log, as JSON values; empty without requests.
    check: dict[str, object] = field(default_factory=dict)
    facts: dict[str, int | None] = field(default_factory=dict)  # the unknown numbers
    options: dict[str, object] = field(default_factory=dict)  # what the log shows of the heap's options
    reasons: list[str] = field(default_factory=list)  # what is missing or was concluded


def events_of_heap(heap: VlogHeap) -> VlogEvents:
    """The events of one heap of a VLOG stream; sets the addresses of its frees."""
    unfinished = {id(each) for each in heap.unfinished_frees()}
    operations = [each for each in heap.operations if id(each) not in unfinished]
    operations.sort(key=lambda each: each.order)
    placed = place_frees(operations)
    operations = [each for each in operations if each.address or each.act is not Act.FREE]
    requests = [each for each in operations if each.act in _REQUESTS]
    failures = [
        RecordedFailure(0, is_exact=each.is_exact, rounded=each.rounded, op=each.op, has_heap=heap.created)
        for each in requests
        if each.act is Act.FAIL and not each.is_soft
    ]
    replayed = None
    result = VlogEvents(np.empty(0, EVENT), failures)
    if heap.created and any(each.act is not Act.FAIL for each in requests):
        replayed, result.check = _replayed_vlog_events(heap, operations, requests)
    if replayed is not None:
        result.events = replayed
    else:
        history = _from_addresses(operations, trusts_free_chunks=heap.created)
        result.events = history.events()
        result.reasons = _what_is_missing(heap, requests, history, result.check)
        result.facts = {} if result.check else dict.fromkeys(_UNKNOWN)
    result.reasons = [f"heap {heap.name!r}: {why}" for why in (*result.reasons, *_vlog_free_reasons(placed))]
    result.options = _vlog_heap_options(heap, operations)
    return result


def _vlog_heap_options(heap: VlogHeap, operations: Sequence[VlogOperation]) -> dict[str, object]:
    """TensorFlow's options, as far as the regions in a VLOG stream show them."""
    options: dict[str, object] = {"allocator_name": heap.name}
    regions = [each.requested for each in operations if each.act is Act.EXTEND]
    if heap.created and regions:
        doubled = (
            regions[0] % tensorflow.FIRST_REGION == 0
            and (regions[0] // tensorflow.FIRST_REGION).bit_count() == 1
        )
        options["allow_growth"] = doubled
    if any(each.act is Act.RELEASE for each in operations):
        options["garbage_collection"] = True
    return options


# -- replay ---------------------------------------------------------------------------------------------------


def _replayed_vlog_events(
    heap: VlogHeap, operations: Sequence[VlogOperation], requests: Sequence[VlogOperation]
) -> tuple[Events | None, dict[str, object]]:
    """The events of a replay, None if every one differs from the VLOG stream; and the best comparison."""
    rows = _vlog_request_rows(requests)
    allocations, unmatched = match_frees(rows)
    grants, granted, released = _vlog_region_grants(operations)
    pool = max(_peak_pool(operations), tensorflow.UNIT)
    compared: list[Checks] = []
    events = None
    # A stream does not hold the limit. It matters only where it made a region smaller.
    for limit, allow_growth in ((_UNLIMITED, True), (pool, True), (pool, False)):
        replayed = replay(rows, allocations, HeapRules(limit, allow_growth, bool(released), grants))
        compared.append(compare(rows, replayed.rebuilt))
        same_regions = (
            _replayed_vlog_regions(replayed.events, Kind.EXTEND) == granted
            and [address for address, _ in _replayed_vlog_regions(replayed.events, Kind.RELEASE)] == released
        )
        if same_regions and not (compared[-1].differing or replayed.refused or unmatched):
            events = _events_in_vlog_order(replayed.events, requests)
            break
    best = min(compared, key=lambda checks: checks.differing) if events is None else compared[-1]
    return events, best.to_json(heap.name, "tiled" if events is None else "replayed", unmatched)


def _vlog_request_rows(requests: Sequence[VlogOperation]) -> RecordedRequestRows:
    """The operations of a heap of a VLOG stream as requests for a replay."""
    rows = unknown_requests(len(requests))
    for name in ("address", "requested", "bytes_in_use", "label", "thread"):
        rows[name] = [getattr(each, name) for each in requests]
    rows["free"] = [each.act is Act.FREE for each in requests]
    return rows


def _vlog_region_grants(
    operations: Sequence[VlogOperation],
) -> tuple[dict[int, list[tuple[int, int]]], list[tuple[int, int]], list[int]]:
    """The regions of a VLOG stream by request, see `HeapRules`; all of them in order; the released ones."""
    grants: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    waiting: list[tuple[int, int]] = []
    granted, released, place = [], [], 0
    for each in operations:
        if each.act is Act.EXTEND:
            waiting.append((each.address, each.requested))
            granted.append(waiting[-1])
        elif each.act is Act.RELEASE:
            waiting.append((each.address, 0))
            released.append(each.address)
        else:
            if each.act is not Act.FREE and waiting:
                grants[place] += waiting
                waiting = []
            place += 1
    return dict(grants), granted, released


def _peak_pool(operations: Sequence[VlogOperation]) -> int:
    """The most bytes of all regions in a VLOG stream together: the limit, if the last region was cut to fit it."""
    regions: dict[int, int] = {}
    total = peak = 0
    for each in operations:
        if each.act is Act.EXTEND:
            regions[each.address] = each.requested
            total += each.requested
            peak = max(peak, total)
        elif each.act is Act.RELEASE:
            total -= regions.pop(each.address, 0)
    return peak


def _replayed_vlog_regions(events: Events, kind: Kind) -> list[tuple[int, int]]:
    """The regions of a replay of a VLOG stream."""
    rows = events[events["kind"] == kind]
    return list(zip(rows["address"].tolist(), rows["size"].tolist(), strict=True))


def _events_in_vlog_order(events: Events, requests: Sequence[VlogOperation]) -> Events:
    """Events with the order of their VLOG record in `time`, and without the failures of optional requests."""
    soft = np.array([each.is_soft for each in requests], bool)
    at: NDArray[np.uint64] = events["time"]
    kept = without(events, (events["kind"] == Kind.OOM) & soft[at])
    orders = np.array([each.order for each in requests], np.int64)
    kept_at: NDArray[np.uint64] = kept["time"]
    kept["time"] = orders[kept_at]
    return kept


# -- recorded addresses ---------------------------------------------------------------------------------------


def _from_addresses(operations: Sequence[VlogOperation], *, trusts_free_chunks: bool) -> RecordedHistory:
    """The history that the operations of a VLOG stream give, with every chunk at its recorded address.

    `trusts_free_chunks`: the free chunks of the ledger are those of the heap, because its beginning is known.
    """
    history = RecordedHistory()
    ledger = history.ledger
    for each in operations:
        history.at(each.order, each.thread)
        match each.act:
            case Act.EXTEND:
                ledger.grant(each.address, each.requested)
            case Act.RELEASE:
                ledger.release(each.address)
            case Act.FREE:
                ledger.free(each.address)
            case Act.ALLOCATE:
                size = tensorflow.round_up(each.requested)
                free = ledger.free_size(each.address)
                if trusts_free_chunks and free >= size:
                    size = size if tensorflow.splits(free, size, tensorflow.WASTE) else free
                ledger.allocate(each.address, size, each.requested, each.label)
            case Act.FAIL if not each.is_soft:
                ledger.oom(each.requested, each.label)
    return history


def _what_is_missing(
    heap: VlogHeap,
    requests: Sequence[VlogOperation],
    history: RecordedHistory,
    check: dict[str, object],
) -> list[str]:
    """What a VLOG stream does not say of a heap, as reasons of the trace's origin."""
    chunks = sum(each.act is Act.ALLOCATE for each in requests)
    reasons = []
    if not any(each.act is not Act.FAIL for each in requests):
        reasons.append(
            "the log holds its regions, but no allocations and frees: run the program again with "
            + tensorflow.LOG_REQUESTS
        )
    if chunks and not heap.created:
        reasons.append(
            f"the log does not hold its creation, so chunks from before are missing, and the sizes of {chunks} chunks "
            "are their requests, rounded up to 256 bytes"
        )
    elif chunks:
        first = f" (first {check['first_differing']})" if check["differing"] else ""
        reasons.append(
            f"a replay differs from the log in {check['differing']} of {check['checked']} requests{first} or in its "
            f"regions, so the sizes of {chunks} chunks were computed by TensorFlow's rules"
        )
    if words := history.inconsistencies.words():
        reasons.append(words)
    return reasons


def _vlog_free_reasons(placed: PlacedVlogFrees) -> list[str]:
    """How the addresses of frees in a VLOG stream were found, as reasons of the trace's origin."""
    reasons = []
    if placed.guessed:
        reasons.append(
            f"{placed.guessed} frees could be of several chunks of the same size; one of them was chosen. Level 4 of "
            "the log has the addresses of frees"
        )
    if placed.unknown:
        reasons.append(f"{placed.unknown} frees of a size that no chunk in use has were left out")
    return reasons


# ------------------------------------------------------------------------------
# Read a VLOG stream of `bfc_allocator.cc` as the full history of its heaps.

_REQUEST_LINES = re.compile(
    r"\] (?:AllocateRaw \S{1,200} +\d|DeallocateRaw \S{1,200} +\d|\[mem-debug\] (?:All|Deall)ocateRaw,)"
)
_REGIONS = re.compile(r"\] (?:Allocated memory at |Deallocate region with ptr = )")


def holds_requests(text: str) -> bool:
    """Whether a log holds allocations and frees of a VLOG stream (level 3 or 4)."""
    return _REQUEST_LINES.search(text) is not None


def holds_regions(text: str) -> bool:
    """Whether a log holds regions of a VLOG stream (level 1 or more)."""
    return _REGIONS.search(text) is not None


def read_vlog(records: Iterable[LogRecord], path: Path, cut: Sequence[str] = ()) -> Trace:
    """The history in the records of a VLOG stream; `cut`: why the end of the file is missing, if it is.

    Raises:
        FileError: there is no heap in it, or the file holds more than one of its size may.
    """
    labels = Labels()
    stream = VlogStream(labels, Limits.of(path))
    for record in records:
        stream.take(record)
    heaps = [heap for heap in stream.heaps if heap.operations]
    if not heaps:
        raise FileError(path, "", "a log of TensorFlow without a heap that allocated memory")
    found = [events_of_heap(heap) for heap in heaps[:MAX_POOLS]]
    events = in_record_order([heap.events for heap in found], stream.times)
    missing = (*cut, *_unfinished_vlog_operations(stream))
    problems = [reason for heap in found for reason in heap.reasons] + _vlog_problems(stream, len(heaps))
    names = _vlog_heap_names(heaps[:MAX_POOLS])
    pairs = list(zip(names, found, strict=True))
    origin = Origin(
        format=Format.TENSORFLOW_LOG.value,
        source=path.name,
        status=Status.DEGRADED if problems else Status.TRUNCATED if missing else Status.COMPLETE,
        reasons=(*missing, *problems),
        pools=tuple(Pool(name, options=heap.options) for name, heap in pairs),
        details={
            "framework": "tensorflow",
            "checks": [heap.check | {"pool": name} if heap.check else {} for name, heap in pairs],
            "facts": [heap.facts for heap in found],
            "failures": _vlog_failure_entries(events, found),
            "threads": {str(number): name for number, name in stream.threads.items()},
            **end_missing(missing),
        },
    )
    return Trace.from_events(events, labels, origin)


def _vlog_failure_entries(events: Events, found: list[VlogEvents]) -> list[dict[str, object]]:
    """The failed requests of a VLOG stream, one entry per OOM event; those of a heap are in its order."""
    waiting = [iter(heap.failures) for heap in found]
    places = np.flatnonzero(events["kind"] == Kind.OOM).tolist()
    return [replace(next(waiting[int(events["pool"][at])]), event=at).to_json() for at in places]


def _vlog_heap_names(heaps: list[VlogHeap]) -> list[str]:
    """The name of each heap of a VLOG stream: with its process if several write it, and numbered if created again."""
    several = len({heap.writer for heap in heaps}) > 1
    names = (f"{heap.writer} {heap.name}".strip() if several else heap.name for heap in heaps)
    return [name for name, _ in numbered_names(names, "run ")]


def _unfinished_vlog_operations(stream: VlogStream) -> list[str]:
    """What a VLOG stream began, but did not end."""
    ends = [f"an allocation of {size} bytes" for heap in stream.heaps for size in heap.allocating.values()]
    ends += [f"a free of {each.requested} bytes" for heap in stream.heaps for each in heap.unfinished_frees()]
    more = f" and {len(ends) - 1} other operations" if len(ends) > 1 else ""
    return [f"the log ends at line {stream.last_line} in the middle of {ends[0]}{more}"] if ends else []


def _vlog_problems(stream: VlogStream, heaps: int) -> list[str]:
    """What is wrong with a VLOG stream, as reasons of the trace's origin."""
    problems = [f"left out: {count} {what}" for what, count in stream.left_out.items()]
    if heaps > MAX_POOLS:
        problems.append(f"{heaps - MAX_POOLS} of {heaps} heaps were left out; a trace holds {MAX_POOLS}")
    if stream.uncertain_failures:
        problems.append(
            f"{stream.uncertain_failures} failed requests may have been optional ones: TensorFlow reports only the "
            "first ten of those"
        )
    return problems
