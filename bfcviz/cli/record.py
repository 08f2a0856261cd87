"""`bfcviz record`: run an unchanged program and record its heap."""

import argparse
import errno
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree, which
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import bfcviz
import bfcviz.cli.numpy_threads
from bfcviz.cli.command import DONE, FAILED
from bfcviz.cli.process_folder import is_told_to_record
from bfcviz.errors import BfcvizError, FileError, LiveError, OtherFiles
from bfcviz.events.memory_samples import process_peak_text
from bfcviz.events.origin import KEEP_BYTES, Origin, Status, ending_signal, later_reasons, signal_text
from bfcviz.events.storage.drain import FolderDrain, check_can_free_space
from bfcviz.events.storage.files import EARLIER, PRIVATE_FOLDER, is_locked, try_lock
from bfcviz.events.storage.folder import (
    LABELS_FILE,
    ORIGIN_FILE,
    files_of,
    files_of_all,
    has_folder_events,
    has_several,
    hold_folder,
    note_signal,
    read_origin,
    recordings_in,
)
from bfcviz.events.trace import Trace
from bfcviz.formats.tensorflow import whole_windows
from bfcviz.frameworks import FRAMEWORKS, SIZE, Framework, Option, one_of, resolve, takes
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.tensorflow.profiler_windows import files_of_windows
from bfcviz.live.recorded_process import CLAIM, FLIGHT_FOLDER, FLIGHT_KEEP
from bfcviz.live.startup.sitecustomize import LOST, UNWRITTEN
from bfcviz.model.find_steps import failures
from bfcviz.model.model import Model
from bfcviz.model.trace_index import IndexBuilder
from bfcviz.terminal import say
from bfcviz.units import format_bytes, is_size_unit

# ------------------------------------------------------------------------------
# EarlierRecording: the recording that `bfcviz record --force` replaces, when the new one has its first event.

# ::
#
#     run.bfc/            [ earlier recording ]   before
#     run.bfc/.earlier/   [ earlier recording ]   while the new one has no event; removed then, or moved back at the end
#     run.bfc/            [ new recording ... ]

_PARTIAL: Final = f"{EARLIER}.partial"
"""Its name until all of it is moved there: an interrupted move is undone, whatever is in either folder."""

_LOOK_S: Final = 0.5  # seconds between two looks for the first event


class EarlierRecording:
    """The recording that `bfcviz record --force` replaces: in a hidden subfolder until the new one has an event.

    Args:
        folder: of both.

    Raises:
        FileError: it cannot be moved.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._has_ended = Event()
        try:
            _move_recorded_files(folder, folder / _PARTIAL)
            (folder / _PARTIAL).rename(folder / EARLIER)
        except OSError as error:
            _undo_interrupted_move(folder)
            raise FileError(folder, "", f"cannot be emptied: {error.strerror}: {error.filename}") from error
        self._watch = Thread(target=self._remove_when_replaced, name="bfcviz-replace", daemon=True)
        self._watch.start()

    def is_kept(self) -> bool:
        """Whether the earlier recording is there, and the new one has no event."""
        return (self._folder / EARLIER).is_dir() and not _has_recorded_events(self._folder)

    def settle(self) -> None:
        """At the program's end: remove the earlier recording if it is replaced, else the new one, and move it back."""
        self._has_ended.set()
        self._watch.join()
        _keep_one_recording(self._folder)

    def _remove_when_replaced(self) -> None:
        while not self._has_ended.wait(_LOOK_S):
            if _has_recorded_events(self._folder):
                rmtree(self._folder / EARLIER, ignore_errors=True)
                return


def _has_recorded_events(folder: Path) -> bool:
    """Whether the earlier or the new recording has an event."""
    return has_folder_events(folder) or bool(whole_windows(folder))


def _is_recorded_to(folder: Path) -> bool:
    """Whether a process records to the folder of an earlier recording, which `bfcviz record` then refuses."""
    return any(is_locked(path / LABELS_FILE) for path in recordings_in(folder).values())


def _undo_interrupted_move(folder: Path) -> None:
    """Move back the earlier recording that an interrupted `bfcviz record --force` had moved."""
    partial = folder / _PARTIAL
    if partial.is_dir():
        with suppress(OSError):
            _move_recorded_files(partial, folder)
            partial.rmdir()


