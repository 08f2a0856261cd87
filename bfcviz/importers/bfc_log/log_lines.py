"""The lines of logs of TensorFlow, XLA and JAX: plain text, log records, messages, sizes as they print them."""

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.formats.message_grammar import TERMINAL_CODE, calendar_seconds
from bfcviz.formats.onnxruntime import ARENA, as_tensorflow
from bfcviz.importers.file_content import UNPACKED_TEXT, ContentPieces, decoded_pieces

# ------------------------------------------------------------------------------
# Sizes as TensorFlow prints them, `74.16MiB`: with three or four digits, sometimes with a decimal comma.

SIZE: Final = r"\d{1,20}(?:[.,]\d{1,9})?(?:[KMGTPE]i)?B"
NUMBER: Final = rf"(?:{SIZE}|\d{{1,20}})\b"
"""A number of bytes, with or without a unit."""

_PARTS = re.compile(r"(\d{1,20})(?:[.,](\d{1,9}))?(?:([KMGTPE])i)?B?")
_UNITS = "KMGTPE"
_MOST = 1 << 63


class PrintedSize(NamedTuple):
    """A size as a line of a log prints it."""

    text: str  # as printed, with a decimal point
    value: int  # bytes, or the nearest number that the text can mean
    is_exact: bool  # whether no digits are missing

    def means(self, size: int) -> bool:
        """Whether TensorFlow prints `size` bytes in a log like this."""
        return size == self.value if self.is_exact else log_line_size_text(size) == self.text


def log_line_size_text(size: int) -> str:
    """Bytes as `HumanReadableNumBytes` prints them in a log; it cuts remainders off before the last division."""
    if size < 1024:
        return f"{size}B"
    unit = 0
    while size >= 1 << 20 and unit < len(_UNITS) - 1:
        size >>= 10
        unit += 1
    return f"{size / 1024:.1f}KiB" if unit == 0 else f"{size / 1024:.2f}{_UNITS[unit]}iB"


