"""Texts in pictures: labels escaped, shortened and told apart, numbers with their units."""

from collections.abc import Sequence
from html import escape
from itertools import takewhile
from typing import Final

from bfcviz.analysis.short_names import shortened
from bfcviz.units import format_bytes

LONGEST: Final = 90
"""Characters of a label on one line; op names of TensorFlow can have several hundred."""

LONGEST_SHORT_NAME: Final = 28
"""Characters of a label in a legend."""

_FEWEST_LETTERS: Final = 3
"""A name with less room is left out."""

# Control characters and direction marks could garble the text after a label.
_UNPRINTABLE = dict.fromkeys(
    [
        *range(32),
        *range(127, 160),
        0x2028,
        0x2029,
        0x200E,
        0x200F,
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ],
    " ",
)
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"


def harmless(text: str, longest: int = LONGEST) -> str:
    """`text` as one line that is safe in plotly and HTML, and does not change the text around it.

    Escapes markup and lone surrogates (which no message can carry), turns control characters into spaces, isolates
    right-to-left text, and replaces the middle of more than `longest` characters by an ellipsis (op names differ at
    their ends).
    """
    line = text.translate(_UNPRINTABLE)
    if not line.isascii():
        line = line.encode("utf-8", "backslashreplace").decode()
    if len(line) > longest:
        head = longest // 3
        line = f"{line[:head]}…{line[head + 1 - longest :]}"
    escaped = escape(line).replace("&quot;", "&#34;")  # plotly does not decode &quot;
    return escaped if escaped.isascii() else f"{_ISOLATE}{escaped}{_END_ISOLATE}"


def short_names(names: Sequence[str]) -> list[str]:
    """Short forms of different names for a legend, escaped and all different.

    Op names are paths: the leading parts that all of them share are left out. Names that look the same once
    their middle is cut out get a number.
    """
    paths = [name for name in names if "/" in name]
    prefix = _common_path([name.split("/")[:-1] for name in paths]) if len(paths) > 1 else ""
    count: dict[str, int] = {}
    found = []
    for name in names:
        short = harmless(name.removeprefix(prefix), LONGEST_SHORT_NAME)
        count[short] = count.get(short, 0) + 1
        found.append(short if count[short] == 1 else f"{short} ({count[short]})")
    return found


def _common_path(paths: Sequence[Sequence[str]]) -> str:
    """The leading parts that all paths share, each with its slash."""
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return "".join(f"{parts[0]}/" for parts in same)


def fitted(name: str, room: int) -> str:
    """As many of the last parts of a name as have room; both ends of the last one if it has none; or nothing."""
    if len(name) <= room:
        return name
    parts = [part for part in name.split("/") if part] or [""]
    best = parts[-1]
    for part in reversed(parts[:-1]):
        if len(part) + 1 + len(best) > room:
            break
        best = f"{part}/{best}"
    if len(best) <= room:
        return best
    return shortened(best, room) if room > _FEWEST_LETTERS else ""


def exact_bytes(num_bytes: int) -> str:
    """Bytes rounded and exact: `1.2 MiB (1,258,291 B)`; below 1 KiB only exact."""
    if num_bytes < 1024:
        return f"{num_bytes} B"
    return f"{format_bytes(num_bytes)} ({num_bytes:,} B)"


_SCALES = tuple(
    (1 << (10 * power), unit) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
)


def axis_unit(largest: float) -> tuple[int, str]:
    """Divisor and name of the binary unit in which `largest` bytes is a number below 2048."""
    for divisor, unit in _SCALES:
        if largest < 2048 * divisor:
            return divisor, unit
    return _SCALES[-1]
