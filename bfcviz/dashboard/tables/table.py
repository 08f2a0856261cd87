"""The rows of a list that a page holds, as an HTML table in JupyterLab's style, light and dark.

The `data-bfcviz` attribute of a row or header holds the message that page.js sends on a click or Enter.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Literal

from bfcviz.dashboard.tables.rows_in_view import ROW_PX, ROWS, RowsInView
from bfcviz.events.labels import Labels
from bfcviz.figures.style.colour_math import translucent
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.figures.style.theme import DARK, LIGHT, Theme
from bfcviz.units import format_bytes


def _colours(theme: Theme) -> str:
    return (
        f"--bfcviz-here: {theme.highlight}; --bfcviz-here-row: {translucent(theme.highlight, 0.14)}; "
        f"--bfcviz-selection: {theme.selection}; --bfcviz-selection-row: {translucent(theme.selection, 0.12)}; "
        f"--bfcviz-search: {theme.search}; --bfcviz-search-text: {translucent(theme.search, 0.22)}; "
        f"--bfcviz-paper: {theme.paper}; "
        f"--bfcviz-in-use: {theme.in_use.fill}; --bfcviz-free: {theme.free.fill}; "
        f"--bfcviz-free-line: {theme.free.line}"
    )


HEAD_PX: Final = 25
"""The height of the header in pixels."""

HEIGHT: Final = HEAD_PX + ROWS * ROW_PX
"""The height of a list in pixels."""

STYLE: Final = f"""<style>
.bfcviz-list {{ {_colours(LIGHT)} }}
[data-jp-theme-light="false"] .bfcviz-list {{ {_colours(DARK)} }}
@media (prefers-color-scheme: dark) {{
  body:not([data-jp-theme-light]) .bfcviz-list {{ {_colours(DARK)} }}
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
@container (max-width: 999px) {{ .bfcviz-list .wide {{ display: none }} }}
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
_LONGEST_HINT: Final = 400

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: its header, and its name in messages that sort.
        width: in characters; a column of width 0 takes the remaining space.
        align: numbers are right-aligned.
        hint: its definition, shown on hover.
        wide: whether it is hidden on a narrow page.
    """

    name: str
    width: int
    align: Literal["left", "right"]
    hint: str
    wide: bool = False

    @property
    def css(self) -> str:
        """The class attribute of its cells."""
        classes = " ".join(["right"] * (self.align == "right") + ["wide"] * self.wide)
        return f" class='{classes}'" if classes else ""


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        cells: HTML of each column.
        message: sent on a click.
        here: the row is about the step shown.
        after_here: the row of the step shown is filtered out, and belongs before this row.
        selected: the row is about the selected chunk.
    """

    cells: Sequence[str]
    message: Message
    here: bool = False
    after_here: bool = False
    selected: bool = False


@dataclass(frozen=True)
class Order:
    """The column that the rows are sorted by, and the direction."""

    by: str
    descending: bool


@dataclass(frozen=True)
class ListHtml:
    """How a list is drawn.

    Attributes:
        name: of the list, in messages and for a screen reader.
        columns: from the left.
        hint: what a click on a row does.
    """

    name: str
    columns: Sequence[Column]
    hint: str

    def draw(self, rows: Sequence[Row], view: RowsInView, order: Order | None = None) -> str:
        """The table.

        Args:
            rows: those that the page holds, `view.made`.
            view: where they are.
            order: how the rows are sorted; None: the headers are not buttons.
        """
        columns = self.columns
        least = sum(column.width or _LEAST_WIDTH for column in columns if not column.wide)
        widths = "".join(f"<col{column.css} style='width:{_width(column)}'>" for column in columns)
        heads = "".join(_head(self.name, column, order) for column in columns)
        classes = [column.css for column in columns]
        above, made = view.above, len(rows) * ROW_PX
        body = "".join(_row(row, classes) for row in rows)
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
            f"<div class='bfcviz-list' data-bfcviz-list='{self.name}' data-bfcviz-rows='{_attribute(place)}'>"
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
    """A button inside a cell; `text` is HTML."""
    return f"<button type='button' data-bfcviz='{_attribute(does)}' title='{escape(hint)}'>{text}</button>"


def hinted(text: str, hint: str) -> str:
    """`text`, and `hint` on hover."""
    return f"<span title='{harmless(hint, _LONGEST_HINT)}'>{harmless(text, _LONGEST_LABEL)}</span>"


def bytes_cell(num_bytes: int) -> str:
    """A rounded number of bytes, the exact number on hover."""
    return hinted(format_bytes(num_bytes), exact_bytes(num_bytes))


def label_cell(labels: Labels, number: int, search: str = "") -> str:
    """A label's name, with the text that a search found; its full name and its details on hover."""
    if number == 0:
        return NOTHING
    label = labels[number]
    # harmless() has escaped them already.
    hint = "&#10;".join(
        [harmless(label.name, _LONGEST_HINT)]
        + [f"{harmless(key, 30)}: {harmless(value, _LONGEST_HINT)}" for key, value in label.details.items()]
    )
    return f"<span class='label' title='{hint}'><bdi>{_marked(label.name, search)}</bdi></span>"


def _marked(name: str, search: str) -> str:
    at = name.casefold().find(search.casefold()) if search else -1
    if at < 0:
        return harmless(name, _LONGEST_LABEL)
    end = at + len(search)
    found = harmless(name[at:end], _LONGEST_LABEL)
    return f"{harmless(name[:at], _LONGEST_LABEL)}<mark>{found}</mark>{harmless(name[end:], _LONGEST_LABEL)}"


_LEAST_WIDTH: Final = 18


def _width(column: Column) -> str:
    return f"calc({column.width}ch + 12px)" if column.width else "auto"


def _head(name: str, column: Column, order: Order | None) -> str:
    if order is None:
        return f"<th scope='col'{column.css} title='{escape(column.hint)}'>{escape(column.name)}</th>"
    arrow, sorted_ = "", ""
    if order.by == column.name:
        arrow = f"<b aria-hidden='true'>{'▼' if order.descending else '▲'}</b>"
        sorted_ = f" aria-sort='{'descending' if order.descending else 'ascending'}'"
    does = {"do": "sort", "list": name, "by": column.name}
    head = button(does, escape(column.name) + arrow, f"{column.hint}; click: sort by it")
    return f"<th scope='col'{column.css}{sorted_}>{head}</th>"


def _row(row: Row, classes: Sequence[str]) -> str:
    cells = "".join(f"<td{css}>{cell}</td>" for css, cell in zip(classes, row.cells, strict=True))
    marks = {"here": row.here, "after-here": row.after_here, "selected": row.selected}
    names = " ".join(name for name, applies in marks.items() if applies)
    mark = f" class='{names}'" * bool(names) + " aria-current='true'" * row.here
    return f"<tr tabindex='0'{mark} data-bfcviz='{_attribute(row.message)}'>{cells}</tr>"


def _attribute(message: Message) -> str:
    """A message in single quotes; names of fields, numbers and our own words need no other escape."""
    return json.dumps(message, separators=(",", ":")).replace("&", "&amp;").replace("'", "&#39;")