def _keep_one_recording(folder: Path) -> None:
    """Keep the earlier recording or the new one: the new one if it has an event, otherwise the earlier one.

    Both stay while a process that the program left behind still records; the next `bfcviz record` settles it.
    """
    _undo_interrupted_move(folder)
    earlier = folder / EARLIER
    if not earlier.is_dir() or _is_recorded_to(folder):
        return
    if _has_recorded_events(folder):
        rmtree(earlier, ignore_errors=True)
        return
    with suppress(OSError):
        for path in files_of_all(folder) or files_of(folder):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        _move_recorded_files(earlier, folder)
        earlier.rmdir()


def _move_recorded_files(source: Path, target: Path) -> None:
    """Move all files of an earlier recording, except those that the other folder has already."""
    target.mkdir(PRIVATE_FOLDER, exist_ok=True)
    for path in source.iterdir():
        if path != target and not os.path.lexists(target / path.name):
            path.rename(target / path.name)


def set_aside(folder: Path, *, force: bool) -> EarlierRecording:
    """Set aside the earlier recording that `bfcviz record --force` replaces; its folder must hold nothing else.

    Raises:
        FileError: it holds more, the recording has not ended or cannot be moved, or `force` is false.
    """
    if _is_recorded_to(folder):
        raise FileError(folder, "", "is being recorded to by another process; choose another folder with -o")
    _keep_one_recording(folder)  # of a `bfcviz record` that was killed
    own = files_of_all(folder) if recordings_in(folder) else files_of_windows(folder)
    others = sorted(path.name for path in {*folder.iterdir()} - {*own})
    if others:
        raise OtherFiles(folder, others)
    if not force:
        raise FileError(
            folder, "", "holds a recording already; choose another folder with -o, or give --force"
        )
    return EarlierRecording(folder)


# ------------------------------------------------------------------------------
# Run a program with the input, output and signals of this process, and return its exit status.

_FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals, and a program that it starts would inherit that."""


@contextmanager
def signals_blocked() -> Iterator[set[int]]:
    """Block signals, to stay pending until `bfcviz record` forwards them; yields the previous signal mask.

    Threads that start inside inherit the mask; those of NumPy have it, too (`numpy_threads`). A thread without it would
    receive the signal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_program(
    words: Sequence[str],
    environment: Mapping[str, str],
    mask: set[int],
    was_ended: Callable[[int, int], object] = lambda process, number: None,  # noqa: ARG005
) -> int:
    """Start the program of `bfcviz record`, wait for its end, and return its status as shells do (128 + a signal).

    Ctrl-C reaches the program through the terminal; signals sent to this process alone are forwarded.

    Args:
        words: the program and its arguments.
        environment: its environment.
        mask: its signal mask, from the `signals_blocked` around this call.
        was_ended: called with the program's process and the signal, if one ended it.

    Raises:
        BfcvizError: the program cannot be started.
    """
    try:
        process = os.posix_spawnp(
            words[0], [*words], environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
        )
        status = os.waitstatus_to_exitcode(_wait_for_program(process, {*_FORWARDED, signal.SIGCHLD}))
    except OSError as error:
        why = _why_program_did_not_run(words[0], error)
        raise BfcvizError(f"cannot start {words[0]}: {why}") from error
    if status < 0:
        was_ended(process, -status)
    return status if status >= 0 else 128 - status


def _why_program_did_not_run(program: str, error: OSError) -> str:
    known = error.errno in {errno.ENOENT, errno.EACCES, errno.ENOEXEC}
    if known and program.endswith(".py") and os.path.isfile(program):  # noqa: PTH113  the path as typed
        return f"it is a Python file; write: python {program}"
    return error.strerror or str(error)


def _wait_for_program(process: int, signals: set[signal.Signals]) -> int:
    """Wait for the end of the program of `bfcviz record`, forward signals to it, and return its status."""
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        number, typed = _next_program_signal(signals)
        if number != signal.SIGCHLD and not typed:
            os.kill(process, number)


