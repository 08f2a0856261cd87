"""Record this process from the inside: the part of `bfcviz record` that runs in each Python process.

Every process that imports the framework has a recording of its own; `process_folder` chooses where. Forked processes
import nothing: those of multiprocessing start to record when they begin, if the framework's memory is on the host (a
forked process cannot use CUDA again). Other forked processes run normally, and report that they were not recorded.
"""

import atexit
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from bfcviz import frameworks
from bfcviz.allocator import cuda_driver
from bfcviz.errors import FileError, FolderTaken
from bfcviz.events.label_table import without_surrogates
from bfcviz.events.memory_samples import SAMPLE_EVERY_S, add_device_sample, peak_of_process
from bfcviz.events.origin import KEEP_BYTES, MEMORY_LIMITS, PROCESS_PEAK
from bfcviz.events.storage.folder import ENDED_FILE, claim_subfolder, remove_files
from bfcviz.events.storage.recording import Recording
from bfcviz.frameworks import WatchRequest, resolve, way_of
from bfcviz.live import heap_provider, memory_limits
from bfcviz.live.heap_provider import HeapProvider
from bfcviz.live.numpy import get_handler
from bfcviz.live.process_names import is_launcher, name_of_process, rank_of_process
from bfcviz.live.startup.sitecustomize import UNWRITTEN, tell
from bfcviz.live.startup.sitecustomize import begin as begin_and_tell
from bfcviz.periodic import PATIENCE_S, Periodic

# ------------------------------------------------------------------------------
# Where each process of a recorded program records: the folder itself, or a subfolder named after its rank.
#
# ::
#
#     run.bfc/                 the process that was started; with ranks: nothing
#         rank-0/ rank-1/      torchrun's ranks, and those of other launchers that set RANK
#         SpawnProcess-1/      workers of multiprocessing, by the names that it gives them
#         process-4711/        any further process, by its number

MOST_PROCESSES: Final = 256
"""Recorded processes of one program: a program that starts a Python for each file must not fill the disk."""

FLIGHT_FOLDER: Final = "bfcviz-flight"
FLIGHT_KEEP: Final = "64MiB"
"""Defaults of the flight recorder: its folder, and the memory for the events of each heap."""


def begin_recording(folder: Path, record: Callable[[Path], Recording]) -> Recording | None:
    """Begin the recording of this process; None: there are enough already.

    Args:
        folder: of `bfcviz record -o`.
        record: begins a recording in an empty folder.

    Raises:
        FileError: the folder cannot be written.
    """
    name = name_of_process(os.environ)
    if not name:
        try:
            return record(folder)
        except FolderTaken:  # by an earlier process
            name = f"process-{os.getpid()}"
    if sum(1 for _ in folder.iterdir()) >= MOST_PROCESSES:
        return None
    return record(claim_subfolder(folder, name))


# ------------------------------------------------------------------------------
# Record this process from the inside: the part of `bfcviz record` that runs in each Python process.

Order = Mapping[str, Any]
"""The request of `bfcviz record`: `folder`; `way` (None: the usual one), `options`; `told`: the folder for reports;
`command`: whether the recording keeps the command line; `keep_bytes`: of the newest events, None: all."""

CLAIM: Final = ".process"
"""A file in a folder of TensorFlow's windows: the number of the process that records there."""


