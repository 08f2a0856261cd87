"""The events that one request wrote, from the first release or extension to its ALLOCATE or OOM.

::

    RELEASE*  (EXTEND [MERGE])*  [SPLIT padding]  [SPLIT]  ALLOCATE
    RELEASE*  (EXTEND [MERGE])*                            OOM
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bfcviz.events.schema import MIN_CHUNK, Events, Flag, Kind
from bfcviz.events.trace import Trace

_REACH: Final = 64
"""Events read on either side: those of one operation are consecutive but for events of other pools."""

_ON_THE_WAY: Final = (Kind.SPLIT, Kind.EXTEND, Kind.MERGE, Kind.RELEASE)


@dataclass(frozen=True)
class Operation:
    """The events of one request; each sequence is in the order of writing.

    Attributes:
        end: its ALLOCATE or OOM.
        splits: the SPLITs of the chunk that it took.
        extends: the EXTENDs made for it.
        releases: the RELEASEs that made room for those.
    """

    end: np.void
    splits: Sequence[np.void]
    extends: Sequence[np.void]
    releases: Sequence[np.void]

    @property
    def pool(self) -> int:
        """Index of its pool."""
        return int(self.end["pool"])

    @property
    def taken(self) -> int:
        """Handle of the chunk that it took, before the split."""
        return int((*self.splits, self.end)[0]["chunk"])

    @property
    def taken_at(self) -> int:
        """The step just before that chunk was split or allocated."""
        return int((*self.splits, self.end)[0]["seq"])

    @property
    def begin(self) -> int:
        """The step just before the first of its events."""
        return int((*self.releases, *self.extends, *self.splits, self.end)[0]["seq"])


def operation_of(trace: Trace, event: int) -> Operation | None:
    """The request to which the event with this index belongs; None where it belongs to none.

    Raises:
        TraceError: the trace has no such event.
    """
    end = _end(trace, trace.read(event, event + 1)[0])
    if end is None:
        return None
    before = _of_pool(trace.read(max(trace.first, int(end["seq"]) - _REACH), int(end["seq"])), end)[::-1]
    splits = _splits(before, end)
    extends, releases = _room_made(before[len(splits) :], end)
    found = Operation(end, splits[::-1], extends[::-1], releases[::-1])
    return found if found.begin <= event else None


def _end(trace: Trace, event: np.void) -> np.void | None:
    if event["kind"] in (Kind.ALLOCATE, Kind.OOM):
        return event
    if event["kind"] not in _ON_THE_WAY:
        return None
    first = int(event["seq"]) + 1
    for later in _of_pool(trace.read(first, min(len(trace), first + _REACH)), event):
        if later["kind"] in (Kind.ALLOCATE, Kind.OOM):
            found: np.void = later
            return found
        if later["kind"] not in _ON_THE_WAY:
            return None
    return None


def _of_pool(events: Events, event: np.void) -> Events:
    mine: Events = events[(events["pool"] == event["pool"]) & (events["kind"] != Kind.MARK)]
    return mine


def _splits(before: Events, end: np.void) -> list[np.void]:
    """The SPLITs that led to an ALLOCATE, the last one first."""
    found: list[np.void] = []
    if end["kind"] == Kind.OOM:
        return found
    for event in before:
        padding = bool(int(event["flags"]) & Flag.PADDING)
        if event["kind"] != Kind.SPLIT or event["other" if padding else "chunk"] != end["chunk"]:
            break
        found.append(event)
        if padding:
            break
    return found


def _room_made(before: Events, end: np.void) -> tuple[list[np.void], list[np.void]]:
    """The EXTENDs for this request and the RELEASEs before them, the last one first."""
    rounded = max(MIN_CHUNK, -(-int(end["requested"]) // MIN_CHUNK) * MIN_CHUNK)
    extends: list[np.void] = []
    releases: list[np.void] = []
    merged = None  # handle of the chunk that the later MERGE merged away
    for event in before:
        kind = event["kind"]
        if kind == Kind.EXTEND and event["requested"] == rounded and merged in (None, int(event["chunk"])):
            extends.append(event)
            merged = None
        elif kind == Kind.RELEASE and merged is None and (extends or end["kind"] == Kind.OOM):
            releases.append(event)
        elif kind == Kind.MERGE and merged is None:
            merged = int(event["other"])
        else:
            break
    return extends, releases
