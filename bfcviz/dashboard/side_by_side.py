"""side_by_side: several figures in one row of a notebook, such as the maps of two heaps."""

import ipywidgets as widgets
import plotly.graph_objects as go

from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.panels.figure_widget import OneWayFigureWidget
from bfcviz.errors import BfcvizError


def side_by_side(*figures: go.Figure) -> widgets.HBox:
    """Show figures beside each other; the row breaks where the page is too narrow for all.

    ::

        side_by_side(*(bfcviz.draw("region_map", trace).update_layout(width=410) for trace in (a, b)))

    Plotly's script is sent to the page once for all figures of the notebook.

    Args:
        figures: each with a width, in pixels; without one it takes a row of its own.

    Raises:
        BfcvizError: one of them is not a figure, or there is none.
    """
    wrong = [type(each).__name__ for each in figures if not isinstance(each, go.Figure)]
    if wrong or not figures:
        given = f"{wrong[0]} was given" if wrong else "nothing was given"
        raise BfcvizError(
            f"side_by_side shows figures, and {given}: give each figure as an argument of its own"
        )
    shown = [OneWayFigureWidget(figure) for figure in figures]
    row = widgets.HBox(shown, layout={"flex_flow": "row wrap"}, _view_count=0)
    widget_lifetime.free_unseen(row)
    return row
