"""The row that exports: a picture, a form, and a link to save the file by, all inside the page; or its code."""

import base64
from collections.abc import Callable
from html import escape
from threading import Lock, Thread
from typing import Final

import ipywidgets as widgets

from bfcviz.figures.code import IN_MEMORY
from bfcviz.figures.export import FORMATS, IMAGES, rendered
from bfcviz.figures.panel import Picture
from bfcviz.units import format_bytes

_MEDIA_TYPES: Final = {
    ".html": "text/html",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
}


class Exporter:
    """Menus and buttons, and under them the code once it is asked for.

    Args:
        names: the pictures to choose from, what is shown -> its name.
        draw: makes the picture of this name, as it is now, and says how its file is called, less the suffix.
        code: the Python that makes the picture of this name, as it is now; None: there is no such button.

    Attributes:
        figure: the menu of pictures.
        buttons: suffix -> its button; `code` -> that of the code.
        link: where the file is offered, or what went wrong is said.
        code: where the code is shown.
        row: all of it.
    """

    def __init__(
        self,
        names: dict[str, str],
        draw: Callable[[str], tuple[Picture, str]],
        code: Callable[[str], str] | None = None,
    ) -> None:
        self._draw, self._code = draw, code
        self._idle = Lock()  # held while a file is made
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
        """Makes the chosen picture, as it is now, and offers it as a link; what goes wrong is said in its place.

        Those forms that a browser makes take seconds: they are made in a thread, and nothing else waits for
        them. Of two at once the second is left out; its button shows that it cannot be pressed.
        """
        if not self._idle.acquire(blocking=False):
            return
        self._set_enabled(enabled=False)
        self.link.value = f"<span role='status'>making the {suffix[1:].upper()} …</span>"
        try:
            figure, name = self._draw(self.figure.value)
        except Exception as error:  # noqa: BLE001  a page has no other place to say it
            self._finish(_alert(error))
            return
        if suffix in IMAGES:
            Thread(target=self._offer, args=(figure, name, suffix), name="bfcviz export", daemon=True).start()
        else:
            self._offer(figure, name, suffix)

    def toggle_code(self) -> None:
        """Shows the code of the chosen picture, as it is now; or hides it, where that is what is shown."""
        if self._code is None:
            return
        try:
            shown = _text_area(self._code(self.figure.value))
        except Exception as error:  # noqa: BLE001  likewise
            shown = _alert(error)
        hide = self.code.layout.display != "none" and self.code.value == shown
        self.code.value = "" if hide else shown
        self.code.layout.display = "none" if hide else None

    def _offer(self, figure: Picture, name: str, suffix: str) -> None:
        try:
            shown = _link(name + suffix, _MEDIA_TYPES[suffix], rendered(figure, suffix))
        except Exception as error:  # noqa: BLE001  likewise, and in a thread nobody would hear of it
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
            tooltip="show the Python that makes this picture",
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
    """The code to be read and copied; not ipywidgets' Textarea, which cannot be read-only and yet selected."""
    note = (
        "<div role='note'>This trace was not opened from a file: put yours where the code says <code>...</code></div>"
        if IN_MEMORY in code
        else ""
    )
    style = "width: 100%; box-sizing: border-box; font-family: monospace; color: inherit; background: inherit"
    return (
        f"{note}<textarea readonly spellcheck='false' rows='{code.count(chr(10)) + 1}' style='{style}' "
        "aria-label='Python that makes this picture; copy it with Ctrl-C' onfocus='this.select()'>"
        # The first line break after the tag is not part of the text.
        f"\n{escape(code)}</textarea>"
    )
