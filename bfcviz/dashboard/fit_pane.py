"""The answer to "would it fit?": the place, or what is in the way by name, and what the allocator's rules would do."""

import json
from html import escape
from typing import Final

import ipywidgets as widgets
import numpy as np

from bfcviz.analysis.diagnosis import verdict_sentence
from bfcviz.analysis.would_fit import Fit, FitBlockers, fit_of, fit_sentence, in_the_way
from bfcviz.events.label_table import Labels
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import following
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.units import format_bytes

_RULES: Final = """
.bfcviz-fit .widget-html-content { line-height: 1.4; font-size: 12px }
.bfcviz-fit [role=status] {
  margin: 2px 0; padding: 3px 10px; border-left: 4px solid var(--muted); overflow-wrap: anywhere;
  background: var(--jp-layout-color2, rgba(128, 128, 128, 0.1)); color: var(--jp-ui-font-color1, inherit);
}
.bfcviz-fit [role=status].fits { border-color: var(--free-line) }
.bfcviz-fit [role=status].fails { border-color: var(--oom) }
.bfcviz-fit b { font-size: 13px }
.bfcviz-fit button { all: unset; cursor: pointer; text-decoration: underline dotted; text-underline-offset: 3px }
.bfcviz-fit button:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2) }
.bfcviz-fit .end { float: right; margin-left: 12px }
"""

STYLE: Final = following(".bfcviz-fit") + _RULES
"""A page needs it once."""

_MOST: Final = 6  # names of what is in the way
_LONGEST: Final = 600
_LONGEST_NAME: Final = 60


class FitPane:
    """The pane of "would it fit?": the answer for the size that the user asks about; hidden while none is asked."""

    def __init__(self) -> None:
        self.widget = widgets.HTML(layout={"display": "none"})  # the whole widget, as HTML
        self.widget.add_class("bfcviz-fit")

    def show(self, model: Model, look: Look) -> None:
        """Answer whether `look.wanted` would fit at the model's step."""
        self.widget.layout.display = "none" if look.wanted is None else None
        self.widget.value = (
            _fit_answer_html(fit_of(model, look.wanted), model.trace.labels) if look.wanted else ""
        )


def _fit_answer_html(fit: Fit, labels: Labels) -> str:
    lines = [f"<b>{harmless(fit_sentence(fit, labels), _LONGEST)}</b>"]
    if fit.is_known:
        lines.append(harmless(verdict_sentence(fit.found), _LONGEST))
    if fit.fits:
        lines.append(_fit_pane_chunk_button(fit.takers[0], "Select the best fit"))
    elif names := in_the_way(fit, labels):
        lines.append(f"In the way in the pool as it is: {_in_the_way_html(names)}.")
    end = "<button type='button' class='end' data-bfcviz='{\"do\":\"ask\"}'>end the question</button>"
    kind = (
        "fits" if fit.fits or fit.grows else "fails" if fit.is_known and not fit.depends_on_limit else "open"
    )
    return f"<div class='{kind}' role='status' aria-live='polite'>{end}{'<br>'.join(lines)}</div>"


def _in_the_way_html(names: list[FitBlockers]) -> str:
    parts = []
    for each in names[:_MOST]:
        several = f" in {each.chunks:,} chunks" if each.chunks > 1 else ""
        chunk = _fit_pane_chunk_button(each.largest, each.name)
        parts.append(f"{chunk} ({format_bytes(each.bytes)}{several})")
    if rest := names[_MOST:]:
        chunks, num_bytes = sum(each.chunks for each in rest), sum(each.bytes for each in rest)
        parts.append(f"{chunks:,} other chunks ({format_bytes(num_bytes)})")
    return " · ".join(parts)


def _fit_pane_chunk_button(chunk: np.void, text: str) -> str:
    """A button of the pane of "would it fit?" that selects a chunk in every view."""
    born = int(chunk["born"]) if chunk["in_use"] else None
    message = json.dumps({"do": "select", "address": str(chunk["address"]), "born": born})
    return f"<button type='button' data-bfcviz='{escape(message)}'>{harmless(text, _LONGEST_NAME)}</button>"
