"""StatusLine: the status of a live view as one line of text, at most once per second."""

import time
from typing import Final

from bfcviz.dashboard.controls.summary_text import notice
from bfcviz.events.origin import Status
from bfcviz.events.trace import Trace

PERIOD_S: Final = 1.0


class StatusLine:
    """Counts events and frames between two lines."""

    def __init__(self) -> None:
        self._at = self._due = 0.0
        self._steps = self._frames = 0

    def hurry(self) -> None:
        """Make the next line due now."""
        self._due = 0.0

    def text(self, trace: Trace, frames: int, error: BaseException | None) -> str | None:
        """The line, None if the last one is less than a second old; `frames`: drawn so far."""
        now = time.monotonic()
        if now < self._due:
            return None
        parts = [_state(trace)]
        if not notice(trace.origin):  # `notice` shows the reasons, below
            parts += trace.origin.reasons
        if self._at and trace.following:
            seconds = now - self._at
            events, drawn = (len(trace) - self._steps) / seconds, (frames - self._frames) / seconds
            parts[0] += f", {events:,.0f} events/s, {drawn:.1f} frames/s"
        if error is not None:
            parts.insert(0, f"failed: {type(error).__name__}: {error}")
        self._at, self._due = now, now + PERIOD_S
        self._steps, self._frames = len(trace), frames
        return "; ".join(parts)


def _state(trace: Trace) -> str:
    name = "live" if trace.following else f"ended ({trace.origin.status})"
    return f"{name}: {len(trace):,} events{'' if trace.following else _exit_text(trace)}"


def _exit_text(trace: Trace) -> str:
    """How the process that `bfcviz record` recorded ended; empty for other traces."""
    process = trace.origin.details.get("process")
    if not isinstance(process, int):
        return ""
    truncated = trace.origin.status is Status.TRUNCATED
    return f"; process {process} " + (
        "was killed, or ended without closing its recording" if truncated else "ended"
    )