def _next_program_signal(signals: set[signal.Signals]) -> tuple[int, bool]:
    """Wait for a signal to `bfcviz record`; also whether it was typed: then the terminal sent it to the program too."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(signals)
        return info.si_signo, info.si_code > 0  # from the kernel, not from a process
    number = signal.sigwait(signals)
    return number, number in {signal.SIGINT, signal.SIGQUIT} and os.isatty(0)


# ------------------------------------------------------------------------------
# The arguments of `bfcviz record` that come from the table of frameworks: the framework, its way and its options.

_DEFAULTS = [each for each in FRAMEWORKS.values() if each.is_default]
_FALLBACK = next(each for each in _DEFAULTS if each.memory == "host")
"""The default framework on a machine without a GPU."""


class Selection(NamedTuple):
    """What `bfcviz record` records, as JSON values for the recorded process."""

    framework: str | None  # its name; None: the first of `defaults` that the process can use
    way: str | None  # `serve` or `observe`; None: the usual way
    options: Mapping[str, Any]  # of that way's function
    defaults: list[tuple[str, bool]]  # frameworks that take these options, each with whether it needs a GPU


def add_framework_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each framework to `bfcviz record`, and one for each option."""
    which = parser.add_mutually_exclusive_group()
    for name, framework in FRAMEWORKS.items():
        which.add_argument(
            f"--{name}", dest="framework", action="store_const", const=name, help=_framework_help(framework)
        )
    ways = dict.fromkeys(way.name for framework in FRAMEWORKS.values() for way in framework.ways)
    parser.add_argument(
        "--way",
        choices=tuple(ways),
        help="serve the framework from bfcviz's own heap, or observe its own allocator (default: its first way)",
    )
    for option in _record_options():
        parser.add_argument(
            option.flag,
            dest=option.name,
            type=_record_option_parser(option),
            metavar=option.type.metavar,
            help=option.help.replace("%", "%%"),
        )


def selection_of(arguments: argparse.Namespace) -> Selection:
    """The selection that the flags of `bfcviz record` make.

    Raises:
        LiveError: the framework does not have this way or option; the message names the flags.
    """
    names = [option.name for option in _record_options()]
    options = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    wish = resolve(arguments.framework or _FALLBACK.name, arguments.way, options, for_command=True)
    if arguments.framework is not None:
        return Selection(wish.framework, wish.way, wish.options, [])
    way = arguments.way
    defaults = [
        (each.name, each.memory != "host")
        for each in _DEFAULTS
        if any(takes(known, options) for known in each.ways if way in (None, known.name))
    ]
    return Selection(None, way, wish.options, defaults)


def _framework_help(framework: Framework) -> str:
    ways = "; or ".join(f"{way.name}: {way.help}" for way in framework.ways)
    needs = "; or ".join(dict.fromkeys(way.needs for way in framework.ways if way.needs))
    default = ", the default where it is installed and there is a GPU" if framework.is_default else ""
    if framework is _FALLBACK:
        default = ", otherwise the default"
    return f"{framework.title}{default}. {ways}" + (f" (needs {needs})" if needs else "")


def _record_options() -> list[Option]:
    """Every option of the command line; its help names the frameworks and ways that take it."""
    found: dict[str, list[tuple[Option, str]]] = {}
    for framework in FRAMEWORKS.values():
        for way in framework.ways:
            for option in way.options:
                if option.type.metavar:
                    found.setdefault(option.name, []).append((option, f"{framework.title} {way.name}"))
    return [_option_of_all_ways(each) for each in found.values()]


def _option_of_all_ways(found: list[tuple[Option, str]]) -> Option:
    """One option of `bfcviz record` for all that take it, in the words of all; `resolve` checks those of one way."""
    takers: dict[str, list[str]] = {}
    for option, taker in found:
        takers.setdefault(option.help, []).append(taker)
    text = "; ".join(f"{said} ({', '.join(names)})" for said, names in takers.items())
    first = found[0][0]
    words = dict.fromkeys(word for option, _ in found for word in option.type.words)
    return Option(first.name, one_of(*words) if words else first.type, text)


def _record_option_parser(option: Option) -> Any:
    def parse(text: str) -> Any:
        try:
            return option.type.parse(text)
        except ValueError as error:
            reason = f"{error}" or repr(text)
            raise argparse.ArgumentTypeError(f"{reason}; give {option.type.text}") from None

    return parse


_parse_record_size: Final = _record_option_parser(Option("size", SIZE))


# ------------------------------------------------------------------------------
# The one line about a recording, or those of several processes, that `bfcviz record` prints at its end.

KEPT: Final = "kept"  # the fact that the events of a process are kept in memory

NOTHING: Final = "nothing was recorded: "
"""The beginning of the line if there is no recording."""

_MOST_FAILURES: Final = 1000

