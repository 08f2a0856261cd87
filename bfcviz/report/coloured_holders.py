"""Who holds the memory at a step, each holder with the colour that it has in the map of the dashboard."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.colouring import OTHER, SHADES, Colouring, HolderClasses, colour_path_text, colouring
from bfcviz.figures.theme import LIGHT, Theme
from bfcviz.model.model import Model

_MOST: Final = 8
"""Holders that are listed; the rest is one row."""


class ColouredHolder(NamedTuple):
    """A holder: the CSS class of its colour, its bytes, and their share (0..1) of all in use."""

    name: str
    kind: str
    size: int
    share: float


@dataclass(frozen=True)
class ColouredHolders:
    """The holders at one step.

    Attributes:
        chunks: every chunk by ascending address, of CHUNK.
        numbers: the colour of each, an index into `kinds`; undefined for free chunks.
        kinds: CSS classes; `style` has their colours.
        names: the name of each kind in the legend of the map, escaped; empty: it is not in the legend.
        rows: the largest holders, then all others.
    """

    chunks: NDArray[np.void]
    numbers: NDArray[np.intp]
    kinds: Sequence[str]
    names: Sequence[str]
    rows: Sequence[ColouredHolder]
    _classes: HolderClasses | None

    def legend(self) -> list[tuple[str, str]]:
        """Kind and name of the holders that have memory, as in the legend of the map."""
        used = self.numbers[self.chunks["in_use"]]
        hues = set((np.where(used == OTHER, used, used - used % SHADES)).tolist())
        return [(self.kinds[number], self.names[number]) for number in sorted(hues)]

    def kind_of(self, path: str) -> str | None:
        """The kind of the memory of an op's path in one line; None: it has several, or is not known."""
        if self._classes is None:
            return None
        paths = (each for each in self._classes.tree.nodes if colour_path_text(each) == path)
        number = next((self._classes.of_path(each) for each in paths), None)
        return None if number is None else self.kinds[number]


def coloured_holders(model: Model) -> ColouredHolders:
    """The holders of the memory at the model's step."""
    chunks = model.chunks()
    used = chunks["in_use"]
    colours = colouring(model.trace, model.pool, "holder", LIGHT, chunks)
    numbers = np.where(used, colours.classes(chunks, model.step), 0).astype(np.intp)
    kinds = [f"holder-{number}" for number in range(len(colours.paints))]
    held = np.where(used, chunks["size"], 0)
    sizes = np.bincount(numbers, held, minlength=len(kinds)).astype(np.float64)
    return ColouredHolders(
        chunks, numbers, kinds, colours.names, _coloured_holder_rows(colours, sizes, kinds), colours.holders
    )


def _coloured_holder_rows(
    colours: Colouring, sizes: NDArray[np.float64], kinds: Sequence[str]
) -> list[ColouredHolder]:
    names = {} if colours.holders is None else dict(colours.holders.names())
    total = max(float(sizes.sum()), 1.0)
    named = [number for number in np.argsort(-sizes, kind="stable").tolist() if number in names]
    rows = [
        ColouredHolder(names[number], kinds[number], int(sizes[number]), float(sizes[number]) / total)
        for number in named[:_MOST]
        if sizes[number]
    ]
    rest = int(sizes.sum()) - sum(row.size for row in rows)
    return [*rows, ColouredHolder("other", kinds[-1], rest, rest / total)] if rest else rows


def holder_variables(theme: Theme) -> str:
    """The declarations of the colours of the classes of the colouring by holder: `--holder-0` and so on."""
    return "".join(f"--holder-{number}:{paint.fill};" for number, paint in enumerate(theme.holders))


def holder_rules(around: str = "") -> str:
    """Rules that paint the elements of the classes `holder-0` and so on, inside of a selector."""
    return "".join(
        f"{around} .holder-{number}{{fill:var(--holder-{number});background:var(--holder-{number})}}"
        for number in range(len(LIGHT.holders))
    )
