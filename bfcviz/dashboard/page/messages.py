"""What a message from the page says, read with suspicion: whoever can run script in a page can send anything."""

from collections.abc import Mapping
from typing import Any, Final

from bfcviz.errors import BfcvizError

_MOST: Final = 1e21
"""More than any address, time or step in any unit: what is larger was never on an axis."""

_LONGEST: Final = 80

Range = tuple[float, float]


class Said:
    """One message: its fields by name, each of the type that is asked for.

    Raises:
        BfcvizError: by every method, where the message has no such field, or one of another type.
    """

    def __init__(self, message: Any) -> None:
        self._message = message
        if not isinstance(message, Mapping):
            raise self._nonsense("no message")

    def has(self, name: str) -> bool:
        """Whether it says anything but null."""
        return self._message.get(name) is not None

    def text(self, name: str) -> str:
        """A text."""
        value = self._message.get(name)
        if not isinstance(value, str):
            raise self._nonsense(f"no text {name!r}")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._message.get(name)
        if not _is_number(value):
            raise self._nonsense(f"no number {name!r}")
        return float(value)

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number from `least` to what 64 bits hold, maybe as text: JavaScript's are exact only to 2^53."""
        value = self._message.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < _LONGEST:
            value = int(value)
        if type(value) is not int or not least <= value < 1 << 64:
            raise self._nonsense(f"no whole number {name!r} that makes sense")
        return value

    def ranges(self) -> dict[int, dict[str, Range]]:
        """Number of a panel -> the ranges of its axes `x` and `y`; without those that have none, as hidden ones."""
        said = self._message.get("ranges")
        if not isinstance(said, Mapping):
            raise self._nonsense("no ranges")
        found: dict[int, dict[str, Range]] = {}
        for number, axes in said.items():
            known = isinstance(axes, Mapping) and {name: _range(axes.get(name)) for name in ("x", "y")}
            if known and all(known.values()) and str(number).isdecimal() and len(str(number)) < _LONGEST:
                found[int(number)] = {name: ends for name, ends in known.items() if ends is not None}
        return found

    def _nonsense(self, why: str) -> BfcvizError:
        said = repr(self._message)
        said = said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"
        return BfcvizError(f"the page sent what cannot be understood: {said} has {why}; nothing was changed")


def _range(ends: Any) -> Range | None:
    if not isinstance(ends, list | tuple) or len(ends) != 2 or not all(map(_is_number, ends)):
        return None
    return float(ends[0]), float(ends[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MOST < value < _MOST
