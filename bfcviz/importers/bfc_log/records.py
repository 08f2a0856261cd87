"""Find log records, such as those of `bfc_allocator.cc`, anywhere in a text.

A record begins with the source file and line of the statement that wrote it: `bfc_allocator.cc:643] `. Before it there
may be a time, a path, the tag of a process, a progress bar or the marks of a quotation. Its message extends to the next
record.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from bfcviz.importers.bfc_log.log_text import LogText

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
    r"[^\w\n\r\[(<]{0,16}(?:(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\.(\d{6}): [IWEF] "
    r"|[IWEF]\d{4} \d\d:\d\d:\d{2,11}\.\d{6} {1,9}(\d{1,20}) )"
    r"(?:\w{1,40}/){0,12}(\w{1,60})\.cc:\d{1,7}\] ?"
)
"""Most lines of most logs: matched once, without the searches that other prefixes need."""
_SEPARATOR = re.compile(r"[/\\]")
_TAG = re.compile(
    r"\[\d+(?:,\d+)?\](?:<\w+>)?|\((?:[\w ]{1,40} )?pid=\d+(?:, ip=[\d.]+)?\)|(?:rank|worker)[ _-]?\d+\b"
    r"|<std(?:err|out)>|\d{1,6}(?=:)",
    re.IGNORECASE,
)
_UNPREFIXED = re.compile(
    r"^[^\w\n]{0,40}(?=(?:InUse|Free|Chunk) {1,2}at (?:0x)?[0-9a-fA-F]+\s+of\s|Bin \(\d|Allocator \([\w:]+\) ran out"
    r"|Next region of size \d|Sum Total of in-use|BFCAllocator dump for |\d+ Chunks of size \d)",
    re.MULTILINE,
)


class LogRecord(NamedTuple):
    """One log record.

    Attributes:
        line: of the file, from 1, where the message begins.
        time: ns since 1970 as the log's clock shows it; None if the record has none. Without a year: since 2000.
        file: the source file that wrote it, without path and extension; "" for text without a prefix.
        message: all text up to the next record, with the lines that follow.
        writer: the tag of a process before the prefix, as `[1]`; "" without one.
        thread: the number of the thread that wrote it, "" where the prefix has none.
    """

    line: int
    time: int | None
    file: str
    message: str
    writer: str = ""
    thread: str = ""


class _Prefix(NamedTuple):
    """The start of the whole prefix; then as `LogRecord`."""

    start: int
    time: int | None
    file: str
    writer: str
    thread: str


def records(log: LogText, run: str = "") -> Iterator[LogRecord]:
    """All records of all source files in the order of the text; first the text before the first of them, if any.

    Allocator lines that were pasted without their prefix are records with `file` "".

    Args:
        log: the text.
        run: pattern of a message up to the end of its line. Consecutive lines of one thread with such messages are one
            record: its message has the lines after the first one with their prefixes.
    """
    text = log.text
    prefix, begin = _Prefix(0, None, "", "", ""), 0
    anchor = _ANCHOR.search(text)
    while anchor is not None:
        start, stop = anchor.span()
        line = text.rfind("\n", begin, start) + 1 or begin
        common = _COMMON_PREFIX.match(text, line)
        if common is None or common.end() != stop:
            following = _prefix(text, begin, start)
            common = None
        else:
            following = _of_common(common) or _prefix(text, begin, start)
        yield from _of_message(log, prefix, begin, following.start)
        prefix, begin = following, stop
        if run and common is not None:
            lines = _run(run, prefix.file, prefix.thread).match(text, line)
            # The last line may go on in lines without a prefix.
            last = 0 if lines is None else text.rfind("\n", line, lines.end() - 1) + 1
            if last > line:
                yield LogRecord(
                    log.line(begin), prefix.time, prefix.file, text[begin:last], "", prefix.thread
                )
                prefix, begin, stop = _Prefix(last, None, "", "", ""), last, last
        anchor = _ANCHOR.search(text, stop)
    yield from _of_message(log, prefix, begin, len(text))


def _of_common(found: re.Match[str]) -> _Prefix | None:
    date, clock, fraction, thread, file = found.groups()
    if date is None:
        path = found.string.rfind(" ", found.start(), found.start(5)) + 1
        when = _PREFIX.search(found.string[found.start() : path])
        return None if when is None else _Prefix(found.start(), _time(when), file, "", thread)
    seconds = _seconds(date, clock)
    return _Prefix(found.start(), None if seconds is None else seconds + 1000 * int(fraction), file, "", "")


@lru_cache(64)
def _run(message: str, file: str, thread: str) -> re.Pattern[str]:
    """Lines of one thread with such messages. Possessive: it never goes back."""
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [IWEF] "
    if thread:
        time = rf"[IWEF]\d{{4}} \d\d:\d\d:\d{{2,11}}\.\d{{6}} {{1,9}}{thread} "
    return re.compile(
        rf"(?:[^\w\n\r\[(<]{{0,16}}{time}(?:\w{{1,40}}/){{0,12}}{file}\.cc:\d{{1,7}}\] {message})++"
    )


def _of_message(log: LogText, prefix: _Prefix, begin: int, end: int) -> Iterator[LogRecord]:
    """The record of a message, and those of allocator lines without prefix in the lines after its first one."""
    text = log.text
    first_break = text.find("\n", begin, end)
    if prefix.file and (first_break < 0 or first_break == end - 1):  # one line
        line = log.line(begin)
        yield LogRecord(line, prefix.time, prefix.file, text[begin:end], prefix.writer, prefix.thread)
        return
    # The first line of the file has no line break before it.
    place = begin if not begin else first_break if first_break >= 0 else end
    starts = [match.end() for match in _UNPREFIXED.finditer(text, place, end)]
    stops = [*starts, end]
    if prefix.file or text[begin : stops[0]].strip():
        message = text[begin : stops[0]]
        yield LogRecord(log.line(begin), prefix.time, prefix.file, message, prefix.writer, prefix.thread)
    for start, stop in zip(starts, stops[1:], strict=True):
        yield LogRecord(log.line(start), None, "", text[start:stop], prefix.writer, prefix.thread)


def _prefix(text: str, begin: int, anchor: int) -> _Prefix:
    """The prefix that ends with the file name before `anchor`, and not before `begin`."""
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
        return _Prefix(path, None, file, "", "")
    before = found.string[: found.start()]
    before = before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]
    tag = _TAG.match(before.lstrip(" \t>|")) if before else None
    writer = "" if tag is None else tag[0]
    return _Prefix(line + found.start(), _time(found), file, writer, found["thread"] or "")


def _time(prefix: re.Match[str]) -> int | None:
    date, clock, fraction = prefix["date"], prefix["clock"], prefix["fraction"]
    if date is None:
        day, clock, fraction = prefix["day"], prefix["glog"], prefix["rest"]
        if day is None:
            return None
        date = "" if day == "0000" else f"2000-{day[:2]}-{day[2:]}"  # a leap year
    seconds = _seconds(date, clock)
    return None if seconds is None else seconds + int((fraction or "0").ljust(9, "0"))


@lru_cache(64)
def _seconds(date: str, clock: str) -> int | None:
    """Whole seconds since 1970 in ns; None for an impossible date, or one before 1970 or after 2106.

    Without a date the clock is `00:00:SECONDS`.
    """
    if not date:
        seconds = int(clock[6:])
    else:
        try:
            seconds = int(datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=UTC).timestamp())
        except ValueError:
            return None
    return seconds * 10**9 if 0 <= seconds <= _LATEST else None
