"""bfcviz.watch."""

import os
from collections.abc import Iterable
from pathlib import Path

from bfcviz.events.window import KEEP
from bfcviz.units import parse_bytes
from bfcviz.watching.alerts import Alert
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
    """Watch the memory of whatever runs in a `with`, while it runs and afterwards.

    ::

        with bfcviz.watch(numpy=True, limit="512MiB") as w:
            train()
        w.trace      # the recording
        w.dashboard  # the view

    There are two ways. *Serve*: our own heap becomes the framework's allocator, so every split, merge and extension
    is seen; arrays that outlive the `with` keep their memory. *Observe*: the framework keeps its own allocator, and
    what it tells is recorded. `w.says` tells which, and so does the dashboard.

    Args:
        numpy: whether to watch NumPy; it is served.
        cupy: CuPy; served, or "observe".
        torch: PyTorch; observed, or "serve".
        rmm: RMM, and all that has its memory from there; observed, or "serve".
        jax: JAX; observed. Where none of the five is asked for, CuPy is served if there is a GPU, NumPy otherwise;
            and PyTorch is observed if it is at work on a GPU. A mapping instead of True goes to the framework's
            own function in `bfcviz.live` as its arguments.
        limit: what a heap that serves may grow to, in bytes or as text; beyond it the framework runs out of memory.
        capture: what is recorded with each allocation: `nothing`; the `label` in force; the Python `stack` as well;
            or `Stacks`, which say what frames. What each costs is told in `bfcviz.live.stacks`. By default the
            label, and for PyTorch observed, which knows none of ours, the stack.
        path: a new folder to record to, from which everything can be opened again; with several frameworks it gets
            a folder for each. By default the newest events are kept in memory, as they are of the heaps of further
            devices and streams.
        dashboard: in a notebook: display the live view under the cell.
        alerts: thresholds; see `Alert`.
        keep: events kept of each heap, where nothing is recorded to disk; 64 bytes each.

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
    return Watch(Settings(found, most, capture, folder, dashboard, tuple(alerts), keep))