_MOST_NAMED: Final = 8

_WAYS: Final = {"serve": "served", "observe": "observed"}


class RecordReport(NamedTuple):
    """One report of a process to `bfcviz record`, written by `live.startup`."""

    # what happened: `began`, `recorded`, `kept` (in memory), `left out`, `unable`, `launcher`, `other` or `unwritten`
    fact: str
    python: str  # the Python that ran
    why: str  # the framework or the reason
    process: str  # the number of the process


def summary(folder: Path, report_folder: Path) -> tuple[str, bool]:
    """What `bfcviz record` says at its end: what was recorded, how to view it, what was not; whether it wrote all."""
    reports = _record_reports_in(report_folder)
    is_recorded = any(report.fact == "recorded" for report in reports)
    if is_recorded:
        (folder / CLAIM).unlink(missing_ok=True)
    unwritten = [report.why for report in reports if report.fact == UNWRITTEN]
    windows = whole_windows(folder) if is_recorded else []
    view, has_failed = "view", False
    if windows:
        parts, is_shown = _describe_windows(folder, windows)
        to_view = folder if is_shown else None
    elif has_several(folder):
        parts, has_failed = _describe_several(folder, reports, unwritten)
        to_view, view = folder, "attach"
    elif (folder / ORIGIN_FILE).exists():
        origin, events, _ = read_origin(folder)
        if not _is_own(origin, reports):
            return f"{NOTHING}{_why_not_own(folder, origin, unwritten)}", False
        trace = Trace.open(folder)
        parts, to_view, has_failed = _describe_recorded_trace(trace), folder, _recording_has_failure(trace)
        if events is not None and not trace.origin.has_ended_whole:
            unwritten += later_reasons(trace.origin.details, trace.origin.reasons)
            parts.pop()
    else:
        why, is_written = _why_nothing(reports, unwritten)
        return f"{NOTHING}{why}", is_written
    recorded = {report.process for report in reports if report.fact == "recorded"}
    parts += _distinct_reasons(unwritten) + _unrecorded_processes(reports, recorded)
    # Some threads of NumPy, and the heaps after the first 256.
    if left_out := [report.why for report in reports if report.fact == "left out"]:
        parts.append(f"without {', '.join(left_out)}")
    why = f". To see why: bfcviz why {folder}" if has_failed else ""
    them = "it" if view == "view" else "them"
    hint = "" if to_view is None else f". To view {them}: bfcviz {view} {to_view}"
    return f"{folder}: {', '.join(parts)}{why}{hint}", not unwritten


def flight_summary(folder: Path, report_folder: Path, before: frozenset[Path]) -> tuple[str, bool]:
    """What `bfcviz record --on-oom` wrote; and whether everything was.

    Args:
        folder: of the files.
        report_folder: of the reports.
        before: the files that were there already.
    """
    reports = _record_reports_in(report_folder)
    kept = {report.process for report in reports if report.fact == KEPT}
    unwritten = [report.why for report in reports if report.fact == UNWRITTEN]
    if not kept:
        why, is_written = _why_nothing(reports, unwritten)
        return f"{NOTHING}{why}", is_written
    watched = f"{len(kept)} process{'es' * (len(kept) > 1)} watched"
    rest = ", ".join([watched, *_distinct_reasons(unwritten), *_unrecorded_processes(reports, kept)])
    made = sorted({*folder.rglob(FLIGHT_FILES)} - before)
    if not made:
        return f"no request failed, nothing was written ({rest})", not unwritten
    failed = [path for path in made if "request-failed" in path.name]
    verb, found = ("why", failed) if failed else ("view", made)
    names = ", ".join(str(path) for path in made[:_MOST_NAMED])
    more = f" and {len(made) - _MOST_NAMED} more" if len(made) > _MOST_NAMED else ""
    aim = "see why" if failed else "view it"
    return f"wrote {names}{more} ({rest}). To {aim}: bfcviz {verb} {found[-1]}", not unwritten


def _is_own(origin: Origin, reports: list[RecordReport]) -> bool:
    """Whether a process started by `bfcviz record` wrote this: it has reported, unless it was killed at its start."""
    return any(str(origin.details.get("process")) == report.process for report in reports)


def _why_not_own(folder: Path, origin: Origin, unwritten: list[str]) -> str:
    if unwritten:
        return unwritten[0]
    process = origin.details.get("process")
    known = f"process {process}, which this `bfcviz record` did not start"
    writer = "another program" if process is None else known
    return f"{writer} wrote the recording in {folder}; choose another folder with -o"


