"""Theme: every colour with its meaning, and the plotly template made of them.

One meaning has one hue in every picture: a fill of the region map is an area or a bar elsewhere. Orange is waste and
red is failure; no class of chunks has either. Any two fills of one theme differ visibly under protanopia,
deuteranopia and tritanopia too; tests/unit/figures/test_theme.py measures it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

# ------------------------------------------------------------------------------
# Computes with colours: parts, mixtures, opacity, contrast.


def mixed(one: str, other: str, share: float) -> str:
    """The colour of a theme that is `share` (0..1) of the way from `one` to `other`, as `#RRGGBB`."""
    parts = zip(rgb(one), rgb(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in parts)


def rgb(colour: str) -> tuple[int, int, int]:
    """A theme's colour `#RRGGBB` as red, green, blue, each 0..255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def contrasting(fill: str) -> str:
    """Black or white: whichever can be read on a theme's `fill`."""
    red, green, blue = (_linear_colour_channel(value / 255) for value in rgb(fill))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > _MIDDLE else "#FFFFFF"


_MIDDLE = 0.179  # the luminance that contrasts equally with black and white (WCAG)


def _linear_colour_channel(value: float) -> float:
    low, slope = 0.04045, 12.92
    return value / slope if value <= low else float(((value + 0.055) / 1.055) ** 2.4)


def translucent(colour: str, opacity: float) -> str:
    """A theme's colour `#RRGGBB` as an rgba() string with this opacity (0..1)."""
    red, green, blue = rgb(colour)
    return f"rgba({red},{green},{blue},{opacity:g})"


# ------------------------------------------------------------------------------
# The two themes.

