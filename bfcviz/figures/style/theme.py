"""Theme: every colour with its meaning, and the plotly template made of them.

One meaning has one hue in every picture: a fill of the region map is an area or a bar elsewhere. Orange is waste and
red is failure; no class of chunks has either. Any two fills of one theme differ visibly under protanopia,
deuteranopia and tritanopia too; tests/figures/style/test_theme.py measures it.
"""

from dataclasses import dataclass
from typing import Literal

from bfcviz.figures.style.colour_math import mixed

ThemeName = Literal["light", "dark"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Paint:
    """The colours of one meaning: `fill` for areas, `line` for lines and borders, which contrast with the paper."""

    fill: str
    line: str


@dataclass(frozen=True)
class Theme:
    """The colours of one template.

    Attributes:
        in_use: chunks in use, and their bytes.
        free: free chunks, their bytes, and external fragmentation.
        waste: bytes of chunks in use that were not requested; internal fragmentation.
        pool: all memory granted by the sub-allocator; regions.
        highlight: chunks touched by this step, and the line at this step.
        selection: the selected chunk.
        search: the matches of a search.
        fit: free chunks that would take a request.
        oom: failed requests.
        limit: the heap's memory limit.
        classes: seven classes without an order, such as labels; the first is `in_use`. See `shades`.
        other: the class of everything without a colour of its own.
        ramp: eight ordered classes from low to high; high contrasts most with the paper.
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
    selection: str
    search: str
    fit: str
    oom: str
    limit: str
    classes: tuple[Paint, ...]
    other: Paint
    ramp: tuple[Paint, ...]

    @property
    def holders(self) -> tuple[Paint, ...]:
        """The paints of the classes of the colouring by holder: the shades of each hue, then `other`."""
        return (*(paint for hue in range(len(self.classes)) for paint in self.shades(hue)), self.other)

    def shades(self, hue: int) -> tuple[Paint, ...]:
        """The paint `classes[hue]`, a lighter one and a darker one of the same hue."""
        fill = self.classes[hue].fill
        edge = "#FFFFFF" if self.name == "dark" else "#000000"
        return _edged(edge, fill, mixed(fill, "#FFFFFF", _SHADE), mixed(fill, "#000000", _SHADE))


def _edged(edge: str, *fills: str) -> tuple[Paint, ...]:
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
    pool=Paint("#D5D8DE", "#666B75"),
    highlight="#B40F69",
    selection="#1A1C20",
    search="#7800E1",
    fit="#00A54B",
    oom="#E10F0F",
    limit="#1A1C20",
    classes=_edged("#000000", "#2F5FA8", "#7D0078", "#02BAF8", "#CDCD6C", "#539564", "#EDB6E1", "#3422BB"),
    other=Paint("#9FA0A3", mixed("#9FA0A3", "#000000", _EDGE)),
    ramp=_edged(
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
    classes=_edged("#FFFFFF", "#5B9BE6", "#973387", "#13C259", "#9CDDFF", "#81B092", "#37047A", "#3F3F14"),
    other=Paint("#717477", mixed("#717477", "#FFFFFF", _EDGE)),
    ramp=_edged(
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
