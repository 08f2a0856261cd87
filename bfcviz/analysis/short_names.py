"""Short forms of addresses and labels for sentences and lists."""

from typing import Final

from bfcviz.events.trace import Trace

_LONGEST_NAME: Final = 80


def short_name(trace: Trace, label: int) -> str:
    """The name of a label, cut to 80 characters; `an unnamed request` for label 0."""
    return "an unnamed request" if label == 0 else cut(trace.labels.name(label))


def cut(name: str) -> str:
    """A short name: the first 80 characters."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def shortened_name(text: str, longest: int) -> str:
    """A short name: a longer text without its middle; it keeps both ends, as names differ at either."""
    if len(text) <= longest:
        return text
    head = longest // 2
    return f"{text[:head]}…{text[head + 1 - longest :]}"


def path_end(path: str, longest: int) -> str:
    """A short name: the last parts of a path that fit, as in `…/conv2d/BiasAdd`; else a part without its middle."""
    if len(path) <= longest:
        return path
    parts, found = path.split("/"), ""
    for part in reversed(parts):
        longer = f"/{part}{found}"
        if len(longer) >= longest:
            break
        found = longer
    return f"…{found}" if found else shortened_name(parts[-1], longest)
