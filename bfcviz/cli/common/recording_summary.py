"""The one line about a recording, or those of several processes, that `bfcviz record` prints at its end."""

import json
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.errors import BfcvizError
from bfcviz.events.origin import Origin, Status
from bfcviz.events.origin_details import later_reasons
from bfcviz.events.storage.recording_files import ORIGIN_FILE, read_origin
from bfcviz.events.storage.recording_set import has_several, recordings_in
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.live.process.record import CLAIM
from bfcviz.live.process.startup.sitecustomize import LOST, UNWRITTEN
from bfcviz.live.tensorflow.windows import whole_windows
from bfcviz.model.browse.navigation import failures
from bfcviz.model.state.model import Model
from bfcviz.units import format_bytes

NOTHING: Final = "nothing was recorded: "
"""The beginning of the line if there is no recording."""

_MOST_FAILURES: Final = 1000

_MOST_NAMED: Final = 8

_WAYS: Final = {"serve": "served", "observe": "observed"}


class ProcessReport(NamedTuple):
    """One report of a process, written by `live.process.startup`.

    Attributes:
        fact: what happened: `began`, `recorded`, `left out`, `unable`, `launcher`, `other` or `unwritten`.
        python: the Python that ran.
        why: the framework or the reason.
        process: the number of the process.
    """

    fact: str
    python: str
    why: str
    process: str


def summary(folder: Path, report_folder: Path) -> tuple[str, bool]:
    """What was recorded, how to view it, and what was not recorded; and whether everything was written."""
    reports = [report for file in sorted(report_folder.iterdir()) for report in _read_reports(file)]
    is_recorded = any(report.fact == "recorded" for report in reports)
    if is_recorded:
        (folder / CLAIM).unlink(missing_ok=True)
    unwritten = [report.why for report in reports if report.fact == UNWRITTEN]
    windows = whole_windows(folder) if is_recorded else []
    view = "view"
    if windows:
        text, to_view = _describe_windows(windows)
        parts = [text]
    elif has_several(folder):
        parts, to_view, view = _describe_several(folder, reports, unwritten), folder, "attach"
    elif (folder / ORIGIN_FILE).exists():
        origin, events, _ = read_origin(folder)
        if not _is_own(origin, reports):
            return f"{NOTHING}{_why_not_own(folder, origin, unwritten)}", False
        trace = Trace.open(folder)
        parts, to_view = _describe_trace(trace), folder
        if events is not None and not trace.origin.has_ended_whole:
            unwritten += later_reasons(trace.origin.details, trace.origin.reasons)
            parts.pop()
    else:
        why, is_written = _why_nothing(reports, unwritten)
        return f"{NOTHING}{why}", is_written
    recorded = {report.process for report in reports if report.fact == "recorded"}
    others = len({report.process for report in reports if report.fact in {"other", "unable"}} - recorded)
    parts += _distinct(unwritten) + _count_others(others)
    parts += _left_out([report.why for report in reports if report.fact == "left out"])
    hint = (
        "" if to_view is None else f". To view {'it' if view == 'view' else 'them'}: bfcviz {view} {to_view}"
    )
    return f"{folder}: {', '.join(parts)}{hint}", not unwritten


def _is_own(origin: Origin, reports: list[ProcessReport]) -> bool:
    """Whether a process started here wrote this recording: it has reported, unless it was killed at its start."""
    return any(str(origin.details.get("process")) == report.process for report in reports)


def _why_not_own(folder: Path, origin: Origin, unwritten: list[str]) -> str:
    if unwritten:
        return unwritten[0]
    process = origin.details.get("process")
    writer = "another program"
    if process is not None:
        writer = f"process {process}, which this `bfcviz record` did not start"
    return f"{writer} wrote the recording in {folder}; choose another folder with -o"


def _describe_several(folder: Path, reports: list[ProcessReport], unwritten: list[str]) -> list[str]:
    """The recordings of the processes that were started here; adds to `unwritten` what could not be written."""
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
    return [f"{len(found)} processes ({', '.join(names[:_MOST_NAMED] + more)}{ended})"]


def _distinct(reasons: list[str]) -> list[str]:
    return ["; ".join(dict.fromkeys(reasons))] if reasons else []


def _describe_windows(windows: list[Path]) -> tuple[str, Path | None]:
    """The number of windows, and the one to view: the last, or the first if the last is truncated or empty."""
    count = f"{len(windows)} window{'s' * (len(windows) > 1)} of TensorFlow"
    first, last = _profile(windows[0]), _profile(windows[-1])
    why = _why_not_shown(last)
    if not why:
        return count, last
    if first != last and not _why_not_shown(first):
        return f"{count} (the last cannot be shown: {why})", first
    return f"{count} (it cannot be shown: {why})", None


def _profile(window: Path) -> Path:
    return next(iter(sorted(window.rglob("*.xplane.pb"))), window)


def _why_not_shown(profile: Path) -> str:
    try:
        open_trace(profile)
    except (BfcvizError, MemoryError) as error:
        return str(error) or "not enough memory"
    return ""


def _left_out(heaps: list[str]) -> list[str]:
    """The heaps that are not recorded: those of further streams and devices, and of some threads of NumPy."""
    return [f"without {', '.join(heaps)}"] if heaps else []


def _read_reports(file: Path) -> list[ProcessReport]:
    """The reports of a process; the file is empty or truncated if the process could not write them."""
    process = file.name.removesuffix(LOST)
    lines = file.read_text(encoding="utf-8").splitlines()
    reports = []
    try:
        reports = [ProcessReport(**json.loads(line), process=process) for line in lines]
    except (ValueError, TypeError):
        lines = []
    if lines:
        return reports
    why = f"process {process} could not report on its recording: cannot write to {file.parents[1]}; is the disk full?"
    return [ProcessReport(UNWRITTEN, "", why, process)]


def _why_nothing(reports: list[ProcessReport], unwritten: list[str]) -> tuple[str, bool]:
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


def _describe_trace(trace: Trace) -> list[str]:
    details = trace.origin.details
    pools = [_describe_pool(trace, pool) for pool in range(len(trace.origin.pools))]
    way = _WAYS.get(str(details.get("way")), "recorded")
    whole = "complete" if trace.origin.status == Status.COMPLETE else "; ".join(trace.origin.reasons)
    return [f"{len(trace):,} events", f"{way} {' and '.join(pools)}", whole]


def _describe_pool(trace: Trace, pool: int) -> str:
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


def _count_others(others: int) -> list[str]:
    if others == 0:
        return []
    return [f"{others} other process{'es' * (others > 1)} not recorded"]
