"""Answer: how a result shows itself at a prompt and in a notebook. The text is `str`, the answer in its first line."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

from bfcviz.errors import BfcvizError
from bfcviz.extras import needed
from bfcviz.terminal import printable

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow import Table

MOST_LINES: Final = 10
"""Lines of an answer at a prompt; `print` shows all."""


@dataclass(frozen=True)
class AnswerTable:
    """A table of an answer.

    Attributes:
        columns: the headers; the first column is text, the others are numbers.
        rows: their cells; empty ones at the end may be missing. Spaces at the beginning of a name indent it.
        title: above it; "" for none.
        texts: the headers of further columns that are text.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    texts: Collection[str] = ()

    @property
    def html(self) -> str:
        """The table of an answer as HTML; labels in it are text."""
        title = f'<caption style="{_CAPTION}">{_answer_html_text(self.title)}</caption>' if self.title else ""
        is_text = [not place or name in self.texts for place, name in enumerate(self.columns)]
        heads = "".join(
            f'<th scope="col" style="{_answer_column_style(left)}font-weight:600">{_answer_html_text(name)}</th>'
            for name, left in zip(self.columns, is_text, strict=True)
        )
        body = "".join(f"<tr>{''.join(map(_answer_table_cell, row, is_text))}</tr>" for row in self.rows)
        return f'<table style="{_TABLE}">{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


_TABLE: Final = "border-collapse:collapse;margin:6px 0;font-size:13px;font-variant-numeric:tabular-nums"
_LONGEST_NUMBER: Final = 24  # characters of a cell that is not broken
_CAPTION: Final = "text-align:left;caption-side:top;padding:0;color:inherit;font-weight:600"


def _answer_column_style(is_text: bool) -> str:  # noqa: FBT001
    """The style of an answer's column: text is at the left, numbers at the right."""
    return f"text-align:{'left' if is_text else 'right'};padding:1px 12px 1px 0;"


def _answer_table_cell(text: str, is_text: bool) -> str:  # noqa: FBT001
    name = text.lstrip(" ")
    indent = f"padding-left:{0.6 * (len(text) - len(name)):.1f}em;" if is_text and name != text else ""
    # A number stays in one line with its unit, however narrow the notebook is.
    breaks = "overflow-wrap:anywhere" if is_text or len(name) > _LONGEST_NUMBER else "white-space:nowrap"
    return f'<td style="{_answer_column_style(is_text)}{indent}{breaks}">{_answer_html_text(name)}</td>'


def _answer_html_text(text: str) -> str:
    return escape(printable(text))


def data_frame(columns: Mapping[str, Any]) -> "pd.DataFrame":
    """Columns of an answer as a pandas data frame.

    Raises:
        MissingExtra: pandas is not installed.
    """
    with needed("to_pandas()", "pandas", "lab"):
        import pandas as pd  # noqa: PLC0415  an extra
    return pd.DataFrame(dict(columns))


class Answer:
    """The base of results that a user looks at. A subclass has `__str__`."""

    _draw: Callable[..., Any] | None = None

    @property
    def unwrapped(self) -> list[str]:
        """The lines of the answer as text, the answer first; a page breaks them where it must."""
        return str(self).splitlines()

    @property
    def reason(self) -> str:
        """The sentence that explains the first line of the answer, below it in a notebook; "" for none."""
        return ""

    @property
    def tables(self) -> Sequence[AnswerTable]:
        """The numbers of the answer as tables, for a notebook."""
        return ()

    def drawn_by(self, draw: Callable[..., Any]) -> Self:
        """The same answer, whose `figure` is what `draw` makes of its options."""
        object.__setattr__(self, "_draw", draw)  # most answers are frozen
        return self

    @property
    def drawn_trace(self) -> Any:
        """The trace whose region map at the peak is the picture of the answer; None: none."""
        return None

    def figure(self, **options: Any) -> Any:
        """The picture of the answer: a plotly figure with its numbers in `table`.

        Args:
            options: of the picture, such as `theme="dark"`.

        Raises:
            BfcvizError: no picture belongs to it, such as to the answer about a text.
        """
        if self._draw is None:
            if (trace := self.drawn_trace) is not None:
                return import_module("bfcviz").draw(trace, **options)  # figures may not be imported here
            raise BfcvizError(
                f"a figure of {type(self).__name__} was asked for, and no picture belongs to it: bfcviz.draw(source) "
                "draws the heap of a trace, a recording or a snapshot"
            )
        return self._draw(**options)

    def __repr__(self) -> str:
        lines = [printable(line) for line in str(self).splitlines()]
        if len(lines) <= MOST_LINES:
            return "\n".join(lines)
        return "\n".join(
            [*lines[: MOST_LINES - 1], f"... {len(lines) - MOST_LINES + 1} more lines: print() shows all"]
        )

    def _repr_html_(self) -> str:
        first, *rest = [printable(line) for line in self.unwrapped] or [""]
        text = escape("\n".join(rest))
        # JupyterLab would break lines within words.
        wraps = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
        more = f'<pre style="margin:4px 0 0;{wraps}">{text}</pre>' if rest else ""
        if tables := self.tables:
            shown = "".join(table.html for table in tables)
            more = f"{shown}<details><summary>as text</summary>{more}</details>" if more else shown
        style = (
            "color:var(--jp-ui-font-color1,inherit);font-family:var(--jp-ui-font-family,system-ui,sans-serif)"
        )
        because = f"<div>{_answer_html_text(self.reason)}</div>" if self.reason else ""
        return f'<div style="{style}"><div style="font-weight:600">{escape(first)}</div>{because}{more}</div>'


class TableAnswer(Answer):
    """The base of answers that are a table."""

    def to_arrow(self) -> "Table":
        """The table of the answer.

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """The table of the answer, `to_arrow`, as a pandas data frame.

        Raises:
            MissingExtra: pandas is not installed.
        """
        with needed("to_pandas()", "pandas", "lab"):
            import pandas as pd  # noqa: PLC0415  an extra
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame
