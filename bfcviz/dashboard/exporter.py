"""The row that exports: a picture, a form, and a link to save the file by, all inside the page."""

import base64
from collections.abc import Callable
from html import escape
from typing import Final

import ipywidgets as widgets

from bfcviz.errors import BfcvizError
from bfcviz.figures.export import FORMATS, rendered
from bfcviz.figures.panel import Picture
from bfcviz.units import format_bytes

_MEDIA_TYPES: Final = {".html": "text/html", ".png": "image/png", ".svg": "image/svg+xml", ".csv": "text/csv"}


class Exporter:
    """Menus and buttons.

    Args:
        names: the pictures to choose from, what is shown -> its name.
        draw: makes the picture of this name, as it is now, and says how its file is called, less the suffix.
    """

    def __init__(self, names: dict[str, str], draw: Callable[[str], tuple[Picture, str]]) -> None:
        self._draw = draw
        self.figure = widgets.Dropdown(
            options=names,
            description="export",
            layout={"width": "260px"},
            style={"description_width": "44px"},
        )
        self.buttons = {suffix: self._button(suffix) for suffix in FORMATS}
        self.link = widgets.HTML(layout={"margin": "0 0 0 8px"})
        self.link.add_class("bfcviz-download")
        self.row = widgets.HBox(
            [self.figure, *self.buttons.values(), self.link],
            layout={"flex_flow": "row wrap", "align_items": "center"},
        )

    def export(self, suffix: str) -> None:
        """Makes the chosen picture and offers it as a link; what goes wrong is said in its place."""
        self.link.value = f"making the {escape(suffix[1:].upper())} …"
        try:
            figure, name = self._draw(self.figure.value)
            body = rendered(figure, suffix)
        except BfcvizError as error:
            self.link.value = f"<span role='alert'>{escape(str(error))}</span>"
            return
        content = base64.b64encode(body).decode("ascii")
        self.link.value = (
            f"<a download='{escape(name + suffix)}' href='data:{_MEDIA_TYPES[suffix]};base64,{content}' "
            f"style='text-decoration: underline'>Download {escape(name + suffix)}</a> "
            f"({format_bytes(len(body))})"
        )

    def _button(self, suffix: str) -> widgets.Button:
        button = widgets.Button(
            description=suffix[1:].upper(),
            icon="download",
            tooltip=f"export as {suffix}",
            layout={"width": "auto"},
        )
        button.add_class(f"bfcviz-export-{suffix[1:]}")
        button.on_click(lambda _: self.export(suffix))
        return button
