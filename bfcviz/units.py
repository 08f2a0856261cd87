"""Bytes to text and back, the one way all texts and pictures use."""

import re

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTPE]?)(i?B)?\s*", re.IGNORECASE)


def format_bytes(num_bytes: float) -> str:
    """Text for a number of bytes in binary units: `0 B`, `256 B`, `1.2 MiB`, `-3.0 KiB`."""
    value = float(abs(num_bytes))
    unit = 0
    # 1023.95 and up would print as 1024.0 of its unit.
    while value >= 1023.95 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    sign = "-" if num_bytes < 0 else ""
    return f"{sign}{value:.0f} B" if unit == 0 else f"{sign}{value:.1f} {_UNITS[unit]}"


def parse_bytes(text: str | int) -> int:
    """Bytes from text such as `512MiB`, `2 GiB`, `1.5g` or `4096` (all units are binary).

    Raises:
        ValueError: the text is not a size; the message shows the forms that are.
    """
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"not a size in bytes: {text!r}; write it as 4096, '512MiB' or '2 GiB'")
    power = " KMGTPE".index(match[2].upper() or " ")
    return int(float(match[1]) * 1024**power)
