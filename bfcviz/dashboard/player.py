"""Play: one step after another on the kernel's event loop, until the end or a pause."""

import asyncio
from collections.abc import Callable
from typing import Final

from bfcviz.errors import BfcvizError

TICK_S: Final = 0.2
"""Seconds between two pictures, where making one takes no longer."""

REST_S: Final = 0.02
"""Seconds left to the kernel between two pictures at least: a pause must get through."""


class Player:
    """Calls `advance` again and again; it returns whether there is more to play."""

    def __init__(self, advance: Callable[[], bool], ended: Callable[[], None]) -> None:
        self._advance = advance
        self._ended = ended
        self._task: asyncio.Task[None] | None = None
        self._wanted = False

    @property
    def playing(self) -> bool:
        """Whether it is under way."""
        return self._wanted

    def play(self) -> None:
        """Starts; nothing changes where it already plays.

        Raises:
            BfcvizError: no event loop runs in this thread, as in a plain script.
        """
        if self._wanted:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise BfcvizError(
                "play needs a running event loop, as a notebook has; set `step` instead"
            ) from None
        self._wanted = True
        self._task = loop.create_task(self._run())  # kept, or the loop would forget it

    def pause(self) -> None:
        """Stops before the next step; may be called from any thread."""
        self._wanted = False

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._wanted:
                began = loop.time()
                if not self._advance():
                    break
                await asyncio.sleep(max(TICK_S - (loop.time() - began), REST_S))
        finally:
            self._wanted = False
            self._ended()
