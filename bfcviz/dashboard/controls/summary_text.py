"""The texts of a dashboard: above the figure, how complete the trace is, the event, totals, a life; and its status."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from typing import Final

import ipywidgets as widgets

from bfcviz.events.origin import Origin, Status
from bfcviz.events.origin_details import facts_of, holds_only_states
from bfcviz.events.trace import Trace
from bfcviz.figures.style.text import harmless
from bfcviz.model import Model
from bfcviz.model.explain.chunk_life import Life
from bfcviz.model.explain.search import Search
from bfcviz.model.explain.text.chunk_life import life_words
from bfcviz.model.explain.text.event import explain
from bfcviz.model.explain.text.search import search_words
from bfcviz.model.timelines.fragmentation import external, internal
from bfcviz.units import format_bytes

# Heights that fit the usual text: the figure must not move when a sentence is longer than the one before.
_STYLE = "line-height: 1.4; overflow-wrap: anywhere; "
_TEXT, _NUMBERS = _STYLE + "overflow-y: auto; height: 7em", _STYLE + "min-height: 3em"
_NO_LIFE = "Click a chunk in the figure or in the table of chunks to show its life."
_NOTICE = "line-height: 1.4; overflow-wrap: anywhere; border-left: 3px solid #F0A020; padding-left: 8px"
_UNKNOWN: Final = "unknown"
_LONGEST: Final = 1200  # characters of a sentence, or of all reasons together

_INCOMPLETE: Final = {
    Status.TRUNCATED: "its events are right, but the last ones are missing",
    Status.DEGRADED: "some events are missing or were guessed",
}


class SummaryText:
    """The last event and, beside it, the selected chunk's life; below both, the totals.

    Above them, a line with the reasons if the trace is incomplete.

    Attributes:
        widget: the whole widget.
        notice, event, life, numbers: its parts, as HTML.
    """

    def __init__(self) -> None:
        self.notice = widgets.HTML(layout={"display": "none"})
        self.notice.add_class("bfcviz-notice")
        self.event = widgets.HTML(layout={"flex": "3 1 440px", "min_width": "300px"})
        self.event.add_class("bfcviz-words")
        self.life = widgets.HTML(layout={"flex": "2 1 280px", "min_width": "220px"})
        self.life.add_class("bfcviz-life")
        self.numbers = widgets.HTML()
        self.numbers.add_class("bfcviz-numbers")
        beside = widgets.HBox([self.event, self.life], layout={"flex_flow": "row wrap", "grid_gap": "0 16px"})
        self.widget = widgets.VBox([self.notice, beside, self.numbers])
        self._head = ""

    def show(self, model: Model, search: Search | None, life: Life | None) -> None:
        """Show the event before the model's step, and the life of the selected chunk."""
        self._show_notice(notice(model.trace.origin))
        self._head = f"<b>step {model.step:,} of {len(model.trace):,}</b>"
        sentences = [explain_step(model)] + ([search_words(search)] if search is not None else [])
        self._show_sentence("status", " ".join(sentences))
        life_lines = [_NO_LIFE] if life is None else life_words(life)
        lines = "".join(f"<div>{harmless(line, _LONGEST)}</div>" for line in life_lines)
        self.life.value = (
            f"<div role='status' aria-live='polite' style='{_TEXT}'><b>selected chunk</b>{lines}</div>"
        )
        self.numbers.value = f"<div style='opacity: 0.75; {_NUMBERS}'>{escape(summary(model))}</div>"

    def show_error(self, sentence: str) -> None:
        """Show an action that failed, and why."""
        self._show_sentence("alert", sentence)

    def _show_sentence(self, role: str, sentence: str) -> None:
        text = f"{self._head} — {harmless(sentence, _LONGEST)}"
        self.event.value = f"<div role='{role}' aria-live='polite' style='{_TEXT}'>{text}</div>"

    def _show_notice(self, sentence: str) -> None:
        self.notice.layout.display = None if sentence else "none"
        self.notice.value = f"<div role='note' style='{_NOTICE}'>{harmless(sentence, _LONGEST)}</div>"


def notice(origin: Origin) -> str:
    """What a trace does not have, and why; empty for a complete history."""
    sentences = []
    if holds_only_states(origin.details):
        states = "one state of each of its heaps" if len(origin.pools) > 1 else "one state of the heap"
        sentences.append(
            f"This file holds {states} and no history: the events only build the state, from low to high addresses."
        )
    if origin.status in _INCOMPLETE:
        missing = "some numbers are missing or were guessed" if sentences else _INCOMPLETE[origin.status]
        sentences.append(f"This trace is {origin.status}: {missing}. {'; '.join(origin.reasons)}")
    return " ".join(sentences)


def explain_step(model: Model) -> str:
    """The event before the model's step as a sentence."""
    if len(model.trace) == 0:
        return "this trace holds no events."
    if 0 < model.step == model.trace.first:
        return "the first step that is kept: the event before it was dropped."
    if model.step == 0:
        return "before the first event: the heap has no region yet. Press forward."
    return explain(model.trace, model.step - 1, model)


def summary(model: Model) -> str:
    """The totals at the model's step, in one line; those that the file cannot know are unknown."""
    stats, numbers = model.stats(), _numbers(model)
    fragmentation, waste = f"{external(stats):.1%}", f"{internal(stats):.1%}"
    if None in (numbers["free_bytes"], numbers["largest_free_chunk"]):
        fragmentation = _UNKNOWN
    if None in (numbers["bytes_in_use"], numbers["requested_bytes_in_use"]):
        waste = _UNKNOWN
    return (
        f"in use {_size(numbers, 'bytes_in_use')}{_chunks(numbers['chunks_in_use'])} "
        f"(peak {_size(numbers, 'peak_bytes_in_use')}) · "
        f"free {_size(numbers, 'free_bytes')}{_chunks(numbers['chunks_free'])}, "
        f"largest {_size(numbers, 'largest_free_chunk')} · "
        f"pool {_size(numbers, 'pool_bytes')}, limit {_size(numbers, 'bytes_limit')} · "
        f"external fragmentation {fragmentation} (1 - largest free chunk / free) · "
        f"internal {waste} (1 - requested / in use)"
    )


def _numbers(model: Model) -> dict[str, int | None]:
    """The totals at the model's step. A number that the file states itself counts where the file has no history."""
    origin = model.trace.origin
    numbers: dict[str, int | None] = asdict(model.stats())
    is_state = holds_only_states(origin.details)
    for name, value in facts_of(origin.details, model.pool).items():
        if name in numbers and (value is None or (is_state and isinstance(value, int))):
            numbers[name] = value
    return numbers


def _size(numbers: Mapping[str, int | None], name: str) -> str:
    value = numbers[name]
    return _UNKNOWN if value is None else format_bytes(value)


def _chunks(count: int | None) -> str:
    if count is None:
        return ""
    return " in 1 chunk" if count == 1 else f" in {count:,} chunks"


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
