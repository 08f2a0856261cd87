"""One page of rows as an HTML table in JupyterLab's style, light and dark.

The `data-bfcviz` attribute of a row or header holds the message that page.js sends on a click or Enter.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Literal

from bfcviz.events.labels import Labels
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.figures.style.theme import DARK, LIGHT, Theme, translucent
from bfcviz.units import format_bytes


def _colours(theme: Theme) -> str:
    return (
        f"--bfcviz-here: {theme.highlight}; --bfcviz-here-row: {translucent(theme.highlight, 0.14)}; "
        f"--bfcviz-in-use: {theme.in_use.fill}; --bfcviz-free: {theme.free.fill}; "
        f"--bfcviz-free-line: {theme.free.line}"
    )


STYLE: Final = f"""<style>
.bfcviz-list {{ {_colours(LIGHT)} }}
[data-jp-theme-light="false"] .bfcviz-list {{ {_colours(DARK)} }}
@media (prefers-color-scheme: dark) {{
  body:not([data-jp-theme-light]) .bfcviz-list {{ {_colours(DARK)} }}
}}
.bfcviz-list {{ overflow-x: auto; color: var(--jp-ui-font-color1, inherit) }}
.bfcviz-list table {{
  width: 100%; table-layout: fixed; border-collapse: collapse; border-spacing: 0; margin: 0;
  font: 12px/20px var(--jp-code-font-family, ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace);
}}
.bfcviz-list th, .bfcviz-list td {{
  height: 20px; padding: 0 6px; line-height: 20px; border: 0; text-align: left; white-space: nowrap;
  overflow: hidden; text-overflow: ellipsis; vertical-align: middle; background: none;
}}
.bfcviz-list th {{
  font-family: var(--jp-ui-font-family, system-ui, sans-serif); font-weight: 600; height: 24px;
  color: var(--jp-ui-font-color2, inherit); border-bottom: 1px solid var(--jp-border-color1, #8888);
}}
.bfcviz-list td.right, .bfcviz-list th.right {{ text-align: right; font-variant-numeric: tabular-nums }}
.bfcviz-list button {{
  all: unset; cursor: pointer; white-space: nowrap;
}}
.bfcviz-list th button {{ display: inline-flex; align-items: center }}
.bfcviz-list td button {{ text-decoration: underline dotted; text-underline-offset: 3px }}
.bfcviz-list th button b {{ padding-left: 3px; color: var(--bfcviz-here); font-size: 10px; line-height: 1 }}
.bfcviz-list tbody tr {{ border-bottom: 1px solid var(--jp-border-color3, #8883); background: none }}
.bfcviz-list tbody tr[data-bfcviz] {{ cursor: pointer }}
.bfcviz-list tbody tr[data-bfcviz]:hover {{ background: var(--jp-layout-color2, #8882) }}
.bfcviz-list tbody tr.here, .bfcviz-list tbody tr.here:hover {{
  background: var(--bfcviz-here-row); box-shadow: inset 3px 0 0 var(--bfcviz-here);
}}
.bfcviz-list tbody tr.after-here {{ box-shadow: inset 0 2px 0 var(--bfcviz-here) }}
.bfcviz-list tr:focus-visible, .bfcviz-list button:focus-visible {{
  outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px;
}}
.bfcviz-list .label {{ display: flex; min-width: 0; white-space: pre }}
.bfcviz-list .label span {{ flex: none }}
.bfcviz-list .label span:first-child {{ flex: 0 1 auto; overflow: hidden; text-overflow: ellipsis }}
.bfcviz-list i {{ font-style: normal; color: var(--jp-ui-font-color3, #888) }}
.bfcviz-list u {{
  display: inline-block; width: 8px; height: 8px; margin-right: 6px; border: 1px solid var(--bfcviz-free-line);
  background: var(--bfcviz-free);
}}
.bfcviz-list u.in-use {{ background: var(--bfcviz-in-use); border-color: var(--bfcviz-in-use) }}
.bfcviz-count {{ line-height: 1.4; color: var(--jp-ui-font-color2, inherit) }}
.bfcviz-wrong {{ line-height: 1.4; color: var(--jp-error-color1, #d32f2f) }}
</style>"""
"""A page needs it once, for any number of tables."""


ROWS: Final = 14
"""Rows on a page."""

NOTHING: Final = "<i>-</i>"
"""An empty cell."""

_LONGEST_LABEL: Final = 90
_TAIL: Final = 14
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
    """

    name: str
    width: int
    align: Literal["left", "right"]
    hint: str


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        cells: HTML of each column.
        message: sent on a click.
        hint: what a click does, shown on hover.
        here: the row of the step or chunk shown.
        after_here: the row of the step shown is filtered out, and belongs before this row.
    """

    cells: Sequence[str]
    message: Message
    hint: str
    here: bool = False
    after_here: bool = False


@dataclass(frozen=True)
class Order:
    """The column that the rows are sorted by, and the direction."""

    by: str
    descending: bool


def page_html(
    name: str, columns: Sequence[Column], rows: Sequence[Row], order: Order | None = None, length: int = ROWS
) -> str:
    """The table.

    Args:
        name: of the list, in messages and for a screen reader.
        columns: from the left.
        rows: of this page; if fewer than `length`, empty rows fill the height.
        order: how the rows are sorted; None: the headers are not buttons.
        length: number of rows of a full page.
    """
    least = sum(column.width or _LEAST_WIDTH for column in columns)
    widths = "".join(f"<col style='width:{_width(column)}'>" for column in columns)
    heads = "".join(_head(name, column, order) for column in columns)
    classes = [" class='right'" * (column.align == "right") for column in columns]
    body = "".join(_row(row, classes) for row in rows)
    empty = f"<tr aria-hidden='true'><td colspan='{len(columns)}'>&nbsp;</td></tr>" * (length - len(rows))
    return (
        f"<div class='bfcviz-list' data-bfcviz-list='{escape(name)}'>"
        f"<table aria-label='{escape(name)}' style='min-width:calc({least}ch + {12 * len(columns)}px)'>"
        f"<colgroup>{widths}</colgroup><thead><tr>{heads}</tr></thead><tbody>{body}{empty}</tbody></table></div>"
    )


def button(does: Message, text: str, hint: str) -> str:
    """A button inside a cell; `text` is HTML."""
    return f"<button type='button' data-bfcviz='{_attribute(does)}' title='{escape(hint)}'>{text}</button>"


def hinted(text: str, hint: str) -> str:
    """`text`, and `hint` on hover."""
    return f"<span title='{harmless(hint, _LONGEST_HINT)}'>{harmless(text, _LONGEST_LABEL)}</span>"


def bytes_cell(num_bytes: int) -> str:
    """A rounded number of bytes, the exact number on hover."""
    return hinted(format_bytes(num_bytes), exact_bytes(num_bytes))


def label_cell(labels: Labels, number: int) -> str:
    """A label's name; its full name and its details on hover."""
    if number == 0:
        return NOTHING
    label = labels[number]
    # harmless() has escaped them already.
    hint = "&#10;".join(
        [harmless(label.name, _LONGEST_HINT)]
        + [f"{harmless(key, 30)}: {harmless(value, _LONGEST_HINT)}" for key, value in label.details.items()]
    )
    return f"<span class='label' title='{hint}'>{_ends(label.name)}</span>"


def _ends(name: str) -> str:
    """A name whose end stays visible in a narrow cell: op names differ at the end."""
    if not name.isascii() or len(name) <= 2 * _TAIL:
        return f"<span>{harmless(name, _LONGEST_LABEL)}</span>"
    head, tail = name[:-_TAIL], name[-_TAIL:]
    return f"<span>{harmless(head, _LONGEST_LABEL)}</span><span>{harmless(tail)}</span>"


_LEAST_WIDTH: Final = 18


def _width(column: Column) -> str:
    return f"calc({column.width}ch + 12px)" if column.width else "auto"


def _head(name: str, column: Column, order: Order | None) -> str:
    right = " class='right'" * (column.align == "right")
    if order is None:
        return f"<th scope='col'{right} title='{escape(column.hint)}'>{escape(column.name)}</th>"
    arrow, sorted_ = "", ""
    if order.by == column.name:
        arrow = f"<b aria-hidden='true'>{'▼' if order.descending else '▲'}</b>"
        sorted_ = f" aria-sort='{'descending' if order.descending else 'ascending'}'"
    does = {"do": "sort", "list": name, "by": column.name}
    head = button(does, escape(column.name) + arrow, f"{column.hint}; click: sort by it")
    return f"<th scope='col'{right}{sorted_}>{head}</th>"


def _row(row: Row, classes: Sequence[str]) -> str:
    cells = "".join(f"<td{css}>{cell}</td>" for css, cell in zip(classes, row.cells, strict=True))
    mark = " class='here' aria-current='true'" if row.here else " class='after-here'" * row.after_here
    does = _attribute(row.message)
    return f"<tr tabindex='0'{mark} data-bfcviz='{does}' title='{escape(row.hint)}'>{cells}</tr>"


def _attribute(message: Message) -> str:
    return escape(json.dumps(message, separators=(",", ":")))
