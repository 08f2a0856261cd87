"""Alerts: thresholds for the numbers of a heap.

Every event counts: an alert also goes off when the heap was past the threshold for a single event between two checks,
and it names the step. The checks run about ten times a second in a thread of bfcviz, not in the workload. So the call,
and the MARK in the trace, come up to 0.1 s after the step that they name.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from bfcviz.errors import BfcvizError, LiveError
from bfcviz.events.marks import ALERT
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model import Model
from bfcviz.model.find_steps import events_of
from bfcviz.model.timelines import RATIOS, TIMELINE, measured, timeline_parts
from bfcviz.periodic import Periodic
from bfcviz.thresholds import Hysteresis, Threshold, Unit

GROWTH: Final = "growth_per_step"

MEASURES: Final = {
    "bytes_in_use": "bytes in use",
    "pool_bytes": "the pool",
    "free_bytes": "free bytes, with room to grow",
    "largest_free_chunk": "the largest free chunk, or room to grow",
    "external_fragmentation": "external fragmentation",
    "internal_fragmentation": "internal fragmentation",
    "reserved_not_in_use": "reserved-not-in-use",
    GROWTH: "growth of bytes in use per step",
}
"""The measures of alerts -> their names in text."""


@dataclass(frozen=True)
class Alert(Threshold):
    """A threshold for a number of a heap.

    ::

        Alert("bytes_in_use", above="400MiB")
        Alert("external_fragmentation", above=0.5, call=print)
        Alert("largest_free_chunk", below="10MiB")
        Alert("growth_per_step", above="1MiB")

    An alert goes off once. It goes off again only after the number stayed on the good side for about a second, so a
    number that rises and falls with each training step sets it off once. A number that starts past the threshold, as
    in an empty heap, must reach the good side first. Growth per step goes off again after ten such steps below the
    threshold, so a leak in every step sets it off once.

    Attributes:
        measure: one of `MEASURES`. `free_bytes` includes the bytes that the limit leaves for new regions;
            `largest_free_chunk` is that room where it is larger: a heap that can grow is short of neither. Where no
            limit is known, only free chunks count. `growth_per_step` compares the bytes in use at each mark with
            those at the previous mark whose name differs in its numbers only, such as `step 4` and `step 3`.
        above: bytes, or text such as `400MiB`; for fragmentation a share, 0..1.
        below: the same units; give either above or below.
        call: called with the `Alarm`, in a thread of bfcviz. The dashboard shows what it raises.

    Raises:
        LiveError: the measure or the threshold is not valid.
        ValueError: the text is not a size.
    """

    call: Callable[["Alarm"], object] | None = None

    UNITS: ClassVar[Mapping[str, Unit]] = {
        measure: "share" if measure in RATIOS else "bytes" for measure in MEASURES
    }
    REFUSAL: ClassVar[type[BfcvizError]] = LiveError

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.measure == GROWTH and not self.is_upper:
            raise LiveError(f"an alert for {GROWTH} needs an upper threshold: give above")

    @property
    def words(self) -> str:
        """The condition of the alert as text."""
        return f"{MEASURES[self.measure]} {self.bound}"


def check_alerts(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """The alerts as a tuple; raises LiveError where one is not an Alert."""
    given = tuple(alerts)
    for each in given:
        if not isinstance(each, Alert):
            raise LiveError(f"{each!r} is not an alert: give bfcviz.Alert('bytes_in_use', above='400MiB')")
    return given


class Alarm(NamedTuple):
    """An alert that went off."""

    alert: Alert  # the alert
    heap: str  # the name of the heap
    step: int  # the step of the worst value since the last check
    value: float  # the value at that step, in bytes or as a share (0..1)
    text: str  # all of this as one sentence

    @property
    def mark(self) -> tuple[str, int]:
        """Label and value of the alert's MARK; a share is given in per cent."""
        value = 100 * self.value if self.alert.measure in RATIOS else self.value
        return ALERT + self.alert.words, round(value)


PERIOD_S: Final = 0.1
"""Seconds between two checks."""

GOOD_CHECKS: Final = 10
"""Checks in a row on the good side of the threshold before an alert may go off again: about a second."""

GOOD_MARKS: Final = 10
"""Marks of one kind in a row without growth past the threshold before an alert for growth may go off again."""

_STOP_TIMEOUT_S: Final = 5.0  # how long `stop` waits for a check that is running
_PARTS: Final = 16  # the new events are measured in this many parts, each with its minimum and maximum
_OTHER_END: Final = {"min": "max", "max": "min", "last": "last"}


class _AlertState(Hysteresis):
    """The state of one alert.

    Args:
        is_past: whether an empty heap is past the threshold.
    """

    def __init__(self, *, is_past: bool) -> None:
        super().__init__(GOOD_CHECKS, is_past=is_past)
        self.is_past = is_past  # at the end of the last check


class _Growth(NamedTuple):
    """The growth of the bytes in use from one mark to the next of its kind."""

    num_bytes: int
    step: int  # of the second mark
    kind: str  # the name of both marks, with # for each number
    words: str  # the two marks as text