def _describe_several(
    folder: Path, reports: list[RecordReport], unwritten: list[str]
) -> tuple[list[str], bool]:
    """The recordings of the processes that `bfcviz record` started, and whether a request failed in one.

    Adds to `unwritten` what could not be written.
    """
    found = {}
    for name, path in recordings_in(folder).items():
        origin, events, _ = read_origin(path)
        if not _is_own(origin, reports):
            continue
        found[name] = trace = Trace.open(path)
        if events is not None and not trace.origin.has_ended_whole:
            unwritten += later_reasons(trace.origin.details, trace.origin.reasons)
    names = [f"{name} {len(trace):,} events" for name, trace in found.items()]
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    lost = sum(not trace.origin.has_ended_whole for trace in found.values())
    ended = f"; {lost} did not end cleanly" if lost else ""
    failed = _describe_failed(found)
    number = "1 process" if len(found) == 1 else f"{len(found)} processes"
    return [f"{number} ({', '.join(names[:_MOST_NAMED] + more)}{ended})", *failed], bool(failed)


def _recording_has_failure(trace: Trace) -> bool:
    try:
        return bool(failures(trace, None, 1))
    except BfcvizError:
        return False


def _describe_failed(found: Mapping[str, Trace]) -> list[str]:
    """Which of the recorded processes ran out of memory."""
    failed = [name for name, trace in found.items() if _recording_has_failure(trace)]
    more = f" and {len(failed) - _MOST_NAMED} more" if len(failed) > _MOST_NAMED else ""
    return [f"out of memory: {', '.join(failed[:_MOST_NAMED])}{more}"] if failed else []


def _distinct_reasons(reasons: list[str]) -> list[str]:
    """The reasons in the line of `bfcviz record`, each once."""
    return ["; ".join(dict.fromkeys(reasons))] if reasons else []


def _describe_windows(folder: Path, windows: list[Path]) -> tuple[list[str], bool]:
    """In the line of `bfcviz record`: how many windows there are, what they hold; whether that can be shown."""
    count = f"{len(windows)} window{'s' * (len(windows) > 1)} of TensorFlow"
    try:
        return [count, *_describe_recorded_trace(open_trace(folder))], True
    except (BfcvizError, MemoryError) as error:
        return [f"{count} (cannot be shown: {str(error) or 'not enough memory'})"], False


def _record_reports_in(folder: Path) -> list[RecordReport]:
    return [report for file in sorted(folder.iterdir()) for report in _record_reports_of(file)]


def _record_reports_of(file: Path) -> list[RecordReport]:
    """The reports of a process to `bfcviz record`; the file is empty or truncated if it could not write them."""
    process = file.name.removesuffix(LOST)
    lines = file.read_text(encoding="utf-8").splitlines()
    with suppress(ValueError, TypeError):
        if reports := [RecordReport(**json.loads(line), process=process) for line in lines]:
            return reports
    why = f"process {process} could not report on its recording: cannot write to {file.parents[1]}; is the disk full?"
    return [RecordReport(UNWRITTEN, "", why, process)]


def _why_nothing(reports: list[RecordReport], unwritten: list[str]) -> tuple[str, bool]:
    """Why there is no recording; and False if one was lost, True if there was nothing to record."""
    if unwritten:
        return "; ".join(dict.fromkeys(unwritten)), False
    frameworks = [report.why for report in reports if report.fact == "began"]
    if any(report.fact == "recorded" for report in reports):
        if "tensorflow" in frameworks:
            return "the program ended before there was anything to record", True
        return "the recording was removed while the program ran", False
    for report in reports:
        if report.fact == "unable":
            return f"{report.python} could not record: {report.why}", True
    for framework in frameworks:
        hint = "; --numpy records NumPy's arrays" if framework == "cupy" else ""
        return f"no Python process imported {framework}{hint}", True
    return "no Python process started that reads PYTHONPATH (Python with -I, -E or -S does not)", True


