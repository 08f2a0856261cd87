"""The matches of a search among the chunks of the region map."""

from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels

MOST_FOUND: Final = 300
"""Matches that are outlined; more of them cannot be told apart."""

_known: Final[WeakKeyDictionary[Labels, tuple[str, int, NDArray[np.bool_]]]] = WeakKeyDictionary()


def matching_labels(labels: Labels, search: str) -> NDArray[np.bool_]:
    """Which labels, by number, contain the text, whatever the case of letters."""
    known = _known.get(labels)
    if known is not None and known[:2] == (search, len(labels)):
        return known[2]
    wanted = search.casefold()
    found = np.array([wanted in labels.name(number).casefold() for number in range(len(labels))], bool)
    _known[labels] = search, len(labels), found
    return found


def matches(chunks: NDArray[np.void], labels: Labels, search: str | None) -> NDArray[np.void]:
    """The chunks in use whose labels contain the text, `MOST_FOUND` at most, the largest; none for no text."""
    if not search or not search.strip():
        return chunks[:0]
    table = matching_labels(labels, search.strip())
    at = np.flatnonzero(chunks["in_use"] & table[np.minimum(chunks["label"], len(table) - 1)])
    if len(at) > MOST_FOUND:
        at = np.sort(at[np.argpartition(~chunks["size"][at], MOST_FOUND)[:MOST_FOUND]])
    found: NDArray[np.void] = chunks[at]
    return found
