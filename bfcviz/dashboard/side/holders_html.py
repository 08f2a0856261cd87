"""HTML of the holders: the list, the icicle, and the line above both.

A row's `data-bfcviz-hover` is the message that the page sends while the pointer is over it, `data-bfcviz` the one of a
click.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.units import format_bytes

COLUMNS: Final = {
    "name": "holder",
    "bytes": "bytes",
    "share": "share",
    "growth": "growth",
    "chunks": "count",
    "waste": "waste",
}
"""The columns -> their headers."""

WIDE: Final = frozenset({"chunks", "waste"})
"""Columns that are hidden where there is no room; the tooltip has their numbers."""

_LONGEST_HINT: Final = 160


@dataclass(frozen=True)
class HolderFacts:
    """What a row, or a rectangle, shows.

    Attributes:
        number: of the row in messages; -1: it does nothing.
        name: its name here.
        path: its whole name.
        depth: rows around it.
        bytes, chunks, waste: what it holds; `waste` is None where the trace does not have the requested bytes.
        share: of all bytes in use, 0..1.
        growth: bytes gained from mark to mark; None: there are no marks to compare.
        fill: its colour.
        chosen: whether the views are filtered by it.
    """

    number: int
    name: str
    path: str
    depth: int
    bytes: int
    chunks: int
    waste: int | None
    share: float
    growth: int | None
    fill: str
    chosen: bool = False

    @property
    def hint(self) -> str:
        """Its whole name and all its numbers, as text of several lines."""
        lines = [f"{exact_bytes(self.bytes)}, {self.share:.1%} of all bytes in use"]
        lines.append(f"{self.chunks:,} {'chunk' if self.chunks == 1 else 'chunks'}")
        if self.waste is not None:
            lines[-1] += f", {exact_bytes(self.waste)} wasted"
        if self.growth is not None:
            lines.append(f"growth {signed(self.growth)}, from mark to mark: see the head of the column")
        return "&#10;".join([harmless(self.path, _LONGEST_HINT), *lines])

    @property
    def messages(self) -> str:
        """The attributes with its messages."""
        if self.number < 0:
            return ""
        return (
            f' tabindex=\'0\' data-bfcviz=\'{{"do":"holder","row":{self.number}}}\''
            f' data-bfcviz-hover=\'{{"do":"hover","row":{self.number}}}\''
        )


def signed(num_bytes: int) -> str:
    """A number of bytes with its sign: `+2.0 MiB`; `0` for no change."""
    if num_bytes == 0:
        return "0"
    return f"{'+' if num_bytes > 0 else '-'}{format_bytes(abs(num_bytes))}"


def list_html(
    rows: Sequence[HolderFacts], columns: Sequence[str], hints: Mapping[str, str], by: str, *, ascending: bool
) -> str:
    """The list as a table.

    Args:
        rows: from the top.
        columns: some of `COLUMNS`.
        hints: column -> what it shows, in words.
        by: the column that the rows are sorted by.
        ascending: whether the smallest are first.
    """
    widths = "".join(f"<col class='{_css(name)}'>" for name in columns)
    heads = "".join(_head(name, hints[name], by, ascending=ascending) for name in columns)
    body = "".join(_row(row, columns) for row in rows)
    return (
        f"<table aria-label='holders'><colgroup>{widths}</colgroup><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _css(column: str) -> str:
    return f"{column} wide" if column in WIDE else column


def _head(column: str, hint: str, by: str, *, ascending: bool) -> str:
    arrow, sorted_ = "", ""
    if column == by:
        arrow = f"<i aria-hidden='true'>{'▲' if ascending else '▼'}</i>"
        sorted_ = f" aria-sort='{'ascending' if ascending else 'descending'}'"
    return (
        f"<th scope='col' class='{_css(column)}'{sorted_} title='{escape(hint)}'><button type='button' "
        f'data-bfcviz=\'{{"do":"holders_sort","by":"{column}"}}\'>{COLUMNS[column]}{arrow}</button></th>'
    )


def _row(row: HolderFacts, columns: Sequence[str]) -> str:
    css = " ".join(["inside"] * (row.depth > 0) + ["chosen"] * row.chosen)
    cells = "".join(f"<td class='{_css(name)}'>{_cell(row, name)}</td>" for name in columns)
    return (
        f"<tr class='{css}'{row.messages} style='--fill:{row.fill};--bar:{row.fill}59;--part:{row.share:.1%}' "
        f"title='{row.hint}'>{cells}</tr>"
    )


def _cell(row: HolderFacts, column: str) -> str:
    if column == "name":
        return f"<span class='label'><u></u><span><bdi>{harmless(row.name)}</bdi></span></span>"
    if column == "bytes":
        return format_bytes(row.bytes)
    if column == "share":
        return f"{row.share:.0%}" if row.share >= 0.005 or not row.bytes else "&lt;1%"
    if column == "growth":
        return "" if row.growth is None else signed(row.growth)
    if column == "chunks":
        return f"{row.chunks:,}"
    return "" if row.waste is None else format_bytes(row.waste)


# -- the icicle ----------------------------------------------------------------------------------------------

_LEVEL: Final = 20  # pixels


@dataclass(frozen=True)
class IcicleBox:
    """A rectangle; `left` and `width` are shares (0..1) of all bytes in use, `text` the colour of its name."""

    facts: HolderFacts
    left: float
    width: float
    text: str


def icicle_html(boxes: Sequence[IcicleBox]) -> str:
    """The icicle: each holder as wide as its bytes, below the one around it."""
    levels = max((box.facts.depth for box in boxes), default=-1) + 1
    return f"<div class='icicle' style='height:{levels * _LEVEL}px'>{''.join(map(_box, boxes))}</div>"


def _box(box: IcicleBox) -> str:
    facts = box.facts
    style = (
        f"left:{box.left:.3%};width:{box.width:.3%};top:{facts.depth * _LEVEL}px;height:{_LEVEL}px;"
        f"background:{facts.fill};color:{box.text}"
    )
    css = " class='chosen'" * facts.chosen
    name = harmless(facts.name) if box.width > _LEAST_NAMED else ""
    return f"<div{css}{facts.messages} style='{style}' title='{facts.hint}'>{name}</div>"


_LEAST_NAMED: Final = 0.08


# -- the line above --------------------------------------------------------------------------------------------


def head_html(
    by: str, choices: Sequence[str], kind: str, filtered: tuple[int, str] | None, at_step: int | None = None
) -> str:
    """The lines above: what holders are found by, list or icicle; and the holder that filters.

    Args:
        by: what they are found by.
        choices: what they can be found by.
        kind: one of `KINDS`.
        filtered: row and path of the holder that filters; None: none does.
        at_step: the step to name; None: the page shows only one.
    """
    groups = "".join(_switch("holders_by", "by", each, pressed=each == by) for each in choices)
    kinds = "".join(_switch("holders_as", "as", each, pressed=each == kind) for each in KINDS)
    title, groups = ("by", groups) if len(choices) > 1 else ("Holders", "")
    found = f"<div class='head'><b>{title}</b><span class='by'>{groups}</span>"
    found += f"<span>{kinds}</span>"
    return f"{found}{_filter(filtered, at_step)}</div>"


def _filter(filtered: tuple[int, str] | None, at_step: int | None) -> str:
    """One line in any case: a click on a holder must not move the rows below it under the pointer."""
    step = "" if at_step is None else f"Step {at_step:,}. "
    if filtered is None:
        return f"<div class='filter none'>{step}Click a holder to see it alone.</div>"
    row, path = filtered
    return (
        f"<div class='filter' title='{harmless(path, _LONGEST_HINT)}'>{step}Only this holder "
        f'<button type="button" data-bfcviz=\'{{"do":"holder","row":{row}}}\'>show all</button>: '
        f"{harmless(path)}</div>"
    )


KINDS: Final = ("list", "icicle")


def _switch(do: str, field: str, value: str, *, pressed: bool) -> str:
    state = "true" if pressed else "false"
    return (
        f"<button type='button' aria-pressed='{state}' "
        f'data-bfcviz=\'{{"do":"{do}","{field}":"{value}"}}\'>{value.replace("_", " ")}</button>'
    )
