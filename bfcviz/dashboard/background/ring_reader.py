"""Drain: takes events out of the rings of heaps in this process, far more often than pictures are made.

A ring overwrites what nobody has read. Between two pictures, and while one is made, a fast heap would come round its
ring; so a thread of its own copies what is new, which takes some microseconds, as often as the heap's speed asks for.
A heap that fills its ring within `LEAST_S`, or while one call holds the interpreter's lock, still loses events.
"""

import weakref
from collections.abc import Iterable
from typing import Final

from bfcviz.events.trace import Trace
from bfcviz.periodic import Periodic

LEAST_S: Final = 0.01
"""Seconds between two looks at least."""

MOST_S: Final = 0.05
"""Seconds between two looks at most: how soon it notices that a heap has become fast."""

_SHARE: Final = 0.25  # of a ring that may fill between two looks


class Drain:
    """Fetches what is new of `traces`, those that can lose events, until it is stopped or they are gone.

    Args:
        traces: of heaps; not kept alive.
    """

    def __init__(self, traces: Iterable[Trace]) -> None:
        self._looks = _Looks(weakref.ref(trace) for trace in traces if trace.slack is not None)
        self._periodic = Periodic(self._looks, "bfcviz-drain")

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._periodic.running

    def start(self) -> None:
        """Begin; nothing changes where it runs already or there is nothing to lose."""
        if self._looks.traces:
            self._periodic.start(LEAST_S)

    def stop(self) -> None:
        """End it, without waiting for a look under way; it can be started again."""
        self._periodic.stop(0)


class _Looks:
    """Fetches what is new of the traces that are there yet; returns when to look again, None where all are gone."""

    def __init__(self, traces: Iterable[weakref.ref[Trace]]) -> None:
        self.traces = list(traces)
        self._wait = LEAST_S

    def __call__(self) -> float | None:
        found = [trace for each in self.traces if (trace := each()) is not None and trace.following]
        if not found:
            return None
        self._wait = min(_look(trace, self._wait) for trace in found)
        return self._wait


def _look(trace: Trace, waited: float) -> float:
    """Fetches what is new; returns the seconds in which a quarter of the ring fills at this speed."""
    filled = trace.fetch() / (_SHARE * (trace.slack or 1))
    return min(max(waited / filled if filled else MOST_S, LEAST_S), MOST_S)
