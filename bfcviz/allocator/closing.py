"""Closing: gives a heap's memory back when its allocator is dropped.

Always plain Python, in an object of its own: compiled classes under Python's limited C interface have no finalizers.
"""

from bfcviz.allocator.heap import Heap
from bfcviz.events.log import EventLog


class Closing:
    """Owned by an allocator, and by nothing else; what it holds may lie in a cycle with that allocator.

    Args:
        heap: releases its regions.
        log: is ended.
    """

    def __init__(self, heap: Heap, log: EventLog) -> None:
        self._heap = heap
        self._log = log

    def close(self) -> None:
        """Do it now; once."""
        if not self._heap.closed:
            self._heap.release_all()
            self._heap.wake()
            self._log.close()

    def __del__(self) -> None:
        # Nobody waits for memory of a heap that nobody has; and as Python ends, waking could not be done any more.
        if not self._heap.closed:
            self._heap.release_all()
            self._log.close()
