"""Text for a terminal or Markdown: names from files cannot move the cursor, set colours, or begin a link or a tag."""

import json
import re
import sys
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
    """`text` as one line in which Markdown and HTML mean nothing."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def json_text(value: Any) -> str:
    """JSON values as text, indented, without line end and without a character that a terminal acts on.

    Raises:
        ValueError: a number is not finite, which JSON cannot express.
    """
    # JSON does not escape DEL, which can occur only inside texts.
    return json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f")


def say(*lines: str, file: TextIO | None = None) -> None:
    """Print lines to standard output or `file` and flush; characters outside the stream's encoding become escapes."""
    stream = sys.stdout if file is None else file
    text = "\n".join(map(printable, lines)) + "\n"
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
