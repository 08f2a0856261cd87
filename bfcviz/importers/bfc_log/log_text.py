"""Plain text from the bytes of a log: terminal codes, JSON escapes and hard line wraps removed.

In the text, a newline ends a line of the file; a carriage return is a line break inside one, of a progress bar or of an
escaped JSON string. Line numbers are those of the file.
"""

import re
from bisect import bisect_right
from itertools import accumulate

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
_JSON_KEY = re.compile(r'"\w{1,64}"\s{0,9}:')
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPED = {r"\n": "\r", r"\r": "", r"\t": "\t", r"\"": '"', r"\/": "/"}
_BEGINS_RECORD = re.compile(r"\d{4}-\d\d-\d\d|[IWEF]\d{4} \d\d:|\b[IWEF] \w+[/\\]")
_NARROWEST, _WIDEST, _FEWEST_WRAPS, _SMALLEST_SHARE = 40, 250, 3, 0.2


class LogText:
    """The text of a log.

    Attributes:
        text: without terminal codes.
    """

    def __init__(self, text: str, breaks: list[int]) -> None:
        self.text = text
        self._breaks = breaks  # where each line of the file after the first begins

    def line(self, offset: int) -> int:
        """The line of the file, from 1, that holds the character at `offset`."""
        return bisect_right(self._breaks, offset) + 1


def log_text(data: bytes) -> LogText:
    """The text of a file; bytes that are not text become replacement characters."""
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace")
    text = text.replace("\r\n", "\n")
    if _is_json(text):
        text = _without_escapes(text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _unwrapped(text)


def _is_json(text: str) -> bool:
    """Whether this is a notebook, or JSON lines of a log collector."""
    start = text[: 1 << 16].lstrip("\ufeff \t\n")
    return start[:1] in ("{", "[") and "\\n" in text and _JSON_KEY.search(start) is not None


def _without_escapes(text: str) -> str:
    """The text with the characters that JSON escapes mean; a line break becomes a carriage return."""
    text = text.replace("\0", "").replace("\\\\", "\0")  # an escaped backslash begins no escape
    for escape, character in _ESCAPED.items():
        text = text.replace(escape, character)
    return _UNICODE_ESCAPE.sub(_character, text).replace("\0", "\\")


def _character(escape: re.Match[str]) -> str:
    number = int(escape[1], 16)
    if number == 0x0A:
        return "\r"
    return "?" if 0xD800 <= number < 0xE000 or number == 0 else chr(number)


def _unwrapped(text: str) -> LogText:
    """Join the lines of records that a terminal cut at its width, the greatest length of a line in the file."""
    lines = text.split("\n")
    wrapped = _wrapped(lines)
    if not wrapped:
        return LogText(text, list(accumulate(len(line) + 1 for line in lines[:-1])))
    parts = [line if number in wrapped else line + "\n" for number, line in enumerate(lines)]
    return LogText("".join(parts)[:-1], list(accumulate(map(len, parts[:-1]))))


def _wrapped(lines: list[str]) -> set[int]:
    """The lines that go on in the next one; none if only few records do, which then is a coincidence."""
    width = max(map(len, lines))
    if not _NARROWEST <= width <= _WIDEST:
        return set()
    begins = [_BEGINS_RECORD.search(line[:60]) is not None for line in lines]
    found: set[int] = set()
    count = 0
    for number, line in enumerate(lines[:-1]):
        if len(line) == width and not begins[number + 1] and lines[number + 1].strip():
            if begins[number]:
                count += 1
            elif number - 1 not in found:
                continue
            found.add(number)
    return found if count >= max(_FEWEST_WRAPS, sum(begins) * _SMALLEST_SHARE) else set()
