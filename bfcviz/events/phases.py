"""Phases of a program: pairs of marks with the same value; the details of their labels name the phase."""

from typing import Final, NamedTuple

from bfcviz.events.label_table import Labels
from bfcviz.events.schema import Events

BEGINS: Final = "begins"
"""The detail of a label whose mark begins the phase of this name."""

ENDS: Final = "ends"
"""The detail of a label whose mark ends the phase of this name."""


class PhaseEnd(NamedTuple):
    """What a mark does: `side` is `BEGINS` or `ENDS`, `name` the phase."""

    side: str
    name: str


def phase_ends(marks: Events, labels: Labels) -> list[PhaseEnd | None]:
    """For each of these MARK events: what it begins or ends; None for a plain mark."""
    known: dict[int, PhaseEnd | None] = {0: None}
    found = []
    for label in marks["label"].tolist():
        if label not in known:
            details = labels[label].details
            sides = (PhaseEnd(side, details[side]) for side in (BEGINS, ENDS) if side in details)
            known[label] = next(sides, None)
        found.append(known[label])
    return found


class Phase(NamedTuple):
    """One phase.

    Attributes:
        name: its name.
        begins: `seq` of the mark that begins it; None: it began before the marks that were searched.
        ends: `seq` of the mark that ends it; None: it has not ended.
        thread: number of the thread of its marks.
    """

    name: str
    begins: int | None
    ends: int | None
    thread: int


def phases_among(marks: Events, labels: Labels) -> list[Phase]:
    """The phases of these MARK events, in the order of their ends; those without an end last."""
    begun: dict[tuple[str, int], Phase] = {}
    found = []
    for mark, end in zip(marks, phase_ends(marks, labels), strict=True):
        if end is None:
            continue
        key, seq, thread = (end.name, int(mark["size"])), int(mark["seq"]), int(mark["by"])
        if end.side == BEGINS:
            begun[key] = Phase(end.name, seq, None, thread)
        else:
            before = begun.pop(key, Phase(end.name, None, None, thread))
            found.append(before._replace(ends=seq))
    return [*found, *begun.values()]
