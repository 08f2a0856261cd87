"""Sizes as TensorFlow prints them, `74.16MiB`: with three or four digits, sometimes with a decimal comma."""

import re
from typing import Final, NamedTuple

SIZE: Final = r"\d{1,20}(?:[.,]\d{1,9})?(?:[KMGTPE]i)?B"
NUMBER: Final = rf"(?:{SIZE}|\d{{1,20}})\b"
"""A number of bytes, with or without a unit."""

_PARTS = re.compile(r"(\d{1,20})(?:[.,](\d{1,9}))?(?:([KMGTPE])i)?B?")
_UNITS = "KMGTPE"
_MOST = 1 << 63


class PrintedSize(NamedTuple):
    """A size in a log.

    Attributes:
        text: as printed, with a decimal point.
        value: bytes, or the nearest number that the text can mean.
        is_exact: whether no digits are missing.
    """

    text: str
    value: int
    is_exact: bool

    def means(self, size: int) -> bool:
        """Whether TensorFlow prints `size` bytes like this."""
        return size == self.value if self.is_exact else print_size(size) == self.text


def print_size(size: int) -> str:
    """Bytes as TensorFlow's `HumanReadableNumBytes` prints them; it cuts remainders off before the last division."""
    if size < 1024:
        return f"{size}B"
    unit = 0
    while size >= 1 << 20 and unit < len(_UNITS) - 1:
        size >>= 10
        unit += 1
    return f"{size / 1024:.1f}KiB" if unit == 0 else f"{size / 1024:.2f}{_UNITS[unit]}iB"


def printed_size(text: str) -> PrintedSize | None:
    """The size that `text` prints; None if it is none, or larger than any memory."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return None
    whole, fraction, unit = parts.groups()
    scale = 1 << 10 * (_UNITS.index(unit) + 1) if unit else 1
    value = int(whole) * scale
    if fraction:
        value += round(int(fraction) * scale / 10 ** len(fraction))
    return None if value >= _MOST else PrintedSize(text.replace(",", "."), value, not unit)
