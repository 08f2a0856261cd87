"""Closing: gives a heap's memory back when its allocator is dropped.

Always plain Python, in an object of its own: compiled classes under Python's limited C interface have no finalizers.
"""

import sys

from bfcviz import _forks
from bfcviz.allocator.heap import Heap
from bfcviz.allocator.reclaim.trimming import settle
from bfcviz.events.log import EventLog


class _Growth:
    """Lets a fork wait until no other thread is in the sub-allocator: the child could not go on there."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap

    def acquire(self, _blocking: bool, timeout: float) -> bool:
        settle(self._heap, int(timeout * 1e9))
        return False

    def release(self) -> None:
        """Nothing is held."""

    def _at_fork_reinit(self) -> None:
        """The heap knows (`Heap.is_cut`)."""


class Closing:
    """Owned by an allocator, and by nothing else; what it holds may lie in a cycle with that allocator.

    Args:
        heap: releases its regions.
        log: is ended.
    """

    def __init__(self, heap: Heap, log: EventLog) -> None:
        self._heap = heap
        self._log = log
        self._is_ending = sys.is_finalizing
        self._is_compiled = "bfcviz._heap" in sys.modules
        self._growth = _forks.keep(_Growth(heap), _forks.FIRST)

    def close(self) -> None:
        """Do it now; once."""
        if not self._heap.closed:
            self._heap.release_all()
            self._heap.frees.wake_waiters()
            self._log.close()

    def __del__(self) -> None:
        # Nobody waits for memory of a heap that nobody has; and as Python ends, waking could not be done any more.
        # Then the modules of an uncompiled heap may be gone too: its memory goes with the process.
        if not self._heap.closed and (self._is_compiled or not self._is_ending()):
            self._heap.release_all()
            self._log.close()
