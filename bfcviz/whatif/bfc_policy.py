"""BFCPolicy: best fit with coalescing, by this package's own heap, which places every request as TensorFlow does.

The rules and the defaults of TensorFlow's versions stand in `bfcviz.formats.tensorflow`; the heap is tested against
traces of TensorFlow's own class. Not repeated: version 1.0 tried no size equal to the request after a refusal, and
0.8 did not reduce a region to what the limit left. A stream has no safe frontier, so that chunks merge when they are
freed, also where the trace had timestamps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.allocator import replay
from bfcviz.allocator.bfc_allocator import BFCAllocator
from bfcviz.allocator.interface import AllocatorOptions
from bfcviz.allocator.replay import Operations
from bfcviz.allocator.sub_allocators import BASE, PythonSubAllocator, SimulatedSubAllocator
from bfcviz.errors import InvalidRequest
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.formats.tensorflow import FIRST_REGION, VERSIONS
from bfcviz.whatif.outcome import DriverCalls, Outcome, failed_allocations
from bfcviz.whatif.policy import checked_limit, policy_origin
from bfcviz.whatif.requests import MARK, RequestStream

# ------------------------------------------------------------------------------
# The memory below a BFC heap that serves a trace again, where `SimulatedSubAllocator` knows too little.
#
# It grants the recorded addresses, repeats what a driver granted and refused, or answers the heap of an old
# TensorFlow.

GAP: Final = 1 << 30
"""Bytes of addresses between two regions that are not recorded ones."""

REGION_ALIGNMENT: Final = 2 << 20
"""Of the regions that are not recorded ones, in bytes, as CUDA's driver aligns large ones."""


class CountedBFCMemory(PythonSubAllocator):
    """Memory below a BFC heap that counts its calls; a subclass defines `region` and `take`.

    Args:
        supports_coalescing: let the heap join adjacent regions.
        backs_off_once: refuse the smaller sizes that the heap tries after a refusal, but those after the first one.
            A heap up to TensorFlow 2.7 did not try them (`started_backpedal_` in its bfc_allocator.cc).
    """

    def __init__(self, *, supports_coalescing: bool = False, backs_off_once: bool = False) -> None:
        super().__init__(supports_coalescing=supports_coalescing)
        self._backs_off_once = backs_off_once
        self._tries_less = True
        self._refused = (-1, 0)  # number of the operation and size of the last refusal
        self._grants = self._refusals = self._releases = 0

    @property
    def driver_calls(self) -> DriverCalls:
        """Number of calls to the memory below a BFC heap."""
        return DriverCalls(self._grants, self._refusals, self._releases)

    def allocate(self, alignment: int, num_bytes: int) -> tuple[int, int] | None:  # noqa: ARG002  as recorded, or 2 MiB
        """Grant a BFC heap a region: its address and size; None: refused."""
        operation, size = self._refused
        if operation != self.operation or num_bytes >= size:
            self._tries_less = not (self._backs_off_once and self._refusals)
        elif not self._tries_less:
            return None
        found = self.region(num_bytes)
        if found is None:
            self._refusals += 1
            self._refused = (self.operation, num_bytes)
        else:
            self._grants += 1
        return found

    def free(self, address: int, num_bytes: int) -> None:
        """Take back a region of a BFC heap; joined ones come back as one."""
        self._releases += 1
        self.take(address, num_bytes)

    def region(self, num_bytes: int) -> tuple[int, int] | None:
        """The address and size of a new region of a BFC heap; None: refused."""
        raise NotImplementedError

    def take(self, address: int, num_bytes: int) -> None:
        """Take back a region of a BFC heap."""
        raise NotImplementedError


