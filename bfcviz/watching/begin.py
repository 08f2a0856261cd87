"""bfcviz.watch: a framework's memory, watched while a `with` runs.

::

    with bfcviz.watch(numpy=True, limit="512MiB") as w:
        train()
    w.trace      # the recording
    w.dashboard  # the view

There are two ways. *Serve*: our own heap becomes the framework's allocator, so every split, merge and extension is
seen; arrays that outlive the `with` keep their memory. *Observe*: the framework keeps its own allocator, and what it
tells is recorded. `w.says` tells which, and so does the dashboard. NumPy and CuPy are served unless told otherwise,
PyTorch, RMM and JAX observed; NumPy can only be served, JAX only be observed.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from bfcviz.events.window import KEEP
from bfcviz.units import parse_bytes
from bfcviz.watching.alerts import Alert, check_alerts
from bfcviz.watching.frameworks import Asked, Capture, check_capture, check_limit, plan
from bfcviz.watching.settings import Settings
from bfcviz.watching.watched import Watch


def watch(  # noqa: PLR0913  every framework by its name, and how
    *,
    numpy: Asked = None,
    cupy: Asked = None,
    torch: Asked = None,
    rmm: Asked = None,
    jax: Asked = None,
    limit: int | str | None = None,
    capture: Capture | None = None,
    path: str | os.PathLike[str] | None = None,
    dashboard: bool = True,
    alerts: Iterable[Alert] = (),
    keep: int = KEEP,
) -> Watch:
    """Watch frameworks' memory in a `with`: *serve* them from our own heap, or *observe* what they tell of theirs.

    Where no framework is asked for, CuPy is served if there is a GPU, NumPy otherwise, and PyTorch is observed if it
    is at work on a GPU.

    Args:
        numpy: True; the way, "serve" or "observe"; or a mapping for its own function in `bfcviz.live`. It is served.
        cupy: likewise. Served by default.
        torch: likewise. Observed by default.
        rmm: likewise. Observed by default.
        jax: likewise. It is observed.
        limit: what a heap that serves may grow to, in bytes or as text; beyond it the framework runs out of memory.
        capture: what is recorded with each allocation: `nothing`, the `label` in force, the Python `stack` as well,
            or `Stacks`; `bfcviz.live.stacks` tells the cost. By default the label, of PyTorch observed the stack.
        path: a new folder to record to, with several frameworks one for each in it. By default, and of the heaps of
            further devices and streams, the newest events are kept in memory.
        dashboard: in a notebook: display the live view under the cell.
        alerts: thresholds; see `Alert`.
        keep: events kept of each heap where nothing is recorded to disk; 64 bytes each.

    Raises:
        LiveError: what was asked for cannot be; when the `with` begins, also where a framework cannot be watched
            here. It is then as it was.
        ValueError: a limit that is no size.
        FileError: when the `with` begins: the folder holds something already.
    """
    asked = {"numpy": numpy, "cupy": cupy, "torch": torch, "rmm": rmm, "jax": jax}
    found = plan(asked)
    most = None if limit is None else parse_bytes(limit)
    check_limit(found.wishes, most)
    check_capture(found.wishes, capture)
    folder = None if path is None else Path(path)
    return Watch(Settings(found, most, capture, folder, dashboard, check_alerts(alerts), keep))
