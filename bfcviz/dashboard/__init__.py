"""ipywidgets around the figures: a trace comes in, a view in the notebook comes out.

`Inspector` steps through a trace and asks the model for everything it shows; `LiveDashboard` is the same for a
heap at work. May import figures, model and what those import; besides figures the only place for plotly, and
altogether the only one for ipywidgets.
"""

from bfcviz.dashboard.inspector import Inspector
from bfcviz.dashboard.live import LiveDashboard

__all__ = ["Inspector", "LiveDashboard"]
