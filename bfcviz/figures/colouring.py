"""Colouring: the classes that chunks in use are coloured by; a class means the same at every step of a trace.

A class depends only on a record's own fields, so chunks of a model and lifetimes of a trace get the same colours. Only
the colouring by holder depends on the step, too: its colours go to the largest holders there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import MIN_CHUNK, NUM_BINS, Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.figures.holder_colours import (
    OTHER,
    SHADES,
    HolderChooser,
    HolderClasses,
    HolderGroups,
    label_tree,
)
from bfcviz.figures.text import LONGEST_SHORT_NAME, harmless, short_names
from bfcviz.figures.theme import Paint, Theme
from bfcviz.model.grouping import Path
from bfcviz.model.kinds import MemoryKinds
from bfcviz.model.lifetimes import in_use_at
from bfcviz.model.trace_index import known_index, with_byte_steps
from bfcviz.units import GiB, KiB, MiB, format_bytes

# ------------------------------------------------------------------------------
# Bytes times steps in use: how much memory, and how long, over a whole trace.


def byte_steps(trace: Trace, pool: int, name: str) -> NDArray[np.float64]:
    """Bytes in use times steps in use, summed over the trace, by the value of field `name`."""
    index = known_index(trace, pool)
    if index is not None and name == "label":
        return index.byte_steps
    carried = in_use_at(trace, pool, trace.first)
    remaining = float(len(trace) - trace.first)
    carried_over = np.bincount(carried[name], weights=carried["size"] * remaining)
    totals: NDArray[np.float64] = carried_over.astype(np.float64)
    for block in trace.blocks():
        totals = with_byte_steps(totals, block, pool, name, len(trace))
    return totals


# ------------------------------------------------------------------------------
# HolderPalette: the colouring by holder of one heap, kept from step to step.

_GROWN: Final = 1.5
"""A trace that is so many times as long has other usual holders."""

_MOST_UNKNOWN: Final = 0.1
"""Of the bytes in use: with more in labels that are not in the tree, the tree is made again."""

_MOST_KEPT: Final = 64


class HolderPalette:
    """Which holders of a heap get the colours.

    Attributes:
        made: the colouring of each theme and choice of holders.
        groups: the memory that an image counts apart.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        self.made: dict[tuple[str, HolderClasses], Colouring] = {}
        self.steps = len(trace)
        held = byte_steps(trace, pool, "label")
        tree = label_tree(trace.labels, np.flatnonzero(held).tolist())
        self._size = tree.size
        self._chooser = HolderChooser(tree, held[: self._size])
        self.groups = HolderGroups(tree, held[: self._size])
        self._known: dict[frozenset[tuple[int, int]], HolderClasses] = {}

    def classes(self, chunks: NDArray[np.void] | None) -> HolderClasses:
        """The classes for these chunks (None: for the whole trace); the same object while they are the same."""
        found = self._chooser.at(None if chunks is None else self._bytes(chunks)[: self._size])
        if len(self._known) > _MOST_KEPT:
            self._known, self.made = {}, {}
        return self._known.setdefault(frozenset(found.nodes.items()), found)

    def knows(self, chunks: NDArray[np.void]) -> bool:
        """Whether most of these bytes have a label that the trace had when this was made."""
        held = self._bytes(chunks)
        return float(held[self._size :].sum()) <= _MOST_UNKNOWN * max(float(held.sum()), 1.0)

    def _bytes(self, chunks: NDArray[np.void]) -> NDArray[np.float64]:
        """Bytes in use by label number."""
        sizes = chunks["size"].astype(np.float64)
        if "in_use" in (chunks.dtype.names or ()):
            sizes *= chunks["in_use"]
        return np.bincount(chunks["label"], sizes, minlength=self._size).astype(np.float64)


_palettes: WeakKeyDictionary[Trace, dict[int, HolderPalette]] = WeakKeyDictionary()


def palette_of(trace: Trace, pool: int, chunks: NDArray[np.void] | None = None) -> HolderPalette:
    """The palette of a heap; made again when the trace has grown much, or has many new labels among `chunks`."""
    known = _palettes.setdefault(trace, {})
    found = known.get(pool)
    if found is not None and len(trace) != found.steps:
        grown = len(trace) > _GROWN * found.steps
        if grown or (chunks is not None and not found.knows(chunks)):
            found = None
    if found is None:
        found = known[pool] = HolderPalette(trace, pool)
    return found


# ------------------------------------------------------------------------------
# Colouring: the classes that chunks in use are coloured by; a class means the same at every step of a trace.

