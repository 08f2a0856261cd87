"""side_by_side: several figures in one row of a notebook, such as the maps of two heaps."""

import ipywidgets as widgets
import plotly.graph_objects as go

from bfcviz.dashboard.panels.figure_widget import OneWayFigureWidget


def side_by_side(*figures: go.Figure) -> widgets.HBox:
    """Show figures beside each other; the row breaks where the page is too narrow for all.

    Plotly's script is sent to the page once for all figures of the notebook.

    Args:
        figures: as `bfcviz.draw` makes them; each keeps the width of its layout, in pixels.
    """
    return widgets.HBox([OneWayFigureWidget(figure) for figure in figures], layout={"flex_flow": "row wrap"})
