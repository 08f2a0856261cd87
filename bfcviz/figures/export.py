"""Write a figure to a file: an HTML page that works offline, an image, or its numbers; or as Python code."""

import io
import os
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import plotly.graph_objects as go
from pyarrow import csv, parquet

from bfcviz import samples
from bfcviz.errors import BfcvizError
from bfcviz.events.storage.parquet import without_formulas
from bfcviz.extras import needed
from bfcviz.figures.panel import CONFIG, Picture
from bfcviz.figures.paper import MM, PAGE_MM, paper
from bfcviz.figures.plotly_script import is_drawn_by_it, plotly_script
from bfcviz.figures.view_options import PLAIN, Look

WIDTH, HEIGHT = 1200, 700
"""Pixels of an image whose figure sets none."""

SCALE: Final = 2  # device pixels of a PNG per pixel of the figure

_CUT: Final = 20  # pixels of a PDF page that kaleido's fixed margins (0.1 inch a side) cut off
_RIM: Final = _CUT + 20  # pixels added to a PDF page: those, and 20 for long ticks
_LINE: Final = 22  # pixels of the line of facts below a figure

_ANSWER_S: Final = 60.0
"""Seconds that a browser has for an image. It needs 1 to 10; seldom kaleido waits without end for one that starts."""


def export(
    figure: go.Figure,
    path: str | os.PathLike[str],
    *,
    style: Literal["screen", "paper"] = "screen",
    width_mm: float = PAGE_MM,
) -> Path:
    """Export `figure` to `path` in the format of its suffix, and return the path.

    `.html` works offline; `.png`, `.svg` and `.pdf` need kaleido and a Chromium or Chrome; `.csv` and `.parquet`
    hold the numbers that the figure shows. The file is written atomically. Pages and images name the file, the step
    and the totals below a figure that `bfcviz.draw` made.

    Args:
        figure: what `bfcviz.draw` returns, or any plotly figure.
        path: the file to write.
        style: `paper`: an `.svg` or `.pdf` for print, in greys and patterns, its definitions as a caption below.
        width_mm: the width of a `paper` picture: 84 for one column, 174 for the page.

    Raises:
        BfcvizError: the suffix is unknown, no browser starts or answers, the figure has no numbers, the path cannot be
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
    """The image of an exported figure, which kaleido's browser draws."""
    with needed(f"export to .{form}", "kaleido", "lab"):
        import kaleido  # noqa: PLC0415  an extra
        from kaleido.errors import ChromeNotFoundError  # noqa: PLC0415
    width, height = drawn.layout.width or WIDTH, drawn.layout.height or HEIGHT
    options = {"format": form, "width": width, "height": height, "scale": SCALE if form == "png" else 1}
    with warnings.catch_warnings():
        # If the user runs a kaleido server, it ignores kopts and warns.
        warnings.filterwarnings("ignore", "The kopts argument", UserWarning)
        for _ in range(2):  # a browser that does not answer is started once more
            try:
                return _within_limit(
                    # By default kaleido loads MathJax from the network.
                    lambda: kaleido.calc_fig_sync(drawn.to_dict(), opts=options, kopts={"mathjax": False})
                )
            except TimeoutError:
                continue
            except (ChromeNotFoundError, RuntimeError) as error:
                raise BfcvizError(
                    f"export to .{form} needs a Chromium or Chrome, and kaleido found none that starts; install "
                    "one (apt-get install chromium, or kaleido_get_chrome), or set BROWSER_PATH to it; "
                    f".html, .csv and .parquet work without ({error})"
                ) from error
    raise BfcvizError(
        f"export to .{form} needs a browser, and none of two that kaleido started drew the figure within "
        f"{_ANSWER_S:g} s; try again, or export .html, .csv or .parquet, which need none"
    )


def _within_limit(draw: Callable[[], bytes]) -> bytes:
    """What `draw` returns; TimeoutError after `_ANSWER_S`: its thread is then left to itself, with its browser."""
    drawn: Future[bytes] = Future()

    def run() -> None:
        try:
            drawn.set_result(draw())
        except BaseException as error:  # noqa: BLE001  the caller raises it
            drawn.set_exception(error)

    threading.Thread(target=run, name="bfcviz image", daemon=True).start()
    return drawn.result(_ANSWER_S)