class ProcessRecording:
    """The recording of this process; ends when Python exits, or by `end`."""

    def __init__(
        self,
        order: Order,
        source: HeapProvider,
        recording: Recording | None,
        device_sampler: Periodic | None = None,
    ) -> None:
        self.source = source  # serves or observes the framework
        self.recording = recording  # receives the events; None: the source writes its own files
        self.device_sampler = device_sampler  # samples the devices of the heaps; None: they are on the host
        self._order = dict(order)
        self._process = os.getpid()
        self._has_ended = False
        source.__enter__()
        if recording is not None:
            recording.log.note_term(os.fsencode(recording.folder / ENDED_FILE))
        self._handler = get_handler()
        atexit.register(self.end)
        self.end_with_worker()
        if device_sampler is not None:
            device_sampler.start(SAMPLE_EVERY_S)

    @property
    def is_mine(self) -> bool:
        """Whether it is of this process; a forked process inherits those of its parent."""
        return os.getpid() == self._process

    def end_with_worker(self) -> None:
        """Also end when multiprocessing ends this process: a forked worker skips `atexit`."""
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            util.Finalize(None, self.end, exitpriority=LAST)

    def end(self) -> None:
        """End serving or observing this process, and mark its recording as complete; does nothing in a fork."""
        atexit.unregister(self.end)
        if not self.is_mine or self._has_ended:
            return
        self._has_ended = True
        if self.device_sampler is not None:
            self.device_sampler.stop(PATIENCE_S)
        if get_handler() is not self._handler:
            tell(
                self._order, "left out", "allocations outside of the thread or task that first imported NumPy"
            )
        try:
            self.source.close()
        finally:
            if self.recording is not None:
                for name in self.source.left_out(self.recording.log):
                    tell(self._order, "left out", name)
                if (peak := peak_of_process(self.recording.folder)) is not None:
                    self.recording.add_detail(PROCESS_PEAK, peak)
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
        finally:
            recording.log.forget_term()


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
                _begin_process_recording(order, heap_provider.complete_provider_request(request))
                if way.has_heaps
                else _begin_process_files(order, request)
            )
        except FileExistsError:
            return "other"
    if recorded is None:
        return "other"
    recordings.append(recorded)
    follow_forks(order, framework, is_on_host=way.has_heaps and frameworks.is_on_host(request))
    return "recorded"


class OfProcess(Protocol):
    """A recording of one process, or what keeps its events in memory."""

    @property
    def is_mine(self) -> bool:
        """Whether it is of this process, not of the one that this was forked from."""

    def end_with_worker(self) -> None:
        """Also end when multiprocessing ends this process."""


recordings: Final[list[OfProcess]] = []
"""What `begin` began in this process and in those it was forked from; keeps the framework's memory until the end."""

LAST: Final = -100
"""Priority of what ends a recording: multiprocessing calls those with a lower one later."""


def follow_forks(order: Order, framework: str, *, is_on_host: bool) -> None:
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


def _begin_process_recording(order: Order, request: WatchRequest) -> ProcessRecording | None:
    """Begin a recording and its source, on failure remove both; None: enough processes are recorded."""
    details = {**frameworks.details_of(request), "process": os.getpid(), "host": platform.node()}
    if rank := rank_of_process(os.environ):
        details["rank"] = int(rank)
    if order.get("command", True):
        details["command"] = without_secrets([without_surrogates(word) for word in sys.orig_argv])
    if (keep := order.get(KEEP_BYTES)) is not None:
        details[KEEP_BYTES] = keep
    if frameworks.is_on_host(request):
        details[MEMORY_LIMITS] = memory_limits.process_limits()
    details["started_ns"] = time.time_ns()
    pools = [heap_provider.provider_pool(request)]
    recording = begin_recording(Path(order["folder"]), lambda place: Recording(place, pools, details=details))
    if recording is None:
        return None
    sampler = None if frameworks.is_on_host(request) else device_sampler(recording.folder)
    try:
        return ProcessRecording(order, heap_provider.provider_of(request, recording), recording, sampler)
    except BaseException:
        with suppress(FileError):
            recording.close()
        remove_files(recording.folder)
        _discard_worker(order, recording)
        raise


def device_sampler(folder: Path) -> Periodic:
    """Samples for a recorded process what all processes use of each device that it has a context on, in its folder.

    It starts CUDA and creates contexts nowhere; an error of the device or of the disk ends it.
    """

    def sample() -> float:
        for device, (free, total) in _memory_of_used_devices():
            add_device_sample(folder, device, total - free)
        return SAMPLE_EVERY_S

    return Periodic(sample, "bfcviz-device", failed=lambda _: None)


def _memory_of_used_devices() -> Iterator[tuple[int, tuple[int, int]]]:
    """Devices with a context of this process, and the free and all bytes of each now."""
    driver = cuda_driver.in_use()
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)  # it may be half imported
    if driver is not None:
        for device in range(driver.device_count()):
            if driver.has_context(device):
                yield device, driver.memory_now(device)
    # PyTorch, on another driver than CUDA's: ROCm.
    elif hasattr(cuda, "is_initialized") and cuda.is_initialized():
        for device in range(cuda.device_count()):
            if cuda.memory_reserved(device):
                yield device, cuda.mem_get_info(device)


