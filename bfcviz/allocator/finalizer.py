"""Finalizer: release a heap's memory when its allocator is collected or closed.

Always plain Python, in an object of its own: compiled classes have no finalizers under Python's limited C interface.
"""

import sys

from bfcviz import _forks
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.trimming import wait_for_growth
from bfcviz.events.log import EventLog


class _GrowthLock:
    """Makes a fork wait until no other thread is in the sub-allocator: the child could not continue that call."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap

    def acquire(self, _blocking: bool, timeout: float) -> bool:
        wait_for_growth(self._heap, int(timeout * 1e9))
        return False

    def release(self) -> None:
        """Do nothing: `acquire` takes no lock."""

    def _at_fork_reinit(self) -> None:
        """Do nothing: the heap detects the fork (`Heap.was_forked_while_growing`)."""


class Finalizer:
    """Releases the regions and ends the log.

    Only the allocator owns it. Its members may be in a reference cycle with the allocator.

    Args:
        heap: its regions are released.
        log: it is closed.
    """

    def __init__(self, heap: Heap, log: EventLog) -> None:
        self._heap = heap
        self._log = log
        self._is_ending = sys.is_finalizing
        self._is_compiled = "bfcviz._heap" in sys.modules
        self._growth_lock = _forks.keep(_GrowthLock(heap), _forks.FIRST)

    def close(self) -> None:
        """Release the memory and end the log; a second call does nothing."""
        if not self._heap.closed:
            self._heap.release_all()
            self._heap.frees.wake_waiters()
            self._log.close()

    def __del__(self) -> None:
        # No thread waits for memory of a heap without references, so none is woken; at the end of Python waking would
        # fail. Then the modules of an uncompiled heap may be unloaded too: its memory is freed with the process.
        if not self._heap.closed and (self._is_compiled or not self._is_ending()):
            self._heap.release_all()
            self._log.close()
