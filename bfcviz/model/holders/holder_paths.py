"""Holder paths: the parts of an op's name, the frames of a stack, and the place in the code of an allocation."""

import re
from typing import Final

from bfcviz.code_places import own_place, places_of

Path = tuple[str | None, ...]
"""The names from the outermost holder to the innermost; None: memory that has no such name."""

DEEPEST: Final = 200
"""Parts of a path; of a longer one the middle is one part."""

_PAREN: Final = re.compile(r"[/()]")


def op_path(name: str) -> Path:
    """The parts of a name between its slashes, but not those inside parentheses, as in `transpose(jvp(a/b))/dot`."""
    parts = [part for part in _split(name) if part]
    return _bounded(parts, "/") if parts else (name or None,)


def stack_path(stack: str) -> Path:
    """The frames of a stack (one a line, the innermost first) from the outermost to the innermost."""
    frames = [line for line in stack.split("\n") if line]
    return _bounded(frames[::-1], " > ") if frames else (None,)


def place_in_code(stack: str) -> str:
    """`train.py:42 step`: the innermost frame outside of libraries, or else the innermost one; empty for no stack."""
    place = own_place(places_of(stack))
    return stack.split("\n", 1)[0].strip() if place is None else place.name


def _split(name: str) -> list[str]:
    if "(" not in name or "/" not in name:
        return name.split("/")
    parts, depth, start = [], 0, 0
    for found in _PAREN.finditer(name):
        if found[0] == "(":
            depth += 1
        elif found[0] == ")":
            depth -= 1
        elif depth == 0:
            parts.append(name[start : found.start()])
            start = found.end()
    return [*parts, name[start:]] if depth == 0 else name.split("/")


def _bounded(parts: list[str], separator: str) -> Path:
    if len(parts) <= DEEPEST:
        return tuple(parts)
    head, tail = DEEPEST // 2, DEEPEST - DEEPEST // 2 - 1
    return (*parts[:head], separator.join(parts[head:-tail]), *parts[-tail:])
