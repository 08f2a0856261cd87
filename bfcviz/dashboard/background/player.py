"""Play: one step after another on the kernel's event loop, until the end or a pause."""

import time
from collections.abc import Callable
from typing import Final

from bfcviz.errors import BfcvizError
from bfcviz.periodic import Periodic

TICK_S: Final = 0.2
"""Seconds between two pictures, where making one takes no longer."""

REST_S: Final = 0.02
"""Seconds left to the kernel between two pictures at least: a pause must get through."""


class Player:
    """Calls `advance` again and again; it returns whether there is more to play."""

    def __init__(self, advance: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._advance = advance
        self._periodic = Periodic(self._step, "bfcviz-player", ended=ended)

    @property
    def playing(self) -> bool:
        """Whether it is under way."""
        return self._periodic.running

    def play(self) -> None:
        """Starts; nothing changes where it already plays.

        Raises:
            BfcvizError: no event loop runs in this thread, as in a plain script.
        """
        try:
            self._periodic.start_task()
        except RuntimeError:
            raise BfcvizError(
                "play needs a running event loop, as a notebook has; set `step` instead"
            ) from None

    def pause(self) -> None:
        """Stops before the next step; may be called from any thread."""
        self._periodic.stop()

    def _step(self) -> float | None:
        began = time.monotonic()
        if not self._advance():
            return None
        return max(TICK_S - (time.monotonic() - began), REST_S)
