"""Serve the requests of a heap again under another setting: would it have served the one that failed?

An advice that names a setting is tried before it is given, where the trace has every request from the heap's start. The
heap that serves them is our own, over simulated memory: its rules are also those of TensorFlow and XLA.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np

from bfcviz.analysis.diagnosis import Diagnosis
from bfcviz.analysis.heap_settings import Family
from bfcviz.errors import InvalidRequest
from bfcviz.events.origin import Status, holds_only_states
from bfcviz.events.schema import Events, Flag, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.lifetimes import born_of

MOST: Final = 1_000_000
"""Events of a trace whose requests are served again: a fraction of a second."""

_BFC: Final = frozenset({Family.OWN, Family.TENSORFLOW, Family.JAX, Family.REACTANT})


@dataclass(frozen=True)
class RequestsUntilFailure:
    """The requests of a heap up to one that failed.

    Attributes:
        events: its ALLOCATE and FREE in order, and the OOM.
        options: of the heap, as the trace's origin has them.
        limit: bytes.
    """

    events: Events
    options: Mapping[str, Any]
    limit: int

    def succeed_with(self, **changed: Any) -> bool | None:
        """Whether the heap serves all requests with these of `AllocatorOptions` changed; None: not known.

        It is known only where the recorded options lead to the recorded failure; not where a driver refused memory
        below the limit, for example.
        """
        try:
            return not self._failed(changed) if self._fails_as_recorded else None
        except (InvalidRequest, TypeError, ValueError):  # options or a limit that no heap of ours can have
            return None

    @cached_property
    def _fails_as_recorded(self) -> bool:
        return self._failed({}) == [len(self.events) - 1]

    def _failed(self, changed: Mapping[str, Any]) -> list[int]:
        """Which requests fail, by their index."""
        # A program that only reads files has no heap, and one whose request failed has.
        from bfcviz.allocator.bfc import BFCAllocator  # noqa: PLC0415
        from bfcviz.allocator.interface import AllocatorOptions  # noqa: PLC0415
        from bfcviz.allocator.replay import ALLOCATE, FREE, Operations  # noqa: PLC0415
        from bfcviz.allocator.sub_allocators.simulated import SimulatedSubAllocator  # noqa: PLC0415
        from bfcviz.events.log import EventLog  # noqa: PLC0415

        names = [each.name for each in fields(AllocatorOptions) if each.name in self.options]
        known = {name: self.options[name] for name in names}
        options = AllocatorOptions(**{**known, "retry_s": 0.0, "timestamps": False, **changed})
        is_free = self.events["kind"] == Kind.FREE
        ids = self.events["seq"].astype(np.int64)
        ids[is_free] = born_of(self.events, np.flatnonzero(is_free))
        operations = Operations(
            kind=np.where(is_free, FREE, ALLOCATE),
            id=ids,
            size=np.where(is_free, 0, self.events["requested"]).astype(np.int64),
        )
        with BFCAllocator(SimulatedSubAllocator(), self.limit, options, log=EventLog(4096)) as heap:
            address = heap.replay(operations).address
        failed: list[int] = np.flatnonzero(~is_free & (address == 0)).tolist()
        return failed


def requests_until_failure(trace: Trace, found: Diagnosis) -> RequestsUntilFailure | None:
    """The requests up to a failure; None where the trace does not have them all, has too many, or other rules hold."""
    if found.event is None or found.bytes_limit is None or found.settings.family not in _BFC:
        return None
    is_whole = trace.origin.status in {Status.RECORDING, Status.COMPLETE} and not found.gaps
    if not is_whole or trace.first or found.event >= MOST or holds_only_states(trace.origin.details):
        return None
    events = trace.read(0, found.event + 1)
    asked = (events["pool"] == found.pool) & np.isin(events["kind"], (Kind.ALLOCATE, Kind.FREE))
    if (events["flags"][asked] & Flag.PIECE).any():
        return None
    asked[-1] = True  # of earlier failures nothing stays
    return RequestsUntilFailure(events[asked], trace.origin.pools[found.pool].options, found.bytes_limit)
