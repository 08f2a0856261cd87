"""Write a figure to a file: an HTML page that works offline, an image, or its numbers."""

import io
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import plotly.graph_objects as go
from pyarrow import csv, parquet

from bfcviz.errors import BfcvizError
from bfcviz.events.storage.parquet import without_formulas
from bfcviz.extras import needed
from bfcviz.figures.panel import CONFIG, Picture
from bfcviz.figures.paper import MM, PAGE_MM, paper
from bfcviz.figures.plotly_script import is_drawn_by_it, plotly_script

WIDTH, HEIGHT = 1200, 700
"""Pixels of an image whose figure sets none."""

SCALE: Final = 2
"""Device pixels of a PNG per pixel of the figure."""

_CUT: Final = 20  # pixels of a PDF page that kaleido's fixed margins (0.1 inch a side) cut off
_RIM: Final = _CUT + 20  # pixels added to a PDF page: those, and 20 for long ticks
_LINE: Final = 22  # pixels of the line of facts below a figure


def export(
    figure: go.Figure,
    path: str | os.PathLike[str],
    *,
    style: Literal["screen", "paper"] = "screen",
    width_mm: float = PAGE_MM,
) -> Path:
    """Write `figure` to `path` in the format of its suffix, and return the path.

    `.html` works offline; `.png`, `.svg` and `.pdf` need kaleido and a Chromium or Chrome; `.csv` and `.parquet`
    hold the numbers that the figure shows. The file is written atomically. Pages and images name the file, the step
    and the totals below a figure that `bfcviz.draw` made.

    Args:
        figure: what `bfcviz.draw` returns, or any plotly figure.
        path: the file to write.
        style: `paper`: an `.svg` or `.pdf` for print, in greys and patterns, its definitions as a caption below.
        width_mm: the width of a `paper` picture: 84 for one column, 174 for the page.

    Raises:
        BfcvizError: the suffix is unknown, there is no browser, the figure has no numbers, the path cannot be
            written, or the style is not one for this format or figure.
        MissingExtra: kaleido is not installed.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in _FORMATS:
        raise BfcvizError(
            f"cannot export to {target.name!r}: its suffix names no known format; "
            f"use one of {', '.join(_FORMATS)}"
        )
    if style == "paper":
        if suffix not in VECTOR:
            raise BfcvizError(
                f"style paper makes vector pictures, and {target.name!r} is none: its suffix must be one of "
                f"{', '.join(VECTOR)}"
            )
        _write_figure_file(target, _figure_image_for_print(paper(figure, width_mm), suffix[1:]))
    else:
        _write_figure_file(target, rendered(figure, suffix))
    return target


def rendered(figure: go.Figure, suffix: str) -> bytes:
    """The bytes that `export` writes to a file with this suffix (`.html`, ...)."""
    return _FORMATS[suffix](figure)


def _figure_html(figure: go.Figure) -> bytes:
    ours = is_drawn_by_it(figure.data)
    text: str = exported_with_facts(figure).to_html(include_plotlyjs=not ours, full_html=True, config=CONFIG)
    if ours:
        text = text.replace("<body>", f"<body><script>{plotly_script()}</script>", 1)
    facts = figure.facts if isinstance(figure, Picture) else ""
    text = "<!doctype html>\n" + text.removeprefix("<!doctype html>").lstrip()  # plotly 6 writes none
    return text.replace("<head>", f"<head><title>{facts}</title>", 1).encode()


def exported_with_facts(figure: go.Figure) -> go.Figure:
    """The figure as it is exported: its line of facts at its lower edge; the figure itself where it has none."""
    facts = figure.facts if isinstance(figure, Picture) else ""
    if not facts:
        return figure
    below = figure.layout.margin.b
    return go.Figure(figure).update_layout(
        height=(figure.layout.height or HEIGHT) + _LINE,
        margin={"b": (80 if below is None else below) + _LINE},
        title={
            "text": facts,
            "font": {"size": 11, "weight": "normal"},
            "xref": "container",
            "x": 0,
            "xanchor": "left",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "pad": {"l": 12, "b": 8},
        },
    )


def _figure_image_for_print(figure: go.Figure, form: str) -> bytes:
    """A figure for paper; its layout's width and height are its size at 96 pixels an inch."""
    width, height = figure.layout.width, figure.layout.height
    if form == "pdf":
        narrower = go.Figure(figure).update_layout(width=width - _CUT)
        return _rendered_by_browser(_with_rim(narrower, _CUT), form)
    made = _rendered_by_browser(figure, form)
    size = f'width="{width}" height="{height}"'.encode()
    return made.replace(size, f'width="{width * MM:g}mm" height="{height * MM:g}mm"'.encode(), 1)


