"""Guard: goes through what a heap has written since it looked last, and finds the alerts that go off."""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.browse.navigation import events_of
from bfcviz.model.timelines.timeline import TIMELINE, equal_parts, measured
from bfcviz.thresholds import Hysteresis
from bfcviz.watching.alerts import GROWTH, MARKED, MEASURES, Alarm, Alert

CALM: Final = 10
"""Looks in a row on the good side, after which an alert may go off again: about a second."""

_PARTS: Final = 16  # of what came since the last look, each with its least and greatest value
_OTHER_END: Final = {"min": "max", "max": "min", "last": "last"}


class _State(Hysteresis):
    """Of one alert.

    Args:
        is_past: whether a heap without memory is past the threshold.
    """

    def __init__(self, *, is_past: bool) -> None:
        super().__init__(CALM, is_past=is_past)
        self.is_past = is_past  # at the end of the last look


class Guard:
    """Looks after one heap.

    Args:
        trace: of the heap; nobody else may read it meanwhile.
        alerts: what to look for.
    """

    def __init__(self, trace: Trace, alerts: Sequence[Alert]) -> None:
        self._trace = trace
        self._model = Model(trace)
        self._alerts = alerts
        empty = np.zeros(1, TIMELINE)[0]
        self._states = [_State(is_past=alert.is_past(self._value(alert, empty, "last"))) for alert in alerts]
        self._at_marks: dict[str, tuple[str, int]] = {}

    def look(self) -> list[Alarm]:
        """What went off among the events since the last look; at most one of each alert."""
        self._trace.refresh()
        rows, at = self._measured()
        growths = self._growths(rows, at)
        found = []
        for alert, state in zip(self._alerts, self._states, strict=True):
            alarm = (
                self._growth(alert, growths) if alert.measure == GROWTH else self._passed(alert, state, rows)
            )
            found += [] if alarm is None else [alarm]
        return found

    def _measured(self) -> tuple[Any, dict[int, str]]:
        """Rows of TIMELINE of what is new, one of which ends at each mark; and the marks' names by their steps."""
        trace = self._trace
        start, stop = max(self._model.step, trace.first), len(trace)
        if start == stop:
            return [], {}
        self._model.seek(start)
        marks = events_of(trace, [Kind.MARK], 0, start, stop)
        at = {int(mark["seq"]) + 1: trace.labels.name(int(mark["label"])) for mark in marks}
        return measured(self._model, sorted({*at, *equal_parts(start, stop, _PARTS)})), at

    def _passed(self, alert: Alert, state: _State, rows: Any) -> Alarm | None:
        end = "max" if alert.is_upper else "min"
        worst: tuple[float, float, int] | None = None
        for row in rows:
            value, step = self._value(alert, row, end), int(row[f"{alert.measure}_{end}_step"])
            beyond = abs(value - alert.number)
            if alert.is_past(value) and (worst is None or beyond > worst[0]):
                worst = beyond, value, step
            state.is_past = alert.is_past(self._value(alert, row, "last"))
        if not state.take(is_past=worst is not None or state.is_past) or worst is None:
            return None
        _, value, step = worst
        text = f"{MEASURES[alert.measure]} was {alert.told(value)} at step {step:,}, {alert.bound}"
        return Alarm(alert, self._name, step, value, text)

    def _value(self, alert: Alert, row: Any, which: str) -> float:
        """The measure in a row of TIMELINE; which: `min`, `max` or `last`."""
        if alert.measure == GROWTH:
            return 0.0
        value: float = row[f"{alert.measure}_{which}"].item()
        limit = self._trace.origin.pools[0].limit
        if alert.measure not in ("free_bytes", "largest_free_chunk") or limit is None:
            return value
        pool: int = row[f"pool_bytes_{_OTHER_END[which]}"].item()  # the more there is, the less it can grow
        room = max(limit - pool, 0)
        return value + room if alert.measure == "free_bytes" else max(value, room)

    def _growths(self, rows: Any, at: dict[int, str]) -> list[tuple[int, int, str]]:
        """From each mark to the next of its kind: bytes, step, and in words which."""
        found = []
        for row in rows:
            name = at.get(int(row["step"]))
            if name is None or name.startswith(MARKED):
                continue
            kind, in_use = re.sub(r"\d+", "#", name), int(row["bytes_in_use_last"])
            if kind in self._at_marks:
                before, then = self._at_marks[kind]
                found.append((in_use - then, int(row["step"]), f"from '{before}' to '{name}'"))
            self._at_marks[kind] = name, in_use
        return found

    def _growth(self, alert: Alert, growths: list[tuple[int, int, str]]) -> Alarm | None:
        grown, step, words = max(growths, default=(0, 0, ""))
        if not words or not alert.is_past(grown):
            return None
        text = f"bytes in use grew by {alert.told(grown)} {words}, {alert.bound}"
        return Alarm(alert, self._name, step, float(grown), text)

    @property
    def _name(self) -> str:
        return self._trace.origin.pools[0].name
