"""RanksView: the ranks of one job as a table, the worst first, and the Inspector of the one that is chosen."""

from typing import Any

import ipywidgets as widgets

from bfcviz.analysis.ranks import RankSet
from bfcviz.dashboard import widget_lifetime
from bfcviz.dashboard.inspector import Inspector
from bfcviz.errors import BfcvizError
from bfcviz.figures.text import harmless
from bfcviz.model.navigation import opening


class RanksView(widgets.VBox):  # type: ignore[misc]
    """A menu of ranks with their table; below it the Inspector of one of them, at its first failed request or its peak.

    One rank is open at a time.

    Args:
        ranks: of the job.
        options: arguments of the Inspector.

    Attributes:
        ranks: those that can be chosen, and those that cannot be read.
        menu, table, status: the menu, the table of all ranks, and why a rank cannot be opened.
        inspector: that of the chosen rank; None: it cannot be opened.
    """

    def __init__(self, ranks: RankSet, **options: Any) -> None:
        self.ranks = ranks
        self.inspector: Inspector | None = None
        self._options = options
        self._closed = False
        names = [rank.name for rank in ranks.known if rank.has_heap]
        self.menu = widgets.Dropdown(options=names, value=ranks.worst_heap.name, description="rank")
        self.table = widgets.HTML(ranks.html)
        self.status = widgets.HTML()
        self._bar = widgets.HBox([self.menu, self.status])
        super().__init__([self.table, self._bar])
        self.menu.observe(lambda _: self.show(self.menu.value), "value")
        self.show(self.menu.value)

    def show(self, name: str) -> None:
        """Open a rank by its name."""
        if self._closed:
            return
        self.menu.value = name
        before, self.inspector, said = self.inspector, None, ""
        try:
            trace = self.ranks.open(name)
            pool, step = opening(trace)
            self.inspector = Inspector(trace, step=step, pool=pool, **self._options)
        except BfcvizError as error:  # the file may have changed since its summary was made
            said = harmless(str(error), 1000)
        self.status.value = said
        self.children = [self.table, self._bar, *([] if self.inspector is None else [self.inspector])]
        if before is not None:
            before.close()

    def close(self) -> None:
        """Close it: remove it from the page and free its memory."""
        if "_bar" not in self.__dict__ or self._closed:
            return
        self._closed = True
        if self.inspector is not None:
            self.inspector.close()
            self.inspector = None
        widget_lifetime.close(self)
        self.set_trait("children", ())
