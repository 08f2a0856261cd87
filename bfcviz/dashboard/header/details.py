"""What led to a step, at length: the event in full, the search for a chunk, and all totals."""

from bfcviz.dashboard.header.numbers import Numbers, totals_line
from bfcviz.model import Model
from bfcviz.model.explain.search import Search
from bfcviz.model.explain.text.event import explain
from bfcviz.model.explain.text.search import search_words


def details(model: Model, search: Search | None, numbers: Numbers) -> list[str]:
    """A few paragraphs: bins, addresses and formulas."""
    found = [explain_step(model)]
    if search is not None:
        found.append(search_words(search))
    return [*found, totals_line(numbers)]


def explain_step(model: Model) -> str:
    """The event before the model's step as a sentence."""
    if len(model.trace) == 0:
        return "this trace holds no events."
    if 0 < model.step == model.trace.first:
        return "the first step that is kept: the event before it was dropped."
    if model.step == 0:
        return "before the first event: the heap has no region yet. Press forward."
    return explain(model.trace, model.step - 1, model)
