"""Plotly's script with the trace types of our figures: a quarter of the whole one, and half as long to evaluate."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import plotly.graph_objects as go

TRACES: Final = frozenset({"scatter", "bar", "heatmap", "image"})
"""The types that it draws; `tests/make_plotly.mjs` makes it."""


@cache
def plotly_script() -> str:
    """The script; it sets `Plotly`."""
    return Path(__file__).with_name("plotly.min.js").read_text(encoding="utf-8")


def is_drawn_by_it(traces: Iterable[go.Trace]) -> bool:
    """Whether the script draws all of these traces."""
    return all(trace.type in TRACES for trace in traces)
