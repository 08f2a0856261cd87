"""What grew since an earlier step, as colours of chunks and outlines of those that are gone."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.what_grew import born_at_end, in_use_at
from bfcviz.figures.colouring import Colouring
from bfcviz.figures.theme import Theme
from bfcviz.model.model import Model

NEVER_FREED: Final = "new, never freed"
FREED_LATER: Final = "new, freed later"
_BEFORE: Final = "in use before"

MOST_GONE: Final = 300
"""Chunks that are gone and are outlined, the largest; more of them cannot be told apart."""


@dataclass(frozen=True, eq=False)
class _Growth:
    """0: in use at the earlier step; 1: allocated since; 2: of these, in use at the end of the trace."""

    since: int
    at_end: NDArray[np.uint64] | None

    def __call__(self, records: NDArray[np.void], _step: int) -> NDArray[np.integer]:
        found = (records["born"] >= self.since).astype(np.uint8)
        if self.at_end is not None:
            found[np.isin(records["born"], self.at_end) & (found == 1)] = 2
        return found


def growth_colouring(model: Model, since: int, theme: Theme) -> Colouring:
    """The colours of what was there at the step `since`, and of what is new."""
    at_end = born_at_end(model)
    names, paints = [_BEFORE, "new"], [theme.other, theme.classes[0]]
    if at_end is not None:
        names, paints = [_BEFORE, FREED_LATER, NEVER_FREED], [*paints, theme.classes[1]]
    return Colouring(f"what grew since step {since:,}", names, paints, _Growth(since, at_end))


def gone_chunks(model: Model, since: int | None) -> NDArray[np.void]:
    """The chunks in use at the step `since` that were freed by the model's step, the largest; none without a step."""
    chunks: NDArray[np.void] = model.in_use()
    if since is None or not model.trace.first <= since <= model.step:
        return chunks[:0]
    before = in_use_at(model, since)
    gone = before[np.isin(before["born"], chunks["born"], invert=True)]
    largest: NDArray[np.void] = gone[np.argsort(~gone["size"], kind="stable")[:MOST_GONE]]
    return largest
