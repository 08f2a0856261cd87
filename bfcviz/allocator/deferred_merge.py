"""HeldQueue: freed chunks that may not be merged yet.

With timestamps every free gets a number. Memory freed at number n may be merged, and so allocated in another shape,
only after the safe frontier has passed n: from then on no work queued on the device uses it.
"""

from typing import Any

from bfcviz.allocator import structs


class HeldQueue:
    """Handles of freed chunks, in the order of their frees; some may be allocated or merged since."""

    def __init__(self) -> None:
        self.waiting = structs.no_u32()
        self.due = structs.no_u32()
        self.count = 0
        self.room = 0

    def __dealloc__(self) -> None:
        structs.release(self.waiting)
        structs.release(self.due)

    def reserve(self) -> bool:
        """Allocate memory for one more handle; False where there is none."""
        if self.count < self.room:
            return True
        room = self.room * 2 + 64
        waiting = structs.grow_u32(self.waiting, room)
        if structs.is_null(waiting):
            return False
        self.waiting = waiting
        due = structs.grow_u32(self.due, room)
        if structs.is_null(due):
            return False
        self.due = due
        self.room = room
        return True

    def push(self, h: int) -> None:
        """Add h; call `reserve` before."""
        self.waiting[self.count] = h
        self.count += 1

    def select(self, chunks: Any, frontier: int, every: bool) -> int:
        """Move safe chunks (or every chunk) to `due`; returns their count. `freed_at` of safe chunks becomes 0."""
        taken = 0
        kept = 0
        for i in range(self.count):
            h = self.waiting[i]
            c = structs.chunk_at(chunks, h)
            if c.binned == 0:
                continue  # merged, allocated or released since
            if c.freed_at < frontier:
                c.freed_at = 0
            if c.freed_at == 0 or every:
                self.due[taken] = h
                taken += 1
            else:
                self.waiting[kept] = h
                kept += 1
        self.count = kept
        return taken
