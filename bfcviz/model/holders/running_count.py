"""Sums of the chunks in use by holder, from step to step: only the events between two near steps are read."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.schema import Kind
from bfcviz.model.holders.holder_index import HolderIndex
from bfcviz.model.state.model import Model

_NEAR: Final = 8192
"""Events between two steps: to read more takes longer than to count 70,000 chunks."""


class RunningCount:
    """The sums of one index at the step of a model."""

    def __init__(self, index: HolderIndex) -> None:
        self._index = index
        self._step: int | None = None
        self._sums = np.zeros((3, 0), np.int64)

    def at(self, model: Model) -> NDArray[np.int64]:
        """The sums at the model's step, as `HolderIndex.count` gives them; all calls are for one heap of one trace."""
        step, before, first = model.step, self._step, model.trace.first
        # A FREE does not tell in which phase its chunk was allocated.
        known = before is not None and before >= first and self._index.how.by != "phase"
        if before is None or not known or abs(step - before) > _NEAR:
            self._sums = self._index.count(model.in_use())
        elif step != before:
            self._move(model, before)
        self._step = step
        return self._sums

    def _move(self, model: Model, before: int) -> None:
        """Take in the events between the step `before` and the model's."""
        step = model.step
        events = model.trace.read(min(step, before), max(step, before))
        kinds = np.where(events["pool"] == model.pool, events["kind"], 0)
        for kind, sign in ((Kind.ALLOCATE, 1), (Kind.FREE, -1)):
            change = self._index.count(events[kinds == kind])
            sums = np.pad(self._sums, ((0, 0), (0, change.shape[1] - self._sums.shape[1])))
            self._sums = sums + change * (sign if step > before else -sign)
