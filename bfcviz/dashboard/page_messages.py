"""Messages of the page to an Inspector: the widget that sends them, and their fields, checked."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anywidget

from bfcviz.dashboard import toolbar
from bfcviz.dashboard.fit_pane import STYLE as FIT_STYLE
from bfcviz.dashboard.layouts import STYLE as STAGE_STYLE
from bfcviz.errors import BfcvizError

# ------------------------------------------------------------------------------
# The page's side of a dashboard: an invisible widget that sends user actions from the page to Python.
#
# Python sends it only what it asked for (see scrubbing.py): anywidget drops messages to a widget that took a slow page
# more than two seconds to start.
#
# The `do` of the messages that it sends:
#
# =========  ===========================================================================================
# `theme`    the page is `light` or `dark`
# `width`    width of the dashboard, in pixels
# `key`      a key was pressed, outside of text fields and sliders; with `held` it repeats, until
# `release`  the key that was held was released
# `click`    a click into the figure: number of the panel (from 1), and the position on its axes
# `whole`    a double click on a panel: show its whole range
# `zoom`     the ranges of all axes, after a zoom or pan has ended
# `brush`    `from` and `to` on the strip's axis: the window of steps; without them: all steps
# `cursor`   the way that the cursor of the map goes, see `MapCursor.move`
# `hover`    the number of the row of holders that the mouse points at; without it: none
# `scroll`   the user scrolled a list: its name, and the row at its upper edge
# `texts`    a text of the page is older than its figure: send all again
# `scrub`    the page would show steps by itself; with `script` it needs the script for it
# others     the `data-bfcviz` attribute of the clicked element
# =========  ===========================================================================================

# The text, not the path: for a path, anywidget keeps every widget alive to notify it when the file changes.
_SCRIPT: Final = "\n".join(
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("page.js", "scrolling.js", "scrubbing.js")
)

# JupyterLab and ipywidgets remove the focus outline of menus, sliders and boxes. The class is repeated three times so
# that this rule has a higher specificity than theirs.
_STYLE: Final = """
.bfcviz-dashboard:focus-visible, .bfcviz-dashboard.bfcviz-dashboard.bfcviz-dashboard :focus-visible {
  outline: 2px solid var(--jp-brand-color1, #1976d2) !important; outline-offset: 1px;
}
.bfcviz-dashboard tr:focus-visible { outline-offset: -2px }
.bfcviz-spoken {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}
.bfcviz-map { position: absolute; pointer-events: none; overflow: clip; overflow-clip-margin: 6px }
.bfcviz-map i {
  position: absolute; outline: 2px solid var(--jp-ui-font-color0, #000);
  box-shadow: 0 0 0 4px var(--jp-layout-color0, #fff);
}
.bfcviz-map:not(:focus) i { display: none }
.bfcviz-scrub { position: absolute; z-index: 1; cursor: progress }
.bfcviz-scrub > div { position: absolute; top: -14px; bottom: 0; font: 10px system-ui, sans-serif }
.bfcviz-scrub span { position: absolute; right: 4px; white-space: pre; text-align: right }
.bfcviz-scrub span { margin-top: 14px; transform: translateY(-50%) } /* the first one reaches above the map */
.bfcviz-scrubbed { display: none !important }
.bfcviz-scrubs :is(.bfcviz-headline, .bfcviz-growth, .bfcviz-side) { opacity: .35 }
@media (prefers-reduced-motion: reduce) {
  .bfcviz-dashboard, .bfcviz-dashboard * {
    animation: none !important; transition: none !important; scroll-behavior: auto !important;
  }
}
"""

# Paper, for the page of `bfcviz view`: nothing cuts the dashboard, which keeps its width and is shown 1,250 pixels
# wide. Browsers shrink such a page to the width of the paper, but not one of twice that width. Inverted, the dark
# colours are light ones of the same hues.
_PRINT: Final = """
@media print {
  @page { size: landscape; margin: 8mm }
  :is(body.jp-Notebook, body.jp-Notebook *):has(.bfcviz-dashboard) {
    position: static !important; overflow: visible !important; contain: none !important; padding: 0 !important;
    width: auto !important; height: auto !important;
  }
  body.jp-Notebook { min-width: 1250px }
  body.jp-Notebook .bfcviz-dashboard {
    min-width: calc(var(--bfcviz-width) * 1px); zoom: calc(1250 / max(1250, var(--bfcviz-width)));
    print-color-adjust: exact;
  }
  .jp-Notebook .bfcviz-toolbar, .jp-Notebook .bfcviz-fit { display: none }
  .jp-Notebook .bfcviz-figure { break-inside: avoid }
  body.jp-Notebook[data-jp-theme-light="false"] .bfcviz-dashboard {
    filter: invert(1) hue-rotate(180deg) brightness(1.08); background: #000;
  }
}
"""

Message = Mapping[str, Any]


class PageWidget(anywidget.AnyWidget):
    """How the page reaches its Inspector: a widget of height 0 above the figure, as wide as the figure may be.

    Args:
        receive: called with each message from the page.
    """

    _esm = _SCRIPT
    _css = _STYLE + _PRINT + toolbar.STYLE + STAGE_STYLE + FIT_STYLE

    def __init__(self, receive: Callable[[Message], None]) -> None:
        super().__init__()
        self.layout.height = "0px"
        self.on_msg(lambda _, message, __: receive(message))


# ------------------------------------------------------------------------------
# The fields of a message, checked: any script in a page can send one.

_MAX_NUMBER: Final = 1e21
"""Larger than any address, time or step in any unit; an axis never shows a larger number."""

_MAX_LENGTH: Final = 80  # characters, of a number sent as text and of a message quoted in an error

Range = tuple[float, float]


class PageMessage:
    """One message of the page to the Inspector: its fields by name, each checked for the requested type.

    Raises:
        BfcvizError: from every method, if the field is missing or has another type.
    """

    def __init__(self, content: Any) -> None:
        self._content = content
        if not isinstance(content, Mapping):
            raise self._invalid("is not a mapping")

    def has(self, name: str) -> bool:
        """Whether the field of a message exists and is not null."""
        return self._content.get(name) is not None

    def text(self, name: str) -> str:
        """A field of a message that is a text."""
        value = self._content.get(name)
        if not isinstance(value, str):
            raise self._invalid(f"has no text {name!r}")
        return value

    def number(self, name: str) -> float:
        """A field of a message that is a finite number."""
        value = self._content.get(name)
        if not _is_message_number(value):
            raise self._invalid(f"has no number {name!r}")
        return float(value)

    def whole(self, name: str, least: int = 0) -> int:
        """A field of a message that is a whole number, `least`..2^64-1.

        It may be sent as text: JavaScript's numbers are exact only to 2^53.
        """
        value = self._content.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < _MAX_LENGTH:
            value = int(value)
        if type(value) is not int or not least <= value < 1 << 64:
            raise self._invalid(f"has no valid whole number {name!r}")
        return value

    def ranges(self) -> dict[int, dict[str, Range]]:
        """Of a message: number of a panel -> ranges of its axes `x` and `y`. Skips panels without, the hidden ones."""
        ranges = self._content.get("ranges")
        if not isinstance(ranges, Mapping):
            raise self._invalid("has no ranges")
        found: dict[int, dict[str, Range]] = {}
        for number, axes in ranges.items():
            known = isinstance(axes, Mapping) and {
                name: _message_range(axes.get(name)) for name in ("x", "y")
            }
            if known and all(known.values()) and str(number).isdecimal() and len(str(number)) < _MAX_LENGTH:
                found[int(number)] = {name: ends for name, ends in known.items() if ends is not None}
        return found

    def _invalid(self, reason: str) -> BfcvizError:
        content = repr(self._content)
        content = content if len(content) <= _MAX_LENGTH else content[: _MAX_LENGTH - 1] + "…"
        return BfcvizError(f"invalid page message: {content} {reason}; nothing was changed")


def _message_range(ends: Any) -> Range | None:
    """The range of an axis in a message to the Inspector; None: it is not valid."""
    if not isinstance(ends, list | tuple) or len(ends) != 2 or not all(map(_is_message_number, ends)):
        return None
    return float(ends[0]), float(ends[1])


def _is_message_number(value: Any) -> bool:
    """Whether a field of a message to the Inspector is a number that an axis may show."""
    return type(value) in {int, float} and -_MAX_NUMBER < value < _MAX_NUMBER
