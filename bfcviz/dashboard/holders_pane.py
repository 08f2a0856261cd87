"""The pane of the holders: who holds the memory at a step, as a list or an icicle; or what grew since a step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from itertools import pairwise
from typing import Any, Final, NamedTuple

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.short_names import shortened_name
from bfcviz.analysis.what_grew import Moments, WhatGrew, moments_of, what_grew
from bfcviz.dashboard.table import SIDE_STYLE, holder_text
from bfcviz.errors import BfcvizError, TraceError
from bfcviz.events.origin import chunks_known
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import Colouring
from bfcviz.figures.holder_list import MOST, HolderCount, HolderCounts, HolderRowChooser, other_holders_name
from bfcviz.figures.text import LONGEST, harmless, legend_texts
from bfcviz.figures.theme import contrasting
from bfcviz.figures.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.model.filters import found_by
from bfcviz.model.grouping import UNNAMED, Grouping, HolderChoice
from bfcviz.model.holders import (
    ROOT,
    HolderIndex,
    HolderMarkPair,
)
from bfcviz.units import counted, exact_bytes, format_bytes, signed_bytes
from bfcviz.unwatched import UnwatchedLock

# ------------------------------------------------------------------------------
# The icicle of the side pane: each holder a rectangle as wide as its bytes, below the one around it.

_LEAST: Final = 0.012  # of all bytes in use: about 3 pixels
_LEAST_OPEN: Final = 0.03  # a narrower rectangle has none below it
_DEEPEST: Final = 12
_MOST: Final = 60


class PaneHolderSpan(NamedTuple):
    """A rectangle of the pane's icicle: the node (-1: small holders together), its left edge and width in bytes.

    `name` is the path below the rectangle around it; `holders` are different paths; `depth` 0 is all memory in use.
    """

    node: int
    name: str
    depth: int
    left: int
    bytes: int
    chunks: int
    holders: int


def pane_holder_spans(found: HolderCount) -> list[PaneHolderSpan]:
    """The rectangles of the pane's icicle: the largest holders, the widest first, at most 60."""
    index = found.index
    spans, done = [PaneHolderSpan(ROOT, "", 0, 0, found.total, *_pane_holder_node_counts(found, ROOT))], 0
    while done < len(spans) < _MOST:
        widest = max(range(done, len(spans)), key=lambda place: spans[place].bytes)
        spans[done], spans[widest] = spans[widest], spans[done]
        around = spans[done]
        done += 1
        wide = around.bytes >= _LEAST_OPEN * found.total
        if around.node >= 0 and wide and around.depth < _DEEPEST and index.children[around.node]:
            spans += _pane_holder_spans_below(found, around)
    return spans


def _pane_holder_spans_below(found: HolderCount, around: PaneHolderSpan) -> Iterator[PaneHolderSpan]:
    index, amounts = found.index, found.amounts
    children = np.array(index.children[around.node], np.intp)
    children = children[amounts.chunks[children] > 0]
    children = children[np.lexsort((children, -amounts.bytes[children]))]
    large = children[amounts.bytes[children] >= _LEAST * found.total]
    left = around.left
    for node in large.tolist():
        size = int(amounts.bytes[node])
        inner = amounts.innermost(index, node)
        name = index.how.text(index.path(inner)[len(index.path(node)) - 1 :])
        yield PaneHolderSpan(
            inner, name, around.depth + 1, left, size, *_pane_holder_node_counts(found, node)
        )
        left += size
    small = children[len(large) :]
    size = int(amounts.bytes[small].sum())
    if size >= _LEAST * found.total:
        counts = int(amounts.chunks[small].sum()), int(amounts.holders[small].sum())
        yield PaneHolderSpan(-1, "", around.depth + 1, left, size, *counts)


def _pane_holder_node_counts(found: HolderCount, node: int) -> tuple[int, int]:
    """The chunks of a holder and its different paths."""
    return int(found.amounts.chunks[node]), int(found.amounts.holders[node])


# ------------------------------------------------------------------------------
# HTML of the holders: the list, the icicle, and the line above both.
#
# A row's `data-bfcviz-hover` is the message that the page sends while the pointer is over it, `data-bfcviz` the one
# of a click.

