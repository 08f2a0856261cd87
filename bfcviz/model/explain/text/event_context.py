"""One event with its context: the state before it, and the events after it."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.explain.text.short_names import short_name
from bfcviz.model.state.model import Model

_REACH: Final = 64
"""How many following events are read: those of one operation are consecutive but for other pools' events."""


@dataclass(frozen=True)
class EventContext:
    """The event with index `event`; `model` is of its pool and may stand at any step."""

    trace: Trace
    event: int
    record: np.void
    model: Model

    def number(self, field: str) -> int:
        """A field of the event as a Python integer."""
        return int(self.record[field])

    def chunk(self, handle: int, event: int | None = None) -> np.void:
        """The row (CHUNK_ROW) of the chunk with this handle, just before the event (or before another one)."""
        with self.model.visiting(self.event if event is None else event):
            # Not `chunks()`: it sorts, and it would drop the sorted chunks that the model keeps.
            rows = self.model.table.chunk_rows()
        row: np.void = rows[np.flatnonzero(rows["handle"] == handle)[0]]
        return row

    def pool_bytes(self) -> int:
        """Bytes of the pool just before the event."""
        with self.model.visiting(self.event):
            return self.model.table.pool_bytes

    def following(self) -> Events:
        """The next events of this pool, without marks."""
        first = self.event + 1
        events = self.trace.read(first, min(len(self.trace), first + _REACH))
        mine: Events = events[(events["pool"] == self.record["pool"]) & (events["kind"] != Kind.MARK)]
        return mine

    def name(self, label: int) -> str:
        """The name of a label, cut to 80 characters; `an unnamed request` for label 0."""
        return short_name(self.trace, label)
