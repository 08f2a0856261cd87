"""HeldQueue: freed chunks that may not be merged yet.

With timestamps every free gets a number, and memory freed at number n may only be merged (and so be handed out in
another shape) once the safe frontier has passed n: by then no work queued on the device touches it any more.
"""

from typing import Any

from bfcviz.allocator import structs


class HeldQueue:
    """Handles of freed chunks, in the order they were freed; some may have been handed out or merged since."""

    def __init__(self) -> None:
        self.waiting = structs.no_u32()
        self.due = structs.no_u32()
        self.count = 0
        self.room = 0

    def __dealloc__(self) -> None:
        structs.release(self.waiting)
        structs.release(self.due)

    def reserve(self) -> bool:
        """Make sure one more needs no memory."""
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
        """Let h wait; `reserve` first."""
        self.waiting[self.count] = h
        self.count += 1

    def select(self, chunks: Any, frontier: int, every: bool) -> int:
        """Move what is safe by now (or every one) to `due`; returns how many. Safe ones lose their number."""
        taken = 0
        kept = 0
        for i in range(self.count):
            h = self.waiting[i]
            c = structs.chunk_at(chunks, h)
            if c.binned == 0:
                continue  # merged, handed out or released since
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