def size_in_log_line(text: str) -> PrintedSize | None:
    """The size that `text` prints in a log; None if it is none, or larger than any memory."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return None
    whole, fraction, unit = parts.groups()
    scale = 1 << 10 * (_UNITS.index(unit) + 1) if unit else 1
    value = int(whole) * scale
    if fraction:
        value += round(int(fraction) * scale / 10 ** len(fraction))
    return None if value >= _MOST else PrintedSize(text.replace(",", "."), value, not unit)


# ------------------------------------------------------------------------------
# The messages of the BFC allocator, from 2015 to 2026, as regular expressions.
#
# White space may be a line break wherever a text was wrapped. Every repetition is bounded or ends at a fixed
# character: a search takes time proportional to the text.

HEADER: Final = re.compile(
    rf"Allocator\s+\((?P<name>[^()\s]{{1,200}})\)\s+ran\s+out\s+of\s+memory\s+trying\s+to\s+allocate\s+(?P<size>{SIZE})"
    r"(?:\s+\(rounded\s+to\s+(?P<rounded>\d{1,19})\))?"
)
"""The warning before a dump, since 2017; also the warning of a request that may fail."""

LATE_HEADER: Final = re.compile(rf"Ran\s+out\s+of\s+memory\s+trying\s+to\s+allocate\s+(?P<size>{SIZE})")
"""The same until 2017: after the dump, and without a name."""

NOT_A_FAILURE: Final = re.compile(r"\bthis\s+is\s+not\s+a\s+failure|\bwith\s+freed_by_count=")
REQUESTED_BY: Final = re.compile(r"requested\s+by\s+op[ \t]+(?P<op>[^\s\"\\][^\n\r\"]{0,4000})")
GARBAGE_COLLECTION: Final = re.compile(r"Garbage\s+collection:\s+deallocate\s+free\s+memory\s+regions")
REFUSED: Final = re.compile(
    r"failed\s+to\s+allocate\s+\S{1,20}\s+\((?P<bytes>\d{1,19})\s+bytes\)\s+from\s+device"
)
"""Of `cuda_driver.cc` and its successors: the sub-allocator got no memory."""

DUMP_FOR: Final = re.compile(r"BFCAllocator\s+dump\s+for\s+(?P<name>\S{1,200})")
BIN: Final = re.compile(
    r"Bin\s+\((?P<bin>\d{1,19})\):\s*Total\s+Chunks:\s+(?P<chunks>\d{1,19}),\s+Chunks\s+in\s+use:\s+"
    rf"(?P<used>\d{{1,19}})\.?\s+(?P<bytes>{SIZE})\s+allocated\s+for\s+chunks\.\s+"
    rf"(?P<old>{SIZE}\s+client-requested\s+for\s+chunks\.\s+)?(?P<used_bytes>{SIZE})\s+in\s+use\s+in\s+bin\.\s+"
    rf"(?P<requested>{SIZE})\s+client-requested\s+in\s+use"
)
"""`old`: until 2017 the bins counted only free chunks."""

BIN_FOR: Final = re.compile(rf"Bin\s+for\s+(?P<size>{SIZE})\s+was\s+{SIZE},\s+Chunk\s+State")
REGION: Final = re.compile(r"Next\s+region\s+of\s+size\s+(?P<size>\d{1,19})")
CENTRAL_GAP: Final = "central_gap"
"""Tag of the free memory between the two ends of a pool."""

CHUNK: Final = re.compile(
    r"(InUse|Free|Chunk)\s+at\s+(?:0x)?([0-9A-Fa-f]{1,16})(?:\s+next\s+\d{1,20})?\s+of\s+size\s+(\d{1,19})\b"
    r"(?:\s+tag\s+(\w{1,20}))?"
    r"(?:\s+by\s+op\s+([^\n\r]{1,4000}?)\s+action_count\s+\d{1,20}\s+step\s+\d{1,20})?"
    r"(?:\s+allocation_annotation\s+([^\n\r]{1,16000}?)\s+next\s+\d{1,20})?"
)
"""The word, address, size, tag, operation and annotation of a chunk."""

CHUNK_LINES: Final = re.compile(
    r"(?:InUse|Free|Chunk) {1,2}at (?:0x)?[0-9A-Fa-f]{1,16}(?: next \d{1,20})? of size \d{1,19}"
    r"[^\n\r\]]*\r?[\",]{0,3}\n"
)
"""A chunk line as it is written, to the end of the line."""

SUMMARY: Final = re.compile(r"(?P<count>\d{1,19})\s+Chunks\s+of\s+size\s+(?P<size>\d{1,19})\s+totalling\s")
SUM: Final = re.compile(rf"Sum\s+Total\s+of\s+in-use\s+chunks:\s+(?P<size>{SIZE})")
POOL: Final = re.compile(
    rf"(?:total_region_allocated_bytes_|Total\s+(?:bytes|size)\s+in\s+pool):\s+(?P<pool>{NUMBER})\s+memory_limit_:\s+"
    rf"(?P<limit>{NUMBER})\s+available\s+(?:bytes|size):\s+(?P<available>{NUMBER})\s+"
    rf"curr_region_allocation_bytes_:\s+(?P<next>{NUMBER})"
)
MEMORY_SUMMARY: Final = re.compile(
    rf"Allocator\s+memory\s+summary:\s+rounded\s+request\s+{SIZE},\s+total\s+free\s+in\s+pool\s+{SIZE},\s+largest\s+free\s+"
    rf"chunk\s+usable\s+by\s+(?P<end>\w{{1,20}})\s+end\s+(?P<usable>{SIZE}),\s+unallocated\s+bytes\s+(?P<available>{SIZE}),\s+"
    rf"pool\s+size\s+(?P<pool>{SIZE}),\s+pool\s+limit\s+(?P<limit>{SIZE})"
)
"""`POOL` of XLA in 2026."""

SPATIAL: Final = re.compile(
    rf"Spatial\s+partitioning\s+summary\s+for\s+(?P<end>\w{{1,20}})\s+end:\s+central\s+gap\s+(?P<gap>{SIZE}),\s+"
    rf"largest\s+same-end\s+binned\s+free\s+chunk\s+(?P<same_end>{SIZE}),\s+largest\s+binned\s+free\s+chunk\s+from\s+"
    rf"any\s+end\s+(?P<any_end>{SIZE})"
)
"""The free memory of a pool with two ends, of which a request may use the central gap and the holes of its own end."""

GROWTH: Final = re.compile(r"\(growth\s+(?P<growth>enabled|disabled)\b")
STAT: Final = re.compile(
    r"\b(Limit|InUse|MaxInUse|NumAllocs|MaxAllocSize|Reserved|PeakReserved|LargestFreeBlock):[ \t]{1,40}"
    rf"({NUMBER})"
)
STRIP: Final = re.compile(r"\s*([*x_]{20,100}|<allocator contains no memory>)[ \t]*(?:$|[\n\r\"])")
"""The occupancy of the pool: `*` in use, `x` lost to rounding, `_` free."""

OOM_TENSOR: Final = re.compile(
    r"OOM\s+when\s+allocating\s+tensor\s+with\s+shape\s?\[(?P<shape>[\d,\s]{0,200})\](?:\s+and\s+type\s+(?P<type>\w{1,40}))?"
    r"(?:\s+on\s+\S{1,200})?(?:\s+by\s+allocator\s+(?P<name>[^\s\"\\]{1,200}))?"
)
OUT_OF_BYTES: Final = re.compile(
    rf"[Oo]ut\s+of\s+memory\s+(?:while\s+)?trying\s+to\s+allocate\s+(?P<size>\d{{1,19}}(?=\s+bytes)|{SIZE})"
)
"""The error of XLA and JAX; since 2025 its size may have a unit."""

NODE: Final = re.compile(r"\{\{node\s+([^\s{}]{1,1000})\}\}|\[\[Node:\s+([^\s\]]{1,1000})\s+=")


# ------------------------------------------------------------------------------
# Plain text from the bytes of a log: terminal codes, JSON escapes and hard line wraps removed.
#
# In the text, a newline ends a line of the file; a carriage return is a line break inside one, of a progress bar or
# of an escaped JSON string. Line numbers are those of the file.

_JSON_KEY = re.compile(r'"\w{1,64}"\s{0,9}:')
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPED = {r"\n": "\r", r"\r": "", r"\t": "\t", r"\"": '"', r"\/": "/"}
_BEGINS_RECORD = re.compile(r"\d{4}-\d\d-\d\d|[IWEF]\d{4} \d\d:|\b[IWEF] \w+[/\\]")
_NARROWEST, _WIDEST, _FEWEST_WRAPS, _SMALLEST_SHARE = 40, 250, 3, 0.2


class LogText(NamedTuple):
    """The whole text of a log, without terminal codes."""

    text: str  # of all lines
    joined: Sequence[int] = ()  # where each line begins that was joined with the one before it

    @property
    def pieces(self) -> Iterable[str]:
        """All text of the log, as `LogPieces` has it."""
        return [self.text]


def log_text(data: bytes) -> LogText:
    """The text of a log; bytes that are not text become replacement characters."""
    text = "".join(decoded_pieces([data]))
    text = as_tensorflow(text.replace("\r\n", "\n"))
    if _may_be_json_log(text) and "\\n" in text:
        text = _without_log_escapes(text)
    return _unwrapped_log_text(_without_terminal_codes(text))


class LogPieces:
    """The text of a log in pieces of whole lines, read again from the file by each pass over `pieces`.

    Attributes:
        joined: as of `LogText`.
        cut: why the end of the file is missing, None if nothing is missing; known after a pass.
        needs_whole: its text must be read as a whole, by `log_text`: lines may have to be joined, or their meaning may
            depend on other lines. Known after a pass.
    """

    joined: Final[Sequence[int]] = ()

    def __init__(self, path: Path) -> None:
        self.cut: str | None = None
        self.needs_whole = False
        self._path = path
        self._wraps = _WrapCounter()
        self._was_read = False

    @property
    def pieces(self) -> Iterator[str]:
        """The pieces of the text of a log in one pass."""
        content = ContentPieces(self._path, UNPACKED_TEXT)
        for number, raw in enumerate(_whole_lines(decoded_pieces(content))):
            text = raw.replace("\r\n", "\n") if "\r" in raw else raw
            self.needs_whole |= ARENA in text or (not number and _may_be_json_log(text))
            text = _without_terminal_codes(text)
            if not self._was_read:
                self._wraps.take(text)
            yield text
        self.needs_whole |= self._wraps.may_be_wrapped
        self.cut, self._was_read = content.cut, True


_PIECE: Final = 1 << 20
"""The fewest characters of a piece that is not the last one."""


def _whole_lines(texts: Iterable[str]) -> Iterator[str]:
    """The same text in pieces that end with a line."""
    parts, length = list[str](), 0
    for text in texts:
        length += len(text)
        cut = text.rfind("\n") + 1 if length >= _PIECE else 0
        if cut:
            yield "".join((*parts, text[:cut]))
            parts, length = [], len(text) - cut
        parts.append(text[cut:])
    yield "".join(parts)


def _without_terminal_codes(text: str) -> str:
    """The text of a log without terminal codes."""
    return TERMINAL_CODE.sub("", text) if "\x1b" in text else text


def _may_be_json_log(text: str) -> bool:
    """Whether this begins as a notebook, or as JSON lines of a log collector."""
    start = text[: 1 << 16].lstrip("\ufeff \t\n")
    return start[:1] in ("{", "[") and _JSON_KEY.search(start) is not None


def _without_log_escapes(text: str) -> str:
    """The text with the characters that JSON escapes mean; a line break becomes a carriage return."""
    text = text.replace("\0", "").replace("\\\\", "\0")  # an escaped backslash begins no escape
    for escape, character in _ESCAPED.items():
        text = text.replace(escape, character)
    return _UNICODE_ESCAPE.sub(_escaped_log_character, text).replace("\0", "\\")


def _escaped_log_character(escape: re.Match[str]) -> str:
    number = int(escape[1], 16)
    if number == 0x0A:
        return "\r"
    return "?" if 0xD800 <= number < 0xE000 or number == 0 else chr(number)


def _unwrapped_log_text(text: str) -> LogText:
    """Join the lines of records that a terminal cut at its width, the greatest length of a line in the file."""
    lines = text.split("\n")
    wrapped = _wrapped_log_lines(lines)
    if not wrapped:
        return LogText(text)
    parts, joined, place = list[str](), list[int](), 0
    for number, line in enumerate(lines):
        parts.append(line if number in wrapped else line + "\n")
        place += len(parts[-1])
        if number in wrapped:
            joined.append(place)
    return LogText("".join(parts)[:-1], joined)


def _wrapped_log_lines(lines: Sequence[str]) -> set[int]:
    """The lines of a log that go on in the next one; none if only few records do, which then is a coincidence."""
    lengths = _lengths(lines)
    width = int(lengths.max())
    wraps = _wraps(lines, lengths, width)
    if len(wraps) < _FEWEST_WRAPS or len(wraps) < sum(map(_begins_record, lines)) * _SMALLEST_SHARE:
        return set()
    found: set[int] = set()
    for first in wraps:
        number = first
        while number == first or _goes_on(lines, number, width):
            found.add(number)
            number += 1
    return found


def _lengths(lines: Sequence[str]) -> NDArray[np.int64]:
    """The lengths of the lines of a log."""
    return np.fromiter(map(len, lines), np.int64, len(lines))


def _wraps(lines: Sequence[str], lengths: NDArray[np.int64], width: int) -> list[int]:
    """The lines of a log that begin a record, have all the width of a terminal, and go on in the next line."""
    if not _NARROWEST <= width <= _WIDEST:
        return []
    full = np.flatnonzero(lengths == width).tolist()
    return [number for number in full if _goes_on(lines, number, width) and _begins_record(lines[number])]


def _goes_on(lines: Sequence[str], number: int, width: int) -> bool:
    """Whether a line of a log with all the width is followed by one that is not blank and begins no record."""
    after = lines[number + 1] if number + 1 < len(lines) else ""
    return len(lines[number]) == width and not _begins_record(after) and bool(after.strip())


def _begins_record(line: str) -> bool:
    """Whether a line begins a record of a log."""
    return _BEGINS_RECORD.search(line[:60]) is not None


class _WrapCounter:
    """Counts the records of a log that a terminal may have cut, in pieces of whole lines."""

    def __init__(self) -> None:
        self._width = 0
        self._count = 0
        self._last = ""

    @property
    def may_be_wrapped(self) -> bool:
        """Whether `_wrapped_log_lines` of the whole log may find any."""
        return self._count >= _FEWEST_WRAPS

    def take(self, text: str) -> None:
        """Take the next piece of the text of a log."""
        if self._width > _WIDEST:
            return
        lines = (self._last + text).split("\n")
        lengths = _lengths(lines)
        width = int(lengths.max())
        if width > self._width:
            self._width, self._count = width, 0
        self._count += len(_wraps(lines, lengths, self._width))
        self._last = "".join(lines[-2:-1]) + "\n"


# ------------------------------------------------------------------------------
# Find log records, such as those of `bfc_allocator.cc`, anywhere in a text.
#
# A record begins with the source file and line of the statement that wrote it: `bfc_allocator.cc:643] `. Before it
# there may be a time, a path, the tag of a process, a progress bar or the marks of a quotation. Its message extends
# to the next record.

BFC_ALLOCATOR = "bfc_allocator"

_ANCHOR = re.compile(r"\.cc:\d{1,7}\] ?")
_LATEST = 1 << 32  # seconds since 1970; in ns they fit 64 bits
_LONGEST_PREFIX = 400  # characters: tag, time and path
_PREFIX = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?:?\s{1,9}[IWEF]"
    r"|[IWEF](?P<day>\d{4}) (?P<glog>\d\d:\d\d:\d{2,11})\.(?P<rest>\d{1,9})\s{1,9}(?P<thread>\d{1,20})"
    r"|\b[IWEF])\s{1,9}$"
)
_COMMON_PREFIX = re.compile(
    r"[^\w\n\r\[(<]{0,16}+(?a:(?:(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\.(\d{6}): [IWEF] "
    r"|[IWEF](\d{4}) (\d\d:\d\d:\d{2,11})\.(\d{6}) {1,9}(\d{1,20}) )"
    r"(?:\w{1,40}+/){0,12}+(\w{1,60}+)\.cc:\d{1,7}\] ?)"
)
"""Most lines of most logs: matched once, without the searches that other prefixes need."""
_COMMON_LINE = re.compile("\n" + _COMMON_PREFIX.pattern)
_FIELDS: Final = _COMMON_LINE.groups + 1
_SEPARATOR = re.compile(r"[/\\]")
_TAG = re.compile(
    r"\[\d+(?:,\d+)?\](?:<\w+>)?|\((?:[\w ]{1,40} )?pid=\d+(?:, ip=[\d.]+)?\)|(?:rank|worker)[ _-]?\d+\b"
    r"|<std(?:err|out)>|\d{1,6}(?=:)",
    re.IGNORECASE,
)
_UNPREFIXED = re.compile(
    r"[^\w\n]{0,40}+(?=(?:InUse|Free|Chunk) {1,2}at (?:0x)?[0-9a-fA-F]+\s+of\s|Bin \(\d|Allocator \([\w:]+\) ran out"
    r"|Next region of size \d|Sum Total of in-use|BFCAllocator dump for |\d+ Chunks of size \d)"
)
_UNPREFIXED_LINE = re.compile("\n" + _UNPREFIXED.pattern)


class LogRecord(NamedTuple):
    """One record of a log of TensorFlow, XLA or JAX."""

    line: int  # of the file, from 1, where the message begins
    # Nanoseconds since 1970 as the log's clock shows it; None if the record has none. Without a year: since 2000.
    time: int | None
    file: str  # the source file that wrote it, without path and extension; "" for text without a prefix
    message: str  # all text up to the next record, with the lines that follow
    writer: str = ""  # the tag of a process before the prefix, as `[1]`; "" without one
    thread: str = ""  # the number of the thread that wrote it, "" where the prefix has none


_Prefix = tuple[int, int | None, str, str, str]
"""The start of the whole prefix; time, file, writer and thread as of `LogRecord`."""

_NO_PREFIX: Final[_Prefix] = (0, None, "", "", "")


def records(log: LogText | LogPieces, run: str = "") -> Iterator[LogRecord]:
    """All records of a log, of all its source files, in the order of the text; first the text before them, if any.

    Allocator lines that were pasted without their prefix are records with `file` "".

    Args:
        log: the text.
        run: of a whole text: pattern of a message up to the end of its line. Consecutive lines of one thread with such
            messages are one record: its message has the lines after the first one with their prefixes.
    """
    prefix, lines = _NO_PREFIX, _LineNumbers(log.joined)
    parts = list[str]()
    for piece in log.pieces:
        parts.append(piece)
        if _ANCHOR.search(piece) is None:  # all of it is of the same record
            continue
        text = "".join(parts)
        fields = _COMMON_LINE.split(text) if prefix is not _NO_PREFIX and not run else []
        if text.count(".cc:") * _FIELDS == len(fields) - 1:  # no other prefixes
            # Most messages with several lines are stacks: few texts hold a line that splits one.
            may_split = _UNPREFIXED_LINE.search(text) is not None
            prefix = yield from _records_of_common_lines(fields, prefix, lines, may_split=may_split)
            parts = fields[-1:]
        else:
            prefix, rest = yield from _records_of_any_lines(text, prefix, lines, run)
            parts = [rest]
    text = "".join(parts)
    yield from _of_message(text, lines, prefix, 0, len(text))


def _records_of_common_lines(
    fields: list[str], prefix: _Prefix, lines: "_LineNumbers", *, may_split: bool
) -> Generator[LogRecord, None, _Prefix]:
    """The records of a log's text that `_COMMON_LINE` split, without the last one; returns the prefix of that."""
    _, time, file, writer, thread = prefix
    for text, *groups in zip(*[iter(fields)] * _FIELDS, strict=False):
        message = text + "\n"
        if may_split and "\n" in text:
            yield from _of_message(message, lines, prefix, 0, len(message))
            lines.rest(message, len(message))
        else:
            yield LogRecord(lines.next(message), time, file, message, writer, thread)
        prefix = _, time, file, writer, thread = _common_record_prefix(groups, 0)
    return prefix


