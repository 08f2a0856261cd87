"""What is said of a recording, in one line, when `bfcviz record` is done."""

import json
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.errors import BfcvizError
from bfcviz.events.folder import ORIGIN_FILE
from bfcviz.events.origin import Status
from bfcviz.events.trace import Trace
from bfcviz.model.replay import Model
from bfcviz.units import format_bytes

_WAYS: Final = {"serve": "served", "observe": "observed"}


class Word(NamedTuple):
    """What a process left word of (see `live.startup`): a fact, of which Python, and why."""

    fact: str
    python: str
    why: str


def summary(folder: Path, told: Path) -> str:
    """What was recorded, how to look at it, and what was not."""
    words = [word for file in sorted(told.iterdir()) for word in _words(file)]
    if not (folder / ORIGIN_FILE).exists():
        return f"nothing was recorded: {_why_nothing(words)}"
    others = sum(word.fact in {"other", "unable"} for word in words)
    parts = [*_of(Trace.open(folder)), *_counted(others)]
    return f"{folder}: {', '.join(parts)}. To look at it: bfcviz view {folder}"


def _words(file: Path) -> list[Word]:
    return [Word(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _why_nothing(words: list[Word]) -> str:
    for word in words:
        if word.fact == "unable":
            return f"{word.python} could not: {word.why}"
    for word in words:
        if word.fact == "began":
            return f"no Python process imported {word.why}"
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
    return f"{name} (peak {format_bytes(model.stats().peak_bytes_in_use)})"


def _counted(others: int) -> list[str]:
    if others == 0:
        return []
    return [f"{others} other process{'es' * (others > 1)} not recorded"]
