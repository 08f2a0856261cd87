"""The export row: choose a figure and a format, then save it by a link in the page; or show its code."""

import base64
from collections.abc import Callable
from html import escape
from threading import Lock, Thread
from typing import Final

import ipywidgets as widgets

from bfcviz.figures.export import FORMATS, IMAGES, rendered
from bfcviz.figures.panel import Picture
from bfcviz.figures.python_code import IN_MEMORY
from bfcviz.units import format_bytes

_MEDIA_TYPES: Final = {
    ".html": "text/html",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
}


class ExportRow:
    """A menu, buttons and a link, and below them the code when requested.

    Args:
        names: the figures to choose from: text in the menu -> name.
        draw: draws the figure of this name at the current step; returns it and its file name without suffix.
        code: returns the Python that draws the figure of this name at the current step; None: no such button.

    Attributes:
        figure: the menu of figures.
        buttons: suffix -> its button; `code` -> the button of the code.
        link: shows the link to the file, or the error.
        code: shows the code.
        row: the whole widget.
    """

    def __init__(
        self,
        names: dict[str, str],
        draw: Callable[[str], tuple[Picture, str]],
        code: Callable[[str], str] | None = None,
    ) -> None:
        self._draw, self._code = draw, code
        self._idle = Lock()  # held while a file is rendered
        self.figure = widgets.Dropdown(
            options=names,
            description="export",
            layout={"width": "260px"},
            style={"description_width": "44px"},
        )
        self.buttons = {suffix: self._button(suffix) for suffix in FORMATS}
        if code is not None:
            self.buttons["code"] = self._code_button()
        self.link = widgets.HTML(layout={"margin": "0 0 0 8px"})
        self.link.add_class("bfcviz-download")
        self.code = widgets.HTML(layout={"display": "none"})
        self.code.add_class("bfcviz-code")
        line = widgets.HBox(
            [self.figure, *self.buttons.values(), self.link],
            layout={"flex_flow": "row wrap", "align_items": "center"},
        )
        self.row = widgets.VBox([line, self.code])

    def export(self, suffix: str) -> None:
        """Render the chosen figure at the current step and show a link to it; on failure, show the error.

        The formats that a browser renders take seconds: a thread renders them, and nothing else waits. A second
        export at the same time is ignored; the buttons are disabled meanwhile.
        """
        if not self._idle.acquire(blocking=False):
            return
        self._set_enabled(enabled=False)
        self.link.value = f"<span role='status'>rendering {suffix[1:].upper()} …</span>"
        try:
            figure, name = self._draw(self.figure.value)
        except Exception as error:  # noqa: BLE001  the page shows it
            self._finish(_alert(error))
            return
        if suffix in IMAGES:
            Thread(
                target=self._render, args=(figure, name, suffix), name="bfcviz export", daemon=True
            ).start()
        else:
            self._render(figure, name, suffix)

    def toggle_code(self) -> None:
        """Show the code of the chosen figure at the current step; hide it if it is shown already."""
        if self._code is None:
            return
        try:
            shown = _text_area(self._code(self.figure.value))
        except Exception as error:  # noqa: BLE001  the page shows it
            shown = _alert(error)
        hide = self.code.layout.display != "none" and self.code.value == shown
        self.code.value = "" if hide else shown
        self.code.layout.display = "none" if hide else None

    def _render(self, figure: Picture, name: str, suffix: str) -> None:
        try:
            shown = _link(name + suffix, _MEDIA_TYPES[suffix], rendered(figure, suffix))
        except Exception as error:  # noqa: BLE001  the page shows it; an error in a thread is lost otherwise
            shown = _alert(error)
        self._finish(shown)

    def _finish(self, shown: str) -> None:
        self.link.value = shown
        self._set_enabled(enabled=True)
        self._idle.release()

    def _set_enabled(self, *, enabled: bool) -> None:
        for suffix in FORMATS:
            self.buttons[suffix].disabled = not enabled

    def _button(self, suffix: str) -> widgets.Button:
        button = widgets.Button(
            description=suffix[1:].capitalize() if suffix == ".parquet" else suffix[1:].upper(),
            icon="download",
            tooltip=f"export as {suffix}",
            layout={"width": "auto"},
        )
        button.add_class(f"bfcviz-export-{suffix[1:]}")
        button.on_click(lambda _: self.export(suffix))
        return button

    def _code_button(self) -> widgets.Button:
        button = widgets.Button(
            description="Copy as code",
            icon="code",
            tooltip="show the Python that draws this figure",
            layout={"width": "auto"},
        )
        button.add_class("bfcviz-export-code")
        button.on_click(lambda _: self.toggle_code())
        return button


def _link(file: str, media_type: str, body: bytes) -> str:
    content = base64.b64encode(body).decode("ascii")
    return (
        f"<a download='{escape(file)}' href='data:{media_type};base64,{content}' "
        f"style='text-decoration: underline'>Download {escape(file)}</a> ({format_bytes(len(body))})"
    )


def _alert(error: Exception) -> str:
    return f"<span role='alert'>{escape(str(error) or type(error).__name__)}</span>"


def _text_area(code: str) -> str:
    """HTML that shows the code, to read and copy; text in a read-only Textarea of ipywidgets cannot be selected."""
    note = (
        "<div role='note'>This trace was not opened from a file: replace <code>...</code> by your trace</div>"
        if IN_MEMORY in code
        else ""
    )
    style = "width: 100%; box-sizing: border-box; font-family: monospace; color: inherit; background: inherit"
    return (
        f"{note}<textarea readonly spellcheck='false' rows='{code.count(chr(10)) + 1}' style='{style}' "
        "aria-label='Python that draws this figure; copy it with Ctrl-C' onfocus='this.select()'>"
        # HTML ignores the first line break after the tag.
        f"\n{escape(code)}</textarea>"
    )
