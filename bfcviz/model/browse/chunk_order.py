"""Chunks in an order that the user chose; only what one page needs is sorted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.labels import Labels
from bfcviz.events.schema import bin_numbers
from bfcviz.model.browse.filters import ChunkFilter, LabelSearch

_LAST: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class ChunkOrder:
    """The chunks that match, in order.

    Attributes:
        chunks: all chunks of the heap by address, of CHUNK.
        at: indices in `chunks` of those that match, ascending, shape (n,).
        keys: the sort key of each match, shape (n,); equal keys are ordered by address.
    """

    chunks: NDArray[np.void]
    at: NDArray[np.intp]
    keys: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.at)

    def page(self, start: int, stop: int) -> NDArray[np.void]:
        """Rows [start, stop) of the order, of CHUNK; fewer where the order ends before `stop`."""
        stop = min(stop, len(self))
        if start >= stop:
            return self.chunks[:0]
        # To sort everything takes ten times as long as to find the keys at both ends of the page.
        ends = np.partition(self.keys, (start, stop - 1))[[start, stop - 1]]
        near = np.flatnonzero((self.keys >= ends[0]) & (self.keys <= ends[1]))
        before = int(np.count_nonzero(self.keys < ends[0]))
        near = near[np.argsort(self.keys[near], kind="stable")]
        return self.chunks[self.at[near[start - before : stop - before]]]

    def place_of(self, address: int) -> int | None:
        """The row of the chunk that begins at `address`; None where no match begins there."""
        place = int(np.searchsorted(self.chunks["address"][self.at], np.uint64(address)))
        if place == len(self) or int(self.chunks["address"][self.at[place]]) != address:
            return None
        key = self.keys[place]
        return int(np.count_nonzero(self.keys < key) + np.count_nonzero(self.keys[:place] == key))


def order_chunks(  # noqa: PLR0913  the chunks, the filter and the order
    chunks: NDArray[np.void],
    labels: Labels,
    wanted: ChunkFilter,
    by: str = "address",
    *,
    descending: bool = False,
    search: LabelSearch | None = None,
) -> ChunkOrder:
    """Filter and order chunks.

    Args:
        chunks: all chunks of a heap at one step by address, of CHUNK.
        labels: the table of their `label` numbers.
        wanted: which chunks to keep.
        by: one of `SORTS`. Free chunks are last in both directions where they lack the value, such as a label.
        descending: the largest first.
        search: the search for `wanted.text` of the last call, so that labels are not searched again.
    """
    at = wanted.among(chunks, search or LabelSearch(labels, wanted.text))
    picked = chunks if len(at) == len(chunks) else chunks[at]
    keys = SORTS[by](picked, labels).astype(np.uint64, copy=False)
    if descending:
        keys = keys.max(initial=0) - keys
    if by in _IN_USE_ONLY:
        keys = np.where(picked["in_use"], keys, _LAST)
    return ChunkOrder(chunks, at, keys)


def waste_of(chunks: NDArray[np.void]) -> NDArray[np.uint64]:
    """Bytes of each chunk in use beyond its request; 0 for free chunks."""
    sizes, requested = chunks["size"], chunks["requested"]
    return np.where(chunks["in_use"] & (requested < sizes), sizes - requested, np.uint64(0))


def _names(chunks: NDArray[np.void], labels: Labels) -> NDArray[np.intp]:
    """The alphabetical rank of each chunk's label among the labels of these chunks."""
    numbers = chunks["label"].astype(np.intp)
    present = np.flatnonzero(np.bincount(numbers))  # np.unique takes ten times as long
    names = [labels.name(number).casefold() for number in present.tolist()]
    places = {name: place for place, name in enumerate(sorted(set(names)))}
    ranks = np.zeros(int(present.max(initial=0)) + 1, np.intp)
    ranks[present] = [places[name] for name in names]
    return ranks[numbers]


SORTS: Final[dict[str, Callable[[NDArray[np.void], Labels], NDArray[np.integer]]]] = {
    "address": lambda chunks, _: chunks["address"],
    "size": lambda chunks, _: chunks["size"],
    "requested": lambda chunks, _: chunks["requested"],
    "waste": lambda chunks, _: waste_of(chunks),
    "state": lambda chunks, _: chunks["in_use"],
    "bin": lambda chunks, _: bin_numbers(chunks["size"]),
    "label": _names,
    "born": lambda chunks, _: chunks["born"],
    # Older chunks have a smaller `born`.
    "age": lambda chunks, _: chunks["born"].max(initial=0) - chunks["born"],
    "region": lambda chunks, _: chunks["region"],
    "thread": lambda chunks, _: chunks["thread"],
    "stream": lambda chunks, _: chunks["stream"],
}
"""The orders that exist, each with the function that computes its keys."""

_IN_USE_ONLY: Final = frozenset({"requested", "waste", "label", "born", "age", "thread", "stream"})
