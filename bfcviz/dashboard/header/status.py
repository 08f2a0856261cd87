"""How complete a trace is, and what a live heap does: the notice, and the status line of a live view."""

import time
from typing import Final

from bfcviz.events.origin import Origin, Status
from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.trace import Trace

_INCOMPLETE: Final = {
    Status.TRUNCATED: "its events are right, but the last ones are missing",
    Status.DEGRADED: "some events are missing or were guessed",
}


def notice(origin: Origin) -> tuple[str, str]:
    """What a trace does not have in one sentence, and why; both empty for a complete history."""
    sentences, reasons = [], []
    if holds_only_states(origin.details):
        states = "one state of each of its heaps" if len(origin.pools) > 1 else "one state of the heap"
        sentences.append(f"This file holds {states} and no history.")
        reasons.append("the events only build the state, from low to high addresses")
    if origin.status in _INCOMPLETE:
        missing = "some numbers are missing or were guessed" if sentences else _INCOMPLETE[origin.status]
        subject = "It" if sentences else "This trace"
        sentences.append(f"{subject} is {origin.status}: {missing}.")
        reasons += origin.reasons
    return " ".join(sentences), "; ".join(reasons)


PERIOD_S: Final = 1.0
_LEAST_S: Final = 0.1
"""A rate over less says nothing."""


class StatusLine:
    """Counts events and frames; measures their rates once a second."""

    def __init__(self) -> None:
        self._at = self._due = 0.0
        self._steps = self._frames = 0
        self._rates = ""

    def hurry(self) -> None:
        """Measure the rates for the next line."""
        self._due = 0.0

    def restart(self) -> None:
        """Forget the rates: what was counted before is of another heap, or unseen."""
        self._at = self._due = 0.0

    def text(
        self, trace: Trace, shown: int, frames: int, error: BaseException | None, *, paused: bool = False
    ) -> str:
        """The line.

        Args:
            trace: what is shown.
            shown: events of the last frame; the trace may have more already.
            frames: drawn so far.
            error: why no more are drawn.
            paused: whether the user paused the drawing.
        """
        now = time.monotonic()
        if now >= self._due:
            seconds, self._rates = now - self._at, ""
            if self._at and seconds > _LEAST_S:
                events, drawn = (len(trace) - self._steps) / seconds, (frames - self._frames) / seconds
                self._rates = f", {events:,.0f} events/s, {drawn:.1f} frames/s"
            self._at, self._due = 0.0 if paused else now, now + PERIOD_S  # no rate over a pause
            self._steps, self._frames = len(trace), frames
        rates = self._rates if trace.following and not paused else ""
        parts = [_state(trace, shown, paused=paused) + rates]
        if not notice(trace.origin)[0]:  # `notice` shows the reasons, below
            parts += trace.origin.reasons
        if error is not None:
            parts.insert(0, f"failed: {type(error).__name__}: {error}")
        return "; ".join(parts)


def _state(trace: Trace, shown: int, *, paused: bool) -> str:
    name = ("paused" if paused else "live") if trace.following else f"ended ({trace.origin.status})"
    return f"{name}: {shown:,} events{'' if trace.following else _exit_text(trace)}"


def _exit_text(trace: Trace) -> str:
    """How the process that `bfcviz record` recorded ended; empty for other traces."""
    process = trace.origin.details.get("process")
    if not isinstance(process, int):
        return ""
    truncated = trace.origin.status is Status.TRUNCATED
    return f"; process {process} " + (
        "was killed, or ended without closing its recording" if truncated else "ended"
    )