def _describe_recorded_trace(trace: Trace) -> list[str]:
    details = trace.origin.details
    pools = [_describe_recorded_pool(trace, pool) for pool in range(len(trace.origin.pools))]
    way = _WAYS.get(str(details.get("way")), "recorded")
    whole = "complete" if trace.origin.status == Status.COMPLETE else "; ".join(trace.origin.reasons)
    number = ending_signal(details)
    if number is not None and trace.origin.has_ended_whole:
        whole = f"{signal_text(number)} ended the process, {whole}"
    peak = process_peak_text(details)
    process = [] if peak is None else [f"of {peak} that the process had at its peak"]
    return [f"{len(trace):,} events", " ".join([f"{way} {' and '.join(pools)}", *process]), whole]


def _describe_recorded_pool(trace: Trace, pool: int) -> str:
    """A heap in the line that `bfcviz record` prints at its end: its peak and its failures."""
    name = trace.origin.pools[pool].name
    try:
        model = Model(trace, pool)
        model.seek(len(trace))
    except BfcvizError:
        return name
    stats = model.stats()
    text = f"{name} (peak {format_bytes(stats.peak_bytes_in_use)}"
    if failed := len(failures(trace, pool, _MOST_FAILURES)):
        limit = "" if stats.bytes_limit is None else f" of {format_bytes(stats.bytes_limit)}"
        many = f"{failed:,}{' or more' * (failed == _MOST_FAILURES)}"
        text += f"{limit}; {many} request{'s' * (failed > 1)} failed"
    return f"{text})"


def _unrecorded_processes(reports: list[RecordReport], recorded: set[str]) -> list[str]:
    """How many processes imported the framework and were not recorded."""
    others = len({report.process for report in reports if report.fact in {"other", "unable"}} - recorded)
    return [f"{others} other process{'es' * (others > 1)} not recorded"] if others else []


# ------------------------------------------------------------------------------
# `bfcviz record`: run an unchanged program and record its heap.

EPILOG: Final = """\
Recording starts in each Python process that imports the framework, after that import, and ends with that process. The
first process records into the folder itself; ranks (of torchrun, or with RANK), workers of multiprocessing and further
processes into subfolders, rank-0, rank-1 and so on: `bfcviz attach FOLDER` shows all of them, and `bfcviz why FOLDER`
says which of them failed, and why. Not recorded are
processes forked without multiprocessing, or forked and on a GPU; their number is reported. The program keeps its own
code, input, output, signals and exit status. The status is 1 if the program succeeded but a recording could not be
written (a full disk, a removed folder). A program that is not Python, or Python with -I, -E or -S, runs without a
recording, and a message says so. With CuPy, PyTorch, RMM and JAX the GPU is first used when the
recording starts: what the program does between the import and its own first use (fork workers, configure JAX) may then
be too late."""

_PACKAGE: Final = Path(bfcviz.__file__).parent
_FOLDER: Final = "run.bfc"
_FLIGHT: Final = ("fragmentation", "growth")
"""Options of `bfcviz.flight_recorder` that a recording does not have."""

