"""ipywidgets around the figures. Input: a trace. Output: an interactive view in the notebook.

`Inspector` steps through a trace and gets everything it shows from the model. `LiveDashboard` follows an active heap
with an Inspector. `side_by_side` shows several figures in one row. May import figures, model and what those import.
Only figures/ and dashboard/ import plotly; only dashboard/, and what watching/ adds to it, imports ipywidgets.
"""

from bfcviz.extras import needed

with needed("a dashboard", "ipywidgets, anywidget, plotly and pyarrow", "widgets"):
    import anywidget  # noqa: F401
    import ipywidgets  # noqa: F401
    import plotly  # noqa: F401
    import pyarrow as pa  # noqa: F401

from bfcviz.dashboard.figure_widget import side_by_side
from bfcviz.dashboard.inspector import Inspector
from bfcviz.dashboard.live_dashboard import LiveDashboard

__all__ = ["Inspector", "LiveDashboard", "side_by_side"]
