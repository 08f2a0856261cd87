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

_NEARLY_ALL: Final = 0.9
_LEAST_SHARE: Final = 0.01
"""Of all changes: a smaller part is not drawn."""


class MainPart(NamedTuple):
    """A holder, with all below it: bytes in B less bytes in A, and of how many holders."""

    path: Path
    bytes: int
    holders: int


@dataclass
class _PartSum:
    change: int = 0
    changes: int = 0  # the sum without signs
    holders: int = 0  # with a change
    children: dict[str | None, "_PartSum"] = field(default_factory=lambda: defaultdict(_PartSum))

    def add(self, change: int) -> None:
        self.change += change
        self.changes += abs(change)
        self.holders += bool(change)


def main_parts(paths: Sequence[Path], changes: Sequence[int], most: int = 3) -> tuple[list[MainPart], int]:
    """The largest parts of a difference, and what is left without them.

    Args:
        paths: of holders.
        changes: bytes in B less bytes in A, of each.
        most: parts to name.
    """
    root = _tree(paths, changes)
    parts = sorted(
        (part for name, child in root.children.items() for part in _parts((name,), child)),
        key=lambda part: -abs(part.bytes),
    )
    named = [part for part in parts[:most] if part.bytes]
    return named, root.change - sum(part.bytes for part in named)


def spread_parts(paths: Sequence[Path], changes: Sequence[int], most: int) -> tuple[list[MainPart], int]:
    """The parts of a difference for a picture, as detailed as their number allows, and what is left without them.

    The part with the largest changes is replaced by the parts below it, as long as there are at most `most`; parts with
    less than a hundredth of all changes are left out. Arguments as for `main_parts`.
    """
    root = _tree(paths, changes)
    parts = _below((), root, root.changes)[:most]
    while True:
        room = most - len(parts) + 1
        parts.sort(key=lambda part: -part[1].changes)
        below = ((part, _below(*part, root.changes)) for part in parts if part[1].children)
        part, smaller = next((pair for pair in below if len(pair[1]) <= room and _tells(*pair)), (None, []))
        if part is None:
            break
        parts.remove(part)
        parts += smaller
    named = [MainPart(path, node.change, node.holders) for path, node in parts if node.change]
    return sorted(named, key=lambda part: -abs(part.bytes)), root.change - sum(part.bytes for part in named)


def _tells(part: tuple[Path, _PartSum], smaller: Sequence[tuple[Path, _PartSum]]) -> bool:
    """Whether the parts below say nearly all that the part says."""
    return sum(node.changes for _, node in smaller) >= _NEARLY_ALL * part[1].changes > 0


def _below(path: Path, node: _PartSum, whole: int) -> list[tuple[Path, _PartSum]]:
    """The parts directly below a holder, and what belongs to itself, the largest first; without the small ones."""
    own = _PartSum()
    own.add(node.change - sum(child.change for child in node.children.values()))
    parts: list[tuple[Path, _PartSum]] = [((*path, name), child) for name, child in node.children.items()]
    kept = [part for part in [*parts, (path, own)] if part[1].changes >= max(_LEAST_SHARE * whole, 1)]
    return sorted(kept, key=lambda part: -part[1].changes)


def _tree(paths: Sequence[Path], changes: Sequence[int]) -> _PartSum:
    root = _PartSum()
    for path, change in zip(paths, changes, strict=True):
        node = root
        node.add(change)
        for part in path if change else ():
            node = node.children[part]
            node.add(change)
    return root


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
    yield MainPart(path, node.change, node.holders)
