"""`bfcviz.watch`: a framework's heap, recorded and shown while the code in a `with` runs.

Enters: the names of frameworks, and what to do meanwhile (a folder to record to, alerts). Leaves: a `Watch` with its
traces and its dashboard, reports of a cell (`magics`), and what is shown where memory runs out (`failure`).
`frameworks` and `settings` make the sources of `bfcviz.live`, `lookout` and `guard` look at what they wrote, `board` is
the dashboard. May import everything but cli.
"""

from bfcviz.watching.alerts import Alarm, Alert
from bfcviz.watching.session import Watch
from bfcviz.watching.start_watch import watch

__all__ = ["Alarm", "Alert", "Watch", "watch"]
