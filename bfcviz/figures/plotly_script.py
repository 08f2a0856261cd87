"""Plotly's script with the trace types of our figures, a quarter of the whole one; and plotly's renderers."""

import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import plotly.graph_objects as go

from bfcviz.extras import imported_on_first_use

TRACES: Final = frozenset({"scatter", "bar", "heatmap", "image"})
"""The types that it draws; `tests/make_plotly.mjs` makes it."""


@cache
def plotly_script() -> str:
    """The text of plotly's script; it sets `Plotly`."""
    return Path(__file__).with_name("plotly.min.js").read_text(encoding="utf-8")


def is_drawn_by_it(traces: Iterable[go.Trace]) -> bool:
    """Whether our script of plotly draws all of these traces."""
    return all(trace.type in TRACES for trace in traces)


# ------------------------------------------------------------------------------
# Plotly's renderers and widget, imported without nbformat and kaleido.
#
# Plotly imports nbformat beside them and asks only for its version. With nbformat come jsonschema and a parser of
# web addresses that builds its grammar at import: as long as all other imports of an Inspector together. With kaleido,
# which is needed for files of images only, comes what starts a browser: 0.1 s.

RENDERERS: Final = "plotly.io._renderers"


def import_renderers() -> None:
    """Import plotly's renderers; its `show` and `FigureWidget` then use these."""
    if RENDERERS not in sys.modules:
        with imported_on_first_use("nbformat"), imported_on_first_use("kaleido"):
            import_module(RENDERERS)
