"""A sweep as a heat map: which rules serve which trace, and with how much memory.

Of many traces: a row each, a column for each policy; a cell has the smallest of the limits that serves the trace. Of
one trace: a row for each policy, a column for each limit; a cell has the most bytes reserved. Cells are pale where that
is what any rules need, in full colour at twice that, and red where requests fail.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from bfcviz.figures.panel import Margins, Panel, Picture, Place, panels_picture
from bfcviz.figures.text import LONGEST, harmless
from bfcviz.figures.theme import Theme, mixed
from bfcviz.figures.view_options import PLAIN, Look
from bfcviz.units import exact_bytes, format_bytes

MOST_ROWS: Final = 40
MOST_COLUMNS: Final = 24
MOST_TEXTS: Final = 14
"""Columns whose cells have room for a text."""

_ROW: Final = 26  # pixels
_LETTER: Final = 6.6  # pixels of a letter of a tick
_NAME: Final = 34  # letters of a name beside a row
_CELL: Final = 21  # letters of a name below a column
_OPTION_LINES: Final = 4  # of the name of a policy with its options
_DARKEST: Final = 2.0  # times the least memory
_TOP: Final = 3  # of the colour scale: 0..1 by memory, 1..2 fails, 2..3 error

Points = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Cell:
    """One cell of the heat map: `times` the least memory that any rules need; None: it does not fit."""

    row: str
    column: str
    text: str
    hover: str
    times: float | None = None
    is_error: bool = False
    is_open: bool = False  # the limits tried so far fail, others are not known yet


def sweep_heat_map(table: pa.Table, look: Look = PLAIN, remarks: Sequence[str] = ()) -> Picture:
    """The heat map of a sweep's results, or of those so far.

    Args:
        table: a row a point, with the columns of `bfcviz.SweepResults.to_arrow()`.
        look: the theme.
        remarks: what the caption must say of the policies.

    Returns:
        The figure; its table is the argument.
    """
    points = table.to_pylist()
    one_trace = len({point["trace"] for point in points}) == 1
    cells = _cells_of_one_trace(points) if one_trace else _cells_of_many_traces(points)
    rows, columns = list(dict.fromkeys(c.row for c in cells)), list(dict.fromkeys(c.column for c in cells))
    caption = "; ".join([_CAPTION, *map(harmless, remarks)])
    panel = _heat_map_panel(cells, rows, columns, (_heat_map_title(points), caption), look.paints)
    left = round(min(max((len(_heat_map_path_end(row)) for row in rows), default=0), _NAME) * _LETTER) + 24
    height = max(min(len(rows), MOST_ROWS), 1) * _ROW
    lines = max((_column_name(name).count("<br>") + 1 for name in columns[:MOST_COLUMNS]), default=1)
    margins = Margins(left=left, foot=14 + 15 * lines)
    picture = panels_picture([panel], [Place(0.0, 1.0, panel.above, height)], look.paints, margins)
    return picture.with_table(table)


def _heat_map_title(points: Points) -> str:
    if len({point["trace"] for point in points}) == 1:
        return f"Most memory reserved: {harmless(_heat_map_path_end(points[0]['trace']))}"
    if any(point["limit_bytes"] is not None for point in points):
        return "Smallest limit tried that fits"
    return "Most memory reserved"


_CAPTION: Final = "pale: what any rules need; full colour: twice that; red: fails; grey: error"
_DEFINITION: Final = (
    "What any rules need is the most bytes that the trace requests at once.<br>"
    "Pale cells need no more than that, those in full colour twice as much or more.<br>"
    "Point at a cell for its numbers or its message."
)


def _cells_of_one_trace(points: Points) -> list[_Cell]:
    sizes = {point["limit"]: point["limit_bytes"] for point in points}
    order = sorted(sizes, key=lambda text: (text == "none", sizes[text] or 0, text))
    found = []
    for text in order:
        size = None if text.endswith("%") else sizes[text]
        column = "no limit" if text == "none" else text if size is None else format_bytes(size)
        found += [
            _sweep_cell(str(point["policy"]), column, [point], lambda point: point["peak_reserved"])
            for point in points
            if point["limit"] == text
        ]
    return found


def _cells_of_many_traces(points: Points) -> list[_Cell]:
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for point in points:
        pairs.setdefault((point["trace"], point["policy"]), []).append(point)
    limits = len({point["limit"] for point in points})
    found = []
    for (trace, policy), tried in pairs.items():
        cell = _sweep_cell(trace, policy, tried, _limit_or_reserved)
        if len(tried) != limits:  # results of other limits are missing so far
            cell = replace(cell, is_open=True) if cell.times is None else replace(cell, text=f"≤ {cell.text}")
        found.append(cell)
    return found


def _limit_or_reserved(point: Mapping[str, Any]) -> Any:
    return point["peak_reserved"] if point["limit_bytes"] is None else point["limit_bytes"]


def _sweep_cell(row: str, column: str, tried: Points, measure: Callable[[Mapping[str, Any]], Any]) -> _Cell:
    """The cell of some points: the smallest measure of those that fit, else what became of the others."""
    served = [point for point in tried if not point["error"]]
    fitting = [point for point in served if point["failures"] == 0 and point["served"] == point["requests"]]
    head = f"<b>{harmless(row)}</b><br>{harmless(column)}<br>"
    if fitting:
        # Without a limit nothing fails: a limit says more.
        best = min(fitting, key=lambda point: (point["limit_bytes"] is None, measure(point)))
        size, hover = int(measure(best)), head + _sweep_point_facts(best, tried)
        return _Cell(row, column, format_bytes(size), hover, size / max(int(best["peak_requested"]), 1))
    if served:
        last = max(served, key=lambda point: point["limit_bytes"] or 0)
        return _Cell(row, column, f"{last['failures']:,} fail", head + _sweep_point_facts(last, tried))
    message = "<br>".join(_sweep_message_lines(str(tried[0]["error"])))
    return _Cell(row, column, "error", head + message, is_error=True)


def _sweep_point_facts(point: Mapping[str, Any], tried: Points) -> str:
    limit = "no limit" if point["limit_bytes"] is None else f"limit {exact_bytes(point['limit_bytes'])}"
    lines = [
        limit,
        f"most reserved: {exact_bytes(point['peak_reserved'])}",
        f"most in use: {exact_bytes(point['peak_in_use'])}",
        f"most requested at once: {exact_bytes(point['peak_requested'])}",
        f"reserved and unused at the peaks: {point['reserved_not_in_use']:.1%}",
    ]
    if point["failures"]:
        lines.append(
            f"{point['failures']:,} requests fail, the first is event {point['first_failure']:,}: "
            f"{exact_bytes(point['first_failure_bytes'])}"
        )
    if len(tried) > 1:
        lines.append(f"{len(tried)} limits tried")
    return "<br>".join([*lines, *_sweep_message_lines(str(point["notes"]))])


def _sweep_message_lines(text: str) -> list[str]:
    """A message as short lines, escaped."""
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > LONGEST - 10:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [harmless(line) for line in lines[:6] if line]


def _heat_map_panel(
    cells: Sequence[_Cell], rows: Sequence[str], columns: Sequence[str], about: tuple[str, str], theme: Theme
) -> Panel:
    title, caption = about
    if len(rows) > MOST_ROWS:
        caption += f"; the first {MOST_ROWS} of {len(rows):,} rows"
    if len(columns) > MOST_COLUMNS:
        caption += f"; the first {MOST_COLUMNS} of {len(columns):,} columns"
    rows, columns = rows[:MOST_ROWS], columns[:MOST_COLUMNS]
    return Panel(
        "sweep",
        title,
        caption,
        [_heat_map_trace(cells, rows, columns, theme)],
        xaxis={
            **_heat_map_axis([_column_name(name) for name in columns]),
            "range": [-0.5, max(len(columns), 1) - 0.5],
            "tickangle": 0,
        },
        yaxis={
            **_heat_map_axis([harmless(_heat_map_path_end(name), _NAME) for name in rows]),
            "range": [max(len(rows), 1) - 0.5, -0.5],
        },
        definition=_DEFINITION,
        legend=False,
    )


def _heat_map_axis(names: list[str]) -> dict[str, Any]:
    return {"tickvals": list(range(len(names))), "ticktext": names, "showgrid": False, "zeroline": False}


def _heat_map_trace(
    cells: Sequence[_Cell], rows: Sequence[str], columns: Sequence[str], theme: Theme
) -> dict[str, Any]:
    """The heat map; cells without a result so far are empty."""
    at = {(cell.row, cell.column): cell for cell in cells}
    grid = [[at.get((row, column)) for column in columns] for row in rows]
    pale = mixed(theme.in_use.fill, theme.paper, 0.82)
    failed = mixed(theme.oom, theme.paper, 0.25)
    error = theme.pool.fill
    colours = [(0, pale), (1, theme.in_use.fill), (1, failed), (2, failed), (2, error), (3, error)]
    return {
        "type": "heatmap",
        "z": [[None if cell is None else _heat_map_level(cell) for cell in line] for line in grid],
        "text": [["" if cell is None else cell.text for cell in line] for line in grid],
        "texttemplate": "%{text}" if len(columns) <= MOST_TEXTS else "",
        "hovertext": [["" if cell is None else cell.hover for cell in line] for line in grid],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "colorscale": [(place / _TOP, colour) for place, colour in colours],
        "zmin": 0,
        "zmax": _TOP,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }


def _heat_map_level(cell: _Cell) -> float | None:
    """The place of a cell's colour: 0..1 by memory, then failures, then errors; None: empty."""
    if cell.is_open:
        return None
    if cell.is_error:
        return 2.5
    if cell.times is None:
        return 1.5
    return min(max((cell.times - 1) / (_DARKEST - 1), 0.0), 0.999)


def _heat_map_path_end(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rpartition("/")[2] or path


def _column_name(name: str) -> str:
    """The name of a policy in the heat map on several lines: the options below it."""
    head, _, options = name.partition(":")
    lines = [head, *options.split(",")] if options else [head]
    shown = [harmless(line, _CELL) for line in lines[:_OPTION_LINES]]
    return "<br>".join([*shown, *(["..."] if len(lines) > _OPTION_LINES else [])])
