"""The rows of a list that a page holds, as an HTML table in JupyterLab's style, light and dark.

The `data-bfcviz` attribute of a row or header holds the message that page.js sends on a click or Enter.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Generic, Literal, TypeVar

import ipywidgets as widgets

from bfcviz.events.label_table import Labels
from bfcviz.events.origin import thread_text
from bfcviz.events.trace import Trace
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import DARK, LIGHT, Theme, translucent
from bfcviz.figures.view_options import Look
from bfcviz.model.filters import Condition, found_by
from bfcviz.model.grouping import SEPARATORS, UNNAMED, HolderChoice, grouping, members
from bfcviz.units import exact_bytes, format_bytes, parse_bytes

# ------------------------------------------------------------------------------
# The style of the side pane, light and dark; its colours are those of the theme.


def _side_pane_css_colours(theme: Theme) -> str:
    return (
        f"--bfcviz-paper: {theme.paper}; --bfcviz-text: {theme.text}; --bfcviz-muted: {theme.muted}; "
        f"--bfcviz-grid: {theme.grid}; --bfcviz-waste: {theme.waste.fill}; --bfcviz-free: {theme.free.fill}; "
        f"--bfcviz-free-line: {theme.free.line}; "
        f"--bfcviz-search: {theme.search}; --bfcviz-search-text: {translucent(theme.search, 0.22)}"
    )


SIDE_STYLE: Final = f"""<style>
.bfcviz-holders, .bfcviz-chunk {{ {_side_pane_css_colours(LIGHT)} }}
[data-jp-theme-light="false"] :is(.bfcviz-holders, .bfcviz-chunk) {{ {_side_pane_css_colours(DARK)} }}
@media (prefers-color-scheme: dark) {{
  body:not([data-jp-theme-light]) :is(.bfcviz-holders, .bfcviz-chunk) {{ {_side_pane_css_colours(DARK)} }}
}}
.bfcviz-holders, .bfcviz-chunk {{
  box-sizing: border-box; width: 100%; min-height: 0; margin: 0; color: var(--bfcviz-text);
  font: 12px/18px var(--jp-ui-font-family, system-ui, sans-serif);
}}
.bfcviz-holders {{ display: flex; flex: 1 1 45%; flex-direction: column; container-type: inline-size }}
.bfcviz-chunk {{
  flex: 0 0 auto; max-height: calc(100% - 132px); overflow: auto; padding-top: 3px;
  border-top: 1px solid var(--bfcviz-grid);
  scrollbar-width: thin; font-size: 11px; line-height: 15px;
}}
:is(.bfcviz-holders, .bfcviz-chunk) :is(.widget-html, .widget-html-content) {{
  margin: 0; padding: 0; width: 100%; font: inherit; line-height: inherit;
}}
.bfcviz-holders > .widget-html {{ flex: none }}  /* a long list gives way, not what stands above it */
.bfcviz-holders-list {{
  flex: 1 1 auto; min-height: 0; overflow-x: hidden; overflow-y: auto; margin: 0; scrollbar-width: thin;
}}
:is(.bfcviz-holders, .bfcviz-chunk) :is(button, [role=button]) {{ all: unset; cursor: pointer }}
:is(.bfcviz-holders, .bfcviz-chunk) [data-bfcviz]:focus-visible {{
  outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px;
}}
.bfcviz-holders .head {{ display: flex; flex-wrap: wrap; gap: 0 8px; align-items: baseline; padding-bottom: 2px }}
.bfcviz-holders .head {{ font-size: 11px }}
.bfcviz-holders .head b {{ white-space: nowrap }}
.bfcviz-holders .head span {{ display: inline-flex; flex-wrap: wrap; gap: 0 7px; color: var(--bfcviz-muted) }}
.bfcviz-holders .head .by {{ flex: 1 1 auto }}
.bfcviz-holders .head button[aria-pressed=true] {{
  color: var(--bfcviz-text); font-weight: 600; box-shadow: 0 2px 0 var(--bfcviz-text);
}}
.bfcviz-holders .filter {{ flex: 1 1 100%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }}
.bfcviz-holders .filter button, .bfcviz-chunk a {{
  cursor: pointer; color: inherit; text-decoration: underline dotted; text-underline-offset: 3px;
}}
.bfcviz-holders table {{
  width: 100%; table-layout: fixed; border-collapse: separate; border-spacing: 0; margin: 0; color: inherit;
}}
.bfcviz-holders :is(th, td) {{
  height: 20px; box-sizing: border-box; padding: 0 5px 0 0; border: 0; overflow: hidden; white-space: nowrap;
  text-align: right; vertical-align: middle; background: none; font-size: 11px; line-height: 19px;
  font-variant-numeric: tabular-nums;
}}
.bfcviz-holders :is(th, td):first-child {{ text-align: left; padding-left: 4px }}
.bfcviz-holders th {{
  position: sticky; top: 0; z-index: 1; background: var(--bfcviz-paper); color: var(--bfcviz-muted);
  font-weight: 600; border-bottom: 1px solid var(--bfcviz-grid);
}}
.bfcviz-holders th button i {{ font-size: 9px; font-style: normal; padding-left: 2px }}
.bfcviz-holders col.name {{ width: auto }} .bfcviz-holders col.bytes {{ width: 58px }}
.bfcviz-holders col.share {{ width: 36px }} .bfcviz-holders col.growth {{ width: 64px }}
.bfcviz-holders col.chunks {{ width: 46px }} .bfcviz-holders col.waste {{ width: 58px }}
.bfcviz-holders :is(col.grew, col.new, col.gone) {{ width: 64px }}
.bfcviz-holders col.never_freed {{ width: 74px }}
@container (max-width: 399px) {{  /* a name needs the room; the tooltip has the number */
  .bfcviz-holders :is(.wide, table:has(.gone):has(.never_freed) .new) {{ display: none }}
}}
@container (max-width: 309px) {{ .bfcviz-holders :is(.share, .new, .gone) {{ display: none }} }}
@container (max-width: 249px) {{ .bfcviz-holders .growth {{ display: none }} }}
.bfcviz-holders tbody tr {{ background: none }}
.bfcviz-holders tbody tr[data-bfcviz] {{ cursor: pointer }}
.bfcviz-holders :is(td.bytes, td.grew) {{
  background: linear-gradient(var(--bar), var(--bar)) left / var(--part) 100% no-repeat;
}}
.bfcviz-holders tbody tr:hover, .bfcviz-holders tbody tr.chosen {{
  background: color-mix(in srgb, var(--fill) 22%, transparent);
}}
.bfcviz-holders tbody tr.chosen {{ font-weight: 600; box-shadow: inset 3px 0 0 var(--fill) }}
.bfcviz-holders tr.found .label span {{
  background: var(--bfcviz-search-text); box-shadow: inset 0 -2px 0 var(--bfcviz-search);
}}
.bfcviz-holders .label {{ display: flex; min-width: 0; align-items: center; white-space: pre }}
.bfcviz-holders tr.inside .label {{ padding-left: 12px }}
.bfcviz-holders .label u {{
  flex: none; width: 10px; height: 10px; margin-right: 5px; border-radius: 2px; background: var(--fill);
}}
.bfcviz-holders .label span {{  /* the two halves of a name, each cut in the middle: names differ at either end */
  flex: 0 1 auto; overflow: hidden; height: 1lh; white-space: pre-wrap; word-break: break-all; /* at a whole letter */
}}
.bfcviz-holders .label span + span {{
  white-space: pre; text-overflow: ellipsis; direction: rtl; text-align: left;
}}
.bfcviz-holders .icicle {{ position: relative; overflow: hidden }}
.bfcviz-holders .icicle div {{
  position: absolute; box-sizing: border-box; overflow: hidden; padding: 0 3px; line-height: 19px; font-size: 11px;
  white-space: nowrap; text-overflow: ellipsis; border: solid var(--bfcviz-paper); border-width: 0 1px 1px 0;
}}
.bfcviz-holders .icicle div[data-bfcviz] {{ cursor: pointer }}
.bfcviz-holders .icicle div[data-bfcviz]:hover, .bfcviz-holders .icicle div.chosen {{
  outline: 2px solid var(--bfcviz-text); outline-offset: -2px; z-index: 1;
}}
.bfcviz-holders .icicle div.found {{ box-shadow: inset 0 0 0 2px var(--bfcviz-search) }}
.bfcviz-holders .none, .bfcviz-chunk .none {{ color: var(--bfcviz-muted) }}
.bfcviz-chunk summary {{ cursor: pointer; color: var(--bfcviz-muted) }}
.bfcviz-chunk .name {{ font-weight: 600; overflow-wrap: anywhere }}
.bfcviz-chunk dl {{ display: grid; grid-template-columns: fit-content(66px) minmax(0, 1fr); gap: 0 8px; margin: 0 }}
.bfcviz-chunk :is(dt, dd) {{ float: none; width: auto }}  /* JupyterLab gives them 20 % and 80 % */
.bfcviz-chunk dt {{ color: var(--bfcviz-muted); font-weight: normal; margin: 0; overflow-wrap: anywhere }}
.bfcviz-chunk dd {{ margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums }}
.bfcviz-chunk dd b {{ font-weight: 600 }}
.bfcviz-chunk .stack .head {{ color: var(--bfcviz-muted); margin-top: 2px }}
.bfcviz-chunk .stack .head b {{ font-weight: normal }}
.bfcviz-chunk .stack button {{ text-decoration: underline dotted; text-underline-offset: 3px; margin-left: 8px }}
.bfcviz-chunk pre {{
  margin: 0; padding: 2px 4px; max-height: 132px; overflow: auto; user-select: text; white-space: pre; color: inherit;
  font: 11px/15px var(--jp-code-font-family, ui-monospace, monospace); background: none;
  border-left: 2px solid var(--bfcviz-grid); scrollbar-width: thin;
}}
.bfcviz-chunk code {{ font: inherit; font-family: var(--jp-code-font-family, ui-monospace, monospace) }}
.bfcviz-chunk dd em {{ font-style: normal; border-bottom: 2px solid var(--bfcviz-waste) }}
</style>"""
"""A page needs it once, for any number of panes."""


# ------------------------------------------------------------------------------
# Which rows of a long list a page holds: those in sight, and some before and after them.
#
# ::
#
#     row 0      ┌──────────┐   empty, as high as the rows before
#                │ made     │   a page holds these
#     top     →  │ in sight │   the user sees these
#                │ made     │
#                └──────────┘   empty
#
# The page scrolls by itself, and sends a message where rows come into sight that are not made. See `scrolling.js`.

ROWS: Final = 11
"""Rows in sight."""

ROW_PX: Final = 21  # the height of a row in pixels; a border of 1 pixel included

BEYOND: Final = 11  # rows that are made before the first one in sight, and after the last one

_TALLEST: Final = 8_000_000  # pixels of a whole list: browsers draw nothing below about 17 million


class RowsInView:
    """Which rows of a table are in view: the place of a list on its page.

    Attributes:
        top: the first row in sight.
        count: number of rows.
        moves: how often Python, not the user, has moved the page.
        moved_to: where it moved it the last time.
    """

    def __init__(self) -> None:
        self.top = self.count = self.moves = self.moved_to = 0
        self._made = range(0)

    @property
    def last(self) -> int:
        """The highest `top` of a table: the last row is in sight."""
        return max(self.count - ROWS, 0)

    @property
    def made(self) -> range:
        """The rows of a table that the page holds."""
        return self._made

    @property
    def height(self) -> int:
        """Pixels of the whole list."""
        return min(self.count * ROW_PX, _TALLEST)

    @property
    def above(self) -> int:
        """Pixels above the rows that are made."""
        spare = self.count - len(self._made)
        if self.count * ROW_PX <= _TALLEST or spare <= 0:
            return self._made.start * ROW_PX
        return round((self.height - len(self._made) * ROW_PX) * self._made.start / spare)

    def scrolled_to(self, top: int) -> bool:
        """Note that the user scrolled to row `top`; return whether the rows there have to be made."""
        self.top = min(max(top, 0), self.last)
        wanted = range(self.top, min(self.top + ROWS, self.count))
        if wanted.start >= self._made.start and wanted.stop <= self._made.stop:
            return False
        self._make()
        return True

    def move_to(self, top: int) -> None:
        """Move the page to row `top`."""
        self.top = self.moved_to = min(max(top, 0), self.last)
        self.moves += 1
        self._make()

    def set_count(self, count: int, near: int | None = None) -> None:
        """Set the number of rows; the page stays, or moves to row `near` if that is out of sight."""
        self.count = count
        if near is not None and not self.top <= near < self.top + ROWS:
            self.move_to(near - ROWS // 3)
        elif self.top > self.last:
            self.move_to(self.last)
        self._make()

    def drop(self, rows: int) -> None:
        """Note that the first rows have gone: the same rows stay in sight where they can."""
        self.count -= rows
        self.move_to(self.top - rows)

    def _make(self) -> None:
        self._made = range(max(self.top - BEYOND, 0), min(self.top + ROWS + BEYOND, self.count))


# ------------------------------------------------------------------------------
# The rows of a list that a page holds, as an HTML table in JupyterLab's style, light and dark.


def _table_css_colours(theme: Theme) -> str:
    return (
        f"--bfcviz-here: {theme.highlight}; --bfcviz-here-row: {translucent(theme.highlight, 0.14)}; "
        f"--bfcviz-selection: {theme.selection}; --bfcviz-selection-row: {translucent(theme.selection, 0.12)}; "
        f"--bfcviz-search: {theme.search}; --bfcviz-search-text: {translucent(theme.search, 0.22)}; "
        f"--bfcviz-paper: {theme.paper}; "
        f"--bfcviz-in-use: {theme.in_use.fill}; --bfcviz-free: {theme.free.fill}; "
        f"--bfcviz-free-line: {theme.free.line}"
    )


HEAD_PX: Final = 25  # the height of the header in pixels

HEIGHT: Final = HEAD_PX + ROWS * ROW_PX
"""The height of a list in pixels."""

STYLE: Final = f"""<style>
.bfcviz-list {{ {_table_css_colours(LIGHT)} }}
[data-jp-theme-light="false"] .bfcviz-list {{ {_table_css_colours(DARK)} }}
@media (prefers-color-scheme: dark) {{
  body:not([data-jp-theme-light]) .bfcviz-list {{ {_table_css_colours(DARK)} }}
}}
.bfcviz-rows {{
  height: {HEIGHT}px; overflow: auto; margin: 0; overscroll-behavior: contain; container-type: inline-size;
}}
.bfcviz-rows .widget-html, .bfcviz-rows .widget-html-content {{ margin: 0; padding: 0; width: 100%; height: auto }}
.bfcviz-list {{ color: var(--jp-ui-font-color1, inherit) }}
.bfcviz-list table {{
  width: 100%; table-layout: fixed; border-collapse: separate; border-spacing: 0; margin: 0; color: inherit;
  font: 12px/20px var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace);
}}
.bfcviz-list th, .bfcviz-list td {{
  box-sizing: border-box; height: {ROW_PX}px; padding: 0 6px; line-height: 20px; border: 0; text-align: left;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis; vertical-align: middle; background: none;
}}
.bfcviz-list tr.gap td {{ padding: 0; line-height: 0 }}
.bfcviz-list th {{
  position: sticky; top: 0; z-index: 1; background: var(--bfcviz-paper); height: {HEAD_PX}px;
  font-family: var(--jp-ui-font-family, system-ui, sans-serif); font-weight: 600;
  color: var(--jp-ui-font-color2, inherit); border-bottom: 1px solid var(--jp-border-color1, #8888);
}}
.bfcviz-list tbody td {{ border-bottom: 1px solid var(--jp-border-color3, #8883) }}
.bfcviz-box:not(.bfcviz-all) .bfcviz-list .wide {{ display: none }}
.bfcviz-list td.right, .bfcviz-list th.right {{ text-align: right; font-variant-numeric: tabular-nums }}
.bfcviz-list button {{
  all: unset; cursor: pointer; white-space: nowrap;
}}
.bfcviz-list th button {{ display: inline-flex; align-items: center }}
.bfcviz-list td button {{ text-decoration: underline dotted; text-underline-offset: 3px }}
.bfcviz-list th button b {{ padding-left: 3px; color: var(--bfcviz-here); font-size: 10px; line-height: 1 }}
.bfcviz-list tbody tr {{ background: none }}
.bfcviz-list tbody tr[data-bfcviz] {{ cursor: pointer }}
.bfcviz-list tbody tr[data-bfcviz]:hover {{ background: var(--jp-layout-color2, #8882) }}
.bfcviz-list tbody tr.here, .bfcviz-list tbody tr.here:hover {{
  background: var(--bfcviz-here-row); box-shadow: inset 3px 0 0 var(--bfcviz-here);
}}
.bfcviz-list tbody tr.selected, .bfcviz-list tbody tr.selected:hover {{
  background: var(--bfcviz-selection-row); box-shadow: inset 3px 0 0 var(--bfcviz-selection);
}}
.bfcviz-list tbody tr.selected td {{ font-weight: 600 }}
.bfcviz-list mark {{
  background: var(--bfcviz-search-text); color: inherit; box-shadow: 0 2px 0 var(--bfcviz-search);
}}
.bfcviz-list tbody tr.after-here {{ box-shadow: inset 0 2px 0 var(--bfcviz-here) }}
.bfcviz-list tr:focus-visible, .bfcviz-list button:focus-visible {{
  outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px;
}}
.bfcviz-list .label {{  /* the ellipsis is at the left: op names differ at their ends */
  display: block; overflow: hidden; text-overflow: ellipsis; direction: rtl; text-align: left; white-space: pre;
}}
.bfcviz-list i {{ font-style: normal; color: var(--jp-ui-font-color3, #888) }}
.bfcviz-list u {{
  display: inline-block; width: 8px; height: 8px; margin-right: 6px; border: 1px solid var(--bfcviz-free-line);
  background: var(--bfcviz-free);
}}
.bfcviz-list u.in-use {{ background: var(--bfcviz-in-use); border-color: var(--bfcviz-in-use) }}
.bfcviz-count button {{
  all: unset; cursor: pointer; text-decoration: underline dotted; text-underline-offset: 3px;
}}
.bfcviz-count {{ line-height: 1.4; color: var(--jp-ui-font-color2, inherit) }}
.bfcviz-wrong {{ line-height: 1.4; color: var(--jp-error-color1, #d32f2f) }}
</style>"""
"""A page needs it once, for any number of tables."""

NOTHING: Final = "<i>-</i>"
"""An empty cell."""

_LONGEST_LABEL: Final = 90
_LONGEST_SENTENCE: Final = 400
_LONGEST_HINT: Final = 400
_LEAST_WIDTH: Final = 18  # characters of a column that takes the remaining space

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str  # its header, and its name in messages that sort
    width: int  # in characters; a column of width 0 takes the remaining space
    align: Literal["left", "right"]  # numbers are right-aligned
    hint: str  # its definition, shown on hover
    wide: bool = False  # whether it is hidden until the user asks for all columns

    @property
    def css(self) -> str:
        """The class attribute of the cells of a table's column."""
        classes = " ".join(["right"] * (self.align == "right") + ["wide"] * self.wide)
        return f" class='{classes}'" if classes else ""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    cells: Sequence[str]  # HTML of each column
    message: Message  # sent on a click
    here: bool = False  # the row is about the step shown
    after_here: bool = False  # the row of the step shown is filtered out, and belongs before this row
    selected: bool = False  # the row is about the selected chunk


@dataclass(frozen=True)
class Order:
    """The column that the rows of a table are sorted by, and the direction."""

    by: str
    descending: bool


@dataclass(frozen=True)
class TableHtml:
    """How the rows of a table are drawn as HTML."""

    name: str  # of the list, in messages and for a screen reader
    columns: Sequence[Column]  # from the left
    hint: str  # what a click on a row does

    def draw(self, rows: Sequence[Row], view: RowsInView, order: Order | None = None) -> str:
        """The table as HTML.

        Args:
            rows: those that the page holds, `view.made`.
            view: where they are.
            order: how the rows are sorted; None: the headers are not buttons.
        """
        columns = self.columns
        least = sum(column.width or _LEAST_WIDTH for column in columns if not column.wide)
        widths = "".join(
            f"<col{column.css} style='width:{_table_column_width(column)}'>" for column in columns
        )
        heads = "".join(_table_head_cell(self.name, column, order) for column in columns)
        classes = [column.css for column in columns]
        above, made = view.above, len(rows) * ROW_PX
        body = "".join(_table_row_html(row, classes) for row in rows)
        body = self._gap(above) + body + self._gap(max(view.height - above - made, 0))
        place = {
            "first": view.made.start,
            "made": len(rows),
            "count": view.count,
            "above": above,
            "height": view.height,
            "row": ROW_PX,
            "moves": view.moves,
            "top": view.moved_to,
        }
        return (
            f"<div class='bfcviz-list' data-bfcviz-list='{self.name}' data-bfcviz-rows='{_message_attribute(place)}'>"
            f"<table aria-label='{self.name}' style='min-width:calc({least}ch + {12 * len(columns)}px)'>"
            f"<colgroup>{widths}</colgroup><thead><tr>{heads}</tr></thead>"
            f"<tbody title='{escape(self.hint)}'>{body}</tbody></table></div>"
        )

    def _gap(self, pixels: int) -> str:
        """A row as high as rows that are not made."""
        if not pixels:
            return ""
        # Hidden columns must not be spanned: they would get room.
        span = sum(not column.wide for column in self.columns)
        return f"<tr class='gap' aria-hidden='true'><td colspan='{span}' style='height:{pixels}px'></td></tr>"


def button(does: Message, text: str, hint: str) -> str:
    """A button inside a cell of a table; `text` is HTML."""
    return f"<button type='button' data-bfcviz='{_message_attribute(does)}' title='{escape(hint)}'>{text}</button>"


def hinted(text: str, hint: str) -> str:
    """`text` in a cell of a table, and `hint` on hover."""
    return f"<span title='{harmless(hint, _LONGEST_HINT)}'>{harmless(text, _LONGEST_LABEL)}</span>"


def bytes_cell(num_bytes: int) -> str:
    """A cell of a table with a rounded number of bytes, the exact number on hover."""
    return hinted(format_bytes(num_bytes), exact_bytes(num_bytes))


def thread_cell(trace: Trace, number: int) -> str:
    """A cell of a table with the number of a thread, its name on hover."""
    text = thread_text(trace.origin.details, number)
    return text if text == f"{number}" else hinted(f"{number}", text)


def label_cell(labels: Labels, number: int, search: str = "") -> str:
    """A cell of a table with a label's name, and what a search found in it; its full name and its details on hover."""
    if number == 0:
        return NOTHING
    label = labels[number]
    # harmless() has escaped them already.
    hint = "&#10;".join(
        [harmless(label.name, _LONGEST_HINT)]
        + [f"{harmless(key, 30)}: {harmless(value, _LONGEST_HINT)}" for key, value in label.details.items()]
    )
    return (
        f"<span class='label' title='{hint}'><bdi>{_label_cell_with_search(label.name, search)}</bdi></span>"
    )


def _label_cell_with_search(name: str, search: str) -> str:
    at = name.casefold().find(search.casefold()) if search else -1
    if at < 0:
        return harmless(name, _LONGEST_LABEL)
    end = at + len(search)
    found = harmless(name[at:end], _LONGEST_LABEL)
    return f"{harmless(name[:at], _LONGEST_LABEL)}<mark>{found}</mark>{harmless(name[end:], _LONGEST_LABEL)}"


def _table_column_width(column: Column) -> str:
    return f"calc({column.width}ch + 12px)" if column.width else "auto"


def _table_head_cell(name: str, column: Column, order: Order | None) -> str:
    if order is None:
        return f"<th scope='col'{column.css} title='{escape(column.hint)}'>{escape(column.name)}</th>"
    arrow, sorted_ = "", ""
    if order.by == column.name:
        arrow = f"<b aria-hidden='true'>{'▼' if order.descending else '▲'}</b>"
        sorted_ = f" aria-sort='{'descending' if order.descending else 'ascending'}'"
    does = {"do": "sort", "list": name, "by": column.name}
    head = button(does, escape(column.name) + arrow, f"{column.hint}; click: sort by it")
    return f"<th scope='col'{column.css}{sorted_}>{head}</th>"


def _table_row_html(row: Row, classes: Sequence[str]) -> str:
    cells = "".join(f"<td{css}>{cell}</td>" for css, cell in zip(classes, row.cells, strict=True))
    marks = {"here": row.here, "after-here": row.after_here, "selected": row.selected}
    names = " ".join(name for name, applies in marks.items() if applies)
    mark = f" class='{names}'" * bool(names) + " aria-current='true'" * row.here
    return f"<tr tabindex='0'{mark} data-bfcviz='{_message_attribute(row.message)}'>{cells}</tr>"


def _message_attribute(message: Message) -> str:
    """A table's message in single quotes; names of fields, numbers and our own words need no other escape."""
    return json.dumps(message, separators=(",", ":")).replace("&", "&amp;").replace("'", "&#39;")


# ------------------------------------------------------------------------------
# What the whole dashboard is filtered by, as conditions on the rows of a table: a holder, and a search.


class TableConditions:
    """The conditions of a look on the rows of a table; each is made once for a trace."""

    def __init__(self) -> None:
        self.conditions: tuple[Condition, ...] = ()  # of the last look
        self.links = ""  # HTML of links that remove the filters; empty where there is none
        self._known: tuple[Trace, int, HolderChoice | None, str | None] | None = None

    def update(self, trace: Trace, pool: int, look: Look) -> bool:
        """Take in a look; return whether the table's conditions are others than before."""
        key = (trace, pool, look.holder, look.search)
        if self._known is not None and self._known[0] is trace and self._known[1:] == key[1:]:
            return False
        self._known, before = key, self.conditions
        conditions, links = [], []
        if look.holder is not None:
            how = grouping(trace, pool, look.holder.by)
            conditions.append(Condition(f"held by {holder_text(look.holder)}", members(how, look.holder)))
            links.append(_end_table_filter_button("holder", "show all holders"))
        if look.search:
            reason = f"found by the search for '{look.search}'"
            conditions.append(Condition(reason, found_by(trace.labels, look.search)))
            links.append(_end_table_filter_button("search", "end the search"))
        self.conditions, self.links = tuple(conditions), "".join(links)
        return self.conditions != before


def holder_text(choice: HolderChoice) -> str:
    """The path of the holder that filters a table, in one line."""
    separator = SEPARATORS.get(choice.by, "/")
    return separator.join(UNNAMED[choice.by] if part is None else part for part in choice.path)


def _end_table_filter_button(do: str, text: str) -> str:
    return f" · <button type='button' data-bfcviz='{{\"do\":\"{do}\"}}'>{text}</button>"


# ------------------------------------------------------------------------------
# Controls of the lists: text boxes that filter, and the box that the page scrolls.

T = TypeVar("T")

_MAX_SIZE: Final = (1 << 64) - 1


class FilterBox(Generic[T]):
    """The box of a table's filter: a text box and, beside it, the error if its text is invalid.

    Args:
        description: text in front of the box.
        tooltip: full description; also its name for a screen reader.
        placeholder: an example of the text.
        parse: converts text to a value; raises ValueError or OverflowError.
        changed: called after the value changed.
    """

    def __init__(
        self,
        description: str,
        tooltip: str,
        placeholder: str,
        parse: Callable[[str], T],
        changed: Callable[[], None],
    ) -> None:
        self._parse, self._changed = parse, changed
        self.value: T | None = None  # the last valid value; None: no filter
        self.box = widgets.Text(
            description=description,
            tooltip=tooltip,
            placeholder=placeholder,
            continuous_update=False,  # on Enter, or when the box loses the focus
            layout={"width": "auto", "flex": "1 1 60px", "max_width": "150px"},
            style={"description_width": "initial"},
        )
        self.error = widgets.HTML()
        self.widget = widgets.HBox([self.box, self.error], layout={"align_items": "center"})
        self.box.observe(self._read, "value")

    def _read(self, change: dict[str, Any]) -> None:
        text = change["new"].strip()
        try:
            value = self._parse(text) if text else None
        except (ValueError, OverflowError) as error:
            self.error.value = f"<span class='bfcviz-wrong' role='alert'>{escape(str(error))}</span>"
            return
        self.error.value = ""
        if value != self.value:
            self.value = value
            self._changed()


def size(text: str) -> int:
    """The text of a `FilterBox` as a size in bytes; capped at 2^64 - 1."""
    return min(parse_bytes(text), _MAX_SIZE)


def whole_number(text: str) -> int:
    """The text of a `FilterBox` as a whole number, such as a thread's.

    Raises:
        ValueError: the text is not one.
    """
    if not text.isdecimal():
        raise ValueError(f"not a whole number: {text!r}; write digits, such as 12")
    return int(text)


class TableFilters:
    """The filters of both tables: a label, a range of sizes, a thread.

    Args:
        what: `events` or `chunks`, in tooltips.
        changed: called after a filter changed.
    """

    def __init__(self, what: str, changed: Callable[[], None]) -> None:
        about = (
            f"{what} whose label or its details contain this text; 0x...: whose memory contains this address"
        )
        self.text = FilterBox("label", about, "conv, or 0x7f…", str, changed)
        self.least = FilterBox("at least", f"{what} of at least this size", "64 KiB", size, changed)
        self.most = FilterBox("at most", f"{what} of at most this size", "1 MiB", size, changed)
        self.thread = FilterBox(
            "thread", f"{what} of the thread with this number", "0", whole_number, changed
        )
        self._all = (self.text, self.least, self.most, self.thread)
        self.inputs = [each.widget for each in self._all]  # their widgets

    def clear(self) -> None:
        """Clear all filters."""
        for each in self._all:
            each.box.value = ""

    def values(self) -> dict[str, Any]:
        """The values of a table's filters, as keyword arguments of `Filter`."""
        return {
            "text": self.text.value or "",
            "least_size": self.least.value,
            "most_size": self.most.value,
            "thread": self.thread.value,
        }


def row(children: Sequence[widgets.Widget]) -> widgets.HBox:
    """The controls of a table side by side; they wrap if the page is too narrow."""
    return widgets.HBox(children, layout={"flex_flow": "row wrap", "align_items": "center"})


def show_all(tooltip: str, clear: Callable[[], None]) -> widgets.Button:
    """The button that clears all filters of a list."""
    button = widgets.Button(description="show all", tooltip=tooltip, layout={"width": "auto"})
    button.on_click(lambda _: clear())
    return button


def list_box(
    css_class: str, controls: Sequence[widgets.Widget], status: widgets.HTML, page: widgets.HTML
) -> widgets.VBox:
    """A list and its controls, from top to bottom, with the style of its table; the page scrolls the list."""
    rows = widgets.Box([page])
    rows.add_class("bfcviz-rows")
    every = widgets.ToggleButton(
        description="all columns",
        tooltip="show or hide the columns that are needed less",
        layout={"width": "auto"},
    )
    head = widgets.HBox([status, every], layout={"justify_content": "space-between", "align_items": "center"})
    box = widgets.VBox([widgets.HTML(STYLE, layout={"display": "none"}), *controls, head, rows])
    every.observe(
        lambda change: (box.add_class if change["new"] else box.remove_class)("bfcviz-all"), "value"
    )
    for each in ("bfcviz-box", css_class):
        box.add_class(each)
    return box


def status_html(sentence: str, links: str = "", *, alert: bool = False) -> str:
    """HTML of a line above a table, and of links in it; a screen reader reads it when it changes."""
    css, role = ("bfcviz-wrong", "alert") if alert else ("bfcviz-count", "status")
    text = harmless(sentence, _LONGEST_SENTENCE)
    return f"<div class='{css}' role='{role}' aria-live='polite'>{text}{links}</div>"
