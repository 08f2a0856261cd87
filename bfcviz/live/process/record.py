"""Recording a process that knows nothing of it: what `bfcviz record` has done in the process it starts.

One process is recorded: the first in which the framework was imported. Its children, whether forked, spawned or
started as programs, run as ever; they leave word that they were not recorded.
"""

import atexit
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bfcviz.errors import FileError, FolderTaken
from bfcviz.events.storage.recording import Recording
from bfcviz.events.storage.recording_files import remove_files
from bfcviz.frameworks.wish import Wish, resolve, way_of
from bfcviz.live import adapters
from bfcviz.live.capture import marks
from bfcviz.live.numpy import api
from bfcviz.live.process.startup.sitecustomize import UNWRITTEN, tell
from bfcviz.live.shared.heap_provider import HeapProvider

Order = Mapping[str, Any]
"""What `bfcviz record` asks for: `folder`; `way` (None: the usual one) and its `options`; `told`, where reports go."""

CLAIM: Final = ".process"
"""A file in a folder of TensorFlow's windows: the number of the one process that records there."""


class Recorded:
    """This process while it is recorded; ended by Python's own end, or by `end`.

    Attributes:
        source: what is served or observed.
        recording: where it goes; None where the source sees to that.
    """

    def __init__(self, order: Order, source: HeapProvider, recording: Recording | None) -> None:
        self.source = source
        self.recording = recording
        self._order = dict(order)
        self._process = os.getpid()
        source.__enter__()
        self._handler = api.get_handler()
        marks.begin(source)
        atexit.register(self.end)

    def end(self) -> None:
        """Let the framework go, and mark the recording as complete; nothing in a forked process."""
        atexit.unregister(self.end)
        if os.getpid() != self._process:
            return
        marks.end(self.source)
        if api.get_handler() is not self._handler:
            tell(
                self._order, "left out", "what was done outside the thread or task that first imported NumPy"
            )
        try:
            self.source.close()
        finally:
            for name in self.source.names[1:]:
                tell(self._order, "left out", name)
            if self.recording is not None:
                self._close(self.recording)

    def _close(self, recording: Recording) -> None:
        """End the recording. Where it cannot be, `bfcviz record` says so: the program's output is its own."""
        try:
            recording.close()
        except (FileError, OSError) as error:
            tell(self._order, UNWRITTEN, str(error))


def begin(order: Order, framework: str) -> bool:
    """Record this process from now on, until Python ends; False where another process is recorded already.

    Raises:
        LiveError: bfcviz knows no such framework, way or option.
        BfcvizError: it cannot be served or observed.
    """
    wish = resolve(framework, order["way"], order["options"])
    way = way_of(wish)
    if way.option("capture") is not None and "capture" not in wish.options:
        wish = wish._replace(options={**wish.options, "capture": "label"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what bfcviz has to say is said by `bfcviz record`
        try:
            recorded = _recorded(order, adapters.complete(wish)) if way.has_heaps else _files(order, wish)
        except (FolderTaken, FileExistsError):
            return False
    _current.append(recorded)
    os.register_at_fork(after_in_child=lambda: tell(dict(order), "other"))
    return True


_current: list[Recorded] = []
"""Kept, with the memory that the framework uses, until the process ends."""


def _recorded(order: Order, wish: Wish) -> Recorded:
    """Begin a recording, and what fills it; where that fails, nothing is left of either."""
    command = [word.encode("utf-8", "backslashreplace").decode() for word in sys.orig_argv]
    details = {**adapters.details_of(wish), "command": command, "process": os.getpid()}
    recording = Recording(order["folder"], [adapters.pool_of(wish)], details=details)
    try:
        return Recorded(order, adapters.source_of(wish, recording), recording)
    except BaseException:
        with suppress(FileError):
            recording.close()
        remove_files(recording.folder)
        raise


def _files(order: Order, wish: Wish) -> Recorded:
    """Begin what writes files of its own to the folder, for one process."""
    folder = Path(order["folder"])
    claim = folder / CLAIM
    with claim.open("x", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    try:
        return Recorded(order, adapters.source_of(wish, folder=folder), None)
    except BaseException:
        claim.unlink()
        raise