FLIGHT_FILES: Final = "[0-9][0-9]*-*.bfc"
FLIGHT_RECORDER: Final = "bfcviz.watching.flight_recorder"
"""The module whose `begin` the recorded process calls; it is imported only there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz record`."""
    parser.epilog = EPILOG
    parser.set_defaults(refuse=parser.error)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FOLDER",
        help=f"a new folder for the recording (default: {_FOLDER}); with --on-oom a folder for its files (default: "
        f"{FLIGHT_FOLDER})",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace a recording that has ended, when the new one has its first event; refused if the folder "
        "contains other files",
    )
    parser.add_argument(
        "--no-command",
        dest="keeps_command",
        action="store_false",
        help="leave the command line out of the recording (otherwise values that look like keys, tokens or "
        "passwords are masked in it)",
    )
    parser.add_argument(
        "--keep",
        type=_parse_record_size,
        metavar="SIZE",
        help="keep only the newest events of each process, SIZE bytes of packed blocks, such as 2GiB (default: all); "
        f"with --on-oom the memory for the events (default: {FLIGHT_KEEP})",
    )
    flight = parser.add_argument_group(
        "flight recorder", "keep the newest events in memory, at a cost that is not noticed"
    )
    flight.add_argument(
        "--on-oom",
        action="store_true",
        help="write them only when a request fails (or kill -USR2 asks): one folder a process, named by host and rank",
    )
    flight.add_argument(
        "--fragmentation",
        type=float,
        metavar="SHARE",
        help="also when external fragmentation passes this, 0..1",
    )
    flight.add_argument(
        "--growth",
        type=_parse_record_size,
        metavar="SIZE",
        help="also when the memory grows by more from one step mark to the next",
    )
    add_framework_arguments(parser)
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND ...",
        help="the program to run, such as python train.py --epochs 3",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and record it; return its exit status, or 1 if that is 0 and the recording cannot be written.

    Raises:
        FileError: the folder is in use, or cannot be made.
        BfcvizError: the command cannot be started.
    """
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        arguments.refuse("no command was given; put it last: bfcviz record -o run.bfc -- python train.py")
    if is_size_unit(words[0]) and which(words[0]) is None:
        arguments.refuse(
            f"the command would be {words[0]}, the unit of a size: a size is one word, such as --limit 90MiB"
        )
    try:
        selection = selection_of(arguments)
    except LiveError as error:
        arguments.refuse(str(error))
        raise
    flight = {name: value for name in _FLIGHT if (value := getattr(arguments, name)) is not None}
    if arguments.on_oom:
        flight |= {} if arguments.keep is None else {"keep": arguments.keep}
        return _run_with_flight_recorder(arguments, words, selection, flight)
    if flight:
        arguments.refuse(f"--{next(iter(flight))} is for the flight recorder: give --on-oom with it")
    _check_keep(arguments, selection)
    arguments.out = arguments.out or Path(_FOLDER)
    folder = arguments.out.absolute()
    with (
        _report_folder() as reports,
        signals_blocked() as mask,
        _locked_folder(folder, force=arguments.force) as earlier,
    ):
        request = _recording_request(selection, folder, reports, keeps_command=arguments.keeps_command)
        request[KEEP_BYTES] = arguments.keep
        try:
            if arguments.keep is not None:
                check_can_free_space(folder, "--keep")
            drain = FolderDrain(folder, IndexBuilder, arguments.keep)
            try:
                status = run_program(
                    words, _recording_environment(request), mask, lambda *ended: _note_signal(folder, *ended)
                )
            finally:
                drain.end()
            is_recorded = _print_summary(arguments.out, Path(reports), earlier)
        finally:
            if earlier is not None:
                earlier.settle()
            with suppress(OSError):  # it is not empty, or the program has removed it
                folder.rmdir()
    return status or (DONE if is_recorded else FAILED)


def _note_signal(folder: Path, process: int, number: int) -> None:
    """Note in the recording of a process which signal ended it: only `bfcviz record`, which started it, knows it."""
    for path in recordings_in(folder).values():
        with suppress(BfcvizError, OSError):  # the disk is full: the recording is right without the note
            if read_origin(path).origin.details.get("process") == process:
                note_signal(path, number)


def _check_keep(arguments: argparse.Namespace, selection: Selection) -> None:
    """Refuse a size of `bfcviz record --keep` that is none, and frameworks whose events no block holds."""
    if arguments.keep is None:
        return
    if arguments.keep <= 0:
        arguments.refuse(f"--keep {arguments.keep} keeps no event; give a size above 0, such as 2GiB")
    framework = selection.framework
    if framework is not None and not FRAMEWORKS[framework].is_watchable:
        arguments.refuse(f"--keep drops old events, and --{framework} writes other files: leave one out")


def _run_with_flight_recorder(
    arguments: argparse.Namespace, words: list[str], selection: Selection, flight: dict[str, Any]
) -> int:
    """Run the command of `bfcviz record` with the events in memory; return as `run`."""
    if arguments.force:
        arguments.refuse("--on-oom never replaces a file: leave --force out")
    if not arguments.keeps_command:
        arguments.refuse("--on-oom keeps no command line in its files: leave --no-command out")
    framework = selection.framework
    if framework is not None and not FRAMEWORKS[framework].is_watchable:
        arguments.refuse(
            f"--on-oom keeps events in the program's memory, which --{framework} cannot: leave one out"
        )
    folder = arguments.out or Path(FLIGHT_FOLDER)
    if folder.exists() and not folder.is_dir():
        raise FileError(
            folder, "", "is a file, and the flight recorder makes folders; choose another path with -o"
        )
    before = frozenset(folder.rglob(FLIGHT_FILES))
    with _report_folder() as reports, signals_blocked() as mask:
        request = _recording_request(
            selection, folder.absolute(), reports, keeps_command=arguments.keeps_command
        )
        request |= {"recorder": FLIGHT_RECORDER, "flight": flight}
        status = run_program(words, _recording_environment(request), mask)
        line, is_written = flight_summary(folder, Path(reports), before)
    say(f"bfcviz: {line}", file=sys.stderr)
    return status or (DONE if is_written else FAILED)


@contextmanager
def _locked_folder(folder: Path, *, force: bool) -> Iterator[EarlierRecording | None]:
    """Make an empty folder and lock it: another `bfcviz record` for this folder fails before its program runs.

    Yields the recording that was in it, with `force`.
    """
    if not folder.is_dir():
        prepare_folder(folder, force=force)
    with hold_folder(folder):
        yield prepare_folder(folder, force=force)


_REPORTS: Final = "bfcviz-record-"
"""How the names of the temporary folders begin in which recorded processes write their reports."""


@contextmanager
def _report_folder() -> Iterator[str]:
    """Make a temporary folder, in which each recorded process writes its reports; remove those left by SIGKILL.

    It is locked before it has its name, so that another `bfcviz record` never takes it for one that was left.
    """
    _remove_left_report_folders()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{_REPORTS}"))
        fd = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
        try_lock(fd)
        folder = made.rename(made.with_name(made.name.removeprefix(".")))
    except OSError as error:
        raise BfcvizError(
            f"recorded processes cannot write their reports to a temporary folder: {error.strerror}; free some space, "
            "or set TMPDIR to another folder"
        ) from error
    try:
        yield str(folder)
    finally:
        rmtree(folder, ignore_errors=True)
        os.close(fd)


def _remove_left_report_folders() -> None:
    """Remove the folders of reports whose `bfcviz record` was killed, and of whose program no process is left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_REPORTS}*"):
        with suppress(OSError):  # it is another user's, or was just removed
            fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                _remove_left_reports(folder, fd)
            finally:
                os.close(fd)