class RecordedBFCMemory(CountedBFCMemory):
    """Grants a BFC heap the address of the next recorded region of the same size.

    Other sizes get addresses above all of these.

    Args:
        regions: of `REGION_ROW`.
        capacity: the most that is granted at one time, in bytes; None: no limit.
        supports_coalescing: as in `CountedBFCMemory`.
        backs_off_once: as in `CountedBFCMemory`.
    """

    def __init__(
        self,
        regions: NDArray[np.void],
        capacity: int | None = None,
        *,
        supports_coalescing: bool = False,
        backs_off_once: bool = False,
    ) -> None:
        super().__init__(supports_coalescing=supports_coalescing, backs_off_once=backs_off_once)
        grants = regions[regions["size"] > 0]
        self._waiting = [(int(row["address"]), int(row["size"])) for row in grants]
        highest = max((address + size for address, size in self._waiting), default=0)
        self._top = max(BASE, _aligned_bfc_address(highest + GAP))
        self._capacity = native.HALF_SPACE if capacity is None else capacity
        self._granted: dict[int, int] = {}

    def region(self, num_bytes: int) -> tuple[int, int] | None:
        """The address and size of a new region of a BFC heap; None: it would exceed the capacity, or the addresses."""
        if sum(self._granted.values()) + num_bytes > self._capacity:
            return None
        address = self._recorded(num_bytes) or self._above(num_bytes)
        if not address:
            return None
        self._granted[address] = num_bytes
        return address, num_bytes

    def take(self, address: int, num_bytes: int) -> None:
        """Take back a region of a BFC heap."""
        for start in [each for each in self._granted if address <= each < address + num_bytes]:
            del self._granted[start]

    def _recorded(self, num_bytes: int) -> int:
        """The address of the first region of this size that waits and overlaps with none; 0: there is none."""
        for at, (address, size) in enumerate(self._waiting):
            if size == num_bytes and not self._is_taken(address, size):
                del self._waiting[at]
                return address
        return 0

    def _is_taken(self, address: int, size: int) -> bool:
        return any(start < address + size and address < start + each for start, each in self._granted.items())

    def _above(self, num_bytes: int) -> int:
        """An address above all recorded regions; 0: the addresses end."""
        address = self._top
        if address + num_bytes > native.HALF_SPACE:
            return 0
        self._top = _aligned_bfc_address(address + num_bytes) + GAP
        return address


class ExactBFCMemory(CountedBFCMemory):
    """Grants and refuses a BFC heap what the driver did in the trace, request by request.

    Args:
        regions: of `REGION_ROW`; what is not among them is refused.
        supports_coalescing: as in `CountedBFCMemory`.
    """

    def __init__(self, regions: NDArray[np.void], *, supports_coalescing: bool = False) -> None:
        super().__init__(supports_coalescing=supports_coalescing)
        self._calls: dict[int, list[tuple[int, int]]] = {}
        for row in regions:
            self._calls.setdefault(int(row["request"]), []).append((int(row["address"]), int(row["size"])))

    def region(self, num_bytes: int) -> tuple[int, int] | None:
        """The region of a BFC heap that this request was granted, once the regions before it are released."""
        waiting = self._calls.get(self.operation)
        return waiting.pop(0) if waiting and waiting[0][1] >= num_bytes else None

    def take(self, address: int, num_bytes: int) -> None:  # noqa: ARG002  recorded
        """Take back a region of a BFC heap."""
        waiting = self._calls.get(self.operation)
        if waiting and (address, 0) in waiting:
            waiting.remove((address, 0))


