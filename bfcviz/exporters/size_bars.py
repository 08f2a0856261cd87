"""Sizes as bars below each other on one scale, as HTML: what was asked for, what is free, what is wasted."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from bfcviz.units import format_bytes

_UNKNOWN: Final = "unknown"


class SizeBar(NamedTuple):
    """One bar of a size of the heap, in a card or in the header of a dashboard."""

    name: str  # what the size is of
    size: int | None  # bytes; None: unknown
    kind: str  # its colour: `asked`, `free`, `waste`
    parts: Sequence[int] = ()  # bytes of the pieces to draw it in, side by side; empty: one piece


SIZE_BAR_STYLE: Final = """
.bfcviz-bars{display:grid;grid-template-columns:max-content minmax(60px,1fr) max-content;gap:2px 8px;
  align-items:center;font-size:11px;line-height:12px;font-variant-numeric:tabular-nums}
.bfcviz-bars .track{display:flex;height:9px}
.bfcviz-bars .track span{box-sizing:border-box;height:100%;min-width:0;flex:1 1 0}
.bfcviz-bars .free{background:var(--free);border:1px solid var(--free-line)}
.bfcviz-bars .free+.free{border-left-width:0}
.bfcviz-bars .waste{background:var(--waste)}
.bfcviz-bars .asked{border:2px solid var(--text)}
.bfcviz-bars .asked.failed{border-color:var(--oom)}
.bfcviz-bars .value{text-align:right}
"""


def size_bars(bars: Sequence[SizeBar]) -> str:
    """Bars of sizes as HTML; the page must have `SIZE_BAR_STYLE` and the variables of `theme.following`."""
    most = max([bar.size or 0 for bar in bars] + [1])
    return f'<div class="bfcviz-bars">{"".join(_size_bar_row(bar, most) for bar in bars)}</div>'


def _size_bar_row(bar: SizeBar, most: int) -> str:
    """One bar of a size as HTML, between its name and its size."""
    sizes = bar.parts or ([bar.size] if bar.size else [])
    parts = "".join(f'<span class="{bar.kind}" style="flex-grow:{size}"></span>' for size in sizes)
    track = f'<span class="track" style="width:{100 * (bar.size or 0) / most:.2f}%">{parts}</span>'
    value = _UNKNOWN if bar.size is None else format_bytes(bar.size)
    return f'<span>{bar.name}</span><span>{track}</span><span class="value">{value}</span>'
