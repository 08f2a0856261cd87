"""Player: advances step by step on the kernel's event loop, until the end or a pause."""

import time
from collections.abc import Callable
from typing import Final

from bfcviz.errors import BfcvizError
from bfcviz.periodic import Periodic

FRAME_S: Final = 0.2
"""Seconds between two frames, if drawing one does not take longer."""

YIELD_S: Final = 0.02
"""Least seconds between two frames in which the kernel handles messages, such as a pause."""


class Player:
    """Calls `advance` repeatedly, until it returns False."""

    def __init__(self, advance: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._advance = advance
        self._periodic = Periodic(self._step, "bfcviz-player", ended=ended)

    @property
    def playing(self) -> bool:
        """Whether it plays."""
        return self._periodic.running

    def play(self) -> None:
        """Start. Does nothing if it plays already.

        Raises:
            BfcvizError: no event loop runs in this thread, such as in a script.
        """
        try:
            self._periodic.start_task()
        except RuntimeError:
            raise BfcvizError(
                "play needs a running event loop, such as a notebook's, and this thread has none; set `step` instead"
            ) from None

    def pause(self) -> None:
        """Stop before the next step. From any thread."""
        self._periodic.stop()

    def _step(self) -> float | None:
        began = time.monotonic()
        if not self._advance():
            return None
        return max(FRAME_S - (time.monotonic() - began), YIELD_S)
