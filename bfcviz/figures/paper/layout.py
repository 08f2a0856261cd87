"""Lay a figure out for print: its width in millimetres, one legend and a caption below, all colours as greys.

::

    title              of each panel
    +-------------+
    |    plot     |
    +-------------+
    [] a  [] b         one legend
    Title. Caption.    how to read it, the definitions, and the line of facts
"""

from html import unescape
from textwrap import wrap
from typing import Any, Final

import plotly.graph_objects as go

from bfcviz.errors import BfcvizError
from bfcviz.figures.panel import Picture
from bfcviz.figures.paper.greys import in_greys
from bfcviz.figures.paper.labels import BLACK, fit_labels
from bfcviz.figures.style.theme import DARK

COLUMN_MM: Final = 84
"""Width of one column of a journal's page."""

PAGE_MM: Final = 174
"""Width of the page's text."""

MM: Final = 25.4 / 96
"""Millimetres of a pixel."""

_LEAST_MM, _MOST_MM = 60, 400

# Pixels: 8 px are 6 pt, the smallest text that journals accept.
_SMALL, _TITLE = 8, 10
_LETTER: Final = 4.2  # width of a letter of the caption
_LEGEND_LETTER: Final = 5.0
_SIGN: Final = 45  # of a legend entry, beside its name
_LINE: Final = 11
_ENTRY: Final = (
    19  # a row of the legend; a legend that reaches higher pushes the title of the axis into the ticks
)
_RIGHT: Final = 24
_ABOVE: Final = 22  # the title of the first panel


def paper(figure: go.Figure, width_mm: float = PAGE_MM) -> go.Figure:
    """A copy of the figure for print; its layout's width and height are its size at 96 pixels an inch.

    Raises:
        BfcvizError: the width is not possible, or the figure is dark.
    """
    if not _LEAST_MM <= width_mm <= _MOST_MM:
        raise BfcvizError(
            f"a picture for paper is {_LEAST_MM} to {_MOST_MM} mm wide, and {width_mm:g} mm were asked; "
            f"give {COLUMN_MM} for one column, {PAGE_MM} for the page"
        )
    if figure.layout.template.layout.paper_bgcolor == DARK.paper:
        raise BfcvizError("a picture for paper is light, and this one is dark; draw it with theme='light'")
    width = round(width_mm / MM)
    drawn = in_greys(go.Figure(figure))
    caption = _caption(figure, width)
    _text_sizes(drawn)
    removed = _titles(drawn)
    margin = drawn.layout.margin
    legend = _one_legend(drawn, width - (margin.l or 0) - _RIGHT)
    below = _LINE * len(caption) + 10
    foot = margin.b or 0
    height = (drawn.layout.height or 450) - removed + legend + below
    drawn.update_layout(
        width=width,
        height=height,
        margin={"t": (margin.t or 0) - removed, "b": foot + legend + below, "r": _RIGHT},
        legend=_legend_at(below / height),
    )
    fit_labels(drawn)
    drawn.add_annotation(_caption_at(caption, 6 - (margin.l or 0), -foot - legend))
    return drawn


def _legend_at(share: float) -> dict[str, Any]:
    """A legend in rows, so far (as a share of the height) above the lower edge."""
    return {
        "orientation": "h",
        "xref": "container",
        "x": 0,
        "xanchor": "left",
        "yref": "container",
        "y": share,
        "yanchor": "bottom",
        "font": {"size": _SMALL, "color": BLACK},
        "itemwidth": 30,
        "bgcolor": "rgba(0,0,0,0)",
    }


def _caption_at(lines: list[str], right: float, up: float) -> dict[str, Any]:
    """The caption as a text so many pixels from the lower left corner of the plots."""
    return {
        "text": "<br>".join(lines),
        "align": "left",
        "showarrow": False,
        "font": {"size": _SMALL, "color": BLACK},
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "xshift": right,
        "yref": "paper",
        "y": 0,
        "yanchor": "top",
        "yshift": up,
    }


def _caption(figure: go.Figure, width: int) -> list[str]:
    """The lines below the figure: for each panel its title, how to read it and its definitions; then the facts."""
    if not isinstance(figure, Picture):
        return []
    parts: list[str] = []
    defined: set[str] = set()
    for note in figure.notes:
        texts = [note.caption]
        if note.definition not in defined:  # panels of one figure may share their definitions
            texts += note.definition.replace("<br> ", " ").split("<br>")
        defined.add(note.definition)
        parts += [f"{note.title}:", *(f"{text.rstrip('.')}." for text in texts if text)]
    text = " ".join([*parts, figure.facts])
    room = int((width - 12) / _LETTER)
    return wrap(text, room, break_long_words=False, break_on_hyphens=False)


def _one_legend(drawn: go.Figure, width: int) -> int:
    """Give all traces one legend, each name once; returns its height, where its rows are as wide as the plots."""
    names: list[str] = []
    for trace in drawn.data:
        if trace.type not in {"scatter", "bar"}:  # an image
            continue
        shown = trace.visible is not False and trace.showlegend is not False and trace.name
        trace.update(showlegend=bool(shown and trace.name not in names), legend="legend", legendrank=1000)
        if shown and trace.name not in names:
            names.append(trace.name)
    for key in [key for key in drawn.layout if key.startswith("legend") and key != "legend"]:
        drawn.layout[key] = None
    drawn.update_layout(showlegend=len(names) > 0)
    widths = [_SIGN + _LEGEND_LETTER * len(unescape(name)) for name in names]
    if sum(widths) <= width:
        return _ENTRY * bool(names)
    columns = max(int(width / max(widths)), 1)
    return _ENTRY * -(-len(names) // columns)


def _text_sizes(drawn: go.Figure) -> None:
    small = {"font": {"size": _SMALL + 1}, "standoff": 4}
    drawn.update_xaxes(title=small, tickfont={"size": _SMALL})
    drawn.update_yaxes(title=small, tickfont={"size": _SMALL})
    drawn.update_layout(font={"size": _SMALL + 1, "color": BLACK})


def _titles(drawn: go.Figure) -> int:
    """Leave of each panel's title what comes before its caption; returns the pixels saved above the first panel."""
    first = None
    for note in drawn.layout.annotations:
        if (note.text or "").startswith("<b>") and note.yshift is not None:
            first = note.yshift if first is None else first
            note.update(
                text=note.text.partition("  <span")[0], yshift=4, font={"size": _TITLE, "color": BLACK}
            )
    above = drawn.layout.margin.t or 0
    return max(above - _ABOVE, 0) if first is not None else 0
