"""Header: the verdict, the totals, and what led to the step shown."""

from pathlib import PurePath
from typing import Final

import ipywidgets as widgets

from bfcviz.dashboard.header.details import details
from bfcviz.dashboard.header.headline_finder import Headline, HeadlineFinder
from bfcviz.dashboard.header.numbers import Numbers, bars, numbers_of, tiles
from bfcviz.dashboard.header.status import notice
from bfcviz.dashboard.header.style import STYLE
from bfcviz.events.trace import Trace
from bfcviz.figures.style.text import harmless
from bfcviz.figures.style.view_options import Look
from bfcviz.model import Model
from bfcviz.model.explain.search import Search
from bfcviz.model.explain.text.step_line import step_line

_LONGEST: Final = 20_000  # characters of a paragraph: labels in it are already cut
_LONGEST_FILE: Final = 40


class Header:
    """Answers first: why a request failed, or the peak; then the totals; then the step.

    Attributes:
        widget: the whole widget.
        headline, notice, numbers, step_line: its parts, as HTML.
    """

    def __init__(self) -> None:
        parts = {name: widgets.HTML() for name in ("headline", "notice", "numbers", "step-line")}
        for name, part in parts.items():
            part.add_class(f"bfcviz-{name}")
        self.headline, self.notice, self.numbers, self.step_line = parts.values()
        self.notice.layout.display = "none"
        style = widgets.HTML(STYLE, layout={"display": "none"})
        self.widget = widgets.VBox([style, *parts.values()], layout={"grid_gap": "2px"})
        self.widget.add_class("bfcviz-header")
        self._finder: HeadlineFinder | None = None
        self._shown: tuple[Model, Search | None, Numbers] | None = None
        self._is_open = False
        self._error = ""

    def show(self, model: Model, look: Look, search: Search | None) -> None:
        """Show the model's step."""
        self._show_notice(*notice(model.trace.origin))
        headline = self._headline_of(model)
        self.headline.value = _headline(headline, model.step)
        failed = headline.failed if headline.step == model.step else None
        asked = look.wanted if failed is None or not failed.rounded else failed.rounded
        numbers = numbers_of(model, failed)
        self._shown = (model, search, numbers)
        self.numbers.value = (
            f'<div class="all"><div class="tiles">{tiles(numbers)}</div>'
            f"{bars(numbers, asked, failed=failed is not None)}</div>"
        )
        self._show_step_line()

    def show_error(self, sentence: str) -> None:
        """Show an action that failed, and why, until `hide_error`."""
        self._error = harmless(sentence, _LONGEST)
        self._show_step_line()

    def hide_error(self) -> None:
        """Remove the error, if one is shown."""
        if self._error:
            self._error = ""
            self._show_step_line()

    def toggle_details(self) -> None:
        """Open or close the long text on the step."""
        self._is_open = not self._is_open
        self._show_step_line()

    def _headline_of(self, model: Model) -> Headline:
        finder = self._finder
        if finder is None or finder.trace is not model.trace or finder.pool != model.pool:
            self._finder = finder = HeadlineFinder(model.trace, model.pool)
        return finder.find(model)

    def _show_notice(self, sentence: str, reasons: str) -> None:
        self.notice.layout.display = None if sentence else "none"
        line, why = harmless(sentence, _LONGEST), harmless(reasons, _LONGEST)
        # The page opens it by itself: it changes only with the trace.
        why = f"<details><summary>{line} <u>why</u></summary><p>{why}</p></details>" if why else line
        self.notice.value = f'<div class="text" role="note">{why}</div>'

    def _show_step_line(self) -> None:
        error = f'<div class="wrong" role="alert">{self._error}</div>' if self._error else ""
        self.step_line.value = error + (_step_line(*self._shown, self._is_open) if self._shown else "")


def _headline(found: Headline, step: int) -> str:
    kind = "text" if found.failed is None else "text failed"
    link = ""
    if found.step is not None and found.step != step:
        message = f'{{"do":"step","step":{found.step}}}'
        link = f"<a role='link' tabindex='0' data-bfcviz='{message}'>at step {found.step:,}</a>"
    if found.count > 1:
        link += f'<a style="all:unset;font-size:13px"> ({found.number:,} of {found.count:,} failures)</a>'
    return f'<div class="{kind}" role="status">{harmless(found.text, _LONGEST)}{link}</div>'


def _step_line(model: Model, search: Search | None, numbers: Numbers, is_open: bool) -> str:  # noqa: FBT001
    trace = model.trace
    line = harmless(step_line(trace, model.step, model.pool), _LONGEST)
    long = details(model, search, numbers) if is_open else []
    paragraphs = "".join(f"<p>{harmless(text, _LONGEST)}</p>" for text in long)
    return (
        f"<details{' open' * is_open}><summary data-bfcviz='{{\"do\":\"details\"}}' role='status'>"
        f'<b data-bfcviz-step="{model.step}">step {model.step:,} of {len(trace):,}</b>: {line} '
        f'<span class="file">· {_file(trace)}</span>'
        f'<span class="more">{"less" if is_open else "details"}</span></summary>{paragraphs}</details>'
    )


def _file(trace: Trace) -> str:
    name = PurePath(str(trace.path or trace.origin.source or "")).name
    return harmless(name or "not from a file", _LONGEST_FILE)
