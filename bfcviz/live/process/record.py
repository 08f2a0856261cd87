"""Record this process from the inside: the part of `bfcviz record` that runs in each Python process.

Every process that imports the framework has a recording of its own; `process_folder` chooses where. Forked processes
import nothing: those of multiprocessing start to record when they begin, if the framework's memory is on the host (a
forked process cannot use CUDA again). Other forked processes run normally, and report that they were not recorded.
"""

import atexit
import os
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bfcviz.errors import FileError
from bfcviz.events.labels import without_surrogates
from bfcviz.events.storage.recording import Recording
from bfcviz.events.storage.recording_files import remove_files
from bfcviz.frameworks.watch_request import WatchRequest, resolve, way_of
from bfcviz.live import providers
from bfcviz.live.capture import marks
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.numpy import numpy_api
from bfcviz.live.process.masked_command import without_secrets
from bfcviz.live.process.process_folder import begin_recording, is_launcher
from bfcviz.live.process.startup.sitecustomize import UNWRITTEN, tell
from bfcviz.live.process.startup.sitecustomize import begin as begin_and_tell

Order = Mapping[str, Any]
"""The request of `bfcviz record`: `folder`; `way` (None: the usual one), `options`; `told`: the folder for reports;
`command`: whether the recording keeps the command line."""

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
        self._has_ended = False
        source.__enter__()
        self._handler = numpy_api.get_handler()
        marks.begin(source)
        atexit.register(self.end)
        self.end_with_worker()

    @property
    def is_mine(self) -> bool:
        """Whether it is of this process; a forked process inherits those of its parent."""
        return os.getpid() == self._process

    def end_with_worker(self) -> None:
        """Also end when multiprocessing ends this process: a forked worker skips `atexit`."""
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            util.Finalize(None, self.end, exitpriority=_LAST)

    def end(self) -> None:
        """End serving or observing, and mark the recording as complete; does nothing in a forked process."""
        atexit.unregister(self.end)
        if not self.is_mine or self._has_ended:
            return
        self._has_ended = True
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
        """Close the recording, or remove that of a worker which allocated nothing.

        `bfcviz record` reports an error here, so that the program's output stays unchanged.
        """
        try:
            if recording.log.head == 0:
                _discard_worker(self._order, recording)
            recording.close()
        except (FileError, OSError) as error:
            tell(self._order, UNWRITTEN, str(error))


def begin(order: Order, framework: str) -> str:
    """Record this process from now on, until Python exits.

    Returns:
        `recorded`; `launcher`: this process only starts the ranks; `other`: enough processes are recorded already, or
        one that writes files of its own.

    Raises:
        LiveError: the framework, way or option is unknown.
        BfcvizError: the framework cannot be served or observed.
    """
    if is_launcher():
        return "launcher"
    request = resolve(framework, order["way"], order["options"])
    way = way_of(request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `bfcviz record` prints the messages of bfcviz
        try:
            recorded = (
                _recorded(order, providers.complete(request)) if way.has_heaps else _files(order, request)
            )
        except FileExistsError:
            return "other"
    if recorded is None:
        return "other"
    recordings.append(recorded)
    _follow_forks(order, framework, is_on_host=way.has_heaps and providers.is_on_host(request))
    return "recorded"


recordings: Final[list[ProcessRecording]] = []
"""What `begin` began in this process and in those it was forked from; keeps the framework's memory until the end."""

_LAST: Final = -100  # multiprocessing calls those with a lower priority later


def _follow_forks(order: Order, framework: str, *, is_on_host: bool) -> None:
    """Report each process that is forked from this one, and record it if it is a worker of multiprocessing."""
    if len(recordings) > 1:
        return  # this process was forked itself, and has the hooks already
    os.register_at_fork(after_in_child=lambda: tell(dict(order), "other"))
    if is_on_host:
        from multiprocessing import util  # noqa: PLC0415  few programs need it

        util.register_after_fork(recordings[0], lambda _: _begin_worker(order, framework))


def _begin_worker(order: Order, framework: str) -> None:
    """In a worker of multiprocessing, before its own code: it may have imported the framework already."""
    if recordings[-1].is_mine:
        recordings[-1].end_with_worker()  # multiprocessing has just forgotten it
    else:
        begin_and_tell(dict(order), framework)


def _discard_worker(order: Order, recording: Recording) -> None:
    """Remove the recording and its subfolder; `bfcviz record` needs the folder of all."""
    if recording.folder != Path(order["folder"]):
        recording.discard()


def _recorded(order: Order, request: WatchRequest) -> ProcessRecording | None:
    """Begin a recording and its source, on failure remove both; None: enough processes are recorded."""
    details = {**providers.details_of(request), "process": os.getpid()}
    if order.get("command", True):
        details["command"] = without_secrets([without_surrogates(word) for word in sys.orig_argv])
    details["started_ns"] = time.time_ns()
    pools = [providers.pool_of(request)]
    recording = begin_recording(Path(order["folder"]), lambda place: Recording(place, pools, details=details))
    if recording is None:
        return None
    try:
        return ProcessRecording(order, providers.source_of(request, recording), recording)
    except BaseException:
        with suppress(FileError):
            recording.close()
        remove_files(recording.folder)
        _discard_worker(order, recording)
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
