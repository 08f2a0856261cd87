"""Plot: plotly's FigureWidget, told not to answer every picture with a description of it.

After each update its page compares all traces with their defaults, and sends what it found to Python (50 kB for a
dashboard), where it is merged in and echoed. Nobody here asks for it, and it takes as long as a third of the
drawing, some of it in the kernel beside the workload.
"""

import re

import plotly.graph_objects as go

_TELLS = re.compile(r"(_send(?:TraceDeltas|LayoutDelta)\(\w+\)\{)(?!return)")


class Plot(go.FigureWidget):  # type: ignore[misc]
    """A FigureWidget whose page only draws."""

    _esm = _TELLS.sub(r"\1return;", str(go.FigureWidget._esm))  # noqa: SLF001  where anywidget has the script
