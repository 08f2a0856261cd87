"""RingReader: reads events from the rings of heaps in this process, more often than frames are drawn.

A ring overwrites events that were not read. Between two frames, and while one is drawn, a fast heap could fill its
whole ring. So a separate thread copies new events, which takes some microseconds, as often as the heap's speed
requires. A heap still loses events if it fills its ring within `LEAST_S`, or while one call holds the interpreter's
lock.
"""

import weakref
from collections.abc import Iterable
from typing import Final

from bfcviz.events.trace import Trace
from bfcviz.periodic import Periodic

LEAST_S: Final = 0.01
"""Least seconds between two reads."""

MOST_S: Final = 0.05
"""Most seconds between two reads: the delay until it notices that a heap became fast."""

_SHARE: Final = 0.25  # of a ring that may fill between two reads


class RingReader:
    """Reads the new events of those `traces` that can lose events, until it is stopped or the traces are freed.

    Args:
        traces: of heaps; it holds weak references to them.
    """

    def __init__(self, traces: Iterable[Trace]) -> None:
        self._reads = _Reads(weakref.ref(trace) for trace in traces if trace.slack is not None)
        self._periodic = Periodic(self._reads, "bfcviz-ring-reader")

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._periodic.running

    def start(self) -> None:
        """Start. Does nothing if it runs already, or if no trace can lose events."""
        if self._reads.traces:
            self._periodic.start(LEAST_S)

    def stop(self) -> None:
        """Stop, without waiting for a read in progress; it can be started again."""
        self._periodic.stop(0)


class _Reads:
    """Reads the traces that still exist; returns the seconds until the next read, None if no trace is left."""

    def __init__(self, traces: Iterable[weakref.ref[Trace]]) -> None:
        self.traces = list(traces)
        self._wait = LEAST_S

    def __call__(self) -> float | None:
        found = [trace for each in self.traces if (trace := each()) is not None and trace.following]
        if not found:
            return None
        self._wait = min(read_once(trace, self._wait) for trace in found)
        return self._wait


def read_once(trace: Trace, waited: float) -> float:
    """Read the new events; return the seconds in which a quarter of the ring fills at this speed."""
    filled = trace.fetch() / (_SHARE * (trace.slack or 1))
    return min(max(waited / filled if filled else MOST_S, LEAST_S), MOST_S)
