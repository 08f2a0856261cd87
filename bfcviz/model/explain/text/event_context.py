"""An event with what belongs to it: the state it met, and the other events of the same operation."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bfcviz.events.schema import Events, Kind
from bfcviz.events.trace import Trace
from bfcviz.model.explain.text.short_names import short_name
from bfcviz.model.state.model import Model

_REACH: Final = 64
"""Events looked at on either side: one operation's follow each other, but other pools write in between."""


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
        """The chunk with this handle, of CHUNK_ROW, just before the event (or before another one)."""
        with self.model.visiting(self.event if event is None else event):
            # Not `chunks()`, which would sort them, and again those of the step that is shown.
            rows = self.model.table.chunk_rows()
        row: np.void = rows[np.flatnonzero(rows["handle"] == handle)[0]]
        return row

    def pool_bytes(self) -> int:
        """Bytes of the pool just before the event."""
        with self.model.visiting(self.event):
            return self.model.table.pool_bytes

    def following(self) -> Events:
        """The next events of this pool, marks left out."""
        first = self.event + 1
        return self._of_pool(self.trace.read(first, min(len(self.trace), first + _REACH)))

    def preceding(self) -> Events:
        """The events of this pool before it, the nearest first, marks left out."""
        return self._of_pool(self.trace.read(max(self.trace.first, self.event - _REACH), self.event))[::-1]

    def name(self, label: int) -> str:
        """What a label says, or that there is none."""
        return short_name(self.trace, label)

    def _of_pool(self, events: Events) -> Events:
        mine: Events = events[(events["pool"] == self.record["pool"]) & (events["kind"] != Kind.MARK)]
        return mine
