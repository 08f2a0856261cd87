"""Which rows of a long list a page holds: those in sight, and some before and after them.

::

    row 0      ┌──────────┐   empty, as high as the rows before
               │ made     │   a page holds these
    top     →  │ in sight │   the user sees these
               │ made     │
               └──────────┘   empty

The page scrolls by itself, and sends a message where rows come into sight that are not made. See `scrolling.js`.
"""

from typing import Final

ROWS: Final = 11
"""Rows in sight."""

ROW_PX: Final = 21
"""The height of a row in pixels; a border of 1 pixel included."""

BEYOND: Final = 11
"""Rows that are made before the first one in sight, and after the last one."""

_TALLEST: Final = 8_000_000
"""Pixels of a whole list: browsers draw nothing below about 17 million."""


class RowsInView:
    """The place of a list on its page.

    Attributes:
        top: the first row in sight.
        count: number of rows.
        moves: how often Python, not the user, has moved the page.
        moved_to: where it moved it the last time.
    """

    def __init__(self) -> None:
        self.top = self.count = self.moves = self.moved_to = 0
        self._made = range(0)

    @property
    def last(self) -> int:
        """The highest `top`: the last row is in sight."""
        return max(self.count - ROWS, 0)

    @property
    def made(self) -> range:
        """The rows that the page holds."""
        return self._made

    @property
    def height(self) -> int:
        """Pixels of the whole list."""
        return min(self.count * ROW_PX, _TALLEST)

    @property
    def above(self) -> int:
        """Pixels above the rows that are made."""
        spare = self.count - len(self._made)
        if self.count * ROW_PX <= _TALLEST or spare <= 0:
            return self._made.start * ROW_PX
        return round((self.height - len(self._made) * ROW_PX) * self._made.start / spare)

    def scrolled_to(self, top: int) -> bool:
        """Note that the user scrolled to row `top`; return whether the rows there have to be made."""
        self.top = min(max(top, 0), self.last)
        wanted = range(self.top, min(self.top + ROWS, self.count))
        if wanted.start >= self._made.start and wanted.stop <= self._made.stop:
            return False
        self._make()
        return True

    def move_to(self, top: int) -> None:
        """Move the page to row `top`."""
        self.top = self.moved_to = min(max(top, 0), self.last)
        self.moves += 1
        self._make()

    def set_count(self, count: int, near: int | None = None) -> None:
        """Set the number of rows; the page stays, or moves to row `near` if that is out of sight."""
        self.count = count
        if near is not None and not self.top <= near < self.top + ROWS:
            self.move_to(near - ROWS // 3)
        elif self.top > self.last:
            self.move_to(self.last)
        self._make()

    def drop(self, rows: int) -> None:
        """Note that the first rows have gone: the same rows stay in sight where they can."""
        self.count -= rows
        self.move_to(self.top - rows)

    def _make(self) -> None:
        self._made = range(max(self.top - BEYOND, 0), min(self.top + ROWS + BEYOND, self.count))
