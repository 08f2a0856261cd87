"""The lines above the picture: how far the trace can be trusted, the last event, this moment, a chunk's life."""

from html import escape
from typing import Final

import ipywidgets as widgets

from bfcviz.events.origin import Origin, Status
from bfcviz.figures.style.text import harmless
from bfcviz.model import Model
from bfcviz.model.explain.chunk_life import Life
from bfcviz.model.explain.search import Search
from bfcviz.model.explain.text.chunk_life import life_words
from bfcviz.model.explain.text.event import explain
from bfcviz.model.explain.text.search import search_words
from bfcviz.model.state.views import ModelStats
from bfcviz.model.timelines.fragmentation import external, internal
from bfcviz.units import format_bytes

# Room for what is usually said: the picture must not jump because a sentence is longer than the one before.
_STYLE = "line-height: 1.4; overflow-wrap: anywhere; "
_TEXT, _NUMBERS = _STYLE + "overflow-y: auto; height: 7em", _STYLE + "min-height: 3em"
_NO_LIFE = "Click a chunk, in the picture or in the table of chunks, to see its life."
_NOTICE = "line-height: 1.4; overflow-wrap: anywhere; border-left: 3px solid #F0A020; padding-left: 8px"
_LONGEST: Final = 1200  # characters of a sentence, or of all reasons together

_INCOMPLETE: Final = {
    Status.TRUNCATED: "what is here is right, but the end is missing",
    Status.DEGRADED: "something in it is missing or was guessed",
}


class Wording:
    """What happened and, beside it, the selected chunk's life; under both, the numbers.

    Over them a line where the trace is not complete, and why.

    Attributes:
        widget: all of it.
    """

    def __init__(self) -> None:
        self._notice = widgets.HTML(layout={"display": "none"})
        self._notice.add_class("bfcviz-notice")
        self._event = widgets.HTML(layout={"flex": "3 1 440px", "min_width": "300px"})
        self._event.add_class("bfcviz-words")
        self._life = widgets.HTML(layout={"flex": "2 1 280px", "min_width": "220px"})
        self._life.add_class("bfcviz-life")
        self._numbers = widgets.HTML()
        self._numbers.add_class("bfcviz-numbers")
        beside = widgets.HBox(
            [self._event, self._life], layout={"flex_flow": "row wrap", "grid_gap": "0 16px"}
        )
        self.widget = widgets.VBox([self._notice, beside, self._numbers])
        self._head = ""

    def show(self, model: Model, search: Search | None, life: Life | None) -> None:
        """What led to the model's step, and the life of the selected chunk."""
        self._warn(notice(model.trace.origin))
        self._head = f"<b>step {model.step:,} of {len(model.trace):,}</b>"
        sentences = [explain_step(model)] + ([search_words(search)] if search is not None else [])
        self._say("status", " ".join(sentences))
        said = [_NO_LIFE] if life is None else life_words(life)
        lines = "".join(f"<div>{harmless(line, _LONGEST)}</div>" for line in said)
        self._life.value = (
            f"<div role='status' aria-live='polite' style='{_TEXT}'><b>selected chunk</b>{lines}</div>"
        )
        self._numbers.value = f"<div style='opacity: 0.75; {_NUMBERS}'>{escape(summary(model.stats()))}</div>"

    def complain(self, sentence: str) -> None:
        """What could not be done, and why."""
        self._say("alert", sentence)

    def _say(self, role: str, sentence: str) -> None:
        said = f"{self._head} — {harmless(sentence, _LONGEST)}"
        self._event.value = f"<div role='{role}' aria-live='polite' style='{_TEXT}'>{said}</div>"

    def _warn(self, sentence: str) -> None:
        self._notice.layout.display = None if sentence else "none"
        self._notice.value = f"<div role='note' style='{_NOTICE}'>{harmless(sentence, _LONGEST)}</div>"


def notice(origin: Origin) -> str:
    """What to know of a trace that is not complete, and why it is not; empty for any other."""
    if origin.status not in _INCOMPLETE:
        return ""
    return f"This trace is {origin.status}: {_INCOMPLETE[origin.status]}. {'; '.join(origin.reasons)}"


def explain_step(model: Model) -> str:
    """What led to the model's step, in plain words."""
    if len(model.trace) == 0:
        return "this trace holds no events."
    if 0 < model.step == model.trace.first:
        return "the first step that is still known: the event that led here is no longer kept."
    if model.step == 0:
        return "before the first event: the heap has asked the sub-allocator for nothing yet. Press forward."
    return explain(model.trace, model.step - 1, model)


def summary(stats: ModelStats) -> str:
    """The numbers of this moment in one line."""
    limit = "limit not known" if stats.bytes_limit is None else f"limit {format_bytes(stats.bytes_limit)}"
    return (
        f"in use {format_bytes(stats.bytes_in_use)} in {_chunks(stats.chunks_in_use)} "
        f"(peak {format_bytes(stats.peak_bytes_in_use)}) · "
        f"free {format_bytes(stats.free_bytes)} in {_chunks(stats.chunks_free)}, "
        f"the largest {format_bytes(stats.largest_free_chunk)} · "
        f"pool {format_bytes(stats.pool_bytes)}, {limit} · "
        f"external fragmentation {external(stats):.1%} (1 - largest free chunk / free) · "
        f"internal {internal(stats):.1%} (1 - requested / in use)"
    )


def _chunks(count: int) -> str:
    return "1 chunk" if count == 1 else f"{count:,} chunks"
