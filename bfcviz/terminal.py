"""Text for a terminal: names from files and from outside cannot move the cursor, colour, or reorder what is printed."""

import re
import sys
from typing import Final, TextIO

_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters: C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that turn the direction of text
    "\u2028\u2029"  # ends of a line and of a paragraph
    "\ud800-\udfff]"  # what no UTF-8 can be: Python's sign for a byte of a file name that is no text
)


def printable(text: str) -> str:
    r"""`text` as one line, with what a terminal would act on written as an escape such as `\x1b` or `\u202e`."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def say(*lines: str, file: TextIO | None = None) -> None:
    """Print these lines, each `printable`, to standard output or `file`, and flush; the stream's encoding is enough."""
    stream = sys.stdout if file is None else file
    text = "\n".join(map(printable, lines)) + "\n"
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
