"""What the page needs to show steps by itself, while a key is held or the step is dragged on the time strip.

The page asks for it once, see `scrubbing.js`: the events around the step, which the scripts of the page without a
kernel replay, and how Python draws the map.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.dashboard.panel_data import PanelData
from bfcviz.errors import BfcvizError
from bfcviz.events.origin import holds_only_states, regions_known, requested_bytes_known
from bfcviz.exporters.interactive_page import class_table, page_colouring, page_heap, page_json, page_modules
from bfcviz.figures.colouring import faded
from bfcviz.figures.view_options import Look, choice_of

_MOST_EVENTS: Final = 100_000  # around the step: half a second of the kernel, 40 bytes a chunk in the page


class Scrubbing:
    """Lets the page show steps by itself: what it has of the heap, and how its map looks.

    Args:
        send: sends a message to the page.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._sent: object = None  # the heap that the page has
        self._owned: NDArray[np.void] | None = None  # the chunks in use that it may show
        self._shown: object = None  # the look that it has
        self._refused: object = None  # the heap and the look that it cannot draw

    def begin(self, heap: PanelData, look: Look, *, script: bool) -> None:
        """Send the events around the step, where the page can show them as Python does.

        Args:
            heap: at the step shown.
            look: of the map.
            script: whether the page has no script yet.
        """
        trace, model = heap.trace, heap.model
        details = trace.origin.details
        whole = regions_known(details, model.pool) and requested_bytes_known(details, model.pool)
        asked = (trace, model.pool, self._key(heap, look))
        if trace.following or holds_only_states(details) or not whole or asked == self._refused:
            return self._refuse()
        first = max(min(model.step - _MOST_EVENTS // 2, len(trace) - _MOST_EVENTS), trace.first)
        try:
            data, owned = page_heap(model, first, min(first + _MOST_EVENTS, len(trace)))
        except BfcvizError:  # addresses that a page cannot compute
            self._refused = asked
            return self._refuse()
        self._sent, self._owned = (trace, model.pool), owned
        drawn = self._look(heap, look)
        if not drawn["same"]:
            self._refused = asked
            return self._refuse()
        self._shown = asked[-1]
        data |= {"trace_first": trace.first, "trace_last": len(trace), "groupings": [], "look": drawn}
        module = {"module": _scrubber_module()} if script else {}
        return self._send({"scrub": "events", "data": page_json(data), **module})

    def _refuse(self) -> None:
        """Let the page ask for each step."""
        self._sent = self._owned = None
        self._send({"scrub": "none"})

    def show(self, heap: PanelData, look: Look) -> None:
        """Tell a page that has the heap how the map looks now."""
        if self._sent is None:
            return
        if self._sent != (heap.trace, heap.model.pool):
            self._refuse()
        elif (key := self._key(heap, look)) != self._shown:
            self._shown = key
            self._send({"scrub": "look", "data": page_json(self._look(heap, look))})

    def _key(self, heap: PanelData, look: Look) -> object:
        colours = heap.colours(look)
        fills = tuple(paint.fill for paint in colours.paints)
        return colours.name, colours.classify, fills, look.theme, choice_of(look), look.selected, look.wanted

    def _look(self, heap: PanelData, look: Look) -> dict[str, Any]:
        """How the map looks; not `same` where the page would draw it in another way."""
        model, owned = heap.model, self._owned
        if owned is None or look.since is not None or look.search or look.wanted:
            return {"same": False}
        colouring = page_colouring(model, owned, {look.theme: heap.colours(look)})
        outside, labels = faded(model.trace, model.pool, look, owned), owned["label"].astype(np.int64)
        table = np.array(class_table(labels, outside.astype(np.uint8)), bool)
        if colouring is None or not np.array_equal(table[labels], outside):  # holders that are no labels
            return {"same": False}
        chosen = look.selected
        return {
            "same": True,
            "theme": look.theme,
            "colouring": colouring,
            "faded": table.tolist() if outside.any() else None,
            "selected": None if chosen is None else {"address": chosen.address, "born": chosen.born},
        }


@cache
def _scrubber_module() -> str:
    """The scripts of the page without a kernel that replay a heap, and ours, as one module."""
    return f"{page_modules(Path(__file__).with_name('scrubber.js'))}\nexport {{ Scrubber }};\n"
