"""Marks and phases of a program: the value of a mark, and the pairs of marks that are phases.

The value is a whole number in the event's `size`; or a float64, whose bits it holds if the label says so.
A program measures something with a mark, such as a loss or the length of a queue, or it counts its steps.
"""

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from operator import index
from typing import Final, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import InvalidRequest
from bfcviz.events.label_table import NO_DETAILS, Labels
from bfcviz.events.schema import Events, Kind
from bfcviz.events.structured_arrays import taken

STEP_WORDS: Final = ("step", "iteration", "batch", "epoch")
"""A mark with one of these words in its name counts: it separates steps. The first words go first."""

ALERT: Final = "alert: "
"""Begins the name of a mark that an alert made; such marks separate no steps and are no values of the program."""

_FLOAT: Final[Mapping[str, str]] = {"value": "float64"}
"""The details of a label whose marks have such values."""


def packed_value(value: SupportsFloat) -> tuple[int, Mapping[str, str]]:
    """What a mark with this value holds: its `size`, and the details of its label. A number below 0 is a float64.

    Raises:
        InvalidRequest: the value is no number.
    """
    with suppress(TypeError):
        whole = index(value)  # type: ignore[arg-type]  # also of NumPy and PyTorch
        if whole >= 0:
            return whole, NO_DETAILS
    try:
        packed = struct.pack("<d", value)
    except struct.error as error:
        raise InvalidRequest(f"a mark's value is a number; {value!r} was given") from error
    return int.from_bytes(packed, "little"), _FLOAT


def has_float_value(labels: Labels, label: int) -> bool:
    """Whether marks with this label have values of float64."""
    return labels[label].details.get("value") == _FLOAT["value"]


def float_labels(labels: Labels, numbers: NDArray[np.uint32]) -> list[int]:
    """Those of these labels whose marks have values of float64, ascending."""
    # An event may have a label that its file does not hold.
    return [
        each for each in np.unique(numbers).tolist() if each < len(labels) and has_float_value(labels, each)
    ]


def valued_marks(labels: Labels, events: Events) -> Events:
    """Of these events the marks that may be measured: of names with a float64, and what is no phase, alert or count."""
    marks = taken(events, events["kind"] == Kind.MARK)
    floats = {labels.name(label) for label in float_labels(labels, marks["label"])}
    known = [each for each in np.unique(marks["label"]).tolist() if each < len(labels)]
    mine = [each for each in known if labels.name(each) in floats or _may_be_measured(labels, each)]
    return taken(marks, np.isin(marks["label"], mine))


def _may_be_measured(labels: Labels, label: int) -> bool:
    """Whether marks with this label may have measured values."""
    name = labels.name(label)
    counts = name.startswith(ALERT) or any(word in name.casefold() for word in STEP_WORDS)
    return not counts and not {BEGINS, ENDS} & labels[label].details.keys()


def measured_names(labels: Labels, marks: Events) -> set[str]:
    """The names of measured values among what `valued_marks` found.

    These are the names with a float64, and those with several whole numbers of which one is not 0: a mark without a
    value has 0, and a single number is more likely the size of something in a report.
    """
    found = {labels.name(label) for label in float_labels(labels, marks["label"])}
    numbers, counts = np.unique(marks["label"], return_counts=True)
    above = np.isin(numbers, marks["label"][marks["size"] > 0])
    several = Counter[str]()
    for label, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        several[labels.name(label)] += count
    return found | {name for label in numbers[above].tolist() if several[name := labels.name(label)] > 1}


def mark_value(labels: Labels, label: int, size: int) -> int | float:
    """The value of a mark with this label and `size`."""
    if not has_float_value(labels, label):
        return size
    (value,) = struct.unpack("<d", size.to_bytes(8, "little"))
    return float(value)


def value_text(value: float) -> str:
    """The value of a mark as text, such as `1,234` or `0.4375`; empty for 0, that of a mark without one."""
    if isinstance(value, int):
        return f"{value:,}" if value else ""
    return f"{value:.6g}"


def numbered_mark_names(labels: Labels, marks: Events) -> list[str]:
    """The name of each mark; with its value, as in `step 3`, where those of a name without a number count steps."""
    values = defaultdict[str, set[int]](set)
    measured = set(float_labels(labels, marks["label"]))
    for label, size in zip(marks["label"].tolist(), marks["size"].tolist(), strict=True):
        if label not in measured:
            values[labels.name(label)].add(size)
    counting = {name for name, found in values.items() if len(found) > 1 and _may_count(name)}
    return [
        f"{name} {size:,}" if (name := labels.name(label)) in counting else name
        for label, size in zip(marks["label"].tolist(), marks["size"].tolist(), strict=True)
    ]


def _may_count(name: str) -> bool:
    return any(word in name.casefold() for word in STEP_WORDS) and not re.search(r"\d", name)


# ------------------------------------------------------------------------------
# Phases of a program: pairs of marks with the same value; the details of their labels name the phase.

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
