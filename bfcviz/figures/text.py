"""Texts in pictures: labels escaped, shortened and told apart, numbers with their units."""

import re
from collections.abc import Sequence
from html import escape, unescape
from itertools import takewhile
from typing import Final

from bfcviz.analysis.short_names import shortened_name
from bfcviz.events.origin import facts_of as stated_facts
from bfcviz.model import Model
from bfcviz.units import format_bytes

LONGEST: Final = 90
"""Characters of a label on one line; op names of TensorFlow can have several hundred."""

LONGEST_SHORT_NAME: Final = 28
"""Characters of a label in a legend."""

_FEWEST_LETTERS: Final = 3  # a name with less room is left out

# Control characters and direction marks could garble the text after a label.
_CONTROLS = (*range(32), *range(127, 160))
_DIRECTIONS = (0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_UNPRINTABLE = dict.fromkeys((*_CONTROLS, *_DIRECTIONS), " ")
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"


def harmless(text: str, longest: int = LONGEST) -> str:
    """A text for a picture on one line that is safe in plotly and HTML, and does not change the text around it.

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


def legend_texts(names: Sequence[str], longest: int = LONGEST_SHORT_NAME) -> list[str]:
    """Different names as short texts for a legend or a list, escaped and all different.

    Op names are paths: the leading parts that all of them share are left out. Names that look the same once
    their middle is cut out get a number.
    """
    paths = [name.split("/")[:-1] for name in names if "/" in name]
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    prefix = "".join(f"{parts[0]}/" for parts in same) if len(paths) > 1 else ""
    count: dict[str, int] = {}
    found = []
    for name in names:
        short = harmless(name.removeprefix(prefix), longest)
        count[short] = count.get(short, 0) + 1
        found.append(short if count[short] == 1 else f"{short} ({count[short]})")
    return found


def fitted(name: str, room: int) -> str:
    """As many of the last parts of a name as a picture has room for; both ends of the last one if none; or nothing."""
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
    return shortened_name(best, room) if room > _FEWEST_LETTERS else ""


_SCALES = tuple(
    (1 << (10 * power), unit) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
)


def axis_unit(largest: float) -> tuple[int, str]:
    """For an axis of a picture, divisor and name of the binary unit in which `largest` bytes is below 2048."""
    for divisor, unit in _SCALES:
        if largest < 2048 * divisor:
            return divisor, unit
    return _SCALES[-1]


def round_bytes(num_bytes: int) -> str:
    """Bytes in few letters, for texts in pictures: `4 MiB` and not `4.0 MiB`."""
    return format_bytes(num_bytes).replace(".0 ", " ")


def plain_text(text: str) -> str:
    """The visible characters of a picture's text with markup."""
    return unescape(re.sub("<[^>]*>", "", text))


_NARROW, _WIDE = frozenset("ijlftrI.,:;|'!()[]{} /-"), frozenset("mwMWGOQ@%…")


def text_width(text: str, size: float) -> float:
    """Roughly the pixels of a line of text in a picture; markup has none."""
    parts = (
        0.34 if each in _NARROW else 0.86 if each in _WIDE else 0.68 if each.isupper() else 0.59
        for each in plain_text(text)
    )
    return size * sum(parts)


# ------------------------------------------------------------------------------
# The facts of a picture in one line: file, step and totals, for files that leave the page they were drawn in.

_LONGEST: Final = 60  # characters of a name


def picture_facts(model: Model) -> str:
    """The file, the step and the totals of the heap, escaped; numbers that the file does not give are left out."""
    trace, table = model.trace, model.table
    pool = trace.origin.pools[model.pool]
    stated = stated_facts(trace.origin.details, model.pool)
    names = {
        "bytes_in_use": "in use",
        "free_bytes": "free",
        "largest_free_chunk": "largest free chunk",
        "pool_bytes": "pool",
    }
    known = [
        f"{name} {format_bytes(getattr(table, key))}"
        for key, name in names.items()
        if stated.get(key, 0) is not None
    ]
    limit = [] if pool.limit is None else [f"limit {format_bytes(pool.limit)}"]
    heap = [harmless(pool.name, _LONGEST)] if len(trace.origin.pools) > 1 else []
    return " · ".join(
        [
            harmless(trace.place, _LONGEST),
            *heap,
            f"step {model.step:,} of {len(trace):,}",
            ", ".join([*known, *limit]),
        ]
    )
