"""`bfcviz.watch`: record and show the heaps of frameworks while the code in a `with` runs.

Enters: the names of frameworks, and options (a folder to record to, alerts). Leaves: a `Watch` (`session`) with its
traces and its `dashboard`, the report of a notebook cell (`report`, `magics`), and the report of a request that failed
(`oom_report`). `plan` chooses frameworks and ways, `sources` opens the heap providers of `bfcviz.live`,
`alert_monitor` checks the recorded events against the alerts. May import everything but cli.
"""

from bfcviz.watching.alerts import Alarm, Alert
from bfcviz.watching.session import Watch, watch

__all__ = ["Alarm", "Alert", "Watch", "watch"]
