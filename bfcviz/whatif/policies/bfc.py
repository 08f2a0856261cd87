"""BFC: best fit with coalescing, by this package's own heap, which places every request as TensorFlow does.

Source: xla/tsl/framework/bfc_allocator.cc of TensorFlow 2.21; the heap is tested against traces of that class.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.allocator import replay
from bfcviz.allocator.bfc import BFCAllocator
from bfcviz.allocator.interface.options import AllocatorOptions
from bfcviz.allocator.replay import Operations
from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator
from bfcviz.errors import InvalidRequest
from bfcviz.events.log import EventLog
from bfcviz.events.log_reader import Reader
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.whatif.outcome import DriverCalls, Outcome
from bfcviz.whatif.policy import checked_limit, origin_of
from bfcviz.whatif.requests import ALLOCATE, MARK, RequestStream

BFC_OPTIONS: Final[Mapping[str, Any]] = {
    "allow_growth": False,
    "garbage_collection": False,
    "fragmentation_fraction": 0.0,
    "honour_alignment": True,
}
"""Options of the heap, with their defaults; see `AllocatorOptions`."""

MEMORY_OPTIONS: Final[Mapping[str, Any]] = {
    "mode": "gapped",
    "capacity": None,
    "granule": 1,
    "supports_coalescing": False,
}
"""Options of the memory below it, with their defaults; see `SimulatedSubAllocator`."""

_EVENTS_A_REQUEST = 4  # at most: EXTEND, SPLIT, ALLOCATE and one RELEASE; or FREE and two MERGE
_LOG_STEP = 64  # the capacity of a log is a multiple of this


@dataclass(frozen=True)
class BFCPolicy:
    """The rules of TensorFlow's and XLA's BFC allocator.

    Attributes:
        options: of `BFC_OPTIONS` and `MEMORY_OPTIONS`.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "bfc"

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests from an empty heap; as `Policy.serve`. Without a limit a heap must grow."""
        checked_limit(limit)
        heap, memory = self._heap(stream, limit, record=record)
        results = heap.replay(_operations(stream))
        columns = [results.address, results.allocated_size, results.bytes_in_use, results.pool_bytes]
        stop = _stop(stream, columns[0]) if stop_at_failure else len(stream)
        address, size, in_use, reserved, largest = (
            column[:stop] for column in (*columns, results.largest_free_chunk)
        )
        trace = None
        if record:
            events = Reader(heap.log, 0).read(heap.log.head)
            marks = stream.rows[stream.rows["kind"] == MARK]
            events["size"][events["kind"] == Kind.MARK] = marks["size"].view(np.uint64)
            trace = Trace.from_events(events, stream.labels, origin_of(self, stream, limit))
        return Outcome(
            self.name,
            self.options,
            limit,
            stream,
            address,
            size,
            in_use,
            reserved,
            _calls(memory),
            largest,
            trace,
        )

    def _heap(
        self, stream: RequestStream, limit: int | None, *, record: bool
    ) -> tuple[BFCAllocator, SimulatedSubAllocator]:
        chosen = {**BFC_OPTIONS, **{key: self.options[key] for key in BFC_OPTIONS if key in self.options}}
        below = {
            **MEMORY_OPTIONS,
            **{key: self.options[key] for key in MEMORY_OPTIONS if key in self.options},
        }
        if limit is None and not chosen["allow_growth"]:
            raise InvalidRequest(
                "bfc without allow_growth takes its whole limit at once: give a limit, or allow_growth=true"
            )
        memory = SimulatedSubAllocator(below.pop("mode"), **below, journal=True)
        capacity = -(-(len(stream) + 1) * _EVENTS_A_REQUEST // _LOG_STEP) * _LOG_STEP if record else 4096
        log = EventLog(capacity)
        most = native.MAX_REQUEST - 1 if limit is None else limit
        return BFCAllocator(memory, most, AllocatorOptions(**chosen), log=log), memory


def _operations(stream: RequestStream) -> Operations:
    """The operations of a replay: requests have the same numbers, marks another one."""
    rows = stream.rows
    return Operations(
        kind=np.where(rows["kind"] == MARK, replay.MARK, rows["kind"]).astype(np.uint8),
        id=rows["block"],
        size=np.where(rows["kind"] == MARK, 0, rows["size"]),  # values of marks may need all 64 bits
        label=rows["label"],
        time=rows["time"] - rows["time"].min(initial=0),
        thread=rows["thread"],
        stream=rows["stream"],
    )


def _stop(stream: RequestStream, address: NDArray[np.uint64]) -> int:
    """The index after the first failure."""
    failed = np.flatnonzero((stream.rows["kind"] == ALLOCATE) & (stream.rows["size"] > 0) & (address == 0))
    return int(failed[0]) + 1 if len(failed) else len(stream)


def _calls(memory: SimulatedSubAllocator) -> DriverCalls:
    kinds = [call.kind for call in memory.calls]
    return DriverCalls(kinds.count(0), kinds.count(1), kinds.count(2))
