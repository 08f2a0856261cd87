"""What several subcommands share: files opened with a progress bar, steps, the ranks of a job, requests to serve."""

import argparse
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import numpy as np

from bfcviz.cli.command import INTERRUPTED
from bfcviz.errors import FileError, InvalidRequest, TraceError
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.find_steps import NAMED_STEPS
from bfcviz.model.grouping import UNNAMED
from bfcviz.periodic import Periodic
from bfcviz.terminal import printable, say
from bfcviz.units import read_as

if TYPE_CHECKING:  # a command that needs them waits for their import, and no other
    from bfcviz.analysis.ranks import RankSet
    from bfcviz.whatif.requests import RequestStream
    from bfcviz.whatif.search import SearchControl

# ------------------------------------------------------------------------------
# Open a file with a progress bar on a terminal, and check where a command writes.

_QUIET_S: Final = 0.5  # nothing is shown for so long: most files are read sooner

_PAUSE_S: Final = 0.2
_WIDTH: Final = 30
_ERASE: Final = "\r\x1b[K"


class ProgressBar:
    """One line on a terminal: what is read, how much of it, and for how long; a thread draws it."""

    def __init__(self, text: str, stream: TextIO) -> None:
        self.share: float | None = None  # how much is done, 0..1; None: unknown
        self._text = printable(text)
        self._stream = stream
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._is_drawn = False
        self._is_over = False

    def draw(self) -> float | None:
        """Draw the line; returns the seconds until the next time."""
        with self._lock:
            if self._is_over:
                return None
            elapsed = time.monotonic() - self._began
            if elapsed >= _QUIET_S:
                self._is_drawn = True
                self._stream.write(f"{_ERASE}{self._text} {self._bar()}{elapsed:.0f} s")
                self._stream.flush()
            return _PAUSE_S

    def count(self, done: int, total: int) -> None:
        """So many of all are done."""
        self.share = done / max(total, 1)

    def erase(self) -> None:
        """Remove the line; it is not drawn again."""
        with self._lock:
            self._is_over = True
            if self._is_drawn:
                self._stream.write(_ERASE)
                self._stream.flush()

    def _bar(self) -> str:
        if self.share is None:
            return ""
        full = int(_WIDTH * self.share)
        return f"[{'#' * full}{'.' * (_WIDTH - full)}] {100 * self.share:3.0f} % "


class _CountedTrace(Trace):
    """A trace that tells a progress bar how far its events were read."""

    def __init__(self, trace: Trace, bar: ProgressBar) -> None:
        super().__init__(trace.source)
        self.path = trace.path
        self._bar = bar

    def read(self, start: int, stop: int) -> Events:
        """As `Trace.read`."""
        if stop - start > 1:  # not one that looks at a single event
            self._bar.share = stop / max(len(self), 1)
        return super().read(start, stop)


@contextmanager
def open_with_progress(file: str) -> Iterator[Trace]:
    """Open a file; until the end of the `with` a terminal shows how much of it was read.

    Raises:
        FileError: the file cannot be read.
    """
    if not sys.stderr.isatty():
        yield open_trace(file)
        return
    with _drawn_progress_bar(f"Reading {Path(file).name}") as bar:
        yield _CountedTrace(open_trace(file), bar)


@contextmanager
def _drawn_progress_bar(text: str) -> Iterator[ProgressBar]:
    """A progress bar, drawn until the end of the `with` where there is a terminal."""
    bar = ProgressBar(text, sys.stderr)
    if not sys.stderr.isatty():
        yield bar
        return
    drawing = Periodic(bar.draw, "bfcviz-progress")
    drawing.start()
    try:
        yield bar
    finally:
        bar.erase()
        drawing.stop()


def writable(out: Path, source: str, suffixes: Sequence[str], *, force: bool) -> Path:
    """`out`, checked before the work begins.

    Raises:
        FileError: its ending names no format, it exists, it is the source, or its folder does not exist.
    """
    if out.suffix.lower() not in suffixes:
        raise FileError(out, "", f"names no format: its name must end in {', '.join(suffixes)}")
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise FileError(out, "", "is the file to read and would be overwritten; choose another path with -o")
    if out.is_dir():
        raise FileError(out, "", "is a folder; give the path of a file with -o")
    if out.exists() and not force:
        raise FileError(out, "", "exists already; choose another path with -o, or give --force")
    if not out.parent.is_dir():
        raise FileError(
            out, "", "cannot be written: its folder does not exist; make it, or choose another with -o"
        )
    return out


def add_by(parser: argparse.ArgumentParser, what: str, default: str) -> None:
    """Add the property by which memory is grouped; `what` it groups, and the `default` in words."""
    parser.add_argument(
        "--by",
        choices=UNNAMED,
        default="op",
        metavar="WHAT",
        type=lambda name: name.replace("-", "_"),
        help=f"what {what} by: one of {', '.join(UNNAMED)} (default: {default})",
    )


