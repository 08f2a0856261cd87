"""Names of allocations from PyTorch's frames, and numbers of its streams."""

from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import Final, NamedTuple

_OWN: Final = ("/torch/", "\\torch\\", "<frozen ")
"""Frames of these Python files do not name the caller of interest."""

_LAST_STREAM: Final = 0xFFFF


class StackLine(NamedTuple):
    """One frame, as PyTorch records it."""

    filename: str
    line: int
    name: str


class StackWords(NamedTuple):
    """`name` of an allocation, and its whole `stack` as text, the innermost line first; empty where unknown."""

    name: str
    stack: str


def stack_words(metadata: str, frames: Sequence[StackLine]) -> StackWords:
    """The name is the metadata that the user set, or the innermost frame outside of PyTorch."""
    known = [frame for frame in frames if frame.filename != "??"]
    python = [frame for frame in known if frame.filename.endswith((".py", ">"))]
    theirs = [frame for frame in python if not any(part in frame.filename for part in _OWN)]
    best = (theirs or python or known or frames)[:1]
    name = metadata or "".join(f"{frame.name} ({PureWindowsPath(frame.filename).name})" for frame in best)
    return StackWords(name, "\n".join(f"{frame.name} ({frame.filename}:{frame.line})" for frame in known))


class StreamNumbers:
    """Numbers CUDA's stream handles in the order of their first use; 0: the default stream."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, handle: int) -> int:
        """The number of a stream; all streams after the 65,534th share one."""
        if handle == 0:
            return 0
        return self._numbers.setdefault(handle, min(len(self._numbers) + 1, _LAST_STREAM))
