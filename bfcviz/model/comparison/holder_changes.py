"""Holder changes: what each holder has at a moment of one recording and at the same moment of the other."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.row_copy import joined
from bfcviz.model.comparison.alignment import PairedStep
from bfcviz.model.comparison.common_holders import CommonHolders
from bfcviz.model.comparison.increasing_pairs import shared
from bfcviz.model.comparison.sides import RecordingSide
from bfcviz.model.state.model import Model

CHANGE: Final = np.dtype(
    [
        ("moment", "<u4"),
        ("holder", "<u4"),  # row of `CommonHolders`
        ("a_bytes", "<u8"),
        ("b_bytes", "<u8"),
        ("a_chunks", "<u8"),
        ("b_chunks", "<u8"),
        (
            "moved_bytes",
            "<u8",
        ),  # of the bytes that both have, those without a chunk of the same size at the same place
    ]
)
"""One holder at one moment; a place is the slot of a region and an offset in it, as regions lie anywhere."""

_SLOTS: Final = 1 << 16
_OFFSET_BITS: Final = np.uint64(48)


class HolderVerdict(StrEnum):
    """What happened to a holder, from A to B."""

    APPEARED = "appeared"  # A never allocates for it
    VANISHED = "vanished"  # B never allocates for it
    GREW = "grew"  # more bytes in B at this moment
    SHRANK = "shrank"  # fewer
    MOVED = "moved"  # as many, some of them at another place
    SAME = "same"


def holder_changes(
    a: RecordingSide, b: RecordingSide, holders: CommonHolders, moments: Sequence[PairedStep]
) -> NDArray[np.void]:
    """Rows of CHANGE: for each moment every holder with bytes in A or B, by the size of the difference.

    The models of both move.
    """
    found = [np.zeros(0, CHANGE)]
    for number, moment in enumerate(moments):
        used, places = [], []
        for side, step in ((a, moment.a), (b, moment.b)):
            with side.reading():
                side.model.seek(step)
            chunks = side.model.in_use()
            used.append(chunks)
            places.append(_places(side.model, chunks))
        rows = [holders.rows(side, chunks) for side, chunks in enumerate(used)]
        found.append(_changes(number, rows, used, places, len(holders)))
    return joined(found)


def verdicts(changes: NDArray[np.void], holders: CommonHolders) -> NDArray[np.intp]:
    """The verdict on each row, as its index in `HolderVerdict`."""
    before, after = changes["a_bytes"], changes["b_bytes"]
    ever = holders.allocated[:, changes["holder"]]
    conditions = [~ever[0], ~ever[1], after > before, after < before, changes["moved_bytes"] > 0]
    found: NDArray[np.intp] = np.select(conditions, np.arange(5), 5).astype(np.intp)
    return found


def changes_table(
    changes: NDArray[np.void], holders: CommonHolders, moments: Sequence[PairedStep]
) -> pa.Table:
    """The rows with the names of moments, holders and verdicts; sizes in bytes."""
    before, after = changes["a_bytes"].astype(np.int64), changes["b_bytes"].astype(np.int64)
    names: dict[str, tuple[NDArray[np.integer], Sequence[str]]] = {
        "moment": (changes["moment"], [moment.name for moment in moments]),
        "holder": (changes["holder"], holders.names),
        "change": (verdicts(changes, holders), list(HolderVerdict)),
    }
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array(numbers.astype(np.int32)), pa.array(list(texts), pa.string())
        ).cast(pa.string())
        for name, (numbers, texts) in names.items()
    }
    sizes = {name: np.ascontiguousarray(changes[name]) for name in CHANGE.names[2:]}  # type: ignore[index]
    return pa.table({**columns, "bytes_change": after - before, **sizes})


def _changes(
    moment: int,
    rows: Sequence[NDArray[np.intp]],
    chunks: Sequence[NDArray[np.void]],
    places: Sequence[NDArray[np.uint64]],
    count: int,
) -> NDArray[np.void]:
    every = np.zeros(count, CHANGE)
    every["moment"], every["holder"] = moment, np.arange(count)
    for letter, mine, used in zip("ab", rows, chunks, strict=True):
        np.add.at(every[f"{letter}_bytes"], mine, used["size"])
        every[f"{letter}_chunks"] = np.bincount(mine, minlength=count)
    first, second = shared(places[0], places[1])
    stayed = np.zeros(count, np.uint64)
    same = (rows[0][first] == rows[1][second]) & (chunks[0]["size"][first] == chunks[1]["size"][second])
    np.add.at(stayed, rows[0][first][same], chunks[0]["size"][first][same])
    before: NDArray[np.uint64] = every["a_bytes"]
    after: NDArray[np.uint64] = every["b_bytes"]
    both = np.minimum(before, after)
    every["moved_bytes"] = both - np.minimum(stayed, both)
    present = np.flatnonzero((every["a_chunks"] > 0) | (every["b_chunks"] > 0))
    difference = np.maximum(before, after) - both
    order = present[np.lexsort([~after[present], ~difference[present]])]
    found: NDArray[np.void] = every[order]
    return found


def _places(model: Model, chunks: NDArray[np.void]) -> NDArray[np.uint64]:
    """The place of each chunk: its region's slot and its offset in the region, as one number."""
    base = np.zeros(_SLOTS, np.uint64)
    regions = model.regions()
    base[regions["slot"]] = regions["address"]
    slots = chunks["region"]
    found: NDArray[np.uint64] = (slots.astype(np.uint64) << _OFFSET_BITS) | (chunks["address"] - base[slots])
    return found
