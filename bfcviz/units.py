"""Convert bytes, seconds and counts to text, and bytes back, in the same way for all texts and pictures."""

import operator
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, SupportsIndex

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


def bytes_range(low: int, high: int) -> str:
    """A range of bytes as text, such as "51.5 GiB to 56.9 GiB"; as numbers of bytes where their texts are the same."""
    ends = format_bytes(low), format_bytes(high)
    return " to ".join(ends) if ends[0] != ends[1] else f"{low:,} to {high:,} bytes"


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
        if not isinstance(size, bool):  # an index, too, but True is no byte
            with suppress(TypeError):
                return operator.index(size)
        raise TypeError(f"{name}={size!r} is not a size in bytes; {_FORMS}")
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f"{name}={size!r} is not a size in bytes; {_FORMS}")
    power = " KMGTPE".index(match[2].upper() or " ")
    return int(float(match[1]) * (1000 if is_decimal(size) else 1024) ** power)


def is_decimal(size: str) -> bool:
    """Whether the unit of a text that `parse_bytes` reads is a power of 1000, such as `GB`."""
    match = _SIZE.fullmatch(size)
    return match is not None and bool(match[2]) and (match[3] or "").upper() == "B"


def is_size_unit(word: str) -> bool:
    """Whether a word is a unit that `parse_bytes` reads, such as `MiB`."""
    return word[:1].isalpha() and _SIZE.fullmatch(f"1{word}") is not None


def read_as(size: str | SupportsIndex | None) -> str:
    """What a size with a decimal unit was read as: `10 GB is 10,000,000,000 bytes (9.3 GiB)`; else empty."""
    if not isinstance(size, str) or not is_decimal(size):
        return ""
    num_bytes = parse_bytes(size)
    return f"{size.strip()} is {num_bytes:,} bytes ({format_bytes(num_bytes)})"


def exact_size_text(num_bytes: int) -> str:
    """Text that stands for exactly this number of bytes."""
    rounded = format_bytes(num_bytes)
    return rounded if parse_bytes(rounded) == num_bytes else f"{num_bytes} B"


def seconds_text(seconds: float) -> str:
    """A duration in ms or s."""
    return f"{1000 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def duration(nanoseconds: int) -> str:
    """A duration with its unit: `1.5 ms`."""
    value, unit = float(nanoseconds), "ns"
    for larger in ("µs", "ms", "s"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} ns" if unit == "ns" else f"{value:,.1f} {unit}"


def short_address(address: int) -> str:
    """An address as short text: its last eight digits (unique within 4 GiB), as in `0x…04c0ff00`; all below 4 GiB."""
    return f"{address:#x}" if address < 1 << 32 else f"0x…{address & 0xFFFFFFFF:08x}"


_MOST_LISTED: Final = 6


def listed(names: Sequence[str]) -> str:
    """A list as text: the first names, and how many more there are."""
    shown = ", ".join(names[:_MOST_LISTED])
    return f"{shown} and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else shown


def counted(number: int, what: str) -> str:
    """A number of things, as in `1 region` and `1,024 chunks`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def exact_bytes(num_bytes: int) -> str:
    """Bytes rounded and exact: `1.2 MiB (1,258,291 B)`; below 1 KiB only exact."""
    if num_bytes < 1024:
        return f"{num_bytes} B"
    return f"{format_bytes(num_bytes)} ({num_bytes:,} B)"