def _records_of_any_lines(
    text: str, prefix: _Prefix, lines: "_LineNumbers", run: str
) -> Generator[LogRecord, None, tuple[_Prefix, str]]:
    """The records of a log's text, without the last one; returns the prefix and the text of that."""
    begin = 0
    ahead = _COMMON_LINE.search(text)  # the next one; records before it have other prefixes
    while (found := _next_prefix(text, begin, ahead)) is not None:
        following, stop, is_common = found
        yield from _of_message(text, lines, prefix, begin, following[0])
        prefix, begin = following, stop
        last = _end_of_run(text, prefix, run) if run and is_common else 0
        if last > prefix[0]:
            _, time, file, _, thread = prefix
            yield LogRecord(lines.of(text, begin), time, file, text[begin:last], "", thread)
            prefix, begin = _NO_PREFIX, last
        if ahead is not None and ahead.start() < begin:
            ahead = _COMMON_LINE.search(text, begin)
    return prefix, lines.rest(text, begin)


def _next_prefix(text: str, begin: int, ahead: re.Match[str] | None) -> tuple[_Prefix, int, bool] | None:
    """The first prefix of a log record after `begin`, its end, whether it is common; `ahead`: the first common one."""
    end = len(text) if ahead is None else ahead.start() + 1
    anchor = _ANCHOR.search(text, begin, end) if text.find(".cc:", begin, end) >= 0 else None
    if anchor is None:
        return None if ahead is None else (_common_record_prefix(ahead.groups(), end), ahead.end(), True)
    line = text.rfind("\n", begin, anchor.start()) + 1 or begin
    common = _COMMON_PREFIX.match(text, line)
    if common is not None and common.end() == anchor.end():
        return _common_record_prefix(common.groups(), line), anchor.end(), True
    return _record_prefix(text, begin, anchor.start()), anchor.end(), False