def _aligned_bfc_address(address: int) -> int:
    return -(-address // REGION_ALIGNMENT) * REGION_ALIGNMENT


# ------------------------------------------------------------------------------
# BFCPolicy: the options of the heap and of the memory below it, and the requests that they serve.

BFC_OPTIONS: Final[Mapping[str, Any]] = {
    "allow_growth": False,
    "garbage_collection": False,
    "fragmentation_fraction": 0.0,
    "first_region": FIRST_REGION,
    "exact_growth": False,
}
"""Options of the heap, with their defaults; see `AllocatorOptions`. A stream has no alignments to honour."""

MEMORY_OPTIONS: Final[Mapping[str, Any]] = {
    "mode": "gapped",
    "capacity": None,
    "granule": 1,
    "supports_coalescing": False,
    "gap": 1 << 30,
    "regions": "simulated",
    "backs_off_once": False,
}
"""Options of the memory below it, with their defaults; see `SimulatedSubAllocator` and `_bfc_memory`.

With `regions=exact` address ties between equal chunks are those of the trace.
"""

_BFC_CHOICES: Final = {
    "regions": ("simulated", "recorded", "exact"),
    "mode": ("gapped", "contiguous", "descending"),
    "version": tuple(VERSIONS),
}
_SIMULATED_ONLY: Final = ("mode", "granule", "gap")

_EVENTS_A_REQUEST = 4  # at most: EXTEND, SPLIT, ALLOCATE and one RELEASE; or FREE and two MERGE
_LOG_STEP = 64  # the capacity of a log is a multiple of this


@dataclass(frozen=True)
class BFCPolicy:
    """The policy of TensorFlow's and XLA's BFC allocator.

    Attributes:
        options: those that were given: `version` of `VERSIONS`, and of `BFC_OPTIONS` and `MEMORY_OPTIONS`, which win
            over the version's.

    Raises:
        InvalidRequest: an option has none of its values.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "bfc"

    def __post_init__(self) -> None:
        for key, known in _BFC_CHOICES.items():
            if key in self.options and self.options[key] not in known:
                raise InvalidRequest(
                    f"option {key!r} of policy 'bfc' is {self.options[key]!r}; give one of {', '.join(known)}"
                )

    @property
    def settings(self) -> dict[str, Any]:
        """All options of the BFC policy; where one is not given, it has the default of the version."""
        version = self.options.get("version", "2.21")
        found = {**BFC_OPTIONS, **MEMORY_OPTIONS, **VERSIONS[version], **self.options}
        found.pop("version", None)
        return found

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests from an empty BFC heap; as `Policy.serve`. Without a limit a heap must grow."""
        checked_limit(limit)
        heap, memory = self._heap(stream, limit, record=record)
        results = heap.replay(_bfc_operations(stream, len(stream)))
        stop = _bfc_failure_stop(stream, results.address) if stop_at_failure else len(stream)
        if stop < len(stream):  # once more without the rest: neither the events nor the calls may have it
            heap, memory = self._heap(stream, limit, record=record)
            results = heap.replay(_bfc_operations(stream, stop))
        trace = None
        if record:
            events = Reader(heap.log, 0).read(heap.log.head)
            served = stream.rows[:stop]
            marks = served[served["kind"] == MARK]
            events["size"][events["kind"] == Kind.MARK] = marks["size"].view(np.uint64)
            known = BFCPolicy({**self.settings, **self.options})
            trace = Trace.from_events(events, stream.labels, policy_origin(known, stream, limit))
        return Outcome(
            self.name,
            self.options,
            limit,
            stream,
            results.address[:stop],
            results.allocated_size[:stop],
            results.bytes_in_use[:stop],
            results.pool_bytes[:stop],
            memory.driver_calls if isinstance(memory, CountedBFCMemory) else _bfc_driver_calls(memory),
            results.largest_free_chunk[:stop],
            trace,
        )

    def _heap(
        self, stream: RequestStream, limit: int | None, *, record: bool
    ) -> tuple[BFCAllocator, SimulatedSubAllocator | CountedBFCMemory]:
        settings = self.settings
        chosen = {key: settings[key] for key in BFC_OPTIONS}
        if limit is None and not chosen["allow_growth"]:
            raise InvalidRequest(
                "bfc without allow_growth takes its whole limit at once: give a limit, or allow_growth=true"
            )
        memory = _bfc_memory({key: settings[key] for key in MEMORY_OPTIONS}, stream)
        capacity = -(-(len(stream) + 1) * _EVENTS_A_REQUEST // _LOG_STEP) * _LOG_STEP if record else 4096
        log = EventLog(capacity)
        most = native.MAX_REQUEST - 1 if limit is None else limit
        return BFCAllocator(memory, most, AllocatorOptions(**chosen, honour_alignment=False), log=log), memory


def _bfc_memory(options: dict[str, Any], stream: RequestStream) -> SimulatedSubAllocator | CountedBFCMemory:
    """The memory below a BFC heap; `options` has all of `MEMORY_OPTIONS`."""
    regions, once = options.pop("regions"), options.pop("backs_off_once")
    if regions == "simulated" and not once:
        return SimulatedSubAllocator(options.pop("mode"), **options, journal=True)
    other = [key for key in _SIMULATED_ONLY if options[key] != MEMORY_OPTIONS[key]]
    if other:
        raise InvalidRequest(
            f"policy 'bfc' has {other[0]}={options[other[0]]}, which works only with regions=simulated and "
            "backs_off_once=false; leave it out"
        )
    joins = options["supports_coalescing"]
    if regions == "exact":
        return ExactBFCMemory(stream.regions, supports_coalescing=joins)
    known = stream.regions if regions == "recorded" else stream.regions[:0]
    return RecordedBFCMemory(known, options["capacity"], supports_coalescing=joins, backs_off_once=once)


def _bfc_operations(stream: RequestStream, stop: int) -> Operations:
    """A BFC heap's operations for the requests before `stop`: requests have the same numbers, marks another one."""
    rows = stream.rows[:stop]
    return Operations(
        kind=np.where(rows["kind"] == MARK, replay.MARK, rows["kind"]).astype(np.uint8),
        id=rows["block"],
        size=np.where(rows["kind"] == MARK, 0, rows["size"]),  # values of marks may need all 64 bits
        label=rows["label"],
        time=rows["time"] - rows["time"].min(initial=0),
        thread=rows["thread"],
        stream=rows["stream"],
    )


def _bfc_failure_stop(stream: RequestStream, address: NDArray[np.uint64]) -> int:
    """The index after the first failure of a BFC heap."""
    failed = failed_allocations(stream.rows, address)
    return int(failed[0]) + 1 if len(failed) else len(stream)


def _bfc_driver_calls(memory: SimulatedSubAllocator) -> DriverCalls:
    kinds = [call.kind for call in memory.calls]
    return DriverCalls(kinds.count(0), kinds.count(1), kinds.count(2))
