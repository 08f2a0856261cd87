"""The holders on a card: who holds the memory, each with the colour that it has in the map and in the dashboard."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.style.colouring import Colouring, colouring
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.theme import LIGHT
from bfcviz.model import Model
from bfcviz.model.explain.text.short_names import path_end
from bfcviz.units import format_bytes

_MOST: Final = 8
"""Holders that are listed; the rest is one row."""

LONGEST: Final = 600
"""Characters of a text on a card."""

_LONGEST_NAME: Final = 30


class CardHolder(NamedTuple):
    """A holder: the CSS class of its colour, its bytes, and their share (0..1) of all in use."""

    name: str
    kind: str
    size: int
    share: float


@dataclass(frozen=True)
class CardHolders:
    """The holders at one step.

    Attributes:
        chunks: every chunk by ascending address, of CHUNK.
        numbers: the colour of each, an index into `kinds`; undefined for free chunks.
        kinds: CSS classes; `style` has their colours.
        rows: the largest holders, then all others.
    """

    chunks: NDArray[np.void]
    numbers: NDArray[np.intp]
    kinds: Sequence[str]
    rows: Sequence[CardHolder]


def card_holders(model: Model) -> CardHolders:
    """The holders of the memory at the model's step."""
    chunks = model.chunks()
    used = chunks["in_use"]
    colours = colouring(model.trace, model.pool, "holder", LIGHT, chunks)
    numbers = np.where(used, colours.classes(chunks, model.step), 0).astype(np.intp)
    kinds = [f"holder-{number}" for number in range(len(colours.paints))]
    held = np.where(used, chunks["size"], 0)
    sizes = np.bincount(numbers, held, minlength=len(kinds)).astype(np.float64)
    return CardHolders(chunks, numbers, kinds, _rows(colours, sizes, kinds))


def _rows(colours: Colouring, sizes: NDArray[np.float64], kinds: Sequence[str]) -> list[CardHolder]:
    names = {} if colours.holders is None else dict(colours.holders.names())
    total = max(float(sizes.sum()), 1.0)
    named = [number for number in np.argsort(-sizes, kind="stable").tolist() if number in names]
    rows = [
        CardHolder(names[number], kinds[number], int(sizes[number]), float(sizes[number]) / total)
        for number in named[:_MOST]
        if sizes[number]
    ]
    rest = int(sizes.sum()) - sum(row.size for row in rows)
    return [*rows, CardHolder("other", kinds[-1], rest, rest / total)] if rest else rows


def holders_table(holders: CardHolders) -> str:
    """The rows as an HTML table."""
    rows = "".join(_holder(row) for row in holders.rows)
    head = '<thead><tr><th colspan="3">who holds it</th></tr></thead>'
    return f'<table class="holders">{head}<tbody>{rows}</tbody></table>'


def _holder(row: CardHolder) -> str:
    name = harmless(path_end(row.name, _LONGEST_NAME), _LONGEST_NAME + 1)
    full = harmless(row.name, LONGEST)
    return (
        f'<tr title="{full}"><td><span class="swatch {row.kind}"></span>{name}</td>'
        f"<td>{format_bytes(row.size)}</td><td>{row.share:.0%}</td></tr>"
    )
