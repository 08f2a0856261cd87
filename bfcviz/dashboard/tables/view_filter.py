"""What the whole dashboard is filtered by, as conditions on the rows of a table: a holder, and a search."""

from bfcviz.events.trace import Trace
from bfcviz.figures.style.view_options import Look
from bfcviz.model.browse.filters import Condition, LabelSearch
from bfcviz.model.holders.grouping import SEPARATORS, UNNAMED, grouping
from bfcviz.model.holders.holder_choice import HolderChoice, members


class ViewFilter:
    """The conditions of a look; each is made once for a trace.

    Attributes:
        conditions: of the last look.
        links: HTML of links that remove the filters; empty where there is none.
    """

    def __init__(self) -> None:
        self.conditions: tuple[Condition, ...] = ()
        self.links = ""
        self._known: tuple[Trace, int, HolderChoice | None, str | None] | None = None

    def update(self, trace: Trace, pool: int, look: Look) -> bool:
        """Take in a look; return whether the conditions are others than before."""
        key = (trace, pool, look.holder, look.search)
        if self._known is not None and self._known[0] is trace and self._known[1:] == key[1:]:
            return False
        self._known, before = key, self.conditions
        conditions, links = [], []
        if look.holder is not None:
            how = grouping(trace, pool, look.holder.by)
            conditions.append(Condition(f"held by {_name(look.holder)}", members(how, look.holder)))
            links.append(_link("holder", "show all holders"))
        if look.search:
            search = LabelSearch(trace.labels, look.search)
            reason = f"found by the search for '{look.search}'"
            conditions.append(Condition(reason, lambda rows: search.hits()[rows["label"]]))
            links.append(_link("search", "end the search"))
        self.conditions, self.links = tuple(conditions), "".join(links)
        return self.conditions != before


def _name(choice: HolderChoice) -> str:
    separator = SEPARATORS.get(choice.by, "/")
    return separator.join(UNNAMED[choice.by] if part is None else part for part in choice.path)


def _link(do: str, text: str) -> str:
    return f" · <button type='button' data-bfcviz='{{\"do\":\"{do}\"}}'>{text}</button>"