def _figure_image(figure: go.Figure, form: str) -> bytes:
    figure = exported_with_facts(figure)
    return _rendered_by_browser(_with_rim(figure, _RIM) if form == "pdf" else figure, form)


def _rendered_by_browser(drawn: go.Figure, form: str) -> bytes:
    with needed(f"export to .{form}", "kaleido", "lab"):
        import kaleido  # noqa: PLC0415  an extra
        from kaleido.errors import ChromeNotFoundError  # noqa: PLC0415
    width, height = drawn.layout.width or WIDTH, drawn.layout.height or HEIGHT
    options = {"format": form, "width": width, "height": height, "scale": SCALE if form == "png" else 1}
    with warnings.catch_warnings():
        # If the user runs a kaleido server, it ignores kopts and warns.
        warnings.filterwarnings("ignore", "The kopts argument", UserWarning)
        try:
            # By default kaleido loads MathJax from the network.
            made: bytes = kaleido.calc_fig_sync(drawn.to_dict(), opts=options, kopts={"mathjax": False})
        except (ChromeNotFoundError, RuntimeError) as error:
            raise BfcvizError(
                f"export to .{form} needs a Chromium or Chrome, and kaleido found none that starts; install "
                "one (apt-get install chromium, or kaleido_get_chrome), or set BROWSER_PATH to it; "
                f".html, .csv and .parquet work without ({error})"
            ) from error
    return made


def _with_rim(figure: go.Figure, rim: int) -> go.Figure:
    """The figure with an empty rim of so many pixels at its right and bottom, where kaleido cuts off a PDF page."""
    layout = figure.layout
    margins = (layout.margin.r, layout.margin.b)
    right, below = (80 if margin is None else margin for margin in margins)  # 80: plotly's default
    return go.Figure(figure).update_layout(
        width=(layout.width or WIDTH) + rim,
        height=(layout.height or HEIGHT) + rim,
        margin={"r": right + rim, "b": below + rim},
    )


def _figure_numbers(figure: go.Figure, form: str) -> bytes:
    table = figure.table if isinstance(figure, Picture) else None
    if table is None:
        raise BfcvizError(f"this figure has no numbers for .{form}; export one that bfcviz.draw made")
    sink = io.BytesIO()
    if form == "csv":
        csv.write_csv(without_formulas(table), sink)
    else:
        parquet.write_table(table, sink)
    return sink.getvalue()


_FORMATS: Final[dict[str, Callable[[go.Figure], bytes]]] = {
    ".html": _figure_html,
    ".png": lambda figure: _figure_image(figure, "png"),
    ".svg": lambda figure: _figure_image(figure, "svg"),
    ".pdf": lambda figure: _figure_image(figure, "pdf"),
    ".csv": lambda figure: _figure_numbers(figure, "csv"),
    ".parquet": lambda figure: _figure_numbers(figure, "parquet"),
}
VECTOR: Final = (".svg", ".pdf")
"""The suffixes of style `paper`."""

IMAGES: Final = frozenset({".png", ".svg", ".pdf"})
"""The suffixes that need a browser; its start takes seconds."""

FORMATS: Final = tuple(_FORMATS)
"""The suffixes that `export` accepts."""


def _write_figure_file(target: Path, body: bytes) -> None:
    """Write `body` to `target` by a rename, so that a reader never sees half a file."""
    beside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        try:
            beside.write_bytes(body)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        no_folder = isinstance(error, FileNotFoundError | NotADirectoryError)
        advice = "; choose a path in a folder that exists" if no_folder else ""
        raise BfcvizError(f"cannot write {str(target)!r}: {error.strerror}{advice}") from error
