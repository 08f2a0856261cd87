"""What is said of a recording, in one line, when `bfcviz record` is done."""

import json
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.errors import BfcvizError
from bfcviz.events.origin import Origin, Status
from bfcviz.events.storage.folder_reader import ORIGIN_FILE, read_origin
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.live.process.record import CLAIM
from bfcviz.live.process.startup.sitecustomize import LOST, UNWRITTEN
from bfcviz.live.tensorflow.windows import whole_windows
from bfcviz.model.browse.navigation import failures
from bfcviz.model.state.model import Model
from bfcviz.units import format_bytes

_MOST_FAILURES: Final = 1000

_WAYS: Final = {"serve": "served", "observe": "observed"}


class Word(NamedTuple):
    """One report of a process (see `live.startup`): a fact, the Python, the reason, and the process's number."""

    fact: str
    python: str
    why: str
    process: str


def summary(folder: Path, told: Path) -> tuple[str, bool]:
    """What was recorded, how to look at it, and what was not; and whether everything was written."""
    words = [word for file in sorted(told.iterdir()) for word in _words(file)]
    recorded = [word for word in words if word.fact == "recorded"]
    if recorded:
        (folder / CLAIM).unlink(missing_ok=True)
    unwritten = [word.why for word in words if word.fact == UNWRITTEN]
    windows = whole_windows(folder) if recorded else []
    if windows:
        told_of, look = _of_windows(windows)
        parts = [told_of]
    elif (folder / ORIGIN_FILE).exists():
        origin, events, _ = read_origin(folder)
        if not _is_of(origin, words):
            return f"nothing was recorded: {_why_not_here(folder, origin, unwritten)}", False
        trace = Trace.open(folder)
        parts, look = _of(trace), folder
        if events is not None and trace.origin.status != Status.COMPLETE:
            unwritten += trace.origin.reasons
            parts.pop()
    else:
        why, is_written = _why_nothing(words, unwritten)
        return f"nothing was recorded: {why}", is_written
    others = sum(word.fact in {"other", "unable"} for word in words)
    parts += _once(unwritten) + _counted(others)
    parts += _left_out([word.why for word in words if word.fact == "left out"])
    to_look = "" if look is None else f". To look at it: bfcviz view {look}"
    return f"{folder}: {', '.join(parts)}{to_look}", not unwritten


def _is_of(origin: Origin, words: list[Word]) -> bool:
    """Whether one of our processes wrote this recording: it reported, unless it was killed at its start."""
    return any(str(origin.details.get("process")) == word.process for word in words)


def _why_not_here(folder: Path, origin: Origin, unwritten: list[str]) -> str:
    if unwritten:
        return unwritten[0]
    process = origin.details.get("process")
    whose = (
        "something else"
        if process is None
        else f"process {process}, which `bfcviz record` did not start here"
    )
    return f"the recording in {folder} is that of {whose}; choose another folder with -o"


def _once(reasons: list[str]) -> list[str]:
    return ["; ".join(dict.fromkeys(reasons))] if reasons else []


def _of_windows(windows: list[Path]) -> tuple[str, Path | None]:
    """How many there are, and the one to look at: the last, or, where that is cut short or empty, the first."""
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
        return str(error) or "there is not enough memory for it"
    return ""


def _left_out(heaps: list[str]) -> list[str]:
    """The first heap is recorded, those of further streams and devices are not; nor are some threads of NumPy's."""
    return [f"without {', '.join(heaps)}"] if heaps else []


def _words(file: Path) -> list[Word]:
    """What a process left; one that could not write it left an empty file, or a line that is cut off."""
    process = file.name.removesuffix(LOST)
    lines = file.read_text(encoding="utf-8").splitlines()
    words = []
    try:
        words = [Word(**json.loads(line), process=process) for line in lines]
    except (ValueError, TypeError):
        lines = []
    if lines:
        return words
    why = f"process {process} could not say how its recording went: {file.parents[1]} cannot be written to; is it full?"
    return [Word(UNWRITTEN, "", why, process)]


def _why_nothing(words: list[Word], unwritten: list[str]) -> tuple[str, bool]:
    """Why there is no recording, and whether that is as it should be."""
    if unwritten:
        return "; ".join(dict.fromkeys(unwritten)), False
    frameworks = [word.why for word in words if word.fact == "began"]
    if any(word.fact == "recorded" for word in words):
        if "tensorflow" in frameworks:
            return "the program ended before there was anything to record", True
        return "the recording was removed while the program ran", False
    for word in words:
        if word.fact == "unable":
            return f"{word.python} could not: {word.why}", True
    for framework in frameworks:
        hint = "; --numpy records NumPy's arrays" if framework == "cupy" else ""
        return f"no Python process imported {framework}{hint}", True
    return "no Python process began that reads PYTHONPATH (it does not with -I or -E, nor with -S)", True


def _of(trace: Trace) -> list[str]:
    details = trace.origin.details
    pools = [_pool(trace, pool) for pool in range(len(trace.origin.pools))]
    way = _WAYS.get(str(details.get("way")), "recorded")
    whole = "complete" if trace.origin.status == Status.COMPLETE else "; ".join(trace.origin.reasons)
    return [f"{len(trace):,} events", f"{way} {' and '.join(pools)}", whole]


def _pool(trace: Trace, pool: int) -> str:
    name = trace.origin.pools[pool].name
    try:
        model = Model(trace, pool)
        model.seek(len(trace))
    except BfcvizError:
        return name
    stats = model.stats()
    told = f"{name} (peak {format_bytes(stats.peak_bytes_in_use)}"
    if failed := len(failures(trace, pool, _MOST_FAILURES)):
        limit = "" if stats.bytes_limit is None else f" of {format_bytes(stats.bytes_limit)}"
        many = f"{failed:,}{' or more' * (failed == _MOST_FAILURES)}"
        told += f"{limit}; {many} request{'s' * (failed > 1)} failed"
    return f"{told})"


def _counted(others: int) -> list[str]:
    if others == 0:
        return []
    return [f"{others} other process{'es' * (others > 1)} not recorded"]
