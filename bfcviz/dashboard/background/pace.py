"""Pace: how long to wait between two frames, so that drawing costs the workload little."""

import math
import time
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
