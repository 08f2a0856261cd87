"""The texts of a dashboard: above the figure, how complete the trace is, the event, totals, a life; and its status."""

from html import escape
from typing import Final

import ipywidgets as widgets

from bfcviz.dashboard.header.details import explain_step
from bfcviz.dashboard.header.numbers import totals_line
from bfcviz.dashboard.header.status import notice
from bfcviz.figures.style.text import harmless
from bfcviz.model import Model
from bfcviz.model.explain.chunk_life import Life
from bfcviz.model.explain.search import Search
from bfcviz.model.explain.text.chunk_life import life_words
from bfcviz.model.explain.text.search import search_words

# Heights that fit the usual text: the figure must not move when a sentence is longer than the one before.
_STYLE = "line-height: 1.4; overflow-wrap: anywhere; "
_TEXT, _NUMBERS = _STYLE + "overflow-y: auto; height: 7em", _STYLE + "min-height: 3em"
_NO_LIFE = "Click a chunk in the figure or in the table of chunks to show its life."
_NOTICE = "line-height: 1.4; overflow-wrap: anywhere; border-left: 3px solid #F0A020; padding-left: 8px"
_LONGEST: Final = 1200  # characters of a sentence, or of all reasons together


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
        self._show_notice(" ".join(notice(model.trace.origin)).strip())
        self._head = f"<b>step {model.step:,} of {len(model.trace):,}</b>"
        sentences = [explain_step(model)] + ([search_words(search)] if search is not None else [])
        self._show_sentence("status", " ".join(sentences))
        life_lines = [_NO_LIFE] if life is None else life_words(life)
        lines = "".join(f"<div>{harmless(line, _LONGEST)}</div>" for line in life_lines)
        self.life.value = (
            f"<div role='status' aria-live='polite' style='{_TEXT}'><b>selected chunk</b>{lines}</div>"
        )
        self.numbers.value = f"<div style='opacity: 0.75; {_NUMBERS}'>{escape(totals_line(model))}</div>"

    def show_error(self, sentence: str) -> None:
        """Show an action that failed, and why."""
        self._show_sentence("alert", sentence)

    def _show_sentence(self, role: str, sentence: str) -> None:
        text = f"{self._head} — {harmless(sentence, _LONGEST)}"
        self.event.value = f"<div role='{role}' aria-live='polite' style='{_TEXT}'>{text}</div>"

    def _show_notice(self, sentence: str) -> None:
        self.notice.layout.display = None if sentence else "none"
        self.notice.value = f"<div role='note' style='{_NOTICE}'>{harmless(sentence, _LONGEST)}</div>"
