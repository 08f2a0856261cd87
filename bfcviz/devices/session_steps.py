"""The steps in which a session made its devices: settings, factories, devices, manager; as a list, and as a trace."""

import html
from typing import NamedTuple

from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.units import format_bytes


class Step(NamedTuple):
    """One step of a session. `stage`: session, settings, factory, device or manager; `num_bytes`: 0 without a size."""

    time_ns: int
    stage: str
    words: str
    num_bytes: int

    @property
    def label(self) -> str:
        """The label of the MARK of a session's step."""
        return f"{self.stage}: {self.words}"


class Journey:
    """The steps of a session as MARK events: settings, factories, devices, manager, in order; prints as a list."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.labels = Labels()
        self._steps: list[tuple[str, str]] = []

    def note(self, stage: str, words: str, num_bytes: int = 0) -> None:
        """Record one step of a session."""
        self._steps.append((stage, words))
        number = self.labels.intern(f"{stage}: {words}")
        thread = self.log.begin_operation(-1)
        self.log.put(Kind.MARK, 0, 0, 0, num_bytes, 0, 0, number, thread, 0, -1, 0)

    @property
    def steps(self) -> list[Step]:
        """All steps of a session so far."""
        marks = self.log.copy(0, self.log.head)
        return [
            Step(int(mark["time"]), stage, words, int(mark["size"]))
            for mark, (stage, words) in zip(marks, self._steps, strict=True)
        ]

    def trace(self) -> Trace:
        """The steps of a session as a trace, to view or to save next to the traces of the heaps."""
        origin = Origin(pools=(Pool("journey of a session"),))
        return Trace.from_events(self.log.copy(0, self.log.head), self.labels, origin)

    def __str__(self) -> str:
        return "\n".join(
            f"{_session_step_time(step)}  {step.stage:<8}  {_session_step_text(step)}" for step in self.steps
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{_session_step_time(step)}</td><td>{html.escape(step.stage)}</td>"
            f"<td style='text-align:left'>{html.escape(_session_step_text(step))}</td></tr>"
            for step in self.steps
        )
        return f"<table><tr><th>time</th><th>stage</th><th>what happened</th></tr>{rows}</table>"


def _session_step_text(step: Step) -> str:
    return f"{step.words} ({format_bytes(step.num_bytes)})" if step.num_bytes else step.words


def _session_step_time(step: Step) -> str:
    return f"{step.time_ns / 1e6:9.3f} ms"
