"""The export row: choose a figure and a format, then save it by a link in the page; or show its code."""

import base64
from collections.abc import Callable
from html import escape
from pathlib import PurePath
from threading import Lock, Thread
from typing import Final

import ipywidgets as widgets

from bfcviz.dashboard.table import row
from bfcviz.figures.export import FORMATS, IMAGES, IN_MEMORY, TABLES, rendered
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


class ExportRow:
    """The export row: a menu, buttons and a link, and below them the code when requested.

    Args:
        names: the figures to choose from: text in the menu -> name.
        draw: draws the figure of this name at the current step; returns it and its file name without suffix.
        code: returns the Python that draws the figure of this name at the current step.
        page: returns a page that steps through the events without a kernel, as HTML.
        without_table: the name of several figures together, which have no table of numbers.

    Attributes:
        figure: the menu of figures.
        buttons: suffix -> its button; `code` and `page` -> those of the code and of the page.
        link: shows the link to the file, or the error.
        code: shows the code.
        row: the whole widget.
    """

    def __init__(
        self,
        names: dict[str, str],
        draw: Callable[[str], tuple[Picture, str]],
        code: Callable[[str], str],
        page: Callable[[], str],
        without_table: str = "",
    ) -> None:
        self._draw, self._code, self._page, self._without_table = draw, code, page, without_table
        self._idle = Lock()  # held while a file is rendered
        self._showing, self._enabled = Lock(), True  # the thread that renders enables the buttons
        self.figure = widgets.Dropdown(
            options=names,
            description="export",
            layout={"width": "260px"},
            style={"description_width": "44px"},
        )
        self.buttons = {suffix: self._file_button(suffix) for suffix in FORMATS}
        tooltip = "show the Python that draws this figure"
        self.buttons["code"] = self._button("code", "Copy as code", "code", tooltip, self.toggle_code)
        tooltip = "one HTML file that steps through all events, without a kernel"
        self.buttons["page"] = self._button("page", "Save as a page", "file-code-o", tooltip, self.save_page)
        self.link = widgets.HTML(layout={"margin": "0 0 0 8px"})
        self.link.add_class("bfcviz-download")
        self.code = widgets.HTML(layout={"display": "none"})
        self.code.add_class("bfcviz-code")
        self._set_enabled()
        self.figure.observe(lambda _: self._set_enabled(), "value")
        self.row = widgets.VBox([row([self.figure, *self.buttons.values(), self.link]), self.code])

    def export(self, suffix: str) -> None:
        """Render the chosen figure at the current step and show a link to it; on failure, show the error.

        The formats that a browser renders take seconds: a thread renders them, and nothing else waits. A second
        export at the same time is ignored; the buttons are disabled meanwhile.
        """
        if not self._begin(f"rendering {suffix[1:].upper()} …"):
            return
        try:
            figure, name = self._draw(self.figure.value)
        except Exception as error:  # noqa: BLE001  the page shows it
            self._finish(_export_error_html(error))
            return
        offer = self._offer_from_thread if suffix in IMAGES else self._offer
        offer(name + suffix, lambda: rendered(figure, suffix))

    def save_page(self) -> None:
        """Export the page without a kernel, in a thread: it takes seconds. Show a link to it; on failure, the error."""
        if self._begin("writing a page of all steps …"):
            self._offer_from_thread("bfcviz-page.html", lambda: self._page().encode())

    def toggle_code(self) -> None:
        """Show the code of the chosen figure at the current step; hide it if it is shown already."""
        try:
            shown = _export_code_html(self._code(self.figure.value))
        except Exception as error:  # noqa: BLE001  the page shows it
            shown = _export_error_html(error)
        hide = self.code.layout.display != "none" and self.code.value == shown
        self.code.value = "" if hide else shown
        self.code.layout.display = "none" if hide else None

    def _begin(self, says: str) -> bool:
        """Disable the buttons and show what is done; False: another export is not finished."""
        if not self._idle.acquire(blocking=False):
            return False
        self._set_enabled(enabled=False)
        self.link.value = f"<span role='status'>{says}</span>"
        return True

    def _offer_from_thread(self, file: str, make: Callable[[], bytes]) -> None:
        Thread(target=self._offer, args=(file, make), name="bfcviz export", daemon=True).start()

    def _offer(self, file: str, make: Callable[[], bytes]) -> None:
        """Make the content of a file, and show a link to it."""
        try:
            shown = _export_download_link(file, make())
        except Exception as error:  # noqa: BLE001  the page shows it; an error in a thread is lost otherwise
            shown = _export_error_html(error)
        self._finish(shown)

    def _finish(self, shown: str) -> None:
        self.link.value = shown
        self._set_enabled(enabled=True)
        self._idle.release()

    def _set_enabled(self, *, enabled: bool | None = None) -> None:
        """Enable the buttons that make a file, or not (None: as before); those of tables only for one figure."""
        with self._showing:
            self._enabled = self._enabled if enabled is None else enabled
            has_table = self.figure.value != self._without_table
            for name in (*FORMATS, "page"):
                self.buttons[name].disabled = not self._enabled or (name in TABLES and not has_table)
            for name in TABLES:
                self.buttons[name].tooltip = (
                    f"export as {name}" if has_table else "choose one view in the menu: it has a table"
                )

    @staticmethod
    def _button(
        name: str, description: str, icon: str, tooltip: str, press: Callable[[], object]
    ) -> widgets.Button:
        button = widgets.Button(description=description, icon=icon, tooltip=tooltip, layout={"width": "auto"})
        button.add_class(f"bfcviz-export-{name}")
        button.on_click(lambda _: press())
        return button

    def _file_button(self, suffix: str) -> widgets.Button:
        name = suffix[1:]
        title = name.capitalize() if suffix == ".parquet" else name.upper()
        return self._button(name, title, "download", f"export as {suffix}", lambda: self.export(suffix))


def _export_download_link(file: str, body: bytes) -> str:
    content, media_type = base64.b64encode(body).decode("ascii"), _MEDIA_TYPES[PurePath(file).suffix]
    return (
        f"<a download='{escape(file)}' href='data:{media_type};base64,{content}' "
        f"style='text-decoration: underline'>Download {escape(file)}</a> ({format_bytes(len(body))})"
    )


def _export_error_html(error: Exception) -> str:
    return f"<span role='alert'>{escape(str(error) or type(error).__name__)}</span>"


def _export_code_html(code: str) -> str:
    """HTML that shows the code, to read and copy; text in a read-only Textarea of ipywidgets cannot be selected."""
    note = ""
    if IN_MEMORY in code:
        text = "This trace was not opened from a file: replace <code>...</code> by your trace"
        note = f"<div role='note'>{text}</div>"
    style = "width: 100%; box-sizing: border-box; font-family: monospace; color: inherit; background: inherit"
    return (
        f"{note}<textarea readonly spellcheck='false' rows='{code.count(chr(10)) + 1}' style='{style}' "
        "aria-label='Python that draws this figure; copy it with Ctrl-C' onfocus='this.select()'>"
        # HTML ignores the first line break after the tag.
        f"\n{escape(code)}</textarea>"
    )