# ------------------------------------------------------------------------------
# Several files: the ranks of one job. And the allocator of a file by its name or number.


def asked_ranks(
    arguments: argparse.Namespace, *, by: str = "op", step: int | str | None = None
) -> "RankSet | None":
    """The ranks in the files of the arguments; None where these name one file.

    On a terminal a bar shows how many files are read; Ctrl-C ends it with those that were read.

    Raises:
        FileError: a file does not exist, or a folder has too many.
        TraceError: no file can be read.
    """
    words = [arguments.file, *arguments.more]
    if not arguments.more and os.path.isfile(arguments.file):  # noqa: PTH113  also of text that is no path
        return None
    from bfcviz.public_functions import open_several  # noqa: PLC0415  with all answers about a trace

    with _drawn_progress_bar("Reading the ranks") as bar:
        found = open_several(words, by=by, step=step, progress=bar.count)
    if found is not None:
        _ = found.worst  # raises where no rank can be read
    return found


def status_of(ranks: "RankSet") -> int | None:
    """The exit status after these ranks: that of an interrupt, if files were left out."""
    return INTERRUPTED if ranks.left_out else None


def pool_number(trace: Trace, word: str) -> int:
    """The number of the allocator with this name, or with this number.

    Raises:
        TraceError: there is none; the message lists all.
    """
    names = [pool.name for pool in trace.origin.pools]
    if word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < len(names):
        return int(word)
    shown = ", ".join(f"{number}: {name}" for number, name in enumerate(names[:20]))
    raise TraceError(f"the file has no allocator {word!r}; it has {shown}")


# ------------------------------------------------------------------------------
# The requests that `bfcviz whatif` and `bfcviz fit` serve: of which file and allocator.


