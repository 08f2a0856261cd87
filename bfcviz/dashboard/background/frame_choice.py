"""FrameChoice: chooses what the next frame of a live heap draws.

A whole frame costs tens of milliseconds; ten of them per second take a third of a core. So while new events come in
each frame, only the region map is redrawn, and the other panels follow every second or two. When the heap is idle, or
the user shows an earlier step, the whole frame is drawn, including the parts that are drawn only for an idle heap.
"""

import time
from enum import Enum
from typing import Final

IDLE_S: Final = 0.3
"""Seconds without an event after which a heap is idle."""

WHOLE_S: Final = 1.0
"""Least seconds between two whole frames of an active heap; expensive ones are drawn less often."""

_SHARE: Final = 0.015  # of one core, for whole frames of an active heap
_LONGEST_S: Final = 3.0


class Frame(Enum):
    """What a frame draws."""

    NOTHING = "nothing"
    MAP = "only the region map"
    MOVING = "everything except what is drawn only for an idle heap"
    WHOLE = "everything"


class FrameChoice:
    """Tracks when events came and what was drawn since then.

    Attributes:
        moving: the heap is active, and the last frame did not draw everything.
    """

    def __init__(self) -> None:
        self.moving = False
        self._pending = False  # events came that no whole frame shows yet
        self._came_before = False  # events came before the last frame
        self._last_came = self._whole_due = 0.0

    def due(self, *, came: bool, followed: bool, ended: bool = False) -> Frame:
        """Choose what to draw now.

        Args:
            came: events came since the last call.
            followed: the newest step is shown; if not, only the range of steps changes.
            ended: no more events will come.
        """
        now = time.monotonic()
        active = now - self._last_came < IDLE_S or (came and self._came_before)
        self._last_came, self._came_before = now if came else self._last_came, came
        self._pending |= came
        if not self._pending:
            return Frame.NOTHING
        if ended or not active:
            return Frame.WHOLE
        self.moving = followed
        if now >= self._whole_due:
            return Frame.MOVING if followed else Frame.WHOLE
        return Frame.MAP if came and followed else Frame.NOTHING

    def drew(self, frame: Frame, cost_s: float) -> None:
        """Record a frame that succeeded; `cost_s`: its processor time."""
        if frame is Frame.WHOLE:
            self._pending = self.moving = False
        if frame is not Frame.MAP:
            self._whole_due = time.monotonic() + min(max(WHOLE_S, cost_s / _SHARE), _LONGEST_S)
