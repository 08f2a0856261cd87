"""Answer: how a result shows itself at a prompt and in a notebook. The text is `str`, the answer in its first line."""

from html import escape
from typing import Final

from bfcviz.terminal import printable

MOST_LINES: Final = 10
"""Lines of an answer at a prompt; `print` shows all."""


class Answer:
    """The base of results that a user looks at. A subclass has `__str__`."""

    @property
    def unwrapped(self) -> list[str]:
        """The lines of the text, the answer first; a page breaks them where it must."""
        return str(self).splitlines()

    def __repr__(self) -> str:
        lines = [printable(line) for line in str(self).splitlines()]
        if len(lines) <= MOST_LINES:
            return "\n".join(lines)
        return "\n".join(
            [*lines[: MOST_LINES - 1], f"... {len(lines) - MOST_LINES + 1} more lines: print() shows all"]
        )

    def _repr_html_(self) -> str:
        first, *rest = [printable(line) for line in self.unwrapped] or [""]
        more = (
            f'<pre style="margin:4px 0 0;white-space:pre-wrap">{escape(chr(10).join(rest))}</pre>'
            if rest
            else ""
        )
        style = (
            "color:var(--jp-ui-font-color1,inherit);font-family:var(--jp-ui-font-family,system-ui,sans-serif)"
        )
        return f'<div style="{style}"><div style="font-weight:600">{escape(first)}</div>{more}</div>'
