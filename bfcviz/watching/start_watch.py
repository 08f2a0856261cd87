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
from inspect import Parameter, Signature, signature
from pathlib import Path

from bfcviz.events.live_window import KEEP
from bfcviz.frameworks.table import WATCHABLE
from bfcviz.units import parse_bytes
from bfcviz.watching.alerts import Alert, check_alerts
from bfcviz.watching.plan import Asked, Capture, plan
from bfcviz.watching.session import Watch
from bfcviz.watching.sources import Settings


def watch(  # noqa: PLR0913  how, and every framework by its name
    *,
    limit: int | str | None = None,
    capture: Capture | None = None,
    path: str | os.PathLike[str] | None = None,
    dashboard: bool = True,
    alerts: Iterable[Alert] = (),
    keep: int = KEEP,
    **frameworks: Asked,
) -> Watch:
    """Watch frameworks' memory in a `with`: *serve* them from our own heap, or *observe* what they tell of theirs.

    Where no framework is asked for, CuPy is served if there is a GPU, NumPy otherwise, and PyTorch is observed if it
    is at work on a GPU.

    Args:
        frameworks: `numpy`, `cupy`, `torch`, `rmm` or `jax`: True for the usual way; "serve" or "observe"; or a mapping
            with the options of its function in `bfcviz.live`, and maybe `way`: `torch={"devices": [0]}`. Without `way`
            the options choose it: `torch={"mechanism": "replace"}` serves. False: it is not watched.
        limit: what a heap that serves may grow to, in bytes or as text; beyond it the framework runs out of memory.
        capture: what is recorded with each allocation: `nothing`, the `label` in force, the Python `stack` as well,
            or `Stacks`; `bfcviz.live.capture.stacks` tells the cost. By default the label; the stack where PyTorch is
            observed.
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
    most = None if limit is None else parse_bytes(limit, "limit")
    found = plan(frameworks, most, capture)
    folder = None if path is None else Path(path)
    return Watch(Settings(found, folder, dashboard, check_alerts(alerts), keep))


def _signature() -> Signature:
    """Name every framework to `help` and to completion."""
    own = signature(watch).parameters.values()
    named = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Asked) for name in WATCHABLE]
    return signature(watch).replace(
        parameters=[*named, *(each for each in own if each.kind is Parameter.KEYWORD_ONLY)]
    )


watch.__signature__ = _signature()  # type: ignore[attr-defined]
