"""The pane of the selected chunk: who allocated it, its bytes, when, where, and its neighbours."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any, Final

import ipywidgets as widgets
import numpy as np

from bfcviz.code_places import telling_lines
from bfcviz.dashboard.side.chunk_finder import ChunkFacts, ChunkFinder
from bfcviz.dashboard.side.style import STYLE
from bfcviz.events.origin_details import requested_bytes_known
from bfcviz.events.schema import bin_of
from bfcviz.events.trace import Trace
from bfcviz.figures.style.text import exact_bytes, harmless
from bfcviz.figures.style.view_options import Look
from bfcviz.model import Model
from bfcviz.model.explain.text.chunk_life import (
    beginning_words,
    end_words,
    merge_words,
    next_words,
    source_words,
    span_words,
)
from bfcviz.model.holders.holder_paths import place_in_code
from bfcviz.units import format_bytes

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
