"""Arguments that several commands share, and what they ask for: files, ranks, an allocator, requests, a range, a step.

Its imports are light: `bfcviz view` starts the server of its page before it loads NumPy.
"""

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bfcviz.cli.command import INTERRUPTED
from bfcviz.errors import FileError, InvalidRequest, TraceError
from bfcviz.terminal import say
from bfcviz.units import read_as

if TYPE_CHECKING:
    from bfcviz.analysis.ranks import RankSet
    from bfcviz.events.trace import Trace
    from bfcviz.whatif.requests import RequestStream

# ------------------------------------------------------------------------------
# The arguments that many subcommands have: the files after the first, `--by`, `--kinds`; and the file to write.


def add_more_files(parser: argparse.ArgumentParser) -> None:
    """Add `FILE ...`: the files of a command after the first one."""
    parser.add_argument(
        "more",
        metavar="FILE",
        nargs="*",
        default=[],  # otherwise argparse calls it required
        help="more files: the ranks or workers of one job, compared, the worst first. A folder or a pattern such as "
        "'snapshots/*.pickle' stands for all files in it",
    )


def add_by(parser: argparse.ArgumentParser, what: str, default: str) -> None:
    """Add `--by`, the property by which memory is grouped; `what` it groups, and the `default` in words."""
    from bfcviz.model.grouping import UNNAMED  # noqa: PLC0415  only the commands that group

    parser.add_argument(
        "--by",
        choices=UNNAMED,
        default="op",
        metavar="WHAT",
        type=lambda name: name.replace("-", "_"),
        help=f"what {what} by: one of {', '.join(UNNAMED)} (default: {default})",
    )


def add_kinds(parser: argparse.ArgumentParser, where: str) -> None:
    """Add `--kinds`, the file of rules for kinds of memory; `where` says what shows kinds."""
    parser.add_argument(
        "--kinds",
        metavar="FILE",
        help=f"{where}: rules of your own, one `KIND: REGULAR EXPRESSION` a line, which is searched in the name and "
        "the stack of an allocation; they come before the built-in ones",
    )


def writable(out: Path, source: str, suffixes: Sequence[str], *, force: bool) -> Path:
    """The file that a command is to write, checked before the work begins.

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
    from bfcviz.cli.progress_bar import drawn_progress_bar  # noqa: PLC0415
    from bfcviz.public_functions import open_several  # noqa: PLC0415  with all answers about a trace

    with drawn_progress_bar("Reading the ranks") as bar:
        found = open_several(words, by=by, step=step, progress=bar.count)
    if found is not None:
        _ = found.worst  # raises where no rank can be read
    return found


def status_of(ranks: "RankSet") -> int | None:
    """The exit status of a command on these ranks: that of an interrupt, if files were left out."""
    return INTERRUPTED if ranks.left_out else None


def pool_number(trace: "Trace", word: str) -> int:
    """The number of the allocator that `--pool` asks for by its name or number.

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
    """Add FILE, `--pool`, the allocator, and whether failed requests are served; `with_failed`: they are by default."""
    parser.add_argument("file", metavar="FILE", help="a trace or profile: anything that `bfcviz info` reads")
    parser.add_argument(
        "--pool",
        default=None,
        metavar="NAME",
        help="the allocator: its name, or its number in the file, from 0 (default: the one with a failed request, else "
        "the first)",
    )
    add_failed_arguments(parser, with_failed=with_failed)


def add_failed_arguments(parser: argparse.ArgumentParser, *, with_failed: bool) -> None:
    """Add `--without-failed` and `--with-failed`; `with_failed` is the default: failed requests are served, too."""
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
    """Add `--device` and `--fraction`: the memory of the device, and the share of it that the process may take."""
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
    """The limit that `--device` and `--fraction` ask for, and the device if it is a share of one; None: not given.

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


def asked_requests(
    arguments: argparse.Namespace, *, keep_failed: bool = False, needs_frees: bool = True
) -> "RequestStream":
    """The requests of the file that the arguments name; `keep_failed`: those that failed are not left out here.

    Raises:
        FileError: the file cannot be read.
        TraceError: the file has no such allocator.
        InvalidRequest: it has nothing to compare: no allocations, or no frees where they are needed.
    """
    from bfcviz.cli.progress_bar import open_with_progress  # noqa: PLC0415
    from bfcviz.whatif.requests import stream_of  # noqa: PLC0415
    from bfcviz.whatif.search import searchable  # noqa: PLC0415

    with open_with_progress(arguments.file) as trace:
        pool = None if arguments.pool is None else pool_number(trace, arguments.pool)
        stream = stream_of(trace, pool)
    if not getattr(arguments, "json", False):
        say_truncated(trace)
        stream = replace(stream, notes=tuple(note for note in stream.notes if note != trace.origin.truncated))
    left_out = arguments.without_failed and not keep_failed
    return searchable(stream.without_failed() if left_out else stream, needs_frees=needs_frees)


def say_truncated(trace: "Trace", *, beside: bool = False) -> None:
    """Say at the top of an answer that events of the file are missing, where they are.

    `beside`: on standard error, beside an answer that is a file or rows.
    """
    if not trace.origin.truncated:
        return
    if beside:
        say(f"bfcviz: {trace.origin.truncated}", file=sys.stderr)
    else:
        say(f"{trace.origin.truncated}.", "")


# ------------------------------------------------------------------------------
# The arguments `--step` and `--event`: the number of a step, its name, or the index of an event.


def parse_step(text: str) -> int | str:
    """The argument `--step`: the number of a step, or one of `NAMED_STEPS`."""
    from bfcviz.model.find_steps import NAMED_STEPS  # noqa: PLC0415

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


def steps_of(arguments: argparse.Namespace, trace: "Trace") -> tuple[int, int]:
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


def _steps_within(trace: "Trace", times: Ends) -> tuple[int, int]:
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


def _first_step_at(trace: "Trace", time: int) -> int:
    """The step before the first event at or after a time, for `--time`; a search that reads few blocks."""
    low, high = trace.first, len(trace)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _time_of_event(trace, middle) < time else (low, middle)
    return low


def _time_of_event(trace: "Trace", event: int) -> int:
    """The time of an event in nanoseconds, for `--time`."""
    return int(trace.read(event, event + 1)["time"][0])


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