COLUMNS: Final = {
    "name": "holder",
    "bytes": "bytes",
    "share": "share",
    "growth": "growth",
    "chunks": "count",
    "waste": "waste",
}
"""The columns of the list -> their headers."""

GROWTH_COLUMNS: Final = {
    "name": "holder",
    "grew": "grew",
    "new": "new",
    "gone": "gone",
    "never_freed": "never freed",
}
"""The columns of what grew -> their headers."""

WIDE: Final = frozenset({"chunks", "waste"})
"""Columns that are hidden where there is no room; the tooltip has their numbers."""

_FEW_COLUMNS: Final = 3
_GROWN_LETTERS: Final = (24, 34)  # of a name of what grew: beside more columns, beside few
_NO_ISOLATES: Final = {0x2068: None, 0x2069: None}  # each half of a name is escaped and isolated by itself

_LONGEST_HINT: Final = 160
_LONGEST_NOTE: Final = 300
_LONGEST_MOMENT: Final = 60


@dataclass(frozen=True)
class HolderFacts:
    """What a row of the list of holders, or a rectangle of the icicle, shows."""

    number: int  # of the row in messages; -1: it does nothing
    name: str  # its name here
    path: str  # its whole name
    depth: int  # rows around it
    # bytes, chunks, waste: what it holds; `waste` is None where the trace does not have the requested bytes
    bytes: int
    chunks: int
    waste: int | None
    share: float  # of all bytes in use, 0..1
    growth: int | None  # bytes gained from mark to mark; None: there are no marks to compare
    fill: str  # its colour
    chosen: bool = False  # whether the views are filtered by it
    found: int = 0  # bytes of its chunks that the search finds

    @property
    def css(self) -> str:
        """The CSS classes of a holder's row or rectangle."""
        return " ".join(
            ["inside"] * (self.depth > 0) + ["chosen"] * self.chosen + ["found"] * (self.found > 0)
        )

    @property
    def hint(self) -> str:
        """The holder's whole name and all its numbers, as text of several lines."""
        lines = [
            f"{exact_bytes(self.bytes)}, {self.share:.1%} of all bytes in use",
            counted(self.chunks, "chunk"),
        ]
        if self.waste is not None:
            lines[-1] += f", {exact_bytes(self.waste)} wasted"
        if self.growth is not None:
            lines.append(f"growth {signed_bytes(self.growth)}, from mark to mark: see the head of the column")
        if self.found:
            lines.append(f"{exact_bytes(self.found)} found by the search")
        return "&#10;".join([harmless(self.path, _LONGEST_HINT), *lines])

    def cell(self, column: str) -> str:
        """The HTML of a cell of the list of holders."""
        if column == "name":
            return _holder_name_cell(self.name)
        if column == "bytes":
            return format_bytes(self.bytes)
        if column == "share":
            return f"{self.share:.0%}" if self.share >= 0.005 or not self.bytes else "&lt;1%"
        if column == "growth":
            return "" if self.growth is None else signed_bytes(self.growth)
        if column == "chunks":
            return f"{self.chunks:,}"
        return "" if self.waste is None else format_bytes(self.waste)


@dataclass(frozen=True)
class GrowthFacts:
    """What a row of the holders that grew shows."""

    number: int  # of the row in messages; -1: it does nothing
    name: str  # its path
    short: str  # its path in few letters, unlike those of the other rows
    change: Mapping[str, int | None]  # of HOLDER_CHANGE, by column; None: unknown
    share: float  # of the largest change, 0..1
    fill: str  # its colour
    chosen: bool = False  # whether the views are filtered by it
    depth: int = 0

    @property
    def css(self) -> str:
        """The CSS classes of a row of the holders that grew."""
        return "chosen" * self.chosen

    @property
    def hint(self) -> str:
        """The whole name of a holder that grew and all its numbers, as text of several lines."""
        change = self.change
        lines = [
            f"grew by {signed_bytes(change['grew'] or 0)}",
            f"new: {exact_bytes(change['new'] or 0)} in {change['new_chunks']:,} chunks",
            f"gone: {exact_bytes(change['gone'] or 0)} in {change['gone_chunks']:,} chunks",
        ]
        return "&#10;".join([harmless(self.name, _LONGEST_HINT), *lines])

    def cell(self, column: str) -> str:
        """The HTML of a cell of the holders that grew."""
        if column == "name":
            return _holder_name_cell(self.short)
        value = self.change[column]
        if value is None:
            return "?"
        return signed_bytes(value) if column == "grew" else format_bytes(value) if value else ""


