"""`bfcviz.watch`: record and show the heaps of frameworks while the code in a `with` runs.

Enters: the names of frameworks, and options (a folder to record to, alerts). Leaves: a `Watch` (`watch_session`) with
its traces and its `dashboard`, and the reports of a notebook cell (`magics`) and of a request that failed
(`watch_reports`). `watch_plan` chooses frameworks and ways, `make_watch_source` makes the heap providers of
`bfcviz.live`, `AlertMonitor` checks the recorded events against the alerts. May import everything but cli.
"""

from bfcviz.watching.alerts import Alarm, Alert
from bfcviz.watching.watch_session import Watch, watch

__all__ = ["Alarm", "Alert", "Watch", "watch"]
