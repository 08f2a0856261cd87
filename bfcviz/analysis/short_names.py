"""Short forms of addresses and labels for sentences and lists."""

from collections.abc import Sequence
from typing import Final

from bfcviz.events.trace import Trace

_LONGEST_NAME: Final = 80


def short_address(address: int) -> str:
    """The last eight hexadecimal digits (unique within 4 GiB), as in `0x…04c0ff00`; below 4 GiB the whole address."""
    return f"{address:#x}" if address < 1 << 32 else f"0x…{address & 0xFFFFFFFF:08x}"


def short_name(trace: Trace, label: int) -> str:
    """The name of a label, cut to 80 characters; `an unnamed request` for label 0."""
    return "an unnamed request" if label == 0 else cut(trace.labels.name(label))


def cut(name: str) -> str:
    """The first 80 characters of a name."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def shortened(text: str, longest: int) -> str:
    """The text without its middle where it is longer: it keeps both ends, as names differ at either."""
    if len(text) <= longest:
        return text
    head = longest // 2
    return f"{text[:head]}…{text[head + 1 - longest :]}"


def path_end(path: str, longest: int) -> str:
    """The last parts of a path that fit, as in `…/conv2d/BiasAdd`; a single part that is too long loses its middle."""
    if len(path) <= longest:
        return path
    parts, found = path.split("/"), ""
    for part in reversed(parts):
        longer = f"/{part}{found}"
        if len(longer) >= longest:
            break
        found = longer
    return f"…{found}" if found else shortened(parts[-1], longest)


_MOST_LISTED: Final = 6


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:_MOST_LISTED])
    return f"{shown} and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else shown


def counted(number: int, what: str) -> str:
    """A number of things, as in `1 region` and `1,024 chunks`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
