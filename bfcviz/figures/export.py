"""A figure as a file: a page that needs no network, a picture, or its numbers."""

import io
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

import plotly.graph_objects as go
import pyarrow as pa
from pyarrow import csv, parquet

from bfcviz.errors import BfcvizError, MissingExtra
from bfcviz.figures.panel import CONFIG, Picture

WIDTH: Final = 1200
"""Pixels across a picture that does not say its own width."""

HEIGHT: Final = 700
"""Likewise, from top to bottom."""

_RIM: Final = 40
"""Pixels added to a PDF's page: 20 that kaleido's fixed margins (0.1 inch a side) cut off, 20 for long ticks."""

SCALE: Final = 2
"""Device pixels of a PNG for each of those."""


def export(figure: go.Figure, path: str | os.PathLike[str]) -> Path:
    """Writes `figure` to `path`, in the form its suffix names, and returns the path.

    `.html` holds everything it needs and works offline; `.png`, `.svg` and `.pdf` want kaleido and a Chromium
    or Chrome; `.csv` and `.parquet` hold the numbers the figure was drawn from. The file appears whole or not
    at all.

    Raises:
        BfcvizError: an unknown suffix, no browser, a figure that brings no numbers, or a place that cannot be
            written to.
        MissingExtra: kaleido is not installed.
    """
    target = Path(path)
    render = _FORMATS.get(target.suffix.lower())
    if render is None:
        raise BfcvizError(
            f"cannot export to {target.name!r}: its suffix says no format known here; "
            f"use one of {', '.join(_FORMATS)}"
        )
    _write(target, render(figure))
    return target


def rendered(figure: go.Figure, suffix: str) -> bytes:
    """What `export` would write to a file with this suffix (`.html`, ...)."""
    return _FORMATS[suffix](figure)


def _html(figure: go.Figure) -> bytes:
    text: str = figure.to_html(include_plotlyjs=True, full_html=True, config=CONFIG)
    return text.encode()


def _image(figure: go.Figure, form: str) -> bytes:
    try:
        import kaleido  # noqa: PLC0415  an extra
        from kaleido.errors import ChromeNotFoundError  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(f"export to .{form}", "kaleido", "lab") from error
    drawn = _with_rim(figure) if form == "pdf" else figure
    width, height = drawn.layout.width or WIDTH, drawn.layout.height or HEIGHT
    options = {"format": form, "width": width, "height": height, "scale": SCALE if form == "png" else 1}
    with warnings.catch_warnings():
        # A user's own running kaleido server ignores kopts, and says so.
        warnings.filterwarnings("ignore", "The kopts argument", UserWarning)
        try:
            # Without this it would fetch MathJax from the network.
            made: bytes = kaleido.calc_fig_sync(drawn.to_dict(), opts=options, kopts={"mathjax": False})
        except (ChromeNotFoundError, RuntimeError) as error:
            raise BfcvizError(
                f"export to .{form} needs a Chromium or Chrome, and kaleido found none that starts; install "
                "one (apt-get install chromium, or kaleido_get_chrome), or set BROWSER_PATH to it; "
                f".html, .csv and .parquet work without ({error})"
            ) from error
    return made


def _with_rim(figure: go.Figure) -> go.Figure:
    """The figure with as much empty room at its right and below as kaleido takes from a PDF's page there."""
    layout = figure.layout
    right, below = (
        80 if room is None else room for room in (layout.margin.r, layout.margin.b)
    )  # 80: plotly's
    return go.Figure(figure).update_layout(
        width=(layout.width or WIDTH) + _RIM,
        height=(layout.height or HEIGHT) + _RIM,
        margin={"r": right + _RIM, "b": below + _RIM},
    )


def _csv(figure: go.Figure) -> bytes:
    sink = io.BytesIO()
    csv.write_csv(_numbers(figure, "csv"), sink)
    return sink.getvalue()


def _parquet(figure: go.Figure) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(_numbers(figure, "parquet"), sink)
    return sink.getvalue()


def _numbers(figure: go.Figure, form: str) -> pa.Table:
    table = figure.table if isinstance(figure, Picture) else None
    if table is None:
        raise BfcvizError(f"this figure brings no numbers for .{form}; those made by bfcviz.figures do")
    return table


_FORMATS: Final[dict[str, Callable[[go.Figure], bytes]]] = {
    ".html": _html,
    ".png": lambda figure: _image(figure, "png"),
    ".svg": lambda figure: _image(figure, "svg"),
    ".pdf": lambda figure: _image(figure, "pdf"),
    ".csv": _csv,
    ".parquet": _parquet,
}
IMAGES: Final = frozenset({".png", ".svg", ".pdf"})
"""Those that a browser makes, which takes seconds when it starts."""

FORMATS: Final = tuple(_FORMATS)
"""The suffixes `export` knows."""


def _write(target: Path, body: bytes) -> None:
    """Puts `body` at `target` in one move, so that no reader ever meets half a file."""
    beside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        try:
            beside.write_bytes(body)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        no_folder = isinstance(error, FileNotFoundError | NotADirectoryError)
        advice = "; choose a place in a folder that is there" if no_folder else ""
        raise BfcvizError(f"cannot write {str(target)!r}: {error.strerror}{advice}") from error
