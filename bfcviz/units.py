"""Convert bytes to text and back, in the same way for all texts and pictures."""

import operator
import re
from typing import SupportsIndex

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FORMS = (
    "give an integer, or text such as '512MiB', '2 GiB' or '80 GB' (GB is 10^9 bytes, GiB and G are 2^30)"
)
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTPE]?)(i?B)?\s*", re.IGNORECASE)


def format_bytes(num_bytes: float, digits: int = 1) -> str:
    """A number of bytes as text in binary units: `0 B`, `256 B`, `1.2 MiB`, `-3.0 KiB`."""
    value = float(abs(num_bytes))
    unit = 0
    # 1023.95 and above would print as 1024.0.
    while value >= 1023.95 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    sign = "-" if num_bytes < 0 else ""
    return f"{sign}{value:.0f} B" if unit == 0 else f"{sign}{value:.{digits}f} {_UNITS[unit]}"


def signed_bytes(difference: float) -> str:
    """A difference of bytes with its sign: `+1.2 MiB`, `-256 B`, `0 B`."""
    return f"{'+' if difference > 0 else ''}{format_bytes(difference)}"


def parse_bytes(size: str | SupportsIndex, name: str = "size") -> int:
    """Bytes from an integer, or from text such as `512MiB`, `80 GB`, `1.5g` or `4096`.

    `GB` is 10^9 bytes, as makers of devices count; `GiB` and `G` are 2^30; the other units likewise.

    Args:
        size: an integer or text.
        name: of the parameter, for error messages.

    Raises:
        ValueError: the text is not a size; the message shows valid forms.
        TypeError: `size` is neither text nor an integer.
    """
    if not isinstance(size, str):
        try:
            return operator.index(size)
        except TypeError:
            raise TypeError(f"{name}={size!r} is not a size in bytes; {_FORMS}") from None
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f"{name}={size!r} is not a size in bytes; {_FORMS}")
    power = " KMGTPE".index(match[2].upper() or " ")
    return int(float(match[1]) * (1000 if is_decimal(size) else 1024) ** power)


def is_decimal(size: str) -> bool:
    """Whether the unit of a text that `parse_bytes` reads is a power of 1000, such as `GB`."""
    match = _SIZE.fullmatch(size)
    return match is not None and bool(match[2]) and (match[3] or "").upper() == "B"


def read_as(size: str | SupportsIndex | None) -> str:
    """What a size with a decimal unit was read as: `10 GB is 10,000,000,000 bytes (9.3 GiB)`; else empty."""
    if not isinstance(size, str) or not is_decimal(size):
        return ""
    num_bytes = parse_bytes(size)
    return f"{size.strip()} is {num_bytes:,} bytes ({format_bytes(num_bytes)})"
