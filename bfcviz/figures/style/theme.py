"""Every colour with its meaning, and the plotly templates made of them.

One meaning has one hue in every picture: what is a fill in the region map is an area or a bar elsewhere. The
values were chosen so that any two fills of one theme stay apart under protanopia, deuteranopia and
tritanopia; tests/figures/test_theme.py measures it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import plotly.graph_objects as go

ThemeName = Literal["light", "dark"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Paint:
    """One meaning: as an area, and as the line or border that must be seen on the paper by itself."""

    fill: str
    line: str


@dataclass(frozen=True)
class Theme:
    """The colours of one template.

    Attributes:
        in_use: chunks handed out, and their bytes.
        free: free chunks, their bytes, and how scattered they are (external fragmentation).
        waste: bytes of a chunk in use that nobody asked for (internal fragmentation).
        pool: everything got from the sub-allocator; regions.
        highlight: what this step touched, and where this step is.
        oom: requests that failed.
        limit: the heap's memory limit.
        classes: seven names that have no order, such as labels; the first is `in_use`.
        other: whatever else has no paint of its own.
        ramp: eight values from low to high; on the paper, high stands out most.
    """

    name: ThemeName
    paper: str
    text: str
    muted: str
    grid: str
    in_use: Paint
    free: Paint
    waste: Paint
    pool: Paint
    highlight: str
    oom: str
    limit: str
    classes: tuple[Paint, ...]
    other: Paint
    ramp: tuple[Paint, ...]


def _edged(edge: str, *fills: str) -> tuple[Paint, ...]:
    """Paints of these fills, each with a line that goes `_EDGE` of the way to the colour `edge`."""
    return tuple(Paint(fill, mixed(fill, edge, _EDGE)) for fill in fills)


def mixed(one: str, other: str, share: float) -> str:
    """The colour that is `share` (0..1) of the way from `one` to `other`, as `#RRGGBB`."""
    parts = zip(rgb(one), rgb(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in parts)


def rgb(colour: str) -> tuple[int, int, int]:
    """`#RRGGBB` as three numbers 0..255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


_EDGE = 0.45

LIGHT = Theme(
    name="light",
    paper="#FFFFFF",
    text="#1A1C20",
    muted="#5B606B",
    grid="#E6E8EC",
    in_use=Paint("#2F5FA8", "#1E3F73"),
    free=Paint("#A9D8BA", "#25A06F"),
    waste=Paint("#F0A020", "#B07800"),
    pool=Paint("#D5D8DE", "#666B75"),
    highlight="#D6006E",
    oom="#1A1C20",
    limit="#1A1C20",
    classes=_edged("#000000", "#2F5FA8", "#CCB634", "#F27E62", "#7E0266", "#689CFC", "#975B03", "#5C3C1A"),
    other=Paint("#9FA0A3", mixed("#9FA0A3", "#000000", _EDGE)),
    ramp=_edged(
        "#000000", "#F7BC5D", "#B8AD7E", "#8C959E", "#6978B6", "#505ABE", "#4939AF", "#501782", "#4A0135"
    ),
)

DARK = Theme(
    name="dark",
    paper="#111111",
    text="#ECEEF1",
    muted="#A9AEB8",
    grid="#2C2F35",
    in_use=Paint("#5B9BE6", "#8DBBF2"),
    free=Paint("#23513F", "#35B07F"),
    waste=Paint("#F2B134", "#F2B134"),
    pool=Paint("#3A3E46", "#C4C7CE"),
    highlight="#FF5FA8",
    oom="#ECEEF1",
    limit="#ECEEF1",
    classes=_edged("#FFFFFF", "#5B9BE6", "#E9DE8C", "#DF9935", "#9A4CA2", "#66D4DE", "#AF4309", "#B0955B"),
    other=Paint("#717477", mixed("#717477", "#FFFFFF", _EDGE)),
    ramp=_edged(
        "#FFFFFF", "#5520C0", "#A94795", "#BF6570", "#C6855B", "#C6A450", "#C1C348", "#BCE13C", "#BBFD0B"
    ),
)

THEMES: dict[str, Theme] = {"light": LIGHT, "dark": DARK}


def theme_of(name: str) -> Theme:
    """The theme called `name`.

    Raises:
        ValueError: there is none of that name; the message lists those there are.
    """
    if name not in THEMES:
        raise ValueError(f"no theme {name!r}; there are: {', '.join(THEMES)}")
    return THEMES[name]


@lru_cache
def template(theme: Theme) -> go.layout.Template:
    """The plotly template of `theme`: fonts, paper, grid, hover box, legend."""
    axis = {
        "gridcolor": theme.grid,
        "linecolor": theme.muted,
        "zerolinecolor": theme.grid,
        "tickcolor": theme.muted,
        "ticks": "outside",
        "ticklen": 4,
        "showline": True,
        "title": {"font": {"size": 12, "color": theme.text}, "standoff": 6},
        "tickfont": {"size": 11, "color": theme.text},
        # The margins hold every label: plotly need not measure each to see whether it leaves the page.
        "ticklabeloverflow": "allow",
    }
    return go.layout.Template(
        layout={
            "paper_bgcolor": theme.paper,
            "plot_bgcolor": theme.paper,
            "font": {"family": FONT, "size": 12, "color": theme.text},
            "hoverlabel": {
                "bgcolor": theme.paper,
                "bordercolor": theme.muted,
                "font": {"family": FONT, "size": 12, "color": theme.text},
                "align": "left",
            },
            "xaxis": axis,
            "yaxis": axis,
        }
    )


def translucent(colour: str, opacity: float) -> str:
    """`#RRGGBB` as an rgba() text of this opacity (0..1)."""
    red, green, blue = rgb(colour)
    return f"rgba({red},{green},{blue},{opacity:g})"
