"""Motion: which picture of a heap is due, while it works and when it rests.

A whole picture costs tens of milliseconds, ten of them a second a third of a core. So while events come one picture
after the other, only the region map moves: the rest follows every second or two. As soon as the heap rests, or
somebody looks back, there is the whole picture, with all that is only read at rest.
"""

import time
from enum import Enum
from typing import Final

REST_S: Final = 0.3
"""Seconds without an event after which a heap rests."""

WHOLE_S: Final = 1.0
"""Seconds from one whole picture of a heap at work to the next, at least; dear ones come less often."""

_SHARE: Final = 0.015  # of one core, for whole pictures of a heap at work
_LONGEST_S: Final = 3.0


class Frame(Enum):
    """What to draw."""

    NOTHING = "nothing"
    GLANCE = "the map alone"
    MOVING = "everything but what is only read at rest"
    WHOLE = "everything"


class Motion:
    """Knows when events came, and what was drawn since.

    Attributes:
        moving: the heap is at work, and what is drawn is not all there is to draw.
    """

    def __init__(self) -> None:
        self.moving = False
        self._owed = False  # events came that no picture at rest shows
        self._again = False  # events came the last time
        self._came = self._whole_due = 0.0

    def due(self, *, came: bool, followed: bool, ended: bool = False) -> Frame:
        """What to draw now.

        Args:
            came: events came since the last time.
            followed: the newest step is what is shown; else it is another, and only its surroundings change.
            ended: no more will come.
        """
        now = time.monotonic()
        at_work = now - self._came < REST_S or (came and self._again)
        self._came, self._again = now if came else self._came, came
        self._owed |= came
        if not self._owed:
            return Frame.NOTHING
        if ended or not at_work:
            return Frame.WHOLE
        self.moving = followed
        if now >= self._whole_due:
            return Frame.MOVING if followed else Frame.WHOLE
        return Frame.GLANCE if came and followed else Frame.NOTHING

    def drew(self, frame: Frame, cost_s: float) -> None:
        """A picture went well; `cost_s`: its processor time."""
        if frame is Frame.WHOLE:
            self._owed = self.moving = False
        if frame is not Frame.GLANCE:
            self._whole_due = time.monotonic() + min(max(WHOLE_S, cost_s / _SHARE), _LONGEST_S)
