"""What is said of a recording, in one line, when `bfcviz record` is done."""

import json
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.errors import BfcvizError
from bfcviz.events.folder import ORIGIN_FILE
from bfcviz.events.origin import Status
from bfcviz.events.trace import Trace
from bfcviz.importers.opening import open_trace
from bfcviz.live.record import CLAIM
from bfcviz.live.tensorflow import whole_windows
from bfcviz.model.find import failures
from bfcviz.model.replay import Model
from bfcviz.units import format_bytes

_MOST_FAILURES: Final = 1000

_WAYS: Final = {"serve": "served", "observe": "observed"}


class Word(NamedTuple):
    """What a process left word of (see `live.startup`): a fact, of which Python, and why."""

    fact: str
    python: str
    why: str


def summary(folder: Path, told: Path) -> str:
    """What was recorded, how to look at it, and what was not."""
    words = [word for file in sorted(told.iterdir()) for word in _words(file)]
    (folder / CLAIM).unlink(missing_ok=True)
    others = sum(word.fact in {"other", "unable"} for word in words)
    if windows := whole_windows(folder):
        told_of, look = _of_windows(windows)
        parts = [told_of]
    elif (folder / ORIGIN_FILE).exists():
        parts, look = _of(Trace.open(folder)), folder
    else:
        return f"nothing was recorded: {_why_nothing(words)}"
    parts += _counted(others) + _left_out([word.why for word in words if word.fact == "left out"])
    return f"{folder}: {', '.join(parts)}" + ("" if look is None else f". To look at it: bfcviz view {look}")


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
    return [Word(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _why_nothing(words: list[Word]) -> str:
    for word in words:
        if word.fact == "unable":
            return f"{word.python} could not: {word.why}"
    if any(word.fact == "recorded" for word in words):
        return "the program ended before there was anything to record"
    for word in words:
        if word.fact == "began":
            hint = "; --numpy records NumPy's arrays" if word.why == "cupy" else ""
            return f"no Python process imported {word.why}{hint}"
    return "no Python process began that reads PYTHONPATH (it does not with -I or -E, nor with -S)"


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
