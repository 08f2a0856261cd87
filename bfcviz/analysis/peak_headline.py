"""The headline of a peak, or of a state: how much was in use, and who held it; one short sentence, as plain text."""

from typing import Final

import numpy as np

from bfcviz.analysis.diagnosis import LONGEST_IN_HEADLINE
from bfcviz.analysis.short_names import path_end
from bfcviz.events.origin import holds_only_states, regions_known
from bfcviz.model.grouping import UNNAMED
from bfcviz.model.holders import Holders, holders
from bfcviz.model.model import Model
from bfcviz.stack_frames import place_in_code
from bfcviz.units import format_bytes

_LEAST_SHARE_OF_PEAK: Final = 0.2
"""Of the bytes in use: a holder with less is named only if all holders around it have less, too."""


def peak_headline(model: Model) -> str:
    """The headline of the peak, or of a state: the bytes in use at the model's step, and the largest holder."""
    used = model.table.bytes_in_use
    if not used:
        return "No allocation in this heap"
    name, share = _peak_headline_holder(model)
    has_regions = regions_known(model.trace.origin.details, model.pool)
    of_pool = f" of a pool of {format_bytes(model.table.pool_bytes)}" if has_regions else ""
    held = f", {share:.0%} {'' if name.startswith('allocated ') else 'held by '}{name}" if name else ""
    peak = "" if holds_only_states(model.trace.origin.details) else "Peak: "
    return f"{peak}{format_bytes(used)} in use{of_pool}{held}"


def _peak_headline_holder(model: Model) -> tuple[str, float]:
    """The name of the holder to name first, and its share (0..1) of the bytes in use; "" if none has a name."""
    found = holders(model, "op")
    row, total = _peak_headline_row(found), max(found.bytes_in_use, 1)
    name, size = found.path(row), int(found.rows["bytes"][row])
    if found.names[row] == UNNAMED["op"]:
        name, size = _peak_headline_place(model)
    return path_end(name, LONGEST_IN_HEADLINE), size / total


def _peak_headline_place(model: Model) -> tuple[str, int]:
    """The line of code that allocated most of the memory in use, and its bytes; "" where no stack says it."""
    chunks, labels = model.in_use(), model.trace.labels
    by_label = np.bincount(chunks["label"], chunks["size"])
    places: dict[str, int] = {}
    for label in np.flatnonzero(by_label).tolist():
        place = place_in_code(labels[label].details.get("stack", ""))
        places[place] = places.get(place, 0) + int(by_label[label])
    best = max(places, key=lambda place: (places[place], place))
    return best, places[best]


def _peak_headline_row(found: Holders) -> int:
    """The innermost of the largest holders with `_LEAST_SHARE_OF_PEAK`; row 0 where nothing is in use."""
    rows, here = found.rows, 0
    while True:
        inside = (rows["parent"] == here).nonzero()[0]
        if not len(inside):
            return here
        best = int(inside[rows["bytes"][inside].argmax()])
        if here and int(rows["bytes"][best]) < _LEAST_SHARE_OF_PEAK * found.bytes_in_use:
            return here
        here = best
