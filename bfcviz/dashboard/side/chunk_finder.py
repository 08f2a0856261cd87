"""Find the selected chunk in the model, and collect its facts."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.origin_details import holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures.style.view_options import Selected
from bfcviz.model import Model
from bfcviz.model.explain.chunk_life import Life, life_of

_NEIGHBOURS: Final = ("before", "after")


@dataclass(frozen=True)
class ChunkFacts:
    """The selected chunk, seen from a step.

    Attributes:
        life: when it began and ended.
        label: number of its label; 0: none, or it is free.
        requested: requested bytes; None: it is free, or the trace does not have them.
        neighbours: the chunks before and after it in its region, of CHUNK; empty where the allocation does not exist at
            this step.
        history: whether the trace has a history.
    """

    life: Life
    label: int
    requested: int | None
    neighbours: dict[str, np.void]
    history: bool

    @property
    def allocated(self) -> np.void | None:
        """Its ALLOCATE; None for a free chunk."""
        began = self.life.began
        return began if began is not None and began["kind"] == Kind.ALLOCATE else None

    @property
    def freed(self) -> np.void | None:
        """Its FREE; None for a free chunk, and where none was found."""
        return self.life.ended if self.allocated is not None else None

    @property
    def thread(self) -> tuple[int, int] | None:
        """The numbers of its thread and stream; None for a free chunk."""
        event = self.allocated
        return None if event is None else (int(event["thread"]), int(event["stream"]))


class ChunkFinder:
    """Finds the facts of a selected chunk; the search for its end is made once."""

    def __init__(self) -> None:
        self._known: tuple[Trace, int, Selected, Life] | None = None

    def find(self, model: Model, selected: Selected, *, waste_known: bool) -> ChunkFacts | None:
        """The facts seen from the model's step; None where there is no such allocation or free chunk."""
        life = self._life(model, selected)
        if life is None:
            return None
        facts = ChunkFacts(life, 0, None, {}, not holds_only_states(model.trace.origin.details))
        if (event := facts.allocated) is not None:
            requested = int(event["requested"]) if waste_known else None
            facts = replace(facts, label=int(event["label"]), requested=requested)
        if life.in_use or selected.born is None:
            facts = replace(facts, neighbours=_neighbours(model.chunks(), selected.address))
        return facts

    def _life(self, model: Model, selected: Selected) -> Life | None:
        """The life of a chunk; while it lasts, a step changes only from where it is seen."""
        if self._known is not None:
            trace, pool, known, life = self._known
            if (trace is model.trace, pool, known) == (True, model.pool, selected) and _lasts(
                life, model.step
            ):
                return replace(life, step=model.step)
        found = life_of(model, selected)
        self._known = None if found is None else (model.trace, model.pool, selected, found)
        return found


def _lasts(life: Life, step: int) -> bool:
    """Whether the chunk is at `step` as it was at the step of its life."""
    if life.began is None or life.ended is None:
        return False
    first, last = int(life.began["seq"]) + 1, int(life.ended["seq"])
    return first <= life.step <= last and first <= step <= last


def _neighbours(chunks: NDArray[np.void], address: int) -> dict[str, np.void]:
    place = int(np.searchsorted(chunks["address"], np.uint64(address)))
    found = {}
    for name, at in zip(_NEIGHBOURS, (place - 1, place + 1), strict=True):
        if 0 <= at < len(chunks) and chunks["region"][at] == chunks["region"][place]:
            found[name] = chunks[at]
    return found
