"""Holders: who holds the memory in use at one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bfcviz.events.origin_details import requested_bytes_known
from bfcviz.model.holders.grouping import UNNAMED, Grouping, grouping
from bfcviz.model.holders.tree import tree_of
from bfcviz.model.state.model import Model

if TYPE_CHECKING:
    import pandas as pd

ALL: Final = "in use"
"""The name of the first row: all memory in use."""


@dataclass(frozen=True, repr=False)
class Holders:
    """The tree of holders of one heap at one step.

    Attributes:
        step: the step.
        pool: index of the heap.
        by: what the holders are found by, one of `grouping.UNNAMED`.
        separator: the text between the parts of a path.
        rows: of `tree.HOLDER`; row 0 is all memory in use, so its `bytes` are `bytes_in_use`.
        names: the name of each row.
        requested_known: whether the trace has the requested bytes; otherwise `requested` means nothing.
    """

    step: int
    pool: int
    by: str
    separator: str
    rows: NDArray[np.void]
    names: Sequence[str]
    requested_known: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<Holders by {self.by} at step {self.step}: {self.bytes_in_use} bytes, {len(self)} rows>"

    @property
    def bytes_in_use(self) -> int:
        """All bytes in use."""
        return int(self.rows["bytes"][0])

    @property
    def chunks_in_use(self) -> int:
        """All chunks in use."""
        return int(self.rows["chunks"][0])

    def path(self, row: int) -> str:
        """The names of the holders around a row and its own, in one line; empty for row 0."""
        names, parents = [], self.rows["parent"]
        while row > 0:
            names.append(self.names[row])
            row = int(parents[row])
        return self.separator.join(reversed(names))

    def paths(self) -> list[str]:
        """`path` of every row."""
        found = [""]
        for row, parent in enumerate(self.rows["parent"][1:].tolist(), 1):
            name = self.names[row]
            found.append(f"{found[parent]}{self.separator}{name}" if parent else name)
        return found

    def to_arrow(self) -> pa.Table:
        """All rows as a table; `id` and `parent` are rows, `parent` of the first is null; sizes in bytes."""
        rows = self.rows
        requested = [rows[name] for name in ("own_requested", "requested")]
        unknown = np.full(len(rows), not self.requested_known)
        return pa.table(
            {
                "id": np.arange(len(rows)),
                "parent": pa.array(rows["parent"], mask=rows["parent"] < 0),
                "depth": rows["depth"],
                "name": pa.array(list(self.names), pa.string()),
                "own_bytes": rows["own_bytes"],
                "bytes": rows["bytes"],
                "own_requested": pa.array(requested[0], mask=unknown),
                "requested": pa.array(requested[1], mask=unknown),
                "own_chunks": rows["own_chunks"],
                "chunks": rows["chunks"],
            }
        )

    def to_pandas(self) -> "pd.DataFrame":
        """`to_arrow` as a data frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame


def holders(model: Model, by: str = "op", how: Grouping | None = None) -> Holders:
    """The holders of the memory in use at the step of a model, which stays there.

    Args:
        model: the heap.
        by: `op` (the name of the label, split at its slashes), `stack`, `shape`, `data_type`, `thread`, `stream` or
            `phase` (the phases open at the allocation).
        how: the grouping, if the caller has it.

    Raises:
        ValueError: `by` is none of these.
    """
    how = how or grouping(model.trace, model.pool, by)
    chunks = model.in_use()
    numbers, paths = how.grouped(chunks)
    rows, names = tree_of(numbers, paths, chunks)
    known = [ALL, *(UNNAMED[how.by] if name is None else name for name in names[1:])]
    return Holders(
        model.step,
        model.pool,
        how.by,
        how.separator,
        rows,
        known,
        requested_bytes_known(model.trace.origin.details, model.pool),
    )
