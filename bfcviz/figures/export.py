"""Write a figure to a file: an HTML page that works offline, an image, or its numbers."""

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
"""Width in pixels of an image whose figure sets none."""

HEIGHT: Final = 700
"""Height in pixels of an image whose figure sets none."""

_RIM: Final = 40
"""Pixels added to a PDF page: 20 that kaleido's fixed margins (0.1 inch a side) cut off, 20 for long ticks."""

SCALE: Final = 2
"""Device pixels of a PNG per pixel of the figure."""


def export(figure: go.Figure, path: str | os.PathLike[str]) -> Path:
    """Write `figure` to `path` in the format of its suffix, and return the path.

    `.html` works offline; `.png`, `.svg` and `.pdf` need kaleido and a Chromium or Chrome; `.csv` and `.parquet`
    hold the numbers that the figure shows. The file is written atomically.

    Raises:
        BfcvizError: the suffix is unknown, there is no browser, the figure has no numbers, or the path cannot be
            written.
        MissingExtra: kaleido is not installed.
    """
    target = Path(path)
    render = _FORMATS.get(target.suffix.lower())
    if render is None:
        raise BfcvizError(
            f"cannot export to {target.name!r}: its suffix names no known format; "
            f"use one of {', '.join(_FORMATS)}"
        )
    _write(target, render(figure))
    return target


def rendered(figure: go.Figure, suffix: str) -> bytes:
    """The bytes that `export` writes to a file with this suffix (`.html`, ...)."""
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


def _with_rim(figure: go.Figure) -> go.Figure:
    """The figure with an empty rim at its right and bottom, where kaleido cuts off a PDF page."""
    layout = figure.layout
    margins = (layout.margin.r, layout.margin.b)
    right, below = (80 if margin is None else margin for margin in margins)  # 80: plotly's default
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
        raise BfcvizError(f"this figure has no numbers for .{form}; export one that bfcviz.draw made")
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
"""The suffixes that need a browser; its start takes seconds."""

FORMATS: Final = tuple(_FORMATS)
"""The suffixes that `export` accepts."""


def _write(target: Path, body: bytes) -> None:
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
