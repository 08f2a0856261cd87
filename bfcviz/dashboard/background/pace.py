"""Pace: how long to wait between two pictures, so that they cost a workload little."""

import math
import time
from typing import Final

SAVED_S: Final = 1.0
"""Seconds whose budget may be spent at once: a dear picture among cheap ones does not halt them."""

LONGEST_S: Final = 2.0
"""Seconds from one picture to the next at most, whatever they cost: a single slow one must not stop the rest."""


class Pace:
    """Measures pictures and says when the next may be made.

    Attributes:
        period_s: seconds from one picture to the next at least.
        cost_s: processor time of the last picture in the thread that made it, in seconds.
        frames: how many there were.
    """

    def __init__(self, rate: float, budget: float) -> None:
        self.period_s = 1 / rate
        self._budget = budget
        self._began = self._began_cpu = 0.0
        self._due = -math.inf  # when the next one may begin
        self._spent = 0.0  # seconds of processor time for which the budget has not come in yet
        self._counted = -math.inf  # when it last came in
        self.cost_s = 0.0
        self.frames = 0

    def begin(self) -> None:
        """A picture is begun, in this thread."""
        self._began, self._began_cpu = time.monotonic(), time.thread_time()

    def end(self) -> float:
        """It is made; returns the seconds to wait before the next."""
        self.cost_s = time.thread_time() - self._began_cpu
        self.frames += 1
        self._spent = max(self._spent - (self._began - self._counted) * self._budget, 0.0) + self.cost_s
        self._counted = self._began
        owed = self._spent / self._budget - SAVED_S
        # A picture that began a little late, as it waited for the interpreter's lock, does not make the next one late.
        late = self._began - self._due
        on_time = self._due if 0 <= late < self.period_s else self._began
        self._due = max(on_time + self.period_s, self._began + min(owed, LONGEST_S))
        return max(self._due - time.monotonic(), 0.0)