def _end_of_run(text: str, prefix: _Prefix, run: str) -> int:
    """Where the last line of a run begins: it may go on in lines without a prefix. 0 without a run."""
    start, _, file, _, thread = prefix
    found = _record_run_pattern(run, file, thread).match(text, start)
    return 0 if found is None else text.rfind("\n", start, found.end() - 1) + 1


class _LineNumbers:
    """Numbers of lines of a log at ascending places of its text, from 1."""

    def __init__(self, joined: Sequence[int]) -> None:
        self._joined = joined
        self._breaks = 1
        self._place = 0
        self._start = 0  # of the text, in the text that `joined` counts

    def of(self, text: str, place: int) -> int:
        """The line of the file that holds the character at `place`."""
        self._breaks += text.count("\n", self._place, place)
        self._place = place
        return self._breaks + bisect_right(self._joined, self._start + place)

    def next(self, message: str) -> int:
        """The line of the file that holds the begin of the text, which is this message; what follows is the text."""
        line = self._breaks + bisect_right(self._joined, self._start)
        self._breaks += message.count("\n")
        self._start += len(message)
        return line

    def rest(self, text: str, place: int) -> str:
        """The text of a log from `place` on, whose places count from there."""
        self.of(text, place)
        self._start += place
        self._place = 0
        return text[place:]


