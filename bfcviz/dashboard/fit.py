"""Keeps the figure as wide as the place it is shown in.

A FigureWidget measures itself before it lies in the page, and again only when the browser's window changes.
This unseen widget watches its own width and the figure's, and tells the window where they differ.
"""

import anywidget
import traitlets

_WATCH = """
export default {
  render({ el }) {
    const fit = () => {
      const plot = el.closest(".widget-vbox")?.querySelector(".js-plotly-plot .main-svg");
      const width = el.getBoundingClientRect().width;
      if (!plot || !width) return;
      if (Math.abs(plot.getBoundingClientRect().width - width) > 2) window.dispatchEvent(new Event("resize"));
      else drawn.disconnect();
    };
    const drawn = new MutationObserver(fit);  // until the figure, which loads late, is there and fits
    const resized = new ResizeObserver(() => {
      const box = el.closest(".widget-vbox");
      if (box) drawn.observe(box, { childList: true, subtree: true });
      fit();
    });
    resized.observe(el);
    return () => { resized.disconnect(); drawn.disconnect(); };
  },
};
"""


class Fit(anywidget.AnyWidget):
    """Lies, without height, above the figure and is as wide as it should be."""

    _esm = traitlets.Unicode(_WATCH).tag(sync=True)
