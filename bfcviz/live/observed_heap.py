"""ObservedHeap: another allocator's heap, recorded from the outside as bfcviz events."""

import operator
import threading
import time
import time as clock
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from bfcviz import _forks, _interrupts, native
from bfcviz.allocator.interface import Stats
from bfcviz.allocator.queries import MEMORY_MAP, REGION, Moment
from bfcviz.errors import FileError, InvalidRequest
from bfcviz.events.label_table import Labels
from bfcviz.events.ledger import Inconsistencies, Ledger
from bfcviz.events.log import EventLog
from bfcviz.events.origin import KnownGaps, Pool, RecordedFailure
from bfcviz.events.schema import Kind, bin_of
from bfcviz.events.storage.recording import Recording, join_recorded_log, recording_of
from bfcviz.live.heap_provider import log_and_labels
from bfcviz.live.numpy import unserved
from bfcviz.periodic import Periodic

_PATIENCE_S: Final = 1.0
"""Seconds a reader waits for the report of another thread: in a forked process that thread does not exist."""


@dataclass(frozen=True)
class ObservedOptions:
    """Options of the observed allocator: it rounds sizes up to multiples of `unit` bytes."""

    unit: int = 1
    observed: bool = True


class ObservedHeap:
    """A heap observed from outside: events of reported allocations and frees; a LiveDashboard can watch it.

    ::

        heap = ObservedHeap(log, labels, name="cupy")
        heap.grant(0x7000, 1 << 20)                 # if grants are known
        heap.allocate(0x7000, 512, requested=400, label=3, stream=1)
        heap.free(0x7000)

    A `Ledger` derives the events. Impossible reports, such as a free without an allocation or an allocation over memory
    in use, are left out and counted in `inconsistencies`.

    Any number of threads may report. A finalizer may report during another report; its own is carried out just after.

    Args:
        log: receives the events; default: a ring in memory. A recording includes its labels.
        labels: the table of the label numbers.
        name: the name of this memory.
        limit: most bytes that the allocator may get; None: unknown.
        unit: sizes are rounded up to multiples of it, in bytes.
        gaps: what its events cannot hold.
        device_total: bytes of the whole device, for failed requests; None: unknown.

    Attributes:
        pool: its number among the heaps that write to its log.
        limit: in bytes; None: unknown.
        gaps: None: its events are the whole history.
    """

    def __init__(
        self,
        log: EventLog | Recording | None = None,
        labels: Labels | None = None,
        *,
        name: str = "observed",
        limit: int | None = None,
        unit: int = 1,
        gaps: KnownGaps | None = None,
        device_total: int | None = None,
    ) -> None:
        if unit < 1 or (limit is not None and not 1 <= limit <= 1 << 62):
            raise InvalidRequest(f"unit {unit} and limit {limit} were given; both are bytes, from 1 up")
        self.log, self.labels = log_and_labels(log, labels)
        self.name = name
        self.limit = limit
        self.gaps = gaps
        self.options = ObservedOptions(unit)
        self.device_total = device_total
        self._recording = recording_of(self.log)
        self.pool, _ = join_recorded_log(self.log, Pool(name, limit, vars(self.options)))
        self._ledger = Ledger(self.log, self.pool)
        self._lock = _forks.keep(threading.RLock())

    # -- reports -----------------------------------------------------------------------------------------------

    def allocate(
        self,
        address: int,
        size: int,
        requested: int | None = None,
        label: str | int = 0,
        stream: int = 0,
        time: int | None = None,
    ) -> None:
        """Report that memory [address, address + size) came into use.

        Args:
            address: its start.
            size: bytes, rounded up to the unit.
            requested: bytes requested; default: `size`.
            label: text, or the number of a label.
            stream: number of its stream, below 2^16.
            time: nanoseconds since the log's start; default: now. Times never decrease.

        Raises:
            InvalidRequest: a number is out of range.
        """
        size, asked = operator.index(size), operator.index(size if requested is None else requested)
        rounded = -(-size // self.options.unit) * self.options.unit
        _check_observed_range("an allocation", address, rounded)
        if not 0 <= asked <= rounded or not 0 <= stream < 1 << 16:
            raise InvalidRequest(
                f"{asked} requested bytes of {rounded} and stream {stream} were given; give at most the size, and a "
                "stream from 0 to 65,535"
            )
        number = self._label_id(label)
        self._report(time, partial(self._ledger.allocate, address, rounded, asked, number, stream))

    def free(self, address: int, time: int | None = None) -> None:
        """Report that the memory at an address was freed; address 0 does nothing."""
        if address != 0:
            self._report(time, partial(self._ledger.free, operator.index(address)))

    def grant(self, address: int, size: int, *, join: bool = False, time: int | None = None) -> None:
        """Report that the allocator got [address, address + size) from its sub-allocator.

        `join` extends the grant that ends at `address`; both are then released as one.
        """
        _check_observed_range("a grant", address, size)
        self._report(time, partial(self._ledger.grant, address, size, join=join))

    def release(self, address: int, time: int | None = None) -> None:
        """Report that the grant at an address was released."""
        self._report(time, partial(self._ledger.release, operator.index(address)))

    def lose(self, address: int, time: int | None = None) -> None:
        """Report that the grant at an address is gone, with all its chunks: frees that are missing are inferred."""
        self._report(time, partial(self._ledger.lose, operator.index(address)))

    def oom(
        self,
        requested: int,
        label: str | int = 0,
        stream: int = 0,
        time: int | None = None,
        device_free: int | None = None,
    ) -> None:
        """Report that a request of `requested` bytes failed, when the driver had `device_free` bytes; None: unknown."""
        _check_observed_range("a failed request", 0, requested)
        number = self._label_id(label)
        self._report(time, partial(self._fail, requested, number, stream, device_free))

    def mark(self, label: str | int, value: int = 0) -> None:
        """Write a mark of the user into the log of the observed heap: a step, a phase, a note."""
        self._report(None, partial(self._put_mark, self._label_id(label), value))

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def inconsistencies(self) -> Inconsistencies:
        """Reports on the observed heap that its events do not contain as given."""
        return self._ledger.inconsistencies

    def free_at(self, address: int) -> int:
        """Bytes of the observed heap's free chunk that starts at an address; 0: none does."""
        with self._alone():
            return self._ledger.free_size(address)

    def settle(self) -> None:
        """Wait until all reports on the observed heap are in the log."""
        with self._alone():
            pass

    def reports(self) -> object:
        """A capsule of C functions that report to this observed heap (`Ledger.reports`); None uncompiled."""
        return self._ledger.reports()

    def grants(self) -> list[tuple[int, int, bool]]:
        """The grants of the observed heap that were not released: address, bytes, and whether they are wholly free."""
        with self._alone():
            ledger = self._ledger
            found = [(at, region.size) for at, region in ledger.regions.items() if region.granted]
            return [(at, size, ledger.free_size(at) == size) for at, size in found]

    def stats(self) -> Stats:
        """Totals of the observed heap at this moment; `bytes_limit` is 0 if the limit is unknown."""
        with self._alone():
            ledger = self._ledger
            return Stats(
                num_allocs=ledger.num_allocs,
                bytes_in_use=ledger.bytes_in_use,
                requested_bytes_in_use=ledger.requested_bytes_in_use,
                peak_bytes_in_use=ledger.peak_bytes_in_use,
                largest_alloc_size=ledger.largest_alloc_size,
                bytes_limit=self.limit or 0,
                pool_bytes=ledger.pool_bytes,
                peak_pool_bytes=ledger.peak_pool_bytes,
                free_bytes=ledger.free_bytes,
                largest_free_chunk=ledger.largest_free_chunk,
                regions=len(ledger.regions),
                chunks_in_use=len(ledger.in_use),
            )

    def moment(self) -> Moment:
        """The whole observed heap between two events, and the number of events so far: where a reader can start."""
        with self._alone():
            ledger = self._ledger
            chunks = [
                (at, c.size, c.requested, -1, True, c.handle, 1, 0, 0, 0, c.slot, c.label, c.thread, c.stream,
                 c.born & native.LOW_32, False)
                for at, c in ledger.in_use.items()
            ]  # fmt: skip
            chunks += [
                (at, f.size, 0, bin_of(f.size), False, f.handle, 0, 0, 0, 0, f.slot, 0, 0, 0, 0, True)
                for at, f in ledger.free_chunks.items()
            ]
            regions = [(at, region.size, region.slot) for at, region in ledger.regions.items()]
            numbers = (
                ledger.num_allocs, ledger.peak_bytes_in_use, ledger.largest_alloc_size, ledger.peak_pool_bytes
            )  # fmt: skip
            step = self.log.head
        return Moment(step, np.array(sorted(chunks), MEMORY_MAP), np.array(sorted(regions), REGION), *numbers)

    def _put_mark(self, label: int, value: int) -> None:
        self.log.put(Kind.MARK, 0, 0, 0, value, 0, 0, label, 0, 0, -1, 0, self.pool)

    def _fail(self, requested: int, label: int, stream: int, device_free: int | None) -> None:
        event = self.log.head
        self._ledger.oom(requested, label, stream)
        if device_free is not None and self._recording is not None:
            with suppress(FileError, OSError):  # `Recording.close` reports a folder that cannot be written
                self._recording.add_failure(
                    RecordedFailure(event, device_free=device_free, device_total=self.device_total)
                )

    # -- one report at a time ----------------------------------------------------------------------------------

    def _report(self, time: int | None, carry_out: Callable[[], object]) -> None:
        self._ledger.waiting.append((-1 if time is None else time, carry_out))
        self._carry_out()

    def _carry_out(self) -> None:
        """Carry out reports on the observed heap, unless an outer call here, or C code in another thread, does so."""
        ledger = self._ledger
        with self._lock:
            while ledger.waiting and not ledger.busy:
                _interrupts.block()
                ledger.busy = native.thread_number()
                try:
                    time, carry_out = ledger.waiting.popleft()
                    # What is reported late was done by another thread, of which nothing is known.
                    ledger.thread = self.log.begin_operation(time, -1 if time < 0 else 0)
                    carry_out()
                finally:
                    ledger.busy = 0
                    _interrupts.unblock()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let all reports on the observed heap wait, also those of C code, which takes no lock; then carry them out."""
        ledger, thread, deadline = self._ledger, native.thread_number(), clock.monotonic() + _PATIENCE_S
        _interrupts.block()  # may raise: before the lock is held
        self._lock.acquire()
        try:
            while ledger.busy not in {0, thread} and clock.monotonic() < deadline:
                self._lock.release()  # a finalizer in that thread's report may need it
                clock.sleep(1e-4)
                self._lock.acquire()
            outer = ledger.busy
            ledger.busy = thread
            try:
                yield
            finally:
                # Another thread's report may have ended meanwhile: its number would keep all reports waiting for ever.
                ledger.busy = outer if outer == thread else 0
        finally:
            self._lock.release()
            _interrupts.unblock()
        self._carry_out()

    def _label_id(self, label: str | int) -> int:
        if isinstance(label, str):
            return self.labels.intern(label)
        if not 0 <= label < len(self.labels):
            raise InvalidRequest(
                f"label {label} was given, of {len(self.labels)}: give text, or a number that intern returned"
            )
        return label


def devices_in_order(named: Iterable[int] | None, count: int, current: int) -> list[int]:
    """The devices whose heaps are observed, each once, the current one first; None: all.

    Raises:
        InvalidRequest: there is no such device, or the list is empty.
    """
    wanted = set(range(count)) if named is None else set(named)
    if unknown := sorted(wanted - set(range(count))):
        raise InvalidRequest(f"device {unknown[0]} does not exist; there are {count}, counted from 0")
    if not wanted:
        raise InvalidRequest(f"no device to observe was given; there are {count}, counted from 0")
    return sorted(wanted, key=lambda device: (device != current, device))


def _check_observed_range(what: str, address: int, size: int) -> None:
    """Raise InvalidRequest if memory that an observed heap is told of cannot exist."""
    if not 0 <= address < 1 << 63 or not 0 < size <= 1 << 62:
        raise InvalidRequest(
            f"{what} of {size} bytes at {address:#x} was reported; memory has 1 to 2^62 bytes, below 2^63"
        )


class Polling:
    """Polls for an observed heap: calls a function at intervals, never twice at a time; an error ends it and is kept.

    Args:
        every_s: seconds from the end of one call to the next.
        share: the most of a processor's time that the calls may take, 0..1; after a long one the wait is longer.
    """

    def __init__(self, poll: Callable[[], Any], every_s: float, name: str, share: float = 1.0) -> None:
        self._poll = poll
        self._rest = (1 - share) / share
        self._every_s = every_s
        self._lock = threading.Lock()
        # Python may exit within the `with`: a thread in a framework's C++ would then abort the process.
        self._periodic = Periodic(self._next, name, failed=self._keep, at_exit=True)
        self.error: Exception | None = None  # what `poll` raised in the thread

    def start(self) -> None:
        """Begin to poll; the thread's own arrays do not come from a heap that serves NumPy."""
        with unserved():
            self._periodic.start(self._every_s)

    def stop(self) -> None:
        """End the polling, after a running call has returned."""
        self._periodic.stop()

    def last(self, error: BaseException | None, call: Callable[[], Any] | None = None) -> None:
        """Poll a last time, or call `call`, at the end of a `with`; raises an error unless `error` ends the `with`."""
        try:
            (call or self.now)()
        except Exception as raised:
            self.error = self.error or raised
            if error is None:
                raise

    def now(self) -> None:
        """Call the polling function in this thread; errors are raised."""
        with self._lock:
            self._poll()

    def _next(self) -> float:
        begin = time.perf_counter()
        self.now()
        return max(self._every_s, (time.perf_counter() - begin) * self._rest)

    def _keep(self, error: Exception) -> None:
        self.error = error