def _common_record_prefix(groups: Sequence[Any], start: int) -> _Prefix:
    """The prefix of a log record that begins at `start`, from the groups of `_COMMON_PREFIX`."""
    date, clock, micros, day, glog, rest, thread, file = groups
    if date is None:
        date, clock, micros = "" if day == "0000" else _date_of_day(day), glog, rest
    seconds = _log_clock_nanoseconds(date, clock)
    return start, None if seconds is None else seconds + 1000 * int(micros), file, "", thread or ""


@lru_cache(64)
def _record_run_pattern(message: str, file: str, thread: str) -> re.Pattern[str]:
    """Lines of one thread of a log with such messages. Possessive: it never goes back."""
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [IWEF] "
    if thread:
        time = rf"[IWEF]\d{{4}} \d\d:\d\d:\d{{2,11}}\.\d{{6}} {{1,9}}{thread} "
    return re.compile(
        rf"(?:[^\w\n\r\[(<]{{0,16}}{time}(?:\w{{1,40}}/){{0,12}}{file}\.cc:\d{{1,7}}\] {message})++"
    )


def _of_message(text: str, lines: _LineNumbers, prefix: _Prefix, begin: int, end: int) -> Iterator[LogRecord]:
    """The record of a message, and those of allocator lines without prefix in the lines after its first one."""
    _, time, file, writer, thread = prefix
    starts = [match.end() for match in _UNPREFIXED_LINE.finditer(text, begin, end)]
    if not begin and prefix is _NO_PREFIX and (first := _UNPREFIXED.match(text, 0, end)):
        starts.insert(0, first.end())
    stops = [*starts, end]
    if file or text[begin : stops[0]].strip():
        yield LogRecord(lines.of(text, begin), time, file, text[begin : stops[0]], writer, thread)
    for start, stop in zip(starts, stops[1:], strict=True):
        yield LogRecord(lines.of(text, start), None, "", text[start:stop], writer, thread)