ThemeName = Literal["light", "dark"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Paint:
    """The colours of one meaning: `fill` for areas, `line` for lines and borders, which contrast with the paper."""

    fill: str
    line: str

    @property
    def edgeless(self) -> "Paint":
        """The same fill with lines of its colour: narrow shapes are mostly line."""
        return Paint(self.fill, self.fill)


@dataclass(frozen=True)
class Theme:
    """The colours of one template."""

    name: ThemeName
    paper: str
    text: str
    muted: str
    grid: str
    in_use: Paint  # chunks in use, and their bytes
    free: Paint  # free chunks, their bytes, and external fragmentation
    waste: Paint  # bytes of chunks in use that were not requested; internal fragmentation
    pool: Paint  # all memory granted by the sub-allocator; regions
    highlight: str  # chunks touched by this step, and the line at this step
    selection: str  # the selected chunk
    search: str  # the matches of a search
    fit: str  # free chunks that would take a request
    oom: str  # failed requests
    limit: str  # the heap's memory limit
    # seven classes without an order, such as labels; the first is `in_use`. See `shades`.
    classes: tuple[Paint, ...]
    other: Paint  # the class of everything without a colour of its own
    ramp: tuple[Paint, ...]  # eight ordered classes from low to high; high contrasts most with the paper

    @property
    def holders(self) -> tuple[Paint, ...]:
        """The paints of the classes of the colouring by holder: the shades of each hue, then `other`."""
        return (*(paint for hue in range(len(self.classes)) for paint in self.shades(hue)), self.other)

    @property
    def edge(self) -> str:
        """The colour of the line around any fill: over it, it looks like the paint's `line`."""
        return translucent(self._contrast, _EDGE)

    @property
    def _contrast(self) -> str:
        return "#FFFFFF" if self.name == "dark" else "#000000"

    def shades(self, hue: int) -> tuple[Paint, ...]:
        """The paint `classes[hue]`, a lighter one and a darker one of the same hue."""
        fill, edge = self.classes[hue].fill, self._contrast
        return _edged_paints(edge, fill, mixed(fill, "#FFFFFF", _SHADE), mixed(fill, "#000000", _SHADE))


def _edged_paints(edge: str, *fills: str) -> tuple[Paint, ...]:
    """A paint for each fill; its line is the fill mixed with the share `_EDGE` of the colour `edge`."""
    return tuple(Paint(fill, mixed(fill, edge, _EDGE)) for fill in fills)


_EDGE = 0.45
_SHADE = 0.38

LIGHT = Theme(
    name="light",
    paper="#FFFFFF",
    text="#1A1C20",
    muted="#5B606B",
    grid="#E6E8EC",
    in_use=Paint("#2F5FA8", "#1E3F73"),
    free=Paint("#A9D8BA", "#25A06F"),
    waste=Paint("#F0A020", "#B07800"),
    pool=Paint("#D5D8DE", "#80858F"),
    highlight="#A8005B",
    selection="#1A1C20",
    search="#7800E1",
    fit="#00A54B",
    oom="#E10F0F",
    limit="#1A1C20",
    classes=_edged_paints(
        "#000000", "#2F5FA8", "#7D0078", "#02BAF8", "#CDCD6C", "#539564", "#EDB6E1", "#3422BB"
    ),
    other=Paint("#9FA0A3", mixed("#9FA0A3", "#000000", _EDGE)),
    ramp=_edged_paints(
        "#000000", "#71E5FE", "#6FC4D0", "#69A5A3", "#747CA5", "#7A49BB", "#6C12AF", "#4A1A63", "#26161F"
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
    highlight="#F01EC3",
    selection="#ECEEF1",
    search="#F0E100",
    fit="#3CE196",
    oom="#D22D0F",
    limit="#ECEEF1",
    classes=_edged_paints(
        "#FFFFFF", "#5B9BE6", "#973387", "#13C259", "#9CDDFF", "#81B092", "#37047A", "#3F3F14"
    ),
    other=Paint("#717477", mixed("#717477", "#FFFFFF", _EDGE)),
    ramp=_edged_paints(
        "#FFFFFF", "#230979", "#55297B", "#79477C", "#7E7182", "#6C9D88", "#6BC38C", "#ACDF8B", "#E5FB89"
    ),
)

TAKER = 0.7
"""How much of `fit` is mixed into the fill of free chunks that would take the request."""

THEMES: dict[str, Theme] = {"light": LIGHT, "dark": DARK}


def theme_of(name: str) -> Theme:
    """The theme called `name`.

    Raises:
        ValueError: the name is unknown; the message lists all names.
    """
    if name not in THEMES:
        raise ValueError(f"no theme {name!r}; there are: {', '.join(THEMES)}")
    return THEMES[name]


# ------------------------------------------------------------------------------
# The plotly template of a theme.


@lru_cache
def axis_style(theme: Theme) -> dict[str, Any]:
    """What all axes of a theme share, in plotly's terms."""
    return {
        "gridcolor": theme.grid,
        "linecolor": theme.muted,
        "zerolinecolor": theme.grid,
        "tickcolor": theme.muted,
        "ticks": "outside",
        "ticklen": 4,
        "showline": True,
        "title": {"font": {"size": 12, "color": theme.text}, "standoff": 6},
        "tickfont": {"size": 11, "color": theme.text},
        # The margins have room for every label: plotly need not measure them.
        "ticklabeloverflow": "allow",
    }


@lru_cache
def template(theme: Theme) -> dict[str, Any]:
    """The plotly template of `theme`: fonts, paper, grid, hover box, legend; plain, which plotly need not check."""
    axis = axis_style(theme)
    return {
        "layout": {
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
    }


# ------------------------------------------------------------------------------
# The colours of the themes as CSS variables, for HTML that follows the theme of the page around it.


def variables(theme: Theme) -> str:
    """A theme as CSS: the declarations of all its colours; the classes are `--class-0` and so on.

    `--if-light` and `--if-dark` are values of `display`, for what is there once for each theme.
    """
    colours = {
        "paper": theme.paper,
        "text": theme.text,
        "muted": theme.muted,
        "grid": theme.grid,
        "in-use": theme.in_use.fill,
        "in-use-line": theme.in_use.line,
        "free": theme.free.fill,
        "free-line": theme.free.line,
        "waste": theme.waste.fill,
        "pool": theme.pool.fill,
        "pool-line": theme.pool.line,
        "mark": theme.highlight,
        "oom": theme.oom,
        "other": theme.other.fill,
    }
    colours |= {f"class-{number}": paint.fill for number, paint in enumerate(theme.classes)}
    colours |= {f"if-{name}": "block" if name == theme.name else "none" for name in ("light", "dark")}
    return f"color-scheme:{theme.name};" + "".join(f"--{name}:{value};" for name, value in colours.items())


def holder_variables(theme: Theme) -> str:
    """A theme as CSS: the declarations of the colours by holder: `--holder-0` and so on."""
    return "".join(f"--holder-{number}:{paint.fill};" for number, paint in enumerate(theme.holders))


def holder_rules(around: str = "") -> str:
    """A theme as CSS: rules that paint the elements of the classes `holder-0` and so on, in a selector."""
    return "".join(
        f"{around} .holder-{number}{{fill:var(--holder-{number});background:var(--holder-{number})}}"
        for number in range(len(LIGHT.holders))
    )


def following(selector: str, declared: Callable[[Theme], str] = variables) -> str:
    """A theme as CSS: rules that give an element JupyterLab's theme, and elsewhere the reader's preference."""
    light, dark = declared(LIGHT), declared(DARK)
    return (
        f"{selector}{{{light}}}"
        f'[data-jp-theme-light="false"] {selector}{{{dark}}}'
        f"@media (prefers-color-scheme:dark){{body:not([data-jp-theme-light]) {selector}{{{dark}}}}}"
    )