class _GrowthState(defaultdict[str, Hysteresis]):
    """The state of one alert for growth: kind of marks -> whether its growth may set the alert off."""

    def __init__(self) -> None:
        super().__init__(partial(Hysteresis, GOOD_MARKS))

    def take(self, alert: Alert, growths: Sequence[_Growth]) -> _Growth | None:
        """Add growths; returns the one that sets the alert off, the largest: its kind is quiet from then on."""
        kinds = {each.kind for each in growths if self[each.kind].take(is_past=alert.is_past(each.num_bytes))}
        worst = max((each for each in growths if each.kind in kinds), default=None)
        for kind in kinds - ({worst.kind} if worst is not None else set()):
            self[kind].armed = True  # one alarm a check: its next growth is told
        return worst


class AlertMonitor:
    """Checks one heap against alerts.

    Args:
        trace: the trace of the heap; no other thread may read it.
        alerts: the alerts to check.
        pool: the number of the heap in the trace.
    """

    def __init__(self, trace: Trace, alerts: Sequence[Alert], pool: int = 0) -> None:
        self._trace = trace
        self._pool = pool
        self._model = Model(trace, pool)
        self._alerts = alerts
        empty = np.zeros(1, TIMELINE)[0]
        at_start = [alert.is_past(self._value(alert, empty, "last")) for alert in alerts]
        self._states = [_AlertState(is_past=is_past) for is_past in at_start]
        self._at_marks: dict[str, tuple[str, int]] = {}
        self._growing = [_GrowthState() for _ in alerts]

    def check(self) -> list[Alarm]:
        """The alerts that went off in the events since the last check; at most one alarm for each alert."""
        self._trace.refresh()
        rows, names = self._measured()
        growths = self._growths(rows, names)
        found = []
        for alert, state, growing in zip(self._alerts, self._states, self._growing, strict=True):
            if alert.measure == GROWTH:
                alarm = self._check_growth(alert, growing, growths)
            else:
                alarm = self._check_value(alert, state, rows)
            if alarm is not None:
                found.append(alarm)
        return found

    def _measured(self) -> tuple[Any, dict[int, str]]:
        """For alerts: rows of TIMELINE for the new events; a row ends at each mark. Also step -> name of the mark."""
        trace = self._trace
        start, stop = max(self._model.step, trace.first), len(trace)
        if start == stop:
            return [], {}
        self._model.seek(start)
        marks = events_of(trace, [Kind.MARK], self._pool, start, stop)
        names = {int(mark["seq"]) + 1: trace.labels.name(int(mark["label"])) for mark in marks}
        return measured(self._model, sorted({*names, *timeline_parts(start, stop, _PARTS)})), names

    def _check_value(self, alert: Alert, state: _AlertState, rows: Any) -> Alarm | None:
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
        """The value of an alert's measure in a row of TIMELINE; which: `min`, `max` or `last`."""
        if alert.measure == GROWTH:
            return 0.0
        value: float = row[f"{alert.measure}_{which}"].item()
        limit = self._trace.origin.pools[self._pool].limit
        if alert.measure not in ("free_bytes", "largest_free_chunk") or limit is None:
            return value
        pool: int = row[f"pool_bytes_{_OTHER_END[which]}"].item()  # a larger pool leaves less room to grow
        room = max(limit - pool, 0)
        return value + room if alert.measure == "free_bytes" else max(value, room)

    def _growths(self, rows: Any, names: dict[int, str]) -> list[_Growth]:
        """For alerts: the growth from each mark to the next of its kind."""
        found = []
        for row in rows:
            name = names.get(int(row["step"]))
            if name is None or name.startswith(ALERT):
                continue
            kind, in_use = re.sub(r"\d+", "#", name), int(row["bytes_in_use_last"])
            if kind in self._at_marks:
                before, then = self._at_marks[kind]
                words = f"from '{before}' to '{name}'"
                found.append(_Growth(in_use - then, int(row["step"]), kind, words))
            self._at_marks[kind] = name, in_use
        return found

    def _check_growth(self, alert: Alert, state: _GrowthState, growths: list[_Growth]) -> Alarm | None:
        found = state.take(alert, growths)
        if found is None:
            return None
        text = f"bytes in use grew by {alert.told(found.num_bytes)} {found.words}, {alert.bound}"
        return Alarm(alert, self._name, found.step, float(found.num_bytes), text)

    @property
    def _name(self) -> str:
        return self._trace.origin.pools[self._pool].name


class MonitorThread:
    """The thread that checks alerts: it calls a function every 0.1 s until it is stopped or a call fails.

    Start it where NumPy is not served (`bfcviz.live.numpy.unserved`): its arrays do not belong to the workload.

    Args:
        check: the function; called in this thread, and a last time in the thread that calls `stop`.
        failed: called with the exception that a call raised; no call follows.
    """

    def __init__(self, check: Callable[[], object], failed: Callable[[Exception], object]) -> None:
        self._check = check
        self._failed = failed
        self._periodic = Periodic(self._next, "bfcviz-monitor", failed=failed)
        self._periodic.start(PERIOD_S)

    def stop(self) -> None:
        """End the thread and check the alerts a last time."""
        if self._periodic.running and self._periodic.stop(_STOP_TIMEOUT_S):
            try:
                self._check()
            except Exception as error:  # noqa: BLE001  no error may reach the workload
                self._failed(error)

    def _next(self) -> float:
        self._check()
        return PERIOD_S
