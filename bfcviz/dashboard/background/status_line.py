"""Pulse: the line that tells how a live view is doing, once a second at most."""

import time
from typing import Final

from bfcviz.dashboard.controls.summary_text import notice
from bfcviz.events.origin import Status
from bfcviz.events.trace import Trace

PERIOD_S: Final = 1.0


class Pulse:
    """Counts events and pictures between two lines."""

    def __init__(self) -> None:
        self._at = self._due = 0.0
        self._steps = self._pictures = 0

    def hurry(self) -> None:
        """The next line is due now."""
        self._due = 0.0

    def words(self, trace: Trace, pictures: int, error: BaseException | None) -> str | None:
        """The line, None where the last one is too new; `pictures`: made so far."""
        now = time.monotonic()
        if now < self._due:
            return None
        parts = [_state(trace)]
        if not notice(trace.origin):  # which says the reasons itself, below
            parts += trace.origin.reasons
        if self._at and trace.following:
            seconds = now - self._at
            events, drawn = (len(trace) - self._steps) / seconds, (pictures - self._pictures) / seconds
            parts[0] += f", {events:,.0f} events and {drawn:.1f} pictures a second"
        if error is not None:
            parts.insert(0, f"failed: {type(error).__name__}: {error}")
        self._at, self._due = now, now + PERIOD_S
        self._steps, self._pictures = len(trace), pictures
        return "; ".join(parts)


def _state(trace: Trace) -> str:
    name = "live" if trace.following else f"ended ({trace.origin.status})"
    return f"{name}: {len(trace):,} events{'' if trace.following else _fate(trace)}"


def _fate(trace: Trace) -> str:
    """What became of the process that `bfcviz record` had recorded; nothing of others."""
    process = trace.origin.details.get("process")
    if not isinstance(process, int):
        return ""
    broke_off = trace.origin.status is Status.TRUNCATED
    return f"; process {process} " + ("was killed, or ended without a word" if broke_off else "ended")
