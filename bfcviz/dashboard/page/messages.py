"""Validate page messages. Any script in a page can send any content."""

from collections.abc import Mapping
from typing import Any, Final

from bfcviz.errors import BfcvizError

_MAX_NUMBER: Final = 1e21
"""Larger than any address, time or step in any unit; an axis never shows a larger number."""

_MAX_LENGTH: Final = 80  # characters, of a number sent as text and of a message quoted in an error

Range = tuple[float, float]


class PageMessage:
    """One message: its fields by name, each checked for the requested type.

    Raises:
        BfcvizError: from every method, if the field is missing or has another type.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        if not isinstance(content, Mapping):
            raise self._invalid("is not a mapping")

    def has(self, name: str) -> bool:
        """Whether the field exists and is not null."""
        return self._content.get(name) is not None

    def text(self, name: str) -> str:
        """A text."""
        value = self._content.get(name)
        if not isinstance(value, str):
            raise self._invalid(f"has no text {name!r}")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._content.get(name)
        if not _is_number(value):
            raise self._invalid(f"has no number {name!r}")
        return float(value)

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number, `least`..2^64-1. It may be sent as text: JavaScript's numbers are exact only to 2^53."""
        value = self._content.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < _MAX_LENGTH:
            value = int(value)
        if type(value) is not int or not least <= value < 1 << 64:
            raise self._invalid(f"has no valid whole number {name!r}")
        return value

    def ranges(self) -> dict[int, dict[str, Range]]:
        """Number of a panel -> the ranges of its axes `x` and `y`. Skips panels without ranges, such as hidden ones."""
        ranges = self._content.get("ranges")
        if not isinstance(ranges, Mapping):
            raise self._invalid("has no ranges")
        found: dict[int, dict[str, Range]] = {}
        for number, axes in ranges.items():
            known = isinstance(axes, Mapping) and {name: _range(axes.get(name)) for name in ("x", "y")}
            if known and all(known.values()) and str(number).isdecimal() and len(str(number)) < _MAX_LENGTH:
                found[int(number)] = {name: ends for name, ends in known.items() if ends is not None}
        return found

    def _invalid(self, reason: str) -> BfcvizError:
        content = repr(self._content)
        content = content if len(content) <= _MAX_LENGTH else content[: _MAX_LENGTH - 1] + "…"
        return BfcvizError(f"invalid page message: {content} {reason}; nothing was changed")


def _range(ends: Any) -> Range | None:
    if not isinstance(ends, list | tuple) or len(ends) != 2 or not all(map(_is_number, ends)):
        return None
    return float(ends[0]), float(ends[1])


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and -_MAX_NUMBER < value < _MAX_NUMBER
    )
