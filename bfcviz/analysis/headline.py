"""The headline of a heap: why a request failed, or the peak and who held it; one short sentence, as plain text."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from bfcviz.analysis.diagnosis import Diagnosis, Pin, Verdict
from bfcviz.analysis.short_names import counted, path_end
from bfcviz.events.origin import regions_known
from bfcviz.model.grouping import UNNAMED, place_in_code
from bfcviz.model.holders import Holders, holders
from bfcviz.model.model import Model
from bfcviz.units import format_bytes

_LONGEST: Final = 48  # characters of a name
_LEAST_SHARE: Final = 0.2
"""Of the bytes in use: a holder with less is named only if all holders around it have less, too."""


def failure_headline(found: Diagnosis) -> str:
    """What was needed, what was free, and the reason: `OOM: needed 24.0 MiB, ...: fragmented by layer_4/Softmax`."""
    if not found.requested:
        return "OOM: a request failed, and the file does not say how many bytes it needed"
    about = "" if found.recorded.is_exact else "about "
    needed = f"OOM: needed {about}{format_bytes(found.requested)}"
    return f"{needed}{_numbers(found)}: {_REASONS[found.verdict](found)}"


def peak_headline(model: Model) -> str:
    """The bytes in use at the model's step, which is the peak, and the largest holder."""
    used = model.table.bytes_in_use
    if not used:
        return "No allocation in this heap"
    name, share = largest_holder(model)
    has_regions = regions_known(model.trace.origin.details, model.pool)
    of_pool = f" of a pool of {format_bytes(model.table.pool_bytes)}" if has_regions else ""
    held = f", {share:.0%} {'' if name.startswith('allocated ') else 'held by '}{name}" if name else ""
    return f"Peak: {format_bytes(used)} in use{of_pool}{held}"


def largest_holder(model: Model) -> tuple[str, float]:
    """The name of the holder to name first, and its share (0..1) of the bytes in use; "" if none has a name."""
    found = holders(model, "op")
    row, total = _heaviest(found), max(found.bytes_in_use, 1)
    name, size = found.path(row), int(found.rows["bytes"][row])
    if found.names[row] == UNNAMED["op"]:
        name, size = _largest_place(model)
    return path_end(name, _LONGEST), size / total


def _largest_place(model: Model) -> tuple[str, int]:
    """The line of code that allocated most of the memory in use, and its bytes; "" where no stack says it."""
    chunks, labels = model.in_use(), model.trace.labels
    sizes = np.bincount(chunks["label"], chunks["size"])
    places: dict[str, int] = {}
    for label in np.flatnonzero(sizes).tolist():
        place = place_in_code(labels[label].details.get("stack", ""))
        places[place] = places.get(place, 0) + int(sizes[label])
    best = max(places, key=lambda place: (places[place], place))
    return best, places[best]


def _heaviest(found: Holders) -> int:
    """The innermost of the largest holders with `_LEAST_SHARE`; row 0 where nothing is in use."""
    rows, here = found.rows, 0
    while True:
        inside = (rows["parent"] == here).nonzero()[0]
        if not len(inside):
            return here
        best = int(inside[rows["bytes"][inside].argmax()])
        if here and int(rows["bytes"][best]) < _LEAST_SHARE * found.bytes_in_use:
            return here
        here = best


def _numbers(found: Diagnosis) -> str:
    if not found.knows("free_bytes", "largest_free_chunk") or found.verdict is Verdict.ABOVE_LIMIT:
        return ""
    free = format_bytes(found.free_bytes)
    if found.verdict is Verdict.CAPACITY:
        return f", {free} free"
    largest = format_bytes(found.largest_free_chunk)
    if largest == format_bytes(found.requested):  # they differ in the digits that are not printed
        largest += f" ({found.largest_free_chunk - found.rounded:+,} B)"
    return f", largest free chunk {largest} of {free} free"


# -- reasons -------------------------------------------------------------------------------------------------


def _above_limit(found: Diagnosis) -> str:
    return f"more than the limit of {format_bytes(found.bytes_limit or 0)}"


def _unknown(found: Diagnosis) -> str:
    if not found.knows("largest_free_chunk"):
        return "the file does not show the heap of that moment"
    return "the events do not show why no free chunk was taken"


def _refused(found: Diagnosis) -> str:
    return f"no region granted, although the limit left {format_bytes(found.room or 0)}"


def _capacity(found: Diagnosis) -> str:
    return f"the pool of {format_bytes(found.pool_bytes)} is full"


def _regions(found: Diagnosis) -> str:
    return f"split into {counted(found.regions.count, 'region')}, the largest {format_bytes(found.regions.largest)}"


def _fragmentation(found: Diagnosis) -> str:
    if not found.pinned_by:
        return "fragmented"
    names = list(dict.fromkeys(filter(None, map(_pin_name, sorted(found.pinned_by, key=_by_size)))))
    if not names:
        size, count = format_bytes(found.runs[0].bytes_in_use), found.runs[0].chunks_in_use
        what = "an unnamed chunk" if count == 1 else f"{count:,} unnamed chunks"
        return f"fragmented by {what} of {size}"
    return f"fragmented by {path_end(names[0], _LONGEST)}" + _others(len(names) - 1)


def _by_size(pin: Pin) -> tuple[int, int]:
    return -pin.size, pin.address


def _pin_name(pin: Pin) -> str:
    return pin.label or place_in_code(pin.details.get("stack", ""))


def _others(number: int) -> str:
    return f" and {counted(number, 'other')}" if number else ""


def _no_failure(_: Diagnosis) -> str:
    return "it would fit"


_REASONS: Final[Mapping[Verdict, Callable[[Diagnosis], str]]] = {
    Verdict.ABOVE_LIMIT: _above_limit,
    Verdict.UNKNOWN: _unknown,
    Verdict.REFUSED: _refused,
    Verdict.CAPACITY: _capacity,
    Verdict.REGIONS: _regions,
    Verdict.FRAGMENTATION: _fragmentation,
    Verdict.NO_FAILURE: _no_failure,
}
