"""`bfcviz.watch`: watch the memory of frameworks while a `with` runs.

::

    with bfcviz.watch(numpy=True, limit="512MiB") as w:
        train()
    w.trace      # the recording
    w.dashboard  # the view

There are two ways. *Serve*: our own heap becomes the framework's allocator, so every split, merge and extension is
recorded; arrays that outlive the `with` keep their memory. *Observe*: the framework keeps its own allocator, and what
it reports is recorded. `w.says` and the dashboard name the way. By default NumPy and CuPy are served, and PyTorch, RMM
and JAX are observed. NumPy can only be served, JAX can only be observed.
"""

import os
from collections.abc import Iterable
from inspect import Parameter, Signature, signature
from pathlib import Path

from bfcviz.events.sliding_window import KEEP
from bfcviz.frameworks.supported_frameworks import WATCHABLE
from bfcviz.units import parse_bytes
from bfcviz.watching.alerts import Alert, check_alerts
from bfcviz.watching.chosen_frameworks import Asked, Capture, WatchSettings, plan
from bfcviz.watching.session import Watch


def watch(  # noqa: PLR0913  the options, and every framework by its name
    *,
    limit: int | str | None = None,
    capture: Capture | None = None,
    path: str | os.PathLike[str] | None = None,
    dashboard: bool = True,
    alerts: Iterable[Alert] = (),
    keep: int = KEEP,
    **frameworks: Asked,
) -> Watch:
    """Watch frameworks' memory in a `with`: *serve* them from our own heap, or *observe* what they report.

    Without a framework, CuPy is served if there is a GPU, else NumPy; PyTorch is also observed if it is imported and
    has a GPU.

    Args:
        frameworks: `numpy`, `cupy`, `torch`, `rmm` or `jax`: True for the usual way; "serve" or "observe"; or a mapping
            with options of its function in `bfcviz.live`, and optionally `way`: `torch={"devices": [0]}`. Without
            `way` the options choose it: `torch={"mechanism": "replace"}` serves. False: do not watch it.
        limit: how large a heap that serves may grow, in bytes or as text; beyond it the framework is out of memory.
        capture: what is recorded with each allocation: `nothing`, the current `label`, the Python `stack` as well, or
            `Stacks`; `bfcviz.live.capture.stacks` states the cost. By default the stack, where it can be read: not
            if bfcviz is not compiled, PyTorch is served, or RMM is observed by its log.
        path: a new folder to record to, with a subfolder for each framework if there are several. By default, and for
            the heaps of further devices and streams, the newest events are kept in memory.
        dashboard: in a notebook: display the live view under the cell.
        alerts: thresholds; see `Alert`.
        keep: events kept of each heap where nothing is recorded to disk; 64 bytes each.

    Raises:
        LiveError: the arguments contradict each other or are unknown. When the `with` begins, also: a framework cannot
            be watched here; it stays unchanged.
        ValueError: the limit is not a size.
        FileError: when the `with` begins: the folder is not empty.
    """
    most = None if limit is None else parse_bytes(limit, "limit")
    found = plan(frameworks, most, capture)
    folder = None if path is None else Path(path)
    return Watch(WatchSettings(found, folder, dashboard, check_alerts(alerts), keep))


def _signature() -> Signature:
    """A signature that names every framework, for `help` and completion."""
    own = signature(watch)
    kind = Parameter.KEYWORD_ONLY
    frameworks = [Parameter(name, kind, default=None, annotation=Asked) for name in WATCHABLE]
    options = [each for each in own.parameters.values() if each.kind is kind]
    return own.replace(parameters=[*frameworks, *options])


watch.__signature__ = _signature()  # type: ignore[attr-defined]
