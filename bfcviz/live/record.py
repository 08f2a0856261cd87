"""Recording a process that knows nothing of it: what `bfcviz record` has done in the process it starts.

One process is recorded: the first in which the framework was imported. Its children, whether forked, spawned or
started as programs, run as ever; they leave word that they were not recorded.
"""

import atexit
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from bfcviz.errors import FileError, LiveError
from bfcviz.events.origin import Pool
from bfcviz.events.recording import Recording
from bfcviz.live import marks, numpy
from bfcviz.live.startup.sitecustomize import tell

Order = Mapping[str, Any]
"""What `bfcviz record` asks for: `folder`, `limit` and `small` in bytes, `capture`; `told`: where to leave word."""


class Source(marks.Marked, AbstractContextManager["Source"], Protocol):
    """What every module of `bfcviz.live` makes of a framework."""


class Recorded:
    """This process while it is recorded; ended by Python's own end, or by `end`.

    Attributes:
        source: what is served or observed.
        recording: where it goes.
    """

    def __init__(self, source: Source, recording: Recording) -> None:
        self.source = source
        self.recording = recording
        self._process = os.getpid()
        source.__enter__()
        marks.begin(source)
        atexit.register(self.end)

    def end(self) -> None:
        """Let the framework go, and mark the recording as complete; nothing in a forked process."""
        atexit.unregister(self.end)
        if os.getpid() == self._process:
            marks.end(self.source)
            self.source.__exit__(None, None, None)
            self.recording.close()


def begin(order: Order, framework: str) -> bool:
    """Record this process from now on, until Python ends; False where another process is recorded already.

    Raises:
        LiveError: bfcviz knows no such framework.
        BfcvizError: it cannot be served or observed.
    """
    if framework not in _SOURCES:
        raise LiveError(f"{framework} cannot be recorded; choose one of {', '.join(_SOURCES)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what bfcviz has to say is said by `bfcviz record`
        try:
            recorded = _SOURCES[framework](order)
        except FileError:
            if not os.listdir(order["folder"]):  # noqa: PTH208  taken by nobody: it cannot be written
                raise
            return False
    _current.append(recorded)
    os.register_at_fork(after_in_child=lambda: tell(dict(order), "other"))
    return True


_current: list[Recorded] = []
"""Kept, with the memory that the framework uses, until the process ends."""


def _into(order: Order, pool: Pool, way: str, make: Callable[[Recording], Source]) -> Recorded:
    """Begin a recording and what `make` gives for it; where that fails, nothing is left of either."""
    command = [word.encode("utf-8", "backslashreplace").decode() for word in sys.orig_argv]
    details = {"way": way, "command": command, "process": os.getpid()}
    recording = Recording(order["folder"], [pool], details=details)
    try:
        return Recorded(make(recording), recording)
    except BaseException:
        recording.close()
        for file in recording.folder.iterdir():
            file.unlink()
        raise


def _numpy(order: Order) -> Recorded:
    limit = numpy.physical_memory() if order["limit"] is None else order["limit"]

    def serve(recording: Recording) -> numpy.Served:
        return numpy.serve_numpy(limit, log=recording, small=order["small"], capture=order["capture"])

    return _into(order, Pool("numpy", limit, vars(numpy.OPTIONS)), "serve", serve)


_SOURCES: Final[dict[str, Callable[[Order], Recorded]]] = {"numpy": _numpy}
