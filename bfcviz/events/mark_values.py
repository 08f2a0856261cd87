"""The value of a mark: a whole number in the event's `size`; or a float64, whose bits it holds if the label says so."""

import struct
from collections.abc import Mapping
from contextlib import suppress
from operator import index
from typing import Final, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import InvalidRequest
from bfcviz.events.labels import NO_DETAILS, Labels
from bfcviz.events.row_copy import taken
from bfcviz.events.schema import Events, Kind

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


class FloatMarks:
    """Whether any label so far has marks with values of float64: called again, it looks at the new labels only."""

    def __init__(self, labels: Labels) -> None:
        self._labels, self._seen, self._found = labels, 0, False

    def __call__(self) -> bool:
        """Look."""
        while not self._found and self._seen < len(self._labels):
            self._found = has_float_value(self._labels, self._seen)
            self._seen += 1
        return self._found


def float_labels(labels: Labels, numbers: NDArray[np.uint32]) -> list[int]:
    """Those of these labels whose marks have values of float64, ascending."""
    # An event may have a label that its file does not hold.
    return [
        each for each in np.unique(numbers).tolist() if each < len(labels) and has_float_value(labels, each)
    ]


def valued_marks(labels: Labels, events: Events) -> Events:
    """Of these events the marks of names that have values of float64; also those of such a name with a whole number."""
    marks = taken(events, events["kind"] == Kind.MARK)
    names = {labels.name(label) for label in float_labels(labels, marks["label"])}
    known = np.unique(marks["label"][marks["label"] < len(labels)]).tolist() if names else []
    return taken(marks, np.isin(marks["label"], [label for label in known if labels.name(label) in names]))


def mark_value(labels: Labels, label: int, size: int) -> int | float:
    """The value of a mark with this label and `size`."""
    if not has_float_value(labels, label):
        return size
    (value,) = struct.unpack("<d", size.to_bytes(8, "little"))
    return float(value)


def value_text(value: float) -> str:
    """Such as `1,234` or `0.4375`; empty for 0, the value of a mark without one."""
    if isinstance(value, int):
        return f"{value:,}" if value else ""
    return f"{value:.6g}"