def _begin_process_files(order: Order, request: WatchRequest) -> ProcessRecording:
    """Begin a source that writes its own files to the folder, for one process."""
    folder = Path(order["folder"])
    claim = folder / CLAIM
    with claim.open("x", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    try:
        return ProcessRecording(order, heap_provider.provider_of(request, folder=folder), None)
    except BaseException:
        claim.unlink()
        raise


# ------------------------------------------------------------------------------
# The command line of a recorded process, with the values masked that look like keys, tokens or passwords.

MASK: Final = "***"

_NAME: Final = (
    r"(?:api|access|auth|secret|private|encryption|account|license|wandb|client)[-_.]?(?:key|secret)(?:[-_.]?id)?"
    r"|(?:[a-z]+[-_.])?(?:token|password|passwd|passphrase|secret|secrets|credential|credentials|pwd|apikey)"
)
"""The end of the name of an option, variable or parameter with a secret."""

_OPTION: Final = re.compile(rf"--?(?:[\w.]+[-_.])*(?:{_NAME}|key|pass|auth|bearer)", re.IGNORECASE)
"""An option whose value is the next word."""

_NEXT_OPTION: Final = re.compile(r"--|-\w$")

_ASSIGNED: Final = re.compile(
    rf"""((?:{_NAME}|(?<!\w)key)["']?\s*[=:]\s*["']?)(?![\s"'])[^\s"'&;,)}}\]]+""", re.IGNORECASE
)
"""`--token=X`, `PASSWORD=X`, `wandb.api_key=X`, `?token=X&`, `"secret": "X"`, `login(key='X')` with such a name."""

_QUOTED: Final = re.compile(
    rf"""((?:{_NAME}|(?<!\w)key)["']?\s*[=:]\s*(["'])).+?(?=\2)""", re.IGNORECASE | re.DOTALL
)
"""The same with a value in quotes, which may hold blanks and commas."""

_WHOLE: Final = re.compile(
    rf"((?:--?)?(?:[\w.-]*(?:{_NAME})|(?:[\w.]+[-_.])*key)=).+", re.IGNORECASE | re.DOTALL
)
"""A word that is an option or variable with such a name, and its value: all of it, whatever is in it."""

_SAFE_URL: Final = re.compile(r"(?<=://)(?:[^/\s@'\"]+|[^/\s@'\":]+:[^\s@'\"]+)(?=@)")
_BEARER: Final = re.compile(r"\b(bearer|basic|token)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:hf|gh[opsur]|github_pat|glpat|pypi|npm|sk|pk|rk|xox[a-z]|dckr_pat|wandb_v1|nvapi|gsk|r8)[-_][\w-]{8,}"
    r"|A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{10,}(?:\.[\w-]+)+|[0-9a-f]{32,}"
    r"|(?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{32,}"
    r")(?![A-Za-z0-9])"
)
"""Keys by their form: those of Hugging Face, GitHub, GitLab, OpenAI, AWS, Google and others, JSON web tokens, and long
words of random characters."""


def without_secrets(words: Sequence[str]) -> list[str]:
    """The words of a recorded command; a value is `***` if it looks like a secret, or its option's name says so."""
    found = []
    is_secret = False
    for word in words:
        is_value = is_secret and not _NEXT_OPTION.match(word)
        found.append(MASK if is_value else _masked_command_word(word))
        is_secret = _OPTION.fullmatch(word) is not None
    return found


def _masked_command_word(word: str) -> str:
    """A word of the recorded process's command, with the secrets in it masked."""
    if whole := _WHOLE.fullmatch(word):
        return f"{whole[1]}{MASK}"
    word = _SAFE_URL.sub(MASK, word)
    word = _BEARER.sub(rf"\1 {MASK}", word)
    word = _ASSIGNED.sub(rf"\1{MASK}", _QUOTED.sub(rf"\1{MASK}", word))
    return _KEY.sub(MASK, word)
