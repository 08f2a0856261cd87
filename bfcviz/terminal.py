"""Text for a terminal or Markdown: names from files cannot move the cursor, set colours, or begin a link or a tag."""

import json
import re
import sys
from collections.abc import Collection, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, Final, TextIO

_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters: C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that change the text direction
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff]"  # surrogates: Python stores undecodable bytes of file names as these
)


def printable(text: str) -> str:
    r"""`text` as one line; characters that a terminal would act on become escapes such as `\x1b` or `\u202e`."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~&@$]|:(?=//)|(?<=www)\.)")


def escaped(text: str) -> str:
    """`text` as one `printable` line in which Markdown and HTML mean nothing."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def json_text(value: Any) -> str:
    """JSON values as text, indented, without line end and without a character that a terminal acts on.

    Raises:
        ValueError: a number is not finite, which JSON cannot express.
    """
    # JSON does not escape DEL, which can occur only inside texts.
    return json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f")


_NAMED: Final = re.compile(r" *\S+(?: \S+)* {2,}(?=\S)")
_WIDEST_NAME: Final = 32  # columns of what stands before a text that goes on below itself
_NARROWEST: Final = 40


def wrapped_lines(line: str, columns: int) -> list[str]:
    """A line broken between words where it is longer than `columns`; a long word stays whole.

    What follows is indented below the text: of an item (`- ...`), or of a row (`name   text`).
    """
    if len(line) <= columns:
        return [line]
    start = len(line) - len(line.lstrip(" -"))
    indent = start if "- " in line[:start] else start + 2
    if (named := _NAMED.match(line)) and named.end() <= _WIDEST_NAME:
        indent = named.end()
    return wrap(
        line,
        max(columns, indent + _NARROWEST),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """A line for each row of a table: columns two spaces apart; `right` are those that end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


_LONGEST_NAME: Final = 14  # columns of a name in a table


def named_rows(rows: Sequence[Sequence[str]], right: Collection[int], columns: int) -> list[list[str]]:
    """The lines of each row of a table, as `aligned`: its name, the first cell, has a line of its own if it is long.

    A name is also long where its column would make the table wider than `columns`.
    """
    others = zip(*(row[1:] for row in rows), strict=True)
    room = min(_LONGEST_NAME, columns - sum(2 + max(map(len, column)) for column in others))
    lines = aligned([("" if len(row[0]) > room else row[0], *row[1:]) for row in rows], right)
    return [[row[0], line] if len(row[0]) > room else [line] for row, line in zip(rows, lines, strict=True)]


def line_width() -> int:
    """How many columns a line of standard output may have: those of its terminal, or 80 where it is none."""
    own = sys.__stdout__
    return get_terminal_size().columns if own is not None and sys.stdout is own and own.isatty() else 80


def say(*lines: str, file: TextIO | None = None, whole: bool = False) -> None:
    """Print lines to standard output or `file` and flush; characters outside the stream's encoding become escapes.

    Lines for the process's own standard output are at most as wide as its terminal, or 80 columns where it is none.

    Args:
        lines: the lines.
        file: the stream; None: standard output.
        whole: no line is broken: a program reads them.
    """
    stream = sys.stdout if file is None else file
    shown = [printable(line) for line in lines]
    own = sys.__stdout__
    if own is not None and stream is own and not whole:
        shown = [part for line in shown for part in wrapped_lines(line, line_width())]
    text = "\n".join(shown) + "\n"
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
