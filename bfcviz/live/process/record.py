"""Record this process from the inside: the part of `bfcviz record` that runs in the process it starts.

It records one process: the first that imports the framework. The children of that process, whether forked, spawned or
started as programs, run normally; they report that they were not recorded.
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
from bfcviz.frameworks.watch_request import WatchRequest, resolve, way_of
from bfcviz.live import providers
from bfcviz.live.capture import marks
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.numpy import numpy_api
from bfcviz.live.process.startup.sitecustomize import UNWRITTEN, tell

Order = Mapping[str, Any]
"""The request of `bfcviz record`: `folder`; `way` (None: the usual one), `options`; `told`: the folder for reports."""

CLAIM: Final = ".process"
"""A file in a folder of TensorFlow's windows: the number of the process that records there."""


class ProcessRecording:
    """The recording of this process; ends when Python exits, or by `end`.

    Attributes:
        source: serves or observes the framework.
        recording: receives the events; None: the source writes its own files.
    """

    def __init__(self, order: Order, source: HeapProvider, recording: Recording | None) -> None:
        self.source = source
        self.recording = recording
        self._order = dict(order)
        self._process = os.getpid()
        source.__enter__()
        self._handler = numpy_api.get_handler()
        marks.begin(source)
        atexit.register(self.end)

    def end(self) -> None:
        """End serving or observing, and mark the recording as complete; does nothing in a forked process."""
        atexit.unregister(self.end)
        if os.getpid() != self._process:
            return
        marks.end(self.source)
        if numpy_api.get_handler() is not self._handler:
            tell(
                self._order, "left out", "allocations outside of the thread or task that first imported NumPy"
            )
        try:
            self.source.close()
        finally:
            for name in self.source.names[1:]:
                tell(self._order, "left out", name)
            if self.recording is not None:
                self._close(self.recording)

    def _close(self, recording: Recording) -> None:
        """Close the recording. `bfcviz record` reports an error here, so that the program's output stays unchanged."""
        try:
            recording.close()
        except (FileError, OSError) as error:
            tell(self._order, UNWRITTEN, str(error))


def begin(order: Order, framework: str) -> bool:
    """Record this process from now on, until Python exits; False: another process is recorded already.

    Raises:
        LiveError: the framework, way or option is unknown.
        BfcvizError: the framework cannot be served or observed.
    """
    request = resolve(framework, order["way"], order["options"])
    way = way_of(request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `bfcviz record` prints the messages of bfcviz
        try:
            recorded = (
                _recorded(order, providers.complete(request)) if way.has_heaps else _files(order, request)
            )
        except (FolderTaken, FileExistsError):
            return False
    recordings.append(recorded)
    os.register_at_fork(after_in_child=lambda: tell(dict(order), "other"))
    return True


recordings: Final[list[ProcessRecording]] = []
"""What `begin` began in this process, at most one; keeps the framework's memory until the process ends."""


def _recorded(order: Order, request: WatchRequest) -> ProcessRecording:
    """Begin a recording and its source; on failure remove both."""
    command = [word.encode("utf-8", "backslashreplace").decode() for word in sys.orig_argv]
    details = {**providers.details_of(request), "command": command, "process": os.getpid()}
    recording = Recording(order["folder"], [providers.pool_of(request)], details=details)
    try:
        return ProcessRecording(order, providers.source_of(request, recording), recording)
    except BaseException:
        with suppress(FileError):
            recording.close()
        remove_files(recording.folder)
        raise


def _files(order: Order, request: WatchRequest) -> ProcessRecording:
    """Begin a source that writes its own files to the folder, for one process."""
    folder = Path(order["folder"])
    claim = folder / CLAIM
    with claim.open("x", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    try:
        return ProcessRecording(order, providers.source_of(request, folder=folder), None)
    except BaseException:
        claim.unlink()
        raise
