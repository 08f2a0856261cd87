"""When the next frame of a live heap is drawn (Pace), and what it draws (FrameChoice).

A whole frame costs tens of milliseconds; ten of them per second take a third of a core. So while new events come in
each frame, only the region map is redrawn, and the other panels follow every second or two. When the heap is idle, or
the user shows an earlier step, the whole frame is drawn, including the parts that are drawn only for an idle heap.
"""

import math
import time
from enum import Enum
from typing import Final

SAVED_S: Final = 1.0
"""Seconds of budget that may be spent at once: one expensive frame among cheap ones does not delay them."""

LONGEST_S: Final = 2.0
"""Most seconds from one frame to the next, at any cost: one slow frame must not stop the others."""


class Pace:
    """Measures frames and computes when the next one may begin.

    Attributes:
        period_s: least seconds from one frame to the next.
        cost_s: processor time of the last frame in the thread that drew it, in seconds.
        frames: number of frames so far.
    """

    def __init__(self, rate: float, budget: float) -> None:
        self.period_s = 1 / rate
        self._budget = budget
        self._began = self._began_cpu = 0.0
        self._due = -math.inf  # when the next frame may begin
        self._spent = 0.0  # seconds of processor time that the budget does not cover yet
        self._counted = -math.inf  # when the budget was last added
        self.cost_s = 0.0
        self.frames = 0

    def begin(self) -> None:
        """Begin a frame, in this thread."""
        self._began, self._began_cpu = time.monotonic(), time.thread_time()

    def end(self) -> float:
        """End the frame; return the seconds to wait before the next one."""
        self.cost_s = time.thread_time() - self._began_cpu
        self.frames += 1
        self._spent = max(self._spent - (self._began - self._counted) * self._budget, 0.0) + self.cost_s
        self._counted = self._began
        owed = self._spent / self._budget - SAVED_S
        # A frame that began a little late, as it waited for the interpreter's lock, does not make the next one late.
        late = self._began - self._due
        on_time = self._due if 0 <= late < self.period_s else self._began
        self._due = max(on_time + self.period_s, self._began + min(owed, LONGEST_S))
        return max(self._due - time.monotonic(), 0.0)


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
