"""The page's side of the view of all workers: shows HTML, and sends which row was clicked."""

from collections.abc import Callable
from typing import Any, Final

import anywidget
import traitlets

from bfcviz.figures.comparison.workers_style import STYLE

_SCRIPT: Final = """
export default {
  render({ model, el }) {
    const removed = new AbortController();
    el.classList.add("bfcviz-workers");
    el.dataset.lmSuppressShortcuts = "true"; // else JupyterLab handles Enter and the arrows
    const named = (node) => node?.closest?.("[data-worker]")?.dataset.worker;
    const show = () => {
      const focused = el.contains(document.activeElement) ? named(document.activeElement) : undefined;
      el.innerHTML = model.get("html");
      if (focused === undefined) return;
      for (const row of el.querySelectorAll("[data-worker]")) {
        if (row.dataset.worker === focused) row.focus({ preventScroll: true });
      }
    };
    const open = (event) => {
      const name = named(event.target);
      if (name === undefined || (event.type === "keydown" && !["Enter", " "].includes(event.key))) return;
      event.preventDefault();
      model.send({ worker: name });
    };
    // The row may be replaced between the press and the release of the button: then there is no click.
    el.addEventListener("mousedown", open, { signal: removed.signal });
    el.addEventListener("keydown", open, { signal: removed.signal });
    model.on("change:html", show);
    show();
    return () => {
      removed.abort();
      model.off("change:html", show);
    };
  },
};
"""


class WorkersPage(anywidget.AnyWidget):
    """Shows `html`.

    Args:
        chosen: called with the name of a worker whose row was clicked.
    """

    _esm = _SCRIPT
    _css = STYLE
    html = traitlets.Unicode().tag(sync=True)

    def __init__(self, chosen: Callable[[str], object]) -> None:
        super().__init__()
        self.on_msg(lambda _, message, __: self._receive(message, chosen))

    @staticmethod
    def _receive(message: Any, chosen: Callable[[str], object]) -> None:
        name = message.get("worker") if isinstance(message, dict) else None
        if isinstance(name, str):
            chosen(name)
