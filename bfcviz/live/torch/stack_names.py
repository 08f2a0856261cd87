"""Names of allocations from PyTorch's frames, and numbers of its streams."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from bfcviz.code_places import UNKNOWN_FILE, CodePlace, own_place

_LAST_STREAM: Final = 0xFFFF


class StackWords(NamedTuple):
    """`name` of an allocation, and its whole `stack` as text, the innermost line first; empty where unknown."""

    name: str
    stack: str


def stack_words(metadata: str, frames: Sequence[CodePlace]) -> StackWords:
    """The name is the metadata that the user set, or the innermost frame outside of libraries."""
    best = own_place(frames)
    name = metadata or ("" if best is None else best.name)
    return StackWords(name, "\n".join(frame.text for frame in frames if frame.file != UNKNOWN_FILE))


class StreamNumbers:
    """Numbers CUDA's stream handles in the order of their first use; 0: the default stream."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, handle: int) -> int:
        """The number of a stream; all streams after the 65,534th share one."""
        if handle == 0:
            return 0
        return self._numbers.setdefault(handle, min(len(self._numbers) + 1, _LAST_STREAM))