def add_request_arguments(parser: argparse.ArgumentParser, *, with_failed: bool = False) -> None:
    """Add the file, the allocator, and whether failed requests are served; `with_failed`: they are by default."""
    parser.add_argument("file", metavar="FILE", help="a trace or profile: anything that `bfcviz info` reads")
    parser.add_argument(
        "--pool",
        default=None,
        metavar="NAME",
        help="the allocator: its name, or its number in the file, from 0 (default: the one with a failed request, else "
        "the first)",
    )
    served, left_out = (" (the default)", "") if with_failed else ("", " (the default)")
    parser.add_argument(
        "--without-failed",
        action="store_true",
        default=not with_failed,
        help=f"leave out the requests that failed in the file: for a job that went on without them{left_out}",
    )
    parser.add_argument(
        "--with-failed",
        action="store_false",
        dest="without_failed",
        help=f"serve also the requests that failed in the file: would they have fitted?{served}",
    )


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the memory of the device, and the share of it that the process may take."""
    parser.add_argument(
        "--device", metavar="SIZE", help="memory of the device, such as 80GiB: the limit of the process"
    )
    parser.add_argument(
        "--fraction",
        type=float,
        metavar="SHARE",
        help="the share of the device that the process may take, such as 0.5, as by PyTorch's "
        "set_per_process_memory_fraction; needs --device",
    )


def asked_device(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """The limit in bytes, and the device if the limit is a share of it; None: not given.

    Raises:
        InvalidRequest: the size or share is none, or the share is of an unknown device.
    """
    from bfcviz.whatif.policy_replay import replay_limit  # noqa: PLC0415

    device, fraction = replay_limit(arguments.device, "--device"), arguments.fraction
    if note := read_as(arguments.device):
        say(note, file=sys.stderr)
    if fraction is None:
        return device, None
    if device is None:
        raise InvalidRequest(
            f"--fraction {fraction:g} is a share of a device: give its memory, such as --device 80GiB"
        )
    if not 0 < fraction <= 1:
        raise InvalidRequest(f"--fraction is {fraction:g}; give a share above 0, up to 1")
    return int(fraction * device), device


def asked_requests(arguments: argparse.Namespace, *, keep_failed: bool = False) -> "RequestStream":
    """The requests of the file; `keep_failed`: those that failed are not left out here.

    Raises:
        FileError: the file cannot be read.
        TraceError: the file has no such allocator.
        InvalidRequest: it has nothing to compare: no allocations, or no frees.
    """
    from bfcviz.whatif.requests import stream_of  # noqa: PLC0415
    from bfcviz.whatif.search import searchable  # noqa: PLC0415

    with open_with_progress(arguments.file) as trace:
        pool = None if arguments.pool is None else pool_number(trace, arguments.pool)
        stream = stream_of(trace, pool)
    left_out = arguments.without_failed and not keep_failed
    return searchable(stream.without_failed() if left_out else stream)


# ------------------------------------------------------------------------------
# The progress of a search as a line on a terminal, and Ctrl-C, which ends it with what is known so far.


@contextmanager
def search_control(text: str) -> "Iterator[SearchControl]":
    """A control for one search; until the end of the `with` a terminal shows how far it is."""
    from bfcviz.whatif.search import SearchControl  # noqa: PLC0415

    with _drawn_progress_bar(text) as bar:
        yield SearchControl(lambda done, total, _text: bar.count(done, total))


# ------------------------------------------------------------------------------
# The arguments `--step` and `--event`: the number of a step, its name, or the index of an event.


def parse_step(text: str) -> int | str:
    """The number of a step, or one of `NAMED_STEPS`."""
    if text in NAMED_STEPS:
        return text
    try:
        return int(text.replace(",", ""))  # bfcviz prints 10,479
    except ValueError:
        names = ", ".join(NAMED_STEPS)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a step: give a number, or one of {names}"
        ) from None


def parse_event(text: str) -> int:
    """The argument `--event`: the step just after the event with this index."""
    try:
        event = int(text.replace(",", ""))
    except ValueError:
        event = -1
    if event < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not the index of an event: give a number from 0")
    return event + 1


# ------------------------------------------------------------------------------
# The arguments `--range` and `--time`: a part of a trace, as steps or as times since its first event.

_UNITS: Final = {"": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1, "min": 60 * 10**9}

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)")

Ends = tuple[int | None, int | None]
"""The first and the last of a range; None: that of the trace."""


def add_range_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--range` and `--time`, of which one can be given."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--range",
        dest="steps",
        type=partial(_parse_range, parse=_parse_whole_step, form="steps, such as 1000:2000"),
        metavar="A:B",
        help="only steps A to B, such as 1000:2000, 1000: or :2000; a step is a number of events applied",
    )
    which.add_argument(
        "--time",
        type=partial(_parse_range, parse=_parse_nanoseconds, form="times, such as 10s:20s"),
        metavar="A:B",
        help="only this time since the first event, such as 10s:20s, 500ms: or :2min",
    )


def steps_of(arguments: argparse.Namespace, trace: Trace) -> tuple[int, int]:
    """The first and the last step that `--range` or `--time` asks for.

    Raises:
        TraceError: the trace has no such steps, or none in that time.
    """
    first, last = trace.first, len(trace)
    if arguments.time is not None:
        return _steps_within(trace, arguments.time)
    if arguments.steps is None:
        return first, last
    start, stop = (
        end if end is not None else other for end, other in zip(arguments.steps, (first, last), strict=True)
    )
    if not first <= start <= stop <= last:
        raise TraceError(f"--range {start}:{stop} is not in the trace: it has steps {first} to {last}")
    return start, stop


def _steps_within(trace: Trace, times: Ends) -> tuple[int, int]:
    """The steps of the events within `--time`; times never decrease in a trace."""
    if len(trace) == trace.first:
        raise TraceError("--time was given, but the trace has no event")
    begin = _time_of_event(trace, trace.first)
    start = trace.first if times[0] is None else _first_step_at(trace, begin + times[0])
    stop = len(trace) if times[1] is None else _first_step_at(trace, begin + times[1] + 1)
    if start >= stop:
        length = (_time_of_event(trace, len(trace) - 1) - begin) / 1e9
        raise TraceError(f"no event lies in that --time: the trace lasts {length:.6g} s")
    return start, stop


def _first_step_at(trace: Trace, time: int) -> int:
    """The step before the first event at or after a time, for `--time`; a search that reads few blocks."""
    low, high = trace.first, len(trace)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _time_of_event(trace, middle) < time else (low, middle)
    return low


def _time_of_event(trace: Trace, event: int) -> int:
    """The time of an event in nanoseconds, for `--time`."""
    return int(np.int64(trace.read(event, event + 1)["time"][0]))


def _parse_range(text: str, parse: Callable[[str], int | None], form: str) -> Ends:
    """The two ends of `--range` or `--time` in a command line."""
    parts = [part.strip() for part in text.replace(",", "").split(":")]
    found = [parse(part) if part else None for part in parts]
    is_known = [not part or end is not None for part, end in zip(parts, found, strict=True)]
    if len(parts) == 2 and all(is_known):
        first, last = found
        if first is None or last is None or first <= last:
            return first, last
    raise argparse.ArgumentTypeError(f"{text!r} is not a range: give two {form}")


def _parse_whole_step(text: str) -> int | None:
    """One end of `--range`; None: it is no step."""
    return int(text) if text.isdecimal() else None


def _parse_nanoseconds(text: str) -> int | None:
    """One end of `--time` in nanoseconds; None: it is no time."""
    found = _DURATION.fullmatch(text)
    if found is None or found[2] not in _UNITS:
        return None
    value = float(found[1]) * _UNITS[found[2]]
    return int(value) if math.isfinite(value) and value < 1 << 62 else None
