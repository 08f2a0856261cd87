"""What the whole dashboard is filtered by, as conditions on the rows of a table: a holder, and a search."""

import json
from html import escape
from typing import Final

from bfcviz.events.trace import Trace
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.view_options import Look
from bfcviz.model.browse.filters import Condition, LabelSearch
from bfcviz.model.holders.grouping import SEPARATORS, UNNAMED, grouping
from bfcviz.model.holders.holder_choice import HolderChoice, members

_LONGEST: Final = 60


class ViewFilter:
    """The conditions of a look; each is made once for a trace.

    Attributes:
        conditions: of the last look.
        html: one line that says what the table is filtered by, with links that remove the filters; empty: by nothing.
    """

    def __init__(self) -> None:
        self.conditions: tuple[Condition, ...] = ()
        self.html = ""
        self._known: tuple[Trace, int, HolderChoice | None, str | None] | None = None

    def update(self, trace: Trace, pool: int, look: Look) -> bool:
        """Take in a look; return whether the conditions are others than before."""
        key = (trace, pool, look.holder, look.search)
        if self._known is not None and self._known[0] is trace and self._known[1:] == key[1:]:
            return False
        self._known, before = key, self.conditions
        conditions, parts = [], []
        if look.holder is not None:
            how = grouping(trace, pool, look.holder.by)
            name = _name(look.holder)
            conditions.append(Condition(f"held by {name}", members(how, look.holder)))
            parts.append(_part("held by", name, "holder"))
        if look.search:
            search = LabelSearch(trace.labels, look.search)
            reason = f"search finds '{look.search}'"
            conditions.append(Condition(reason, lambda rows: search.hits()[rows["label"]]))
            parts.append(_part("found by", look.search, "search"))
        self.conditions = tuple(conditions)
        self.html = f"<div class='bfcviz-only'>Only chunks {' and '.join(parts)}</div>" if parts else ""
        return self.conditions != before


def _name(choice: HolderChoice) -> str:
    separator = SEPARATORS.get(choice.by, "/")
    return separator.join(UNNAMED[choice.by] if part is None else part for part in choice.path)


def _part(verb: str, name: str, do: str) -> str:
    """A filter in words, and a link that removes it."""
    does = escape(json.dumps({"do": do}))
    link = f"<button type='button' data-bfcviz='{does}'>remove</button>"
    return f"{verb} <b>{harmless(name, _LONGEST)}</b> ({link})"
