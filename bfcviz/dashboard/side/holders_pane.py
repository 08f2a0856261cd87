"""The pane of the holders: who holds the memory at a step, as a list or as an icicle."""

from collections.abc import Sequence
from html import unescape
from threading import RLock
from typing import Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.side.holder_counts import HolderCount, HolderCounts
from bfcviz.dashboard.side.holder_rows import RowOrder, holder_rows
from bfcviz.dashboard.side.holders_html import (
    COLUMNS,
    KINDS,
    HolderFacts,
    IcicleBox,
    head_html,
    icicle_html,
    list_html,
)
from bfcviz.dashboard.side.icicle import HolderSpan, holder_spans
from bfcviz.dashboard.side.style import STYLE
from bfcviz.errors import BfcvizError
from bfcviz.figures.style.colour_math import contrasting
from bfcviz.figures.style.colouring import Colouring
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.view_options import PLAIN, Look
from bfcviz.model import Model
from bfcviz.model.holders.grouping import SEPARATORS, UNNAMED
from bfcviz.model.holders.holder_choice import HolderChoice
from bfcviz.model.holders.holder_index import ROOT
from bfcviz.model.holders.mark_growth import MarkPair
from bfcviz.units import format_bytes

_NOTHING: Final = "<div class='none'>Nothing is in use at this step.</div>"


class HoldersPane:
    """Who holds the memory of one heap; empty before `show`.

    Attributes:
        widget: the whole widget.
        head: the line above the list, as HTML.
        body: the list or the icicle, as HTML.
    """

    def __init__(self) -> None:
        self._lock = RLock()  # a kernel with subshells runs callbacks in threads
        self._counts: HolderCounts | None = None
        self._found: HolderCount | None = None
        self._source: tuple[Model, Colouring] | None = None  # of the last `show`
        self._look = PLAIN
        self._at_step: int | None = None
        self._by: str | None = None  # None: the most telling grouping
        self._sorted_by, self._ascending, self._kind = "bytes", False, KINDS[0]
        self._numbers: dict[HolderChoice, int] = {}
        self.head, self.body = widgets.HTML(), widgets.HTML()
        style = widgets.HTML(STYLE, layout={"display": "none"})
        scrolled = widgets.Box([self.body])
        scrolled.add_class("bfcviz-holders-list")
        self.widget = widgets.VBox([style, self.head, scrolled])
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
            self._draw()

    def choice(self, row: int) -> HolderChoice | None:
        """The holder of a row, by its number in the messages of the page; None: there is no such row."""
        with self._lock:
            known = list(self._numbers)
        return known[row] if 0 <= row < len(known) else None

    def sort(self, by: str) -> None:
        """Sort by a column, the largest first; if it is sorted by this column already, reverse the order.

        Raises:
            BfcvizError: there is no such column.
        """
        if by not in COLUMNS:
            raise BfcvizError(f"holders have no column {by!r} to sort by; choose one of {', '.join(COLUMNS)}")
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
        """Show the `list` or the `icicle`.

        Raises:
            BfcvizError: it is neither of them.
        """
        if kind not in KINDS:
            raise BfcvizError(f"cannot show holders as {kind!r}; choose one of {', '.join(KINDS)}")
        with self._lock:
            self._kind = kind
            self._draw()

    def _draw(self) -> None:
        found = self._found
        if found is None:
            return
        by = found.index.how.by
        chosen = self._look.holder
        filtered = None if chosen is None else (self._number(chosen), _text(chosen))
        counts = self._counts
        self.head.value = head_html(
            by, [] if counts is None else counts.groupings.names, self._kind, filtered, self._at_step
        )
        if not found.total:
            self.body.value = _NOTHING
        elif self._kind == "icicle":
            self.body.value = icicle_html([self._box(found, span) for span in holder_spans(found)])
        else:
            self.body.value = self._list(found)

    def _list(self, found: HolderCount) -> str:
        columns = [name for name in COLUMNS if _has(found, name)]
        sorted_by = self._sorted_by if self._sorted_by in columns else "bytes"
        order = RowOrder(found.keys(sorted_by), by_name=sorted_by == "name", ascending=self._ascending)
        rows = holder_rows(found.index, found.amounts, order)
        # What the rows at the left do not have.
        rest = [ROOT, *(row.node for row in rows if row.depth == 0 and row.node >= 0)]
        facts = [
            self._facts(found, row.node, row.name, row.depth)
            if row.node >= 0
            else _rest(found, rest, row.holders, self._look.paints.other.fill)
            for row in rows
        ]
        return list_html(facts, columns, _hints(found), sorted_by, ascending=self._ascending)

    def _facts(self, found: HolderCount, node: int, name: str, depth: int) -> HolderFacts:
        amounts, choice = found.amounts, found.choice(node)
        num_bytes = int(amounts.bytes[node])
        return HolderFacts(
            number=self._number(choice),
            name=name,
            path=_text(choice) if choice.path else "all memory in use",
            depth=depth,
            bytes=num_bytes,
            chunks=int(amounts.chunks[node]),
            waste=int(found.wastes()[node]) if found.waste_known else None,
            share=found.share(num_bytes),
            growth=None if found.growth is None else int(found.growth[node]),
            fill=found.fill(node),
            chosen=choice == self._look.holder,
        )

    def _box(self, found: HolderCount, span: HolderSpan) -> IcicleBox:
        theme = self._look.paints
        if span.node > ROOT:
            facts = self._facts(found, span.node, span.name, span.depth)
        else:
            name = f"in use, {format_bytes(span.bytes)}" if span.node == ROOT else _other(span.holders)
            fill = theme.pool.fill if span.node == ROOT else theme.other.fill
            share = found.share(span.bytes)
            facts = HolderFacts(-1, name, name, span.depth, span.bytes, span.chunks, None, share, None, fill)
        return IcicleBox(facts, found.share(span.left), facts.share, contrasting(facts.fill))

    def _number(self, choice: HolderChoice) -> int:
        """The number of a holder in messages; it keeps it."""
        return self._numbers.setdefault(choice, len(self._numbers))