def _with_rim(figure: go.Figure, rim: int) -> go.Figure:
    """The figure with an empty rim of so many pixels at its right and bottom, where kaleido cuts off a PDF page."""
    layout = figure.layout
    margins = (layout.margin.r, layout.margin.b)
    right, below = (80 if margin is None else margin for margin in margins)  # 80: plotly's default
    height = layout.height or HEIGHT
    made = go.Figure(figure).update_layout(
        width=(layout.width or WIDTH) + rim,
        height=height + rim,
        margin={"r": right + rim, "b": below + rim},
    )
    # A share of the height: the rim would let the legend slip into what is below.
    if layout.legend.yref == "container":
        made.update_layout(legend={"y": (layout.legend.y * height + rim) / (height + rim)})
    return made


def _figure_numbers(figure: go.Figure, form: str) -> bytes:
    """The numbers of an exported figure as CSV or Parquet."""
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
VECTOR: Final = (".svg", ".pdf")  # the suffixes of style `paper`

IMAGES: Final = frozenset({".png", ".svg", ".pdf"})
"""The suffixes that need a browser; its start takes seconds."""

TABLES: Final = frozenset({".csv", ".parquet"})
"""The suffixes of tables of numbers: of one figure, not of several together."""

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


# ------------------------------------------------------------------------------
# Python code that draws a picture again: to keep, share and change what a user chose on screen.


IN_MEMORY: Final = "trace = ...  # your trace: this one is in memory, not in a file"
"""The line that stands for a trace without a file."""

_WIDTH: Final = 88  # a longer call gets one line per argument; in characters


def code_for(name: str, trace_path: Path | None, step: int, pool: int = 0, look: Look = PLAIN) -> str:
    """Python code that runs as it is and shows the figure called `name` in its present state.

    Args:
        name: one of `FIGURES`.
        trace_path: `Trace.path`; None: the trace is in memory, and `IN_MEMORY` stands for it.
        step: the step shown.
        pool: the heap shown.
        look: its options; the code names only those that differ from `PLAIN`.
    """
    options = _figure_code_options(pool, look)
    parts = sorted({type(value).__name__ for value in options.values() if is_dataclass(value)})
    more = [f"from bfcviz.figures.view_options import {', '.join(parts)}"] if parts else []
    figure = _figure_code_call("bfcviz.draw", [repr(name), "trace", str(step)], options)
    lines = ["import bfcviz", *more, "", _figure_code_trace(trace_path)]
    return "\n".join([*lines, f"figure = {figure}", "figure.show()", ""])


def code_for_inspector(trace_path: Path | None, step: int, pool: int = 0, look: Look = PLAIN) -> str:
    """Python code for a notebook cell that shows the Inspector of this trace at this step."""
    options = _figure_code_options(pool, Look(theme=look.theme))
    inspector = _figure_code_call("bfcviz.Inspector", ["trace", str(step)], options)
    return "\n".join(["import bfcviz", "", _figure_code_trace(trace_path), inspector, ""])


def _figure_code_trace(path: Path | None) -> str:
    if path is None:
        return IN_MEMORY
    for name in samples.names():
        if path == samples.sample(name):
            return f'trace = bfcviz.open(bfcviz.sample("{name}"))'
    return f"trace = bfcviz.open({str(path)!r})"


def _figure_code_options(pool: int, look: Look) -> dict[str, Any]:
    """The options that differ from their defaults."""
    chosen = {field.name: getattr(look, field.name) for field in fields(look)}
    changed = {key: value for key, value in chosen.items() if value != getattr(PLAIN, key)}
    return {"pool": pool, **changed} if pool else changed


def _figure_code_call(function: str, given: Iterable[str], named: dict[str, Any]) -> str:
    """The call, on one line if it fits."""
    words = [*given, *(f"{key}={_figure_code_literal(value)}" for key, value in named.items())]
    line = f"{function}({', '.join(words)})"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{function}(", *(f"    {word}," for word in words), ")"])


def _figure_code_literal(value: Any) -> str:
    """A Python literal equal to `value`; NumPy numbers become plain ones."""
    if is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name) for field in fields(value)}
        arguments = (f"{name}={_figure_code_literal(each)}" for name, each in given.items())
        return f"{type(value).__name__}({', '.join(arguments)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_figure_code_literal, value))})"
    return repr(value.item() if isinstance(value, np.generic) else value)
