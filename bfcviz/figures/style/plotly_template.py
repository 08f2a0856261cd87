"""The plotly template of a theme."""

from functools import lru_cache

import plotly.graph_objects as go

from bfcviz.figures.style.theme import FONT, Theme


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
        # The margins have room for every label: plotly need not measure them.
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