def _holder_row_messages(number: int) -> str:
    """The attributes with the messages of a holder's row; -1: it does nothing."""
    if number < 0:
        return ""
    return (
        f' tabindex=\'0\' data-bfcviz=\'{{"do":"holder","row":{number}}}\''
        f' data-bfcviz-hover=\'{{"do":"hover","row":{number}}}\''
    )


def _holder_name_cell(name: str) -> str:
    name = shortened_name(name, LONGEST)
    # A name that is cut already is cut further at the same place.
    middle = name.find("…") if "…" in name else len(name) // 2
    halves = "".join(f"<span><bdi>{harmless(half)}</bdi></span>" for half in (name[:middle], name[middle:]))
    return f"<span class='label'><u></u>{halves}</span>"


def list_html(
    rows: Sequence[HolderFacts | GrowthFacts],
    columns: Sequence[str],
    hints: Mapping[str, str],
    by: str,
    *,
    ascending: bool,
) -> str:
    """The list of holders as a table.

    Args:
        rows: from the top.
        columns: some of `COLUMNS`, or of `GROWTH_COLUMNS`.
        hints: column -> what it shows, in words.
        by: the column that the rows are sorted by.
        ascending: whether the smallest are first.
    """
    widths = "".join(f"<col class='{_holder_column_css(name)}'>" for name in columns)
    heads = "".join(_holder_column_head(name, hints[name], by, ascending=ascending) for name in columns)
    body = "".join(_holder_row_html(row, columns) for row in rows)
    return (
        f"<table aria-label='holders'><colgroup>{widths}</colgroup><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


_HEADERS: Final = GROWTH_COLUMNS | COLUMNS


def _holder_column_css(column: str) -> str:
    return f"{column} wide" if column in WIDE else column


def _holder_column_head(column: str, hint: str, by: str, *, ascending: bool) -> str:
    arrow, sorted_ = "", ""
    if column == by:
        arrow = f"<i aria-hidden='true'>{'▲' if ascending else '▼'}</i>"
        sorted_ = f" aria-sort='{'ascending' if ascending else 'descending'}'"
    return (
        f"<th scope='col' class='{_holder_column_css(column)}'{sorted_} title='{escape(hint)}'><button type='button' "
        f'data-bfcviz=\'{{"do":"holders_sort","by":"{column}"}}\'>{_HEADERS[column]}{arrow}</button></th>'
    )


def _holder_row_html(row: HolderFacts | GrowthFacts, columns: Sequence[str]) -> str:
    cells = "".join(f"<td class='{_holder_column_css(name)}'>{row.cell(name)}</td>" for name in columns)
    style = f"--fill:{row.fill};--bar:{row.fill}59;--part:{row.share:.1%}"
    messages = _holder_row_messages(row.number)
    return f"<tr class='{row.css}'{messages} style='{style}' title='{row.hint}'>{cells}</tr>"


# -- the icicle ----------------------------------------------------------------------------------------------

_LEVEL: Final = 20  # pixels


def pane_icicle_html(boxes: Sequence[tuple[HolderFacts, float]]) -> str:
    """The icicle in the pane of holders: each holder as wide as its bytes, below the one around it.

    Args:
        boxes: each holder, and its left edge as a share of all bytes in use.
    """
    levels = max((facts.depth for facts, _ in boxes), default=-1) + 1
    shown = "".join(_pane_icicle_box_html(facts, left) for facts, left in boxes)
    return f"<div class='icicle' style='height:{levels * _LEVEL}px'>{shown}</div>"


def _pane_icicle_box_html(facts: HolderFacts, left: float) -> str:
    style = (
        f"left:{left:.3%};width:{facts.share:.3%};top:{facts.depth * _LEVEL}px;height:{_LEVEL}px;"
        f"background:{facts.fill};color:{contrasting(facts.fill)}"
    )
    name = harmless(facts.name) if facts.share > _LEAST_NAMED else ""
    messages = _holder_row_messages(facts.number)
    return f"<div class='{facts.css}'{messages} style='{style}' title='{facts.hint}'>{name}</div>"


_LEAST_NAMED: Final = 0.08


# -- the line above --------------------------------------------------------------------------------------------

_CLICK: Final = "Click a holder to see it alone."


def head_html(by: str, choices: Sequence[str], kind: str, filtered: tuple[int, str] | None, note: str) -> str:
    """The lines above the pane of holders: what holders are found by, how they are shown; and the holder that filters.

    Args:
        by: what they are found by.
        choices: what they can be found by.
        kind: one of `KINDS`.
        filtered: row and path of the holder that filters; None: none does.
        note: what the second line says where no holder filters.
    """
    groups = "".join(_holders_switch_button("holders_by", "by", each, pressed=each == by) for each in choices)
    kinds = "".join(_holders_switch_button("holders_as", "as", each, pressed=each == kind) for each in KINDS)
    title, groups = ("by", groups) if len(choices) > 1 else ("Holders", "")
    head = f"<b>{title}</b><span class='by'>{groups}</span><span>{kinds}</span>"
    return f"<div class='head'>{head}{_holder_filter_line(filtered, note)}</div>"


def _holder_filter_line(filtered: tuple[int, str] | None, note: str) -> str:
    """One line in any case: a click on a holder must not move the rows below it under the pointer."""
    if filtered is None:
        text = harmless(note, _LONGEST_NOTE)
        return f"<div class='filter none' title='{text}'>{text}</div>"
    row, path = filtered
    return (
        f"<div class='filter' title='{harmless(path, _LONGEST_HINT)}'>Only this holder "
        f'<button type="button" data-bfcviz=\'{{"do":"holder","row":{row}}}\'>show all</button>: '
        f"{harmless(path)}</div>"
    )


GREW: Final = "what grew"

KINDS: Final = ("list", "icicle", GREW)
"""How holders are shown."""


def _holders_switch_button(do: str, field: str, value: str, *, pressed: bool) -> str:
    state = "true" if pressed else "false"
    return (
        f"<button type='button' aria-pressed='{state}' "
        f'data-bfcviz=\'{{"do":"{do}","{field}":"{value}"}}\'>{value.replace("_", " ")}</button>'
    )


# ------------------------------------------------------------------------------
# The pane of the holders: who holds the memory at a step, as a list or as an icicle.

_NOTHING: Final = "<div class='none'>Nothing is in use at this step.</div>"
_UNKNOWN: Final = "<div class='none'>The file does not show what is in use.</div>"
_SAME: Final = "<div class='none'>The same chunks are in use at both steps.</div>"
_BRUSH: Final = "Drag over the time strip to choose two moments."
_NO_NAMES: Final = "No chunk has a name. "
_FEW_NAMES: Final = "Most memory has no name. "
_MOST_MOMENTS: Final = 500


class HoldersPane:
    """Who holds the memory of one heap, or what grew; empty before `show`.

    Args:
        compare: called with two steps that the user chose from `moments`.

    Attributes:
        widget: the whole widget.
        head: the line above the list, as HTML.
        moments: the menu of marks and phases to compare; shown with what grew.
        body: the list or the icicle, as HTML.
    """

    def __init__(self, compare: Callable[[int, int], object] = lambda _first, _last: None) -> None:
        self._lock = UnwatchedLock()  # a kernel with subshells runs callbacks in threads
        self._counts: HolderCounts | None = None
        self._found: HolderCount | None = None
        self._source: tuple[Model, Colouring] | None = None  # of the last `show`
        self._look = PLAIN
        self._hits: tuple[HolderIndex, NDArray[np.int64]] | None = None  # bytes that the search finds
        self._at_step: int | None = None
        self._by: str | None = None  # None: the most telling grouping
        self._sorted_by, self._ascending, self._kind = "bytes", False, KINDS[0]
        self._numbers: dict[HolderChoice, int] = {}
        self.head, self.body = widgets.HTML(), widgets.HTML()
        self._compare = compare
        self._grew: tuple[object, WhatGrew] | None = None  # of which steps and holders, and what grew
        self._moments_of: tuple[Trace, int, int] | None = None
        self.moments = widgets.Dropdown(
            layout={"display": "none", "width": "100%"}, tooltip="compare two marks, or the ends of a phase"
        )
        self.moments.observe(self._choose_moments, "value")
        style = widgets.HTML(SIDE_STYLE, layout={"display": "none"})
        scrolled = widgets.Box([self.body])
        scrolled.add_class("bfcviz-holders-list")
        self.widget = widgets.VBox([style, self.head, self.moments, scrolled])
        self.widget.add_class("bfcviz-holders")

    def show(self, model: Model, look: Look, colours: Colouring, at_step: int | None = None) -> None:
        """Show the holders at the model's step, in the colours of their chunks.

        Args:
            model: the heap; it is not moved.
            look: the theme, and the holder that filters.
            colours: of the chunks.
            at_step: the step to name; None: the page shows no other step before this is shown again.
        """
        with self._lock:
            self._at_step = at_step
            if self._counts is None or not self._counts.counts(model):
                self._counts, self._numbers = HolderCounts(model.trace, model.pool), {}
            self._found = self._counts.count(model, self._by, colours)
            self._source, self._look = (model, colours), look
            self._hits = None
            self._show_moments(model)
            self._draw()

    def growth(self, moments: tuple[int, int] | None) -> WhatGrew | None:
        """What grew, as the pane of holders shows it; where it shows those of one step, what grew between two moments.

        None: there are no two moments to compare.
        """
        with self._lock:
            if self._source is None or self._found is None:
                return None
            model, since = self._source[0], self._look.since
            if since is not None:
                moments = since, model.step
            if moments is None:
                return None
            try:
                return self._what_grew(model, moments, self._found.index.how)
            except TraceError:  # the pane says why
                return None

    def _what_grew(self, model: Model, moments: tuple[int, int], how: Grouping) -> WhatGrew:
        """What grew between two moments; found once."""
        key = model.trace, model.trace.following, model.pool, moments, how
        if self._grew is None or self._grew[0] != key:
            with model.visiting(moments[1]):
                self._grew = key, what_grew(model, moments[0], how)
        return self._grew[1]

    def choice(self, row: int) -> HolderChoice | None:
        """The holder of a row, by its number in the messages of the page; None: there is no such row."""
        with self._lock:
            known = list(self._numbers)
        return known[row] if 0 <= row < len(known) else None

    def sort(self, by: str) -> None:
        """Sort the pane of holders by a column, the largest first; if it is sorted by this already, reverse it.

        Raises:
            BfcvizError: there is no such column.
        """
        if by not in _HEADERS:
            known = ", ".join(_HEADERS)
            raise BfcvizError(f"holders have no column {by!r} to sort by; choose one of {known}")
        with self._lock:
            self._ascending = not self._ascending if by == self._sorted_by else by == "name"
            self._sorted_by = by
            self._draw()

    def find_by(self, by: str) -> None:
        """Find holders by another property.

        Raises:
            BfcvizError: there is no such property.
        """
        if by not in UNNAMED:
            raise BfcvizError(f"cannot find holders by {by!r}; choose one of {', '.join(UNNAMED)}")
        with self._lock:
            self._by = by
            if self._counts is not None and self._source is not None:
                model, colours = self._source
                self._found = self._counts.count(model, by, colours)
            self._draw()

    def show_as(self, kind: str) -> None:
        """Show holders as the `list` or the `icicle`; `what grew` is shown where the look names a step since when.

        Raises:
            BfcvizError: it is none of them.
        """
        if kind not in KINDS:
            raise BfcvizError(f"cannot show holders as {kind!r}; choose one of {', '.join(KINDS)}")
        with self._lock:
            self._kind = self._kind if kind == GREW else kind
            self._draw()

    def _choose_moments(self, change: dict[str, Any]) -> None:
        """Compare the holders of two steps of the menu; its first line is none of them."""
        if change["new"]:
            self._compare(*change["new"])

    def _show_moments(self, model: Model) -> None:
        """Fill the menu with the marks and phases of the trace, where it has some."""
        shown = self._look.since is not None
        if shown and self._moments_of != (model.trace, model.pool, len(model.trace)):
            self._moments_of = model.trace, model.pool, len(model.trace)
            found = moments_of(model.trace, model.pool)
            left = f" (the last {_MOST_MOMENTS} of {len(found):,})" if len(found) > _MOST_MOMENTS else ""
            self.moments.options = [
                (f"compare two marks, or the ends of a phase{left}", ()),
                *((_pane_moments_text(each), (each.first, each.last)) for each in found[-_MOST_MOMENTS:]),
            ]
            self.moments.index = 0
        self.moments.layout.display = None if shown and len(self.moments.options) > 1 else "none"

    def _draw(self) -> None:
        found = self._found
        if found is None:
            return
        by = found.index.how.by
        chosen = self._look.holder
        filtered = None if chosen is None else (self._number(chosen), holder_text(chosen))
        counts = self._counts
        step = "" if self._at_step is None else f"Step {self._at_step:,}. "
        names = [] if counts is None else counts.groupings.names
        if self._look.since is not None and self._source is not None:
            note, self.body.value = self._growth(self._source[0], self._look.since, found.index.how)
            self.head.value = head_html(by, names, GREW, filtered, note)
            return
        unnamed = ""
        if names[:1] == ["size"]:
            unnamed = _FEW_NAMES if counts and counts.named else _NO_NAMES
        note = step + unnamed + _CLICK if found.total else step
        self.head.value = head_html(by, names, self._kind, filtered, note)
        if not found.total:
            known = counts is None or chunks_known(counts.trace.origin.details, counts.pool)
            self.body.value = _NOTHING if known else _UNKNOWN
        elif self._kind == "icicle":
            self.body.value = pane_icicle_html([self._box(found, span) for span in pane_holder_spans(found)])
        else:
            self.body.value = self._list(found)

    def _growth(self, model: Model, since: int, how: Grouping) -> tuple[str, str]:
        """The sentence and the list of what grew from a step to the model's step."""
        try:
            found = self._what_grew(model, (since, model.step), how)
        except TraceError as error:
            return _BRUSH, f"<div class='none'>{harmless(str(error), _LONGEST_NOTE)}</div>"
        if not len(found.rows):
            return _growth_note(found), _SAME
        largest = np.argsort(-np.abs(found.rows["grew"]), kind="stable")
        rows = [self._grown(found, row) for row in np.sort(largest[:MOST]).tolist()]
        rest = [self._grown_rest(found, largest[MOST:])] if len(largest) > MOST else []
        columns = [name for name in GROWTH_COLUMNS if _has_growth_column([*rows, *rest], name)]
        # Before they are sorted: a number in a name stays with its holder.
        names = legend_texts([row.name for row in rows], _GROWN_LETTERS[len(columns) <= _FEW_COLUMNS])
        short = [unescape(name).translate(_NO_ISOLATES) for name in names]
        rows = [replace(row, short=name) for row, name in zip(rows, short, strict=True)]
        by = self._sorted_by if self._sorted_by in columns else "grew"
        key = _growth_row_name if by == "name" else lambda row: row.change[by] or 0
        rows.sort(key=key, reverse=not self._ascending)
        hints = _pane_growth_hints(found)
        shown = list_html([*rows, *rest], columns, hints, by, ascending=self._ascending)
        return _growth_note(found), shown

    def _grown(self, found: WhatGrew, row: int) -> GrowthFacts:
        values = found.rows[row]
        choice = HolderChoice(found.how.by, found.paths[row])
        name = found.how.text(found.paths[row])
        return GrowthFacts(
            number=self._number(choice),
            name=name,
            short=name,
            change=_pane_growth_change(found, {name: int(values[name]) for name in values.dtype.names or ()}),
            share=abs(int(values["grew"])) / max(int(np.abs(found.rows["grew"]).max()), 1),
            fill=self._growth_fill(int(values["grew"]), int(values["never_freed"])),
            chosen=choice == self._look.holder,
        )

    def _grown_rest(self, found: WhatGrew, rows: NDArray[np.intp]) -> GrowthFacts:
        sums = {name: int(found.rows[name][rows].sum()) for name in found.rows.dtype.names or ()}
        name, fill = other_holders_name(len(rows)), self._look.paints.other.fill
        return GrowthFacts(-1, name, name, _pane_growth_change(found, sums), 0.0, fill)

    def _growth_fill(self, grew: int, never_freed: int) -> str:
        """The colour that most of what grew has in the map."""
        theme = self._look.paints
        if grew <= 0:
            return theme.other.fill
        return theme.classes[1 if 2 * never_freed >= grew else 0].fill

    def _list(self, found: HolderCount) -> str:
        columns = [name for name in COLUMNS if _has_holder_column(found, name)]
        sorted_by = self._sorted_by if self._sorted_by in columns else "bytes"
        key, by_name = found.keys(sorted_by), sorted_by == "name"
        rows = HolderRowChooser(found.index, found.amounts, key, by_name, self._ascending).rows()
        gone = None if found.growth is None else found.index.gone(found.amounts, found.growth)
        fill = self._look.paints.other.fill
        tops = [place for place, row in enumerate(rows) if row.depth == 0 and row.node >= 0]
        facts: list[HolderFacts] = []
        for top, end in pairwise([*tops, len(rows)]):
            inside = [row for row in rows[top:end] if row.node >= 0]
            facts += (self._facts(found, row.node, row.name, row.depth) for row in inside)
            if len(inside) > 1:
                facts += _pane_rest_facts(found, gone, [row.node for row in inside], 1, fill)
        facts += _pane_rest_facts(found, gone, [ROOT, *(rows[top].node for top in tops)], 0, fill)
        return list_html(facts, columns, _holder_column_hints(found), sorted_by, ascending=self._ascending)

    def _facts(self, found: HolderCount, node: int, name: str, depth: int) -> HolderFacts:
        amounts, choice = found.amounts, found.choice(node)
        num_bytes = int(amounts.bytes[node])
        return HolderFacts(
            number=self._number(choice),
            name=name,
            path=holder_text(choice) if choice.path else "all memory in use",
            depth=depth,
            bytes=num_bytes,
            chunks=int(amounts.chunks[node]),
            waste=int(found.wastes()[node]) if found.waste_known else None,
            share=found.share(num_bytes),
            growth=None if found.growth is None else int(found.growth[node]),
            fill=found.fill(node),
            chosen=choice == self._look.holder,
            found=self._found_bytes(found.index, node),
        )

    def _found_bytes(self, index: HolderIndex, node: int) -> int:
        """The bytes of a holder that the search finds."""
        if self._source is None or not self._look.search:
            return 0
        if self._hits is None or self._hits[0] is not index:
            model = self._source[0]
            chunks = model.in_use()
            hits = chunks[found_by(model.trace.labels, self._look.search)(chunks)]
            self._hits = index, index.amounts(index.count(hits)).bytes
        return int(self._hits[1][node])

    def _box(self, found: HolderCount, span: PaneHolderSpan) -> tuple[HolderFacts, float]:
        theme = self._look.paints
        if span.node > ROOT:
            facts = self._facts(found, span.node, span.name, span.depth)
        else:
            name, fill = other_holders_name(span.holders), theme.other.fill
            if span.node == ROOT:
                name, fill = f"in use, {format_bytes(span.bytes)}", theme.pool.fill
            share = found.share(span.bytes)
            facts = HolderFacts(-1, name, name, span.depth, span.bytes, span.chunks, None, share, None, fill)
        return facts, found.share(span.left)

    def _number(self, choice: HolderChoice) -> int:
        """The number of a holder in messages; it keeps it."""
        return self._numbers.setdefault(choice, len(self._numbers))


def _pane_moments_text(moments: Moments) -> str:
    """A line of the menu of moments in the pane of holders."""
    name = unescape(harmless(moments.text, _LONGEST_MOMENT))
    return f"{name} (steps {moments.first:,} to {moments.last:,})"


def _growth_note(found: WhatGrew) -> str:
    """What grew, in a line as wide as the pane."""
    grew, new, gone = (found.total(name) for name in ("grew", "new", "gone"))
    changed = f"{format_bytes(new)} new, {format_bytes(gone)} gone"
    return f"{signed_bytes(grew)} since step {found.first:,}: {changed}. Drag over the time strip for others."


def _has_growth_column(rows: Sequence[GrowthFacts], column: str) -> bool:
    """Whether a column of what grew says anything in any row."""
    return column in ("name", "grew") or any(row.change[column] != 0 for row in rows)


def _growth_row_name(row: GrowthFacts) -> str:
    return row.name.casefold()


def _pane_growth_change(found: WhatGrew, values: dict[str, int]) -> dict[str, int | None]:
    """What a row of the list of what grew shows; None: the trace cannot tell."""
    return {**values} if found.end_known else {**values, "never_freed": None}


def _pane_growth_hints(found: WhatGrew) -> dict[str, str]:
    """What each column of what grew shows."""
    first, last = (f"step {step:,}" for step in (found.first, found.last))
    return {
        "name": "who allocated the chunks",
        "grew": f"bytes at {last} - bytes at {first}",
        "new": f"bytes in use at {last} that were allocated since {first}",
        "gone": f"bytes in use at {first} that were freed by {last}",
        "never_freed": "of the new bytes, those in use at the end of the trace",
    }


def _pane_rest_facts(
    found: HolderCount, gone: NDArray[np.int64] | None, nodes: Sequence[int], depth: int, fill: str
) -> Iterator[HolderFacts]:
    """What the first of the nodes has without the others: rows of its small holders together, and of those gone.

    `gone` is the growth of the holders that are gone and their number, by node; None: no growth is shown.
    """

    def left(values: NDArray[np.int64]) -> int:
        first, *others = values[list(nodes)].tolist()
        return int(first - sum(others))

    grown, few = (0, 0) if gone is None else (left(gone[0]), left(gone[1]))
    if holders := left(found.amounts.holders):
        num_bytes = left(found.amounts.bytes)
        yield HolderFacts(
            number=-1,
            name=other_holders_name(holders),
            path="all holders that are too small for a row",
            depth=depth,
            bytes=num_bytes,
            chunks=left(found.amounts.chunks),
            waste=left(found.wastes()) if found.waste_known else None,
            share=found.share(num_bytes),
            growth=None if found.growth is None else left(found.growth) - grown,
            fill=fill,
        )
    if few:
        name, path = f"gone ({counted(few, 'holder')})", "all holders that have no chunk at this step"
        waste = 0 if found.waste_known else None
        yield HolderFacts(-1, name, path, depth, 0, 0, waste, 0.0, grown, fill)


def _has_holder_column(found: HolderCount, column: str) -> bool:
    if column == "growth":
        return found.growth is not None
    return column != "waste" or found.waste_known


def _holder_column_hints(found: HolderCount) -> dict[str, str]:
    """What each column of the list of holders shows."""
    return {
        "name": "who allocated the chunks",
        "bytes": "bytes of the holder's chunks in use",
        "share": "of all bytes in use",
        "growth": "" if found.marks is None else _growth_column_hint(found.marks),
        "chunks": "chunks in use",
        "waste": "size - requested",
    }


def _growth_column_hint(marks: HolderMarkPair) -> str:
    first, last = (
        f"mark '{unescape(harmless(mark.name))}' (step {mark.step:,})" for mark in (marks.first, marks.last)
    )
    apart = f"{marks.apart:,} such marks later" if marks.apart > 1 else "the next such mark"
    return f"bytes at {last} - bytes at {first}; {apart}; what comes and goes between marks does not count"