def _record_prefix(text: str, begin: int, anchor: int) -> _Prefix:
    """The prefix of a log record that ends with the file name before `anchor`, and not before `begin`."""
    low = max(begin, anchor - _LONGEST_PREFIX)
    head = text[low:anchor].rsplit(None, 1)
    path = anchor - len(head[-1]) if head and not text[anchor - 1].isspace() else anchor
    line = max(low, text.rfind("\n", low, path) + 1, text.rfind("\r", low, path) + 1)
    file = _SEPARATOR.split(text[path:anchor])[-1] or "?"
    found = _PREFIX.match(text[line:path]) or _PREFIX.search(text[line:path])
    if found is None and not text[line:path].strip():
        line = low  # the time may stand before a line break
        found = _PREFIX.search(text[line:path])
    if found is None:
        return path, None, file, "", ""
    before = found.string[: found.start()]
    before = before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]
    tag = _TAG.match(before.lstrip(" \t>|")) if before else None
    writer = "" if tag is None else tag[0]
    return line + found.start(), _record_prefix_time(found), file, writer, found["thread"] or ""


def _record_prefix_time(prefix: re.Match[str]) -> int | None:
    """The time in the prefix of a log record, in nanoseconds."""
    date, clock, fraction = prefix["date"], prefix["clock"], prefix["fraction"]
    if date is None:
        day, clock, fraction = prefix["day"], prefix["glog"], prefix["rest"]
        if day is None:
            return None
        date = "" if day == "0000" else _date_of_day(day)
    seconds = _log_clock_nanoseconds(date, clock)
    return None if seconds is None else seconds + int((fraction or "0").ljust(9, "0"))


def _date_of_day(day: str) -> str:
    """The date of a log record without a year."""
    return f"2000-{day[:2]}-{day[2:]}"  # a leap year


@lru_cache(64)
def _log_clock_nanoseconds(date: str, clock: str) -> int | None:
    """Whole seconds since 1970 of a log record in ns; None for an impossible date, or one before 1970 or after 2106.

    Without a date the clock is `00:00:SECONDS`.
    """
    seconds = calendar_seconds(date, clock) if date else int(clock[6:])
    return None if seconds is None or not 0 <= seconds <= _LATEST else seconds * 10**9
