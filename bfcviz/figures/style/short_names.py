"""Labels side by side in a legend: short, harmless to a page, and still told apart."""

from collections.abc import Sequence
from itertools import takewhile

from bfcviz.figures.style.text import harmless

LONGEST = 28
"""Characters of a label in a legend."""


def short_names(names: Sequence[str]) -> list[str]:
    """Short forms of different names, all different.

    Op names are paths, whose first parts are often the same for all of them: those are left out. What still
    looks the same once its middle is cut out gets a number.
    """
    paths = [name for name in names if "/" in name]
    lead = _lead([name.split("/")[:-1] for name in paths]) if len(paths) > 1 else ""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        short = harmless(name.removeprefix(lead), LONGEST)
        seen[short] = seen.get(short, 0) + 1
        found.append(short if seen[short] == 1 else f"{short} ({seen[short]})")
    return found


def _lead(paths: Sequence[Sequence[str]]) -> str:
    """The parts that all paths begin with, each with its slash."""
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return "".join(f"{parts[0]}/" for parts in same)
