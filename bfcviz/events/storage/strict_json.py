"""JSON from an unknown writer: every error is a ValueError, and the number of values is limited."""

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

MAX_JSON_VALUES = 1 << 20
"""Values that one text may hold: a value takes up to 100 bytes of memory, and as few as 3 bytes of text."""

_VALUE_MARKS = (b",", b"{", b"[")
_NO_MARKS = bytes(set(range(256)) - set(b',{["'))
_PIECE = 1 << 16


def loads(text: str | bytes, most: int = MAX_JSON_VALUES) -> Any:
    """Parse JSON in UTF-8; every error, and more than `most` values, is a ValueError."""
    values = num_values(text, most)
    if values > most:
        raise ValueError(f"holds about {values:,} values, the limit is {most:,}")
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from error


def num_values(text: str | bytes, enough: int = 0) -> int:
    """About how many values a JSON text holds; not exact if there are `enough` or fewer.

    Names of operations and shapes contain many commas and brackets, which do not separate values.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    values = sum(map(data.count, _VALUE_MARKS))
    if values <= enough:
        return values
    quotes = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS)
    return sum(sum(map(part.count, _VALUE_MARKS)) for part in _outside_of_texts(quotes))


def _outside_of_texts(marks: bytes) -> Iterator[bytes]:
    """The parts between quoted texts, joined piece by piece."""
    inside = False
    for start in range(0, len(marks), _PIECE):
        parts = marks[start : start + _PIECE].split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _no_constant(text)


_DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite
)  # created once: json.loads would create one for each line of labels
