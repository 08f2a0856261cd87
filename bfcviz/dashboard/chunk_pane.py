"""The pane of the selected chunk: who allocated it, its bytes, when, where, and its neighbours."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.chunk_life import (
    Life,
    beginning_words,
    end_words,
    life_of,
    merge_words,
    next_words,
    source_words,
    span_words,
)
from bfcviz.code_places import telling_lines
from bfcviz.dashboard.side_style import STYLE
from bfcviz.events.origin import holds_only_states, requested_bytes_known
from bfcviz.events.schema import Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.figures.text import exact_bytes, harmless
from bfcviz.figures.view_options import Look, Selected
from bfcviz.model import Model
from bfcviz.model.grouping import place_in_code
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Find the selected chunk in the model, and collect its facts.

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


# ------------------------------------------------------------------------------
# The pane of the selected chunk: who allocated it, its bytes, when, where, and its neighbours.

_NONE: Final = "Click a chunk to see what it is."
_GONE: Final = "The selected chunk does not exist at this step."
_LONGEST_NAME: Final = 300
_LONGEST_NEIGHBOUR: Final = 36
_LONGEST: Final = 600
_FIRST: Final = 6  # facts that are always shown: the pane has room for them

Fact = tuple[str, str]
"""A name, and HTML."""


class ChunkPane:
    """The selected chunk of one heap; empty before `show`.

    Attributes:
        widget: the whole widget.
        text: what it shows, as HTML.
    """

    def __init__(self) -> None:
        self._finder = ChunkFinder()
        self.text = widgets.HTML()
        self.widget = widgets.VBox([widgets.HTML(STYLE, layout={"display": "none"}), self.text])
        self.widget.add_class("bfcviz-chunk")

    def show(self, model: Model, look: Look) -> None:
        """Show the chunk that `look` selects, seen from the model's step."""
        if look.selected is None:
            self.text.value = f"<div class='none'>{_NONE}</div>"
            return
        known = requested_bytes_known(model.trace.origin.details, model.pool)
        facts = self._finder.find(model, look.selected, waste_known=known)
        if facts is None:
            self.text.value = f"<div class='none'>{_GONE}</div>"
            return
        lines = [f"<dt>{name}</dt><dd>{value}</dd>" for name, value in _facts(facts, model.trace)]
        more = f"<details><summary>more</summary><dl>{''.join(lines[_FIRST:])}</dl></details>"
        name = _name(facts, model.trace)
        self.text.value = (
            f"<div role='status' aria-live='polite'><div class='name'>{name}</div>"
            f"<dl>{''.join(lines[:_FIRST])}</dl>{more if lines[_FIRST:] else ''}</div>"
        )


def _name(facts: ChunkFacts, trace: Trace) -> str:
    if facts.allocated is None:
        return "in use" if facts.life.in_use else "free chunk"
    return harmless(trace.labels.name(facts.label), _LONGEST_NAME) or "no label"


def _facts(facts: ChunkFacts, trace: Trace) -> Iterator[Fact]:
    """The facts, the most important first."""
    life = facts.life
    yield "size", _size(facts)
    if facts.history:
        yield from _times(facts)
    details = trace.labels[facts.label].details if facts.label else {}
    if stack := details.get("stack"):
        yield "code", f"<span title='{_lines(stack)}'>{harmless(place_in_code(stack), _LONGEST)}</span>"
    for name, chunk in facts.neighbours.items():
        yield name, _neighbour(chunk, trace)
    place = f"<code>{life.address:#x}</code>, region {life.region}, bin {bin_of(life.size)}"
    yield "address", place
    if facts.thread is not None:
        yield "thread", f"{facts.thread[0]}, stream {facts.thread[1]}"
    for key, value in details.items():
        if key != "stack":
            yield harmless(key, 20).replace("_", " "), harmless(value, _LONGEST)
    if facts.history:
        yield from _history(facts)


def _size(facts: ChunkFacts) -> str:
    size, requested = facts.life.size, facts.requested
    text = f"<b title='{exact_bytes(size)}'>{format_bytes(size)}</b>"
    if facts.allocated is None:
        return f"{text} {'in use' if facts.life.in_use else 'free'}"
    text += " in use" if facts.life.in_use else " (not in use at this step)"
    if requested is None:
        return text
    waste = max(size - requested, 0)
    text += f", <span title='{exact_bytes(requested)}'>{format_bytes(requested)}</span> requested"
    return f"{text}, <em>{format_bytes(waste)} wasted ({waste / size:.0%})</em>" if waste else text


def _times(facts: ChunkFacts) -> Iterator[Fact]:
    """When it began and ended; each with a link to the step."""
    life, began = facts.life, facts.life.began
    if facts.allocated is None:
        if began is not None:
            yield "free since", f"{_step(began)}: {harmless(beginning_words(life, began), _LONGEST)}"
        yield "then", harmless(next_words(life), _LONGEST)
        return
    age = f", {span_words(life, facts.allocated, None)} ago" if life.in_use else ""
    yield "allocated", _step(facts.allocated) + age
    if facts.freed is None:
        yield "freed", harmless(end_words(life, "freed"), _LONGEST)
    else:
        yield "freed", f"{_step(facts.freed)}, after {span_words(life, facts.allocated, facts.freed)}"


def _history(facts: ChunkFacts) -> Iterator[Fact]:
    """Where the chunk of an allocation came from, and what became of it."""
    if facts.allocated is not None:
        yield "from", harmless(source_words(facts.life), _LONGEST)
    if facts.freed is not None:
        yield "then", harmless(merge_words(facts.life, facts.freed), _LONGEST)


def _step(event: np.void) -> str:
    step = int(event["seq"]) + 1
    return _link({"do": "step", "step": step}, f"step {step:,}", "go to this step")


def _neighbour(chunk: np.void, trace: Trace) -> str:
    in_use, label = bool(chunk["in_use"]), int(chunk["label"])
    name = (trace.labels.name(label) or "no label") if in_use else "free"
    does = {
        "do": "select",
        "address": str(chunk["address"]),
        "born": int(chunk["born"]) if in_use else None,
    }
    size = format_bytes(int(chunk["size"]))
    return f"{size}, {_link(does, harmless(name, _LONGEST_NEIGHBOUR), f'select {harmless(name)}')}"


def _link(message: dict[str, Any], text: str, hint: str) -> str:
    does = escape(json.dumps(message, separators=(",", ":")))
    return f"<a role='button' tabindex='0' data-bfcviz='{does}' title='{hint}'>{text}</a>"


def _lines(stack: str) -> str:
    """The most telling frames of a stack, for a tooltip."""
    return "&#10;".join(harmless(line, _LONGEST) for line in telling_lines(stack, _MOST_LINES)[0])


_MOST_LINES: Final = 30