def _text(choice: HolderChoice) -> str:
    separator = SEPARATORS.get(choice.by, "/")
    return separator.join(UNNAMED[choice.by] if part is None else part for part in choice.path)


def _other(holders: int) -> str:
    return f"other ({holders:,} {'holder' if holders == 1 else 'holders'})"


def _rest(found: HolderCount, nodes: Sequence[int], holders: int, fill: str) -> HolderFacts:
    """All small holders together: the first of the nodes without the others."""

    def left(values: NDArray[np.int64]) -> int:
        first, *others = values[list(nodes)].tolist()
        return int(first - sum(others))

    num_bytes = left(found.amounts.bytes)
    return HolderFacts(
        number=-1,
        name=_other(holders),
        path="all holders that are too small for a row",
        depth=0,
        bytes=num_bytes,
        chunks=left(found.amounts.chunks),
        waste=left(found.wastes()) if found.waste_known else None,
        share=found.share(num_bytes),
        growth=None if found.growth is None else left(found.growth),
        fill=fill,
    )


def _has(found: HolderCount, column: str) -> bool:
    if column == "growth":
        return found.growth is not None
    return column != "waste" or found.waste_known


def _hints(found: HolderCount) -> dict[str, str]:
    """What each column shows."""
    return {
        "name": "who allocated the chunks",
        "bytes": "bytes of the holder's chunks in use",
        "share": "of all bytes in use",
        "growth": "" if found.marks is None else _growth_hint(found.marks),
        "chunks": "chunks in use",
        "waste": "size - requested",
    }


def _growth_hint(marks: MarkPair) -> str:
    first, last = (
        f"mark '{unescape(harmless(mark.name))}' (step {mark.step:,})" for mark in (marks.first, marks.last)
    )
    apart = f"{marks.apart:,} such marks later" if marks.apart > 1 else "the next such mark"
    return f"bytes at {last} - bytes at {first}; {apart}; what comes and goes between marks does not count"
