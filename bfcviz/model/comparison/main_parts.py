"""The few holders that explain a difference: as deep in the tree of names as one part explains most of it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bfcviz.model.holders.holder_paths import Path

_MOST_OF_IT: Final = 0.75
"""A part with this share of all changes below a holder stands for it."""

_CANCELS: Final = 0.5
"""Where the sum is below this share of all changes, more and less cancel out: the parts are named, not the holder."""


class MainPart(NamedTuple):
    """A holder, with all below it: bytes in B less bytes in A."""

    path: Path
    bytes: int


@dataclass
class _PartSum:
    change: int = 0
    changes: int = 0  # the sum without signs
    children: dict[str | None, "_PartSum"] = field(default_factory=lambda: defaultdict(_PartSum))

    def add(self, change: int) -> None:
        self.change += change
        self.changes += abs(change)


def main_parts(paths: Sequence[Path], changes: Sequence[int], most: int = 3) -> tuple[list[MainPart], int]:
    """The largest parts of a difference, and what is left without them.

    Args:
        paths: of holders.
        changes: bytes in B less bytes in A, of each.
        most: parts to name.
    """
    root = _PartSum()
    for path, change in zip(paths, changes, strict=True):
        node = root
        node.add(change)
        for part in path:
            node = node.children[part]
            node.add(change)
    parts = sorted(
        (part for name, child in root.children.items() for part in _parts((name,), child)),
        key=lambda part: -abs(part.bytes),
    )
    named = [part for part in parts[:most] if part.bytes]
    return named, root.change - sum(part.bytes for part in named)


def _parts(path: Path, node: _PartSum) -> Iterator[MainPart]:
    """A holder, or the part below it that stands for it, or its parts where they cancel out."""
    while node.children:
        name, largest = max(node.children.items(), key=lambda item: item[1].changes)
        if largest.changes < _MOST_OF_IT * node.changes or not node.changes:
            break
        path, node = (*path, name), largest
    if node.children and abs(node.change) < _CANCELS * node.changes:
        for name, child in node.children.items():
            yield from _parts((*path, name), child)
        return
    yield MainPart(path, node.change)