def _remove_left_reports(folder: Path, fd: int) -> None:
    """Remove an open folder of reports, if nothing else is in it and it was left: the lock ends with its owner."""
    names = os.listdir(fd)
    if (
        os.fstat(fd).st_uid == os.geteuid()
        and all(name.removesuffix(LOST).isdecimal() for name in names)
        and try_lock(fd, without_locks=False)
        and not is_told_to_record(str(folder))
    ):
        for name in names:
            os.unlink(name, dir_fd=fd)
        folder.rmdir()


def _print_summary(folder: Path, reports: Path, earlier: EarlierRecording | None) -> bool:
    """Print the summary of `bfcviz record`; return whether everything was written."""
    is_kept = earlier is not None and earlier.is_kept()
    try:
        line, is_written = summary(folder, reports)
        if is_kept and not line.startswith(NOTHING):
            line = f"{NOTHING}the program ended before the first event"
    except (BfcvizError, OSError) as error:
        line, is_written = f"error: {error}", False
    if is_kept:
        line += f"; the earlier recording in {folder} is kept"
    say(f"bfcviz: {line}", file=sys.stderr)
    return is_written


def prepare_folder(folder: Path, *, force: bool) -> EarlierRecording | None:
    """Make the folder of `bfcviz record`; one that exists must be empty, or with `force` a recording that ended.

    Returns:
        That recording, set aside.

    Raises:
        FileError: the folder contains other files, or cannot be made.
    """
    earlier = None
    if folder.is_dir() and any(folder.iterdir()):
        earlier = set_aside(folder, force=force)
    elif folder.exists() and not folder.is_dir():
        raise FileError(folder, "", "is a file, and a recording is a folder; choose another path with -o")
    try:
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, "", f"cannot hold a recording: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise FileError(folder, "", "cannot hold a recording: no permission to write to it")
    return earlier


def _recording_request(
    selection: Selection, folder: Path, reports: str, *, keeps_command: bool
) -> dict[str, Any]:
    """What the process that `bfcviz record` starts is to do, for `live.startup`."""
    return {
        **selection._asdict(),
        "folder": str(folder),
        "told": reports,
        "command": keeps_command,
        "home": str(_PACKAGE.parent),
        "recorder": "bfcviz.live.recorded_process",
    }


def _recording_environment(request: dict[str, Any]) -> dict[str, str]:
    folders = [str(_PACKAGE / "live" / "startup"), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(folder for folder in folders if folder)
    return {**os.environ, "PYTHONPATH": path, "BFCVIZ_RECORD": json.dumps(request)}