COLOURINGS: Final = {
    "holder": "holder (the largest ones at this step)",
    "kind": "kind (parameters, gradients, optimizer state ...)",
    "state": "state",
    "bin": "bin of its size",
    "age": "age (steps since its allocation)",
    "size": "size",
    "label": "label",
    "thread": "allocating thread",
    "stream": "stream",
    "step": "allocating step",
    "waste": "waste (1 - requested / size)",
}
"""Name -> what it colours chunks in use by."""

MOST_CLASSES: Final = OTHER + 1
"""Classes of a colouring, at most: those of the colouring by holder."""

FEW_CLASSES: Final = 8
"""Classes of every other colouring, at most."""

FREE: Final = 255
"""The class of free chunks: they have the same colour in every colouring."""

_LEGEND_LINE = 130  # characters, on a page 1,200 pixels wide: a longer legend takes two lines

_NAMED = FEW_CLASSES - 1  # the last class holds all others

Classify = Callable[[NDArray[np.void], int], NDArray[np.integer]]


@dataclass(frozen=True, eq=False)
class Colouring:
    """The classes of one colouring, for a trace of the length it had when this was made.

    Each is equal to itself alone: the same object has the same classes.

    Attributes:
        name: one of `COLOURINGS`.
        names: the names of the classes for the legend, escaped for HTML; 1 to `MOST_CLASSES`; empty: not in the legend.
        paints: the colours of the classes.
        classify: gives the class of records in use at a step; equal if two colourings have the same classes.
        holders: the holders of the classes, if this is the colouring by holder.
    """

    name: str
    names: Sequence[str]
    paints: Sequence[Paint]
    classify: Classify = field(repr=False)
    holders: HolderClasses | None = None
    _grouped: "Colouring | None" = field(default=None, repr=False)

    @property
    def shows_waste(self) -> bool:
        """Whether bytes that were not requested have their own colour."""
        return self.name in ("state", "holder")

    def classes(self, records: NDArray[np.void], step: int) -> NDArray[np.uint8]:
        """The class of each record at `step`, an index into `names`; `FREE` for free chunks.

        Args:
            records: shape (n,), with the fields size, requested, born, label, thread and stream; records
                without a field `in_use` are all in use.
            step: the step that is shown; ages are counted up to it.
        """
        found = self.classify(records, step).astype(np.uint8)
        if "in_use" in (records.dtype.names or ()):
            found[~records["in_use"]] = FREE
        return found

    def key_at(self, step: int) -> object:
        """Equal where records of all steps up to this one have the same classes; ages are counted up to it."""
        return self.classify, step if self.name == "age" else None

    @property
    def for_images(self) -> "Colouring":
        """The same with few classes that no step changes, for images that count the bytes of each class once.

        By holder its classes are `HolderGroups`, each in the colour that most of its memory has at this step.
        """
        return self._grouped or self

    def paint_of(self, path: Path) -> Paint | None:
        """The colour of the memory of a path of label parts; None: it has several, or another colouring is chosen."""
        number = None if self.holders is None else self.holders.of_path(path)
        return None if number is None else self.paints[number]

    def legend(self, number: int, *, shown: bool) -> dict[str, Any]:
        """Name and legend of the trace of class `number`; line 0 of the legend is that of `free`.

        Args:
            number: of the class, also of one that this colouring does not have.
            shown: whether the picture has a legend of classes; without one a class has no name.
        """
        if not shown or number >= len(self.names) or not self.names[number]:
            return {"name": "", "showlegend": False, "legend": 0}
        letters = sum(len(name) + 8 for name in self.names[:number] if name)
        one = sum(1 for name in self.names if name) == 1
        line = 0 if one else 1 + letters // _LEGEND_LINE
        return {"name": self.names[number], "showlegend": True, "legend": line}


def colouring(
    trace: Trace, pool: int, name: str, theme: Theme, chunks: NDArray[np.void] | None = None
) -> Colouring:
    """The colouring called `name` of one heap of `trace`; it may read the whole trace, so reuse it.

    Only that by holder may differ from step to step; it is the same object while its classes are the same.

    Args:
        trace: the events.
        pool: the heap of the trace, by number.
        name: one of `COLOURINGS`.
        theme: the colours.
        chunks: the chunks at the step that is shown, as for `Colouring.classes`; None: the colours by holder go to the
            largest holders of the whole trace.

    Raises:
        ValueError: the name is unknown; the message lists all names.
    """
    if name not in COLOURINGS:
        raise ValueError(f"no colouring {name!r}; there are: {', '.join(COLOURINGS)}")
    if name == "holder":
        return _by_holder(trace, pool, theme, chunks)
    if name == "kind":
        return _by_kind(trace, pool, theme)
    if name in ("label", "thread", "stream"):
        return _by_most_bytes(trace, pool, name, theme)
    names, classify = _ORDERED[name](trace, pool)
    paints = [theme.in_use] if name == "state" else _spread(theme.ramp, len(names))
    return Colouring(name, names, paints, classify)


def _spread(ramp: Sequence[Paint], count: int) -> list[Paint]:
    """`count` paints from one end of the ramp to the other."""
    return [ramp[place] for place in np.linspace(0, len(ramp) - 1, count).round().astype(int)]


# -- ordered classes ---------------------------------------------------------------------------------------


def _by_state(_trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    return ["in use"], lambda records, _: np.zeros(len(records), np.uint8)


def _by_bin(trace: Trace, pool: int) -> tuple[list[str], Classify]:
    """Adjacent bins share a class if more than `FEW_CLASSES` bins occur."""
    low, high = (bin_of(size) for size in _sizes(trace, pool))
    width = -(-(high - low + 1) // FEW_CLASSES)
    starts = list(range(low, high + 1, width))
    edges = np.array([MIN_CHUNK << start for start in starts[1:]], np.uint64)
    return [_bins(start, min(start + width, high + 1)) for start in starts], _between(edges)


def _bins(start: int, stop: int) -> str:
    which = f"bin {start}" if stop == start + 1 else f"bins {start}-{stop - 1}"
    if stop == NUM_BINS:
        return f"{which} ({_bytes(MIN_CHUNK << start)}+)"
    return f"{which} ({_range(MIN_CHUNK << start, MIN_CHUNK << stop)})"


_SIZES = np.array([KiB, 16 * KiB, 256 * KiB, 4 * MiB, 64 * MiB, GiB, 16 * GiB], np.uint64)


def _by_size(trace: Trace, pool: int) -> tuple[list[str], Classify]:
    """The same edges for every trace, without the classes at either end that do not occur."""
    low, high = np.searchsorted(_SIZES, np.array(_sizes(trace, pool), np.uint64), side="right").tolist()
    edges = _SIZES.tolist()
    names = [
        f"under {_bytes(edges[0])}",
        *(_range(a, b) for a, b in pairwise(edges)),
        f"{_bytes(edges[-1])}+",
    ]
    return names[low : high + 1], _between(_SIZES[low:high])


def _by_age(trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    """Powers of ten, up to the length of the trace."""
    digits = min(len(str(len(trace))), FEW_CLASSES)
    edges = np.array([10**power for power in range(1, digits)], np.int64)

    def classify(records: NDArray[np.void], step: int) -> NDArray[np.integer]:
        age = np.maximum(step - records["born"].astype(np.int64), 0)
        return np.searchsorted(edges, age, side="right")

    return ["under 10 steps", *(f"{edge:,}+" for edge in edges.tolist())], classify


def _by_step(trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    """Equal parts of the trace."""
    stop = max(len(trace), 1)
    starts = sorted({stop * part // FEW_CLASSES for part in range(FEW_CLASSES)})
    names = [_steps(a, b - 1) for a, b in zip(starts, [*starts[1:], stop], strict=True)]
    edges = np.array(starts[1:], np.uint64)
    return names, lambda records, _: np.searchsorted(edges, records["born"], side="right")


def _steps(first: int, last: int) -> str:
    return f"step {first:,}" if first == last else f"{first:,}-{last:,}"


_SHARES = np.array([np.nextafter(0, 1), 0.01, 0.05, 0.1, 0.25, 0.5])


def _by_waste(_trace: Trace, _pool: int) -> tuple[list[str], Classify]:
    names = ["no waste", "under 1 %", "1-5 %", "5-10 %", "10-25 %", "25-50 %", "50 % or more"]
    return names, lambda records, _: np.searchsorted(_SHARES, _wasted(records), side="right")


def _wasted(records: NDArray[np.void]) -> NDArray[np.float64]:
    size = np.maximum(records["size"].astype(np.float64), 1.0)
    share: NDArray[np.float64] = 1.0 - np.minimum(records["requested"] / size, 1.0)
    return share


_ORDERED: Final[dict[str, Callable[[Trace, int], tuple[list[str], Classify]]]] = {
    "state": _by_state,
    "bin": _by_bin,
    "age": _by_age,
    "size": _by_size,
    "step": _by_step,
    "waste": _by_waste,
}


def _between(edges: NDArray[np.uint64]) -> Classify:
    return lambda records, _: np.searchsorted(edges, records["size"], side="right")


def _sizes(trace: Trace, pool: int) -> tuple[int, int]:
    """The smallest and the largest size ever allocated, in bytes."""
    low, high = [], []
    for block in trace.blocks():
        made: NDArray[np.bool_] = (block["kind"] == Kind.ALLOCATE) & (block["pool"] == pool)
        sizes = block["size"][made]
        if len(sizes):
            low.append(int(sizes.min()))
            high.append(int(sizes.max()))
    return (min(low), max(high)) if low else (MIN_CHUNK, MIN_CHUNK)


def _bytes(num_bytes: int) -> str:
    return format_bytes(num_bytes).replace(".0 ", " ")


def _range(low: int, high: int) -> str:
    """`4-16 KiB`: the unit only once if both ends share it."""
    first, last = _bytes(low), _bytes(high)
    same = first.split()[1] == last.split()[1]
    return f"{first.split()[0] if same else first}-{last}"


# -- classes by holder ---------------------------------------------------------------------------------------


def _by_holder(trace: Trace, pool: int, theme: Theme, chunks: NDArray[np.void] | None) -> Colouring:
    """Class hue * SHADES + shade for each shade of each hue, then `OTHER`."""
    palette = palette_of(trace, pool, chunks)
    chosen = palette.classes(chunks)
    known = palette.made.get((theme.name, chosen))
    if known is not None:
        return known
    table = chosen.by_label()

    def classify(records: NDArray[np.void], _: int) -> NDArray[np.integer]:
        found: NDArray[np.uint8] = table[np.minimum(records["label"], len(table) - 1).astype(np.intp)]
        return found

    names = _holder_names(chosen)
    paints = theme.holders
    groups = palette.groups
    grouped = Colouring(
        "holder", [""] * len(groups), [paints[number] for number in groups.most_of(table)], groups.classify
    )
    made = Colouring("holder", names, paints, classify, chosen, grouped)
    palette.made[theme.name, chosen] = made
    return made


def _holder_names(chosen: HolderClasses) -> list[str]:
    """One name a hue: its shades are of holders inside."""
    names = dict(chosen.names())
    hues = [number for number in sorted(names) if number % SHADES == 0]
    whole = [names[number] for number in hues]
    short = dict(zip(hues, short_names(whole), strict=True))
    if len({name.rpartition("/")[2] for name in whole}) < len(whole):  # the beginnings tell them apart
        short = {number: harmless(names[number], LONGEST_SHORT_NAME) for number in hues}
    return [*(short.get(number, "") for number in range(OTHER)), "other"]


# -- named classes -------------------------------------------------------------------------------------------


def _by_most_bytes(trace: Trace, pool: int, name: str, theme: Theme) -> Colouring:
    """The values of field `name` with the most bytes times steps in use; one class for all others."""
    totals = byte_steps(trace, pool, name)
    by_name: dict[str, float] = {}
    for number in np.flatnonzero(totals).tolist():
        text = _legend_name(trace, name, number)
        by_name[text] = by_name.get(text, 0.0) + totals[number]
    most = sorted(by_name, key=lambda text: -by_name[text])[:_NAMED]
    classes = {text: place for place, text in enumerate(most)}
    # One more entry than numbers: values that a growing trace adds later belong to the others.
    table = np.full(len(totals) + 1, len(most), np.uint8)
    for number in np.flatnonzero(totals).tolist():
        table[number] = classes.get(_legend_name(trace, name, number), len(most))
    names, paints = short_names(most), list(theme.classes[: len(most)])
    if len(by_name) > len(most) or not most or trace.following:
        names.append("other")
        paints.append(theme.other)
    return Colouring(
        name, names, paints, lambda records, _: table[np.minimum(records[name], len(totals)).astype(np.intp)]
    )


def _by_kind(trace: Trace, pool: int, theme: Theme) -> Colouring:
    """The kinds that occur, in their own order and with the same colour in every trace; unknown ones together."""
    kinds = MemoryKinds(trace, pool)
    totals = np.zeros(len(kinds.names), np.int64)
    for block in trace.blocks():
        at = np.flatnonzero((block["kind"] == Kind.ALLOCATE) & (block["pool"] == pool))
        np.add.at(totals, kinds.of(block[at]), block["size"][at].astype(np.int64))
    known = [number for number in np.argsort(-totals, kind="stable").tolist() if number and totals[number]][
        :_NAMED
    ]
    table = np.full(len(totals), len(known), np.uint8)
    table[sorted(known)] = np.arange(len(known))
    names = [harmless(kinds.names[number], LONGEST_SHORT_NAME) for number in sorted(known)]
    paints = [theme.classes[(number - 1) % len(theme.classes)] for number in sorted(known)]
    return Colouring(
        "kind",
        [*names, "other or unknown"],
        [*paints, theme.other],
        lambda records, _: table[kinds.of(records)],
    )


def _legend_name(trace: Trace, name: str, number: int) -> str:
    """The legend's name of a value; labels with the same name and different details share one."""
    if name == "label":
        return trace.labels.name(number) or "no label"
    return f"{name} {number}"
