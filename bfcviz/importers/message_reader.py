"""Read what a text says of memory that ran out: each failed request that a framework printed, anywhere in the text.

The texts themselves are tables in `formats`, one file a framework. A text is read in pieces, and of each message only
a bounded part, so memory and time do not depend on the length of lines. Several lines can tell of one failure: the
warning of the pool, its counters, the error of the operation and the traceback. They are joined where their numbers
agree.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

from bfcviz.errors import FileError, NoMessage
from bfcviz.formats import message_tables, tensorflow, torch, xla
from bfcviz.formats.message_grammar import (
    BOLD_NUMBER,
    IMPOSSIBLE,
    TERMINAL_CODE,
    LogTime,
    Message,
    Role,
    StatedFailure,
    calendar_seconds,
)
from bfcviz.formats.message_tables import ENTRIES, TABLES
from bfcviz.importers.file_content import UNPACKED_TEXT, ContentPieces, decoded_pieces, read_content
from bfcviz.importers.file_format import READABLE, detect_format, is_plain_text

# ------------------------------------------------------------------------------
# Texts that tell of no failure: a line of a program or of its documentation, and a sentence that names an error.

WIDEST: Final = 400
"""Characters of the longest line of interest: before a message, and of its own."""

FRAME: Final = re.compile(r"\bFile [\"'][^\n]{1,300}, line \d|^[ \t]{0,20}-{1,20}>")
"""A line of a traceback, of Python or of a notebook."""

_QUOTES: Final = "\"'`"

_CODE_BEFORE: Final = re.compile(
    r"(?:\b(?:if|elif|case|and|or|not|in|return|assert)[ \t]{1,9}\(?|[=!]=[ \t]{0,9}"
    r"|(?:\b[a-z_]|\.[A-Z])\w{0,60}\((?:\w{1,20},[ \t])?)[fr]?[\"']$"
)
"""What stands in code before a text in quotation marks."""

_NAME_BEFORE: Final = re.compile(r"(?:\bcase[ \t]{1,9}|[=!]=[ \t]{0,9})$")
"""What stands in code before the name of an error."""

_COMPARED: Final = re.compile(r"\w[ \t]*[=!]=[ \t]*[\"'`]")
"""A name that code compares with a text."""

_MATCH_BEFORE: Final = re.compile(
    r"(?:\bmatch[ \t]{0,9}=[ \t]{0,9}|\.(?:search|match|fullmatch|findall|compile)\([ \t]{0,9})[fr]?[\"']$"
)
"""What stands before the text that a test or a search expects; such a text may have numbers."""

_ENUM_AFTER: Final = re.compile(
    r"[ \t]{0,60}=[ \t]{0,9}-?(?:0x[\dA-Fa-f]{1,8}|\d{1,4})[ \t]{0,9},?[ \t]{0,9}(?:$|//|/\*|#)"
)
"""What follows the name of an error where it is declared."""

_UNFINISHED: Final = re.compile(r"[Tt]r(?:ied|ying) to allocate[ \t]{0,3}[\"'{%<$]|shape ?\[[^\d\s\]]")
"""A text with a place for a number, as the source of a program and its documentation have it."""

_CITED_AFTER: Final = re.compile(r"[.!…]?[ \t]?[\"'][ \t]{1,9}[a-z]|[.!…]?[ \t]?[\"'],?[ \t]{1,9}(?:#|//)")
"""What follows a text in quotation marks that is a part of a sentence, or has a comment."""

_WORD_AND_QUOTE: Final = re.compile(r"[A-Za-z,][ \t]{1,3}[\"']$")

_LABEL_AND_QUOTE: Final = re.compile(r"\w=[\"']$")

_ERROR_IN_QUOTES: Final = re.compile(r"\w(?:Error|Exception): [^\"'`]{0,200}$")

_SMALL_WORD_BEFORE: Final = re.compile(r"\b[a-z]{1,30},?[ \t]{1,3}$")

_SMALL_WORD_AFTER: Final = re.compile(r",?[ \t]{1,3}[a-z]")

_DIFF: Final = re.compile(r"[+-][ \t]{1,80}")

_IN_TRACEBACK: Final = re.compile(r"\bFile [\"'][^\n]{1,300}$|^[ \t]{0,20}-{1,20}>")


def mention_of(
    entry: Message, text: str, span: tuple[int, int], *, has_facts: bool, is_raised: bool
) -> tuple[bool, bool]:
    """Whether no program printed the message at `span` of a text: code or documents quote it; a sentence names it.

    Args:
        entry: which message.
        text: the message, with the lines around it.
        span: where it begins and ends in `text`.
        has_facts: whether it states numbers.
        is_raised: whether it stands in a line of code that raises it.
    """
    start, stop = span
    *above, before = text[max(0, start - WIDEST) : start].rsplit("\n", 2)
    after, _, below = text[stop : stop + WIDEST].partition("\n")
    words = text[start:stop]
    if has_facts:
        return _MATCH_BEFORE.search(before) is not None, False
    is_executed = _IN_TRACEBACK.search(above[-1] if above else "") or _IN_TRACEBACK.match(before)
    is_quoted = (
        (is_raised and _DIFF.match(before) is not None)
        or (entry.is_alone and _SMALL_WORD_AFTER.match(after) is not None)
        or _is_in_code(words, before, after)
        or _is_cited(words, before, after)
        or (entry.is_weak and _is_told(before, after))
        or _is_in_document(before, after, "\n".join(above), below)
        or (entry.family == "host" and _CONDITION.search(before) is not None)
    )
    is_in_sentence = entry.name == "torch-cuda" and (
        _SMALL_WORD_BEFORE.search(before) is not None or _HOW_TO_AVOID.search(before) is not None
    )
    return is_quoted, is_in_sentence or (is_raised and not is_executed)


_RETURNS_BEFORE: Final = re.compile(r"\breturns?[ \t]{1,3}[\"'`]?$")

_WHEN_AFTER: Final = re.compile(r"[\"'`]?[ \t]{1,3}(?:when|if|in case)\b")

_DESCRIBED_AFTER: Final = re.compile(
    r"[\"'`]?[ \t]{0,3}(?::|-)?[ \t]{1,3}Resource allocation failed inside the cuBLAS"
)

_NO_MORE_BEFORE: Final = re.compile(
    r"\b(?:do not|don['\u2019]?t|does not|doesn['\u2019]?t|no longer|never) (?:get|see|have|throw|raise|give)s?\b"
    r"[^.!?]{0,80}$"
)

_NO_MORE_AFTER: Final = re.compile(
    r"[^.!?]{0,80}\b(?:any ?more|no longer|is gone|disappeared|was fixed|is fixed)\b"
)


def _is_told(before: str, after: str) -> bool:
    """Whether a sentence only mentions an error: it describes one, or says that it does not occur any more."""
    is_described = _RETURNS_BEFORE.search(before) is not None and _WHEN_AFTER.match(after) is not None
    return (
        is_described
        or _DESCRIBED_AFTER.match(after) is not None
        or _NO_MORE_BEFORE.search(before) is not None
        or _NO_MORE_AFTER.match(after) is not None
    )


_CLASS: Final = r"[ \t]{0,3}[\"'`]?(?:[\w.]{1,60}(?:Error|Exception):[ \t]{1,3})?$"
"""What may stand between a word and the message that it is about: quotation mark, class of the error."""

_YOU_SEE: Final = r" you (?:see|get|encounter|run into|hit|receive)\b"
"""What follows an "if" with which documentation begins to tell what an error means."""

_MENTION_BEFORE: Final = re.compile(
    r"\b(?:[Ii]f|[Ww]henever|[Uu]nless|[Ii]n case of|[Nn]o|[Zz]ero|[Kk]eine?n?)\b"
    + _CLASS
    + rf"|\b[Ii]f{_YOU_SEE}"
    r"(?:[^.!?:]|\.\w){0,80}(?:(?:Error|Exception): )?[\"'`]?$"
    r"|\b(?:may|might|can|could) (?:also |then )?cause\b"
    + _CLASS
    + r"|\b[Ww]hat(?: is|'s| are) the differences? between\b[^.!?]*$"
    r"|\bmean in (?:an?|the) $"
    r"|(?<![之以]前)(?:没有?|沒有?|未|不再|不会|不會)再?(?:出现|出現|发生|發生|遇到|报错?|報|看到)[:\uff1a]?"
    + _CLASS
    + r"|エラーが出(?:たら|た場合)[^。]*$"
    r"|\bhelp[ \t]?=[ \t]?[fr]?[\"'][^\"']*$"
    r"|^[ \t]*msg(?:id|str)[ \t][\"']"
)
"""What stands before an error of which a line speaks, without telling that it occurred."""

_NONE_AFTER: Final = re.compile(
    r"[ \t]{0,3}(?:エラー)?[はが]?(?:もう)?(?:発生し|出|起き|起こり|表示され)て?い?(?:ません|な[いか])(?!よう|ため)"
    r"|[^.!?]{0,40}`[ \t]now (?:suggest|print|show|say|tell|report|name|fall|give)s\b"
)

_ZERO_BEFORE: Final = re.compile(r"(?i)(?<!rank )(?<!gpu )(?<!device )(?<![\w.,:-])0[ \t]$")

_NUMBER_OF_AFTER: Final = re.compile(r"[ \t]{1,3}(?:errors|events|messages|exceptions)\b")

_COMMENT: Final = re.compile(r"[ \t]{0,80}(?:#{1,6}|//)[ \t]")

_TABLE_CELL: Final = re.compile(r"[ \t]{0,9}\|[^|]*$")

_NEXT_CELL: Final = re.compile(r"[ \t]{0,40}\|[ \t]{1,40}[A-Za-z']{1,30} [A-Za-z]")

_READER: Final = re.compile(r"\s{0,9}If" + _YOU_SEE)

_COMMIT: Final = re.compile(r"(?m:^commit [0-9a-f]{7,40}$)")

_CONDITION: Final = re.compile(r"\bIf (?:an?|your?) (?![^.!?]*\b(?:I|we|my)\b)[^.!?]*$")

_HOW_TO_AVOID: Final = re.compile(r"\b(?:[Hh]ow|[Ww]ays?) to (?:avoid|prevent)" + _CLASS)


def _is_in_document(before: str, after: str, above: str, below: str) -> bool:
    """Whether a comment, a table, a heading, a commit or a sentence only mentions an error that did not occur."""
    if _MENTION_BEFORE.search(before) or _NONE_AFTER.match(after):
        return True
    if _NUMBER_OF_AFTER.match(after) and _ZERO_BEFORE.search(before):
        return True
    if any(FRAME.search(line) for line in above.split("\n")):  # a quoted traceback
        return False
    if _COMMENT.match(before):
        is_script = before.startswith("# ") and above.rpartition("\n")[2].startswith("#")
        return is_script or before[0] in " \t/" or _READER.match(below) is not None
    is_cell = _TABLE_CELL.match(before) is not None and _NEXT_CELL.match(after) is not None
    return is_cell or (before.startswith("    ") and _COMMIT.search(above) is not None)


def _is_in_code(words: str, before: str, after: str) -> bool:
    """Whether the line around a message is one of a program's source, which only mentions the error."""
    is_name = " " not in words
    return (
        _UNFINISHED.search(words + after) is not None
        or _CODE_BEFORE.search(before) is not None
        or _MATCH_BEFORE.search(before) is not None
        or (is_name and _NAME_BEFORE.search(before) is not None)
        or _COMPARED.search(words) is not None
        or (is_name and not before.strip() and _ENUM_AFTER.match(after) is not None)
    )


_REPORTED_BEFORE: Final = re.compile(
    r"\b(?:crash(?:e[sd])? (?:and|with)(?: shows?)?|hitting|we g[eo]t|I (?:always |still |only )?g[eo]t|getting)"
    r"(?: (?:an?|the|this|error|message))*:?[ \t]{1,3}[\"'`]"
)
"""What a person writes before a quotation of what a program printed in front of them."""


def _is_cited(words: str, before: str, after: str) -> bool:
    """Whether a message is cited: in quotation marks within a sentence; programs put names of errors into them, too."""
    if _REPORTED_BEFORE.search(before):
        return False
    if before[-1:] == "`":
        outside = f"{before[:-1]}{after.partition('`')[2]}"
        return any(letter.isalpha() or letter == "|" for letter in outside)
    is_open = any(before.count(quote) % 2 for quote in _QUOTES[:2])
    if " " not in words or not is_open or _LABEL_AND_QUOTE.search(before) or _ERROR_IN_QUOTES.search(before):
        return False
    return _CITED_AFTER.match(after) is not None or _WORD_AND_QUOTE.search(before) is not None


# ------------------------------------------------------------------------------
# StatedSize: the bytes that a text states, as exactly as it prints them.

_PARTS: Final = re.compile(r"(-?\d[\d,]*)(\.\d*)?\s*([KMGTPE])?i?(?:B(?:ytes?)?|bytes?)?", re.IGNORECASE)

_HEXADECIMAL: Final = re.compile(r"0x[\dA-Fa-f]{1,16}")

_GROUPED: Final = re.compile(r"-?\d{1,3}(?:,\d{3})+")

_DECIMAL_COMMA: Final = re.compile(r"(-?\d+),(\d{1,2})")

_UNITS: Final = " KMGTPE"


@dataclass(frozen=True)
class StatedSize:
    """A number of bytes that a message prints."""

    value: int  # bytes, the nearest to the text
    slack: int  # half of its last printed digit; 0 where it is exact


def stated_size(text: str, unit: str = "") -> StatedSize | None:
    """The size that a message states; None where it is none. `unit`: K, M, G or T, for a number without one."""
    parts = _PARTS.fullmatch(text.strip())
    if parts is None:
        return StatedSize(int(text, 16), 0) if _HEXADECIMAL.fullmatch(text) else None
    whole, fraction, letter = parts[1], parts[2] or "", (parts[3] or unit).upper()
    comma = _DECIMAL_COMMA.fullmatch(whole)
    if comma is not None and letter and not fraction:  # of a system with a decimal comma
        whole, fraction = comma[1], f".{comma[2]}"
    if "," in whole and not _GROUPED.fullmatch(whole):
        return None
    scale = 1024 ** _UNITS.index(letter or " ")
    digits = len(fraction) - 1 if fraction else 0
    value = (
        float(f"{whole.replace(',', '')}{fraction}") * scale
        if letter or fraction
        else int(whole.replace(",", ""))
    )
    slack = 0 if scale == 1 else int(scale * 0.5 * 10**-digits) + 1
    return StatedSize(round(value), slack)


# ------------------------------------------------------------------------------
# What a file, or a pasted text, tells of memory that ran out.


class StatedFailures(NamedTuple):
    """What the messages of a text tell: failures, and refusals that are none."""

    # Requests that failed, in the order of the text; equal ones once, with their count.
    failures: list[StatedFailure]
    soft: list[StatedFailure]  # refusals that are no failure, and tables
    left_out: int = 0  # messages after the first `MOST`


def read_messages(pieces: Iterable[bytes], name: str = "") -> StatedFailures:
    """What a text in pieces of any length tells of memory that ran out; the name of its file may name the program."""
    reader = _MessageReader(name)
    short = (piece[at : at + _PIECE] for piece in pieces for at in range(0, len(piece), _PIECE))
    for text in decoded_pieces(short):
        reader.take(text)
    return reader.end()


def is_pasted(word: str) -> bool:
    """Whether a word of the command line, or an argument of `why`, is a pasted message and not the name of a file."""
    if "\n" not in word and " " not in word.strip():
        return False
    try:
        return not Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or with a null character
        return True


def read_pasted(text: str) -> StatedFailures:
    """What a pasted message tells.

    Raises:
        FileError: it tells nothing of memory that ran out.
    """
    found = read_messages([text.encode("utf-8", "replace")])
    if found.failures or found.soft:
        return found
    shown = " ".join(text.split())
    raise FileError(
        f"{shown[:60]}..." if len(shown) > 60 else shown,
        "",
        "there is no such file, and as a text it holds no message about memory that bfcviz knows: give a file, or the "
        "message with the lines around it",
    )


# ------------------------------------------------------------------------------
# Find the messages of a text, piece by piece.

MOST: Final = 5000
"""Messages of a text that are read."""

_MOST_GENERAL: Final = 50
"""Lines with words that any program may print, of which the one that says most counts."""

REACH: Final = 12_000
"""Characters after its beginning that may belong to a message: the longest is the table of a program."""


_BEHIND: Final = max(WIDEST, *(entry.behind for entry in TABLES))
_PIECE: Final = 1 << 20
_PLACE: Final = re.compile(r"\{\w+\}")


class _Beginning(NamedTuple):
    """Where a message begins in a text."""

    start: int
    stop: int
    order: int
    variant: int
    entry: Message


@dataclass
class _Statement:
    """One message of a text, read."""

    entry: Message
    variant: int
    line: int
    text: str
    facts: dict[str, StatedSize]
    marks: set[str]
    version: str
    op: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    processes: dict[int, int] = field(default_factory=dict)
    framework: str = ""
    largest: str = ""
    rank: int | None = None
    stream: str = ""
    time: LogTime | None = None
    device: int | None = None
    is_part: bool = False
    is_raised: bool = False
    is_quoted: bool = False
    is_named: bool = False

    @property
    def is_weak(self) -> bool:
        """Whether a message counts only where no other tells of a failure."""
        return self.entry.is_weak or self.is_named


def _tells_of_no_request(entry: Message) -> bool:
    """Whether a message without a failure leaves open that other words of the text tell of one."""
    return entry.role is Role.BEFORE or entry.name == "cuda-kernel"


_SPACES_FOR_DIGITS: Final = bytes.maketrans(b"0123456789", b" " * 10)
_PLAIN: Final = re.compile("[!-/:-~]+")


class _WordSearch:
    """Finds which of many messages can be in a long text, by their words, much faster than by a search for each.

    A log has few different lines without their digits, and those have few different words: they are looked at instead
    of all.

    Args:
        texts: for each, what stands in it between its variable parts; in any case.
    """

    def __init__(self, texts: Iterable[Iterable[str]]) -> None:
        self._needs = [frozenset(_PLAIN.findall(" ".join(parts).lower())) for parts in texts]
        counts = Counter(word for needs in self._needs for word in needs)
        # The rarest word of messages -> their numbers: where it is missing, no other word is looked for.
        self._rarest: dict[str, list[int]] = {}
        for number, needs in enumerate(self._needs):
            rarest = min(needs, key=lambda word: (counts[word], -len(word), word), default="")
            self._rarest.setdefault(rarest, []).append(number)

    def possible(self, small: str) -> list[int]:
        """Numbers of the messages of which all words are in this text, which is in small letters."""
        lines = set(small.encode("latin-1", "replace").translate(_SPACES_FOR_DIGITS).split(b"\n"))
        different = b"\n".join(set(b"\n".join(lines).split())).decode("latin-1")
        looked_at = (
            number for word, numbers in self._rarest.items() if word in different for number in numbers
        )
        return sorted(
            number for number in looked_at if all(word in different for word in self._needs[number])
        )


_BEGINNINGS: Final = [
    (order, variant, entry) for order, entry in enumerate(TABLES) for variant in range(len(entry.begins))
]
_BEGINNING_SEARCH: Final = _WordSearch(
    _PLACE.split(entry.begins[variant]) for _, variant, entry in _BEGINNINGS
)


_TABLE_WORDS: Final = {
    word
    for entry in TABLES
    for text in (*entry.begins, *(each for number in entry.numbers for each in number.texts))
    for word in re.findall(r"\w+", _PLACE.sub(" ", text).lower())
}
_LEAST_CUT: Final = 5
"""Letters of a word that a terminal may have cut: of shorter ones both halves are words."""

_CUT_ENDS: Final = {
    word[at:] for word in _TABLE_WORDS if len(word) >= _LEAST_CUT for at in range(1, len(word))
} - _TABLE_WORDS
_CUT_WORD: Final = re.compile(r"\n(?<=[A-Za-z_]\n)([A-Za-z_]\w{0,59})")  # its first letter is found fast
_WORD: Final = re.compile(r"\w+")


def _whole_word(cut: re.Match[str]) -> str:
    """A word of a message that the end of a line cut, put together before the end of the line; else the text itself."""
    if cut[1].lower() not in _CUT_ENDS:
        return cut[0]
    start = _WORD.findall(cut.string, max(0, cut.start() - 60), cut.start())[-1]
    return f"{cut[1]}\n" if f"{start}{cut[1]}".lower() in _TABLE_WORDS else cut[0]


_ESCAPE_IN_JSON: Final = re.compile(r"\\u001[bB]")


class _MessageReader:
    """Finds the messages in a text that comes in pieces."""

    def __init__(self, name: str) -> None:
        self._buffer = ""
        self._done = 0  # before it, every message of the buffer is read
        self._ended = 0  # where the beginning of the last message ends; below 0: before the buffer
        self._line = 1  # of the file, where the buffer begins
        self._statements: list[_Statement] = []
        self._general: list[_Statement] = []
        # Those of the last buffer, which are read only where no other message tells of a failure.
        self._last_general: list[Callable[[], _Statement]] = []
        # Stream and rank, and the entry -> its first text that another was late or gone.
        self._lost: dict[tuple[str, int | None, str], _Statement] = {}
        self._labels: set[str] = set()  # that srun puts before the lines of a rank
        self._shapes: set[str] = set()  # of what stands before the lines of each stream
        self._left_out = 0
        self._clock = _LogClock()
        self._hints = hints_of(name)

    def take(self, piece: str) -> None:
        """Find the messages in the next part of the text."""
        self._hints |= hints_of(piece)
        codes = _ESCAPE_IN_JSON.sub("\x1b", piece.replace("\r\n", "\n"))
        plain = BOLD_NUMBER.sub(r"\1", TERMINAL_CODE.sub("", codes))
        self._buffer += _CUT_WORD.sub(_whole_word, plain)
        stop = len(self._buffer) - REACH
        if stop > self._done:
            self._read(stop)

    def end(self) -> StatedFailures:
        """What the messages of the whole text tell."""
        self._read(len(self._buffer))
        failures, soft = _failures_of_statements(self._statements, self._hints)
        if not failures and all(_tells_of_no_request(ENTRIES[each.message]) for each in soft):
            self._end_general()
            general = _failure_of_general_words(self._general)
            if general is not None:
                (soft if general.is_soft else failures).append(_stated_failure(general, self._hints))
        lost = _failures_of_lost_ranks(list(self._lost.values()), failures)
        (soft if failures else failures).extend(lost)
        return StatedFailures(failures, soft, self._left_out)

    def _writer_of_line(self, found: _Beginning, buffer: str) -> tuple[int | None, str]:
        """The rank and the stream of the line of a message; None and "" where it names none.

        The rank is named in the message, before it, or by the label that `srun --label` puts there, where more lines
        have it. The stream is what a launcher puts before the lines of a process; a line that names a rank in its
        message may be one of the launcher itself, and has none.
        """
        start = buffer.rfind("\n", 0, found.start) + 1
        message = buffer[max(start, found.start - found.entry.behind) : found.stop]
        rank, stream = _named_number(found.entry.rank_patterns, message), ""
        if rank is None:
            label = _STREAM.match(buffer, start, found.start)
            if label is not None and _shape_of_label(label[0]) in self._shapes:
                stream = _name_of_stream(label[0])
            rank = _rank_before(buffer[max(start, found.start - WIDEST) : found.start])
        if rank is None:
            label = _LABEL.match(buffer, start, found.start)
            if label is not None and label[0] in self._labels:
                rank = int(label[1])
        return rank, stream

    def _count_labels(self, buffer: str) -> None:
        """Find which labels stand before the lines of ranks and streams."""
        counts = Counter(each[0] for each in _LABELS.finditer(buffer))
        often = {each for each, count in counts.items() if count >= _LEAST_LABELS}
        if any(int(each.strip(" \t:")) == 0 for each in often):  # lists count from 1
            self._labels |= often
        self._shapes |= _shapes_of_streams(buffer)

    def _find_general(self, found: Sequence[_Beginning]) -> None:
        """Find the words that any program may print; they take nothing of the messages that a table describes."""
        self._end_general()
        for each in found[: _MOST_GENERAL - len(self._general)]:
            line = self._line + self._buffer.count("\n", 0, each.start)
            writer = self._writer_of_line(each, self._buffer)
            self._last_general.append(partial(_general_statement, each, self._buffer, line, writer))

    def _end_general(self) -> None:
        """Read the words that were found in the last buffer: no more than one is kept for them."""
        self._general += [read() for read in self._last_general]
        self._last_general.clear()

    def _read(self, stop: int) -> None:
        buffer = self._buffer
        every = _message_beginnings(buffer, self._done)
        if any(each.start < stop for each in every):
            self._count_labels(buffer)
        self._find_general([each for each in every if each.entry.is_general and each.start < stop])
        found = [each for each in every if not each.entry.is_general]
        strong = [each.start for each in found if not each.entry.is_weak] + [len(buffer)]
        after, previous = 0, self._done
        for each in found:
            while strong[after] <= each.start and after < len(strong) - 1:
                after += 1
            if each.start >= stop:
                break
            if len(self._statements) >= MOST:
                self._left_out += 1
                continue
            first = max(previous, each.start - each.entry.behind, 0) if each.entry.behind else each.start
            last = min(strong[after], each.start + REACH)
            rank, stream = self._writer_of_line(each, buffer)
            key = stream, rank, each.entry.name
            if each.entry.role is Role.CONSEQUENCE and key in self._lost:
                previous = each.stop
                continue
            line = self._line + buffer.count("\n", 0, each.start)
            read = _message_statement(each, buffer, range(first, last), line, rank)
            read.time, read.stream = self._clock.time_of(buffer, each.start), stream
            if each.entry.role is Role.CONSEQUENCE:
                if not read.is_quoted:
                    self._lost[key] = read
                previous = each.stop
                continue
            if self._statements and each.start - self._ended <= WIDEST:
                read.is_part = _is_part(self._statements[-1], read, buffer[self._ended : each.start])
            self._statements.append(read)
            previous = self._ended = each.stop
        self._done = stop
        kept = max(0, stop - _BEHIND)
        self._line += buffer.count("\n", 0, kept)
        self._clock.shift(kept)
        self._buffer, self._done, self._ended = buffer[kept:], self._done - kept, self._ended - kept


def _message_beginnings(text: str, start: int) -> list[_Beginning]:
    """Where messages begin, from `start` on, without overlaps.

    Those in the case of the table count first, before these those that are not weak. Words that any program may print
    count only outside of all others.
    """
    small = text.replace("\u0130", "I").lower()  # the only letter that has more than one small one
    found = [
        _Beginning(match.start(), match.end(), order, variant, entry)
        for order, variant, entry in map(_BEGINNINGS.__getitem__, _BEGINNING_SEARCH.possible(small))
        for match in entry.small_patterns[variant].finditer(small, start)
        if _is_in_place(entry.place, text, match)
    ]
    general = [each for each in found if each.entry.is_general]
    found = [each for each in found if not each.entry.is_general]
    exact = [each for each in found if each.entry.patterns[each.variant].match(text, each.start)]
    kept = _without_overlaps([each for each in exact if not each.entry.is_weak], [])
    kept = _without_overlaps([each for each in exact if each.entry.is_weak], kept)
    # In other letters than the table's it may be a message where its number follows, or if it is weak.
    others = [each for each in found if each.entry.is_weak or _NUMBER_NEAR.match(text, each.stop)]
    return _without_overlaps(general, _without_overlaps(others, kept))


def _without_overlaps(found: list[_Beginning], kept: list[_Beginning]) -> list[_Beginning]:
    """The beginnings of messages that are kept already, and of the others the first and longest, in order."""
    taken = [each.start for each in kept]
    result, end = [], 0
    for each in sorted(found, key=lambda each: (each.start, -each.stop, each.order, each.variant)):
        after = bisect_left(taken, each.stop)
        if each.start >= end and (after == 0 or kept[after - 1].stop <= each.start):
            result.append(each)
            end = each.stop
    return sorted([*kept, *result], key=lambda each: each.start)


_OUTPUT: Final = re.compile(r"[^A-Za-z\s,;'-]")
"""What lines of programs have, and words of a person rarely."""

_PROGRESS: Final = re.compile(r"\d[/:]\d|\d\.\d{2}|\de-\d|\d%|it/s")
"""What only lines of programs have: times, steps, losses."""

_SHELL: Final = re.compile(
    r"[$#%>]|\b(?:137|dumped)\b|^[ \t]{0,20}`(?:``|$)|\bERROR\b"
    r"|(?i:\berror:|\bfailed\b|\breturned with code\b|\bexit(?:ed)? (?:code|status|with)\b)"
)
"""What lines have that follow the end of a program: a prompt, its exit status, the program that ran it, the end of a
quotation."""

_CHAT: Final = re.compile(r"^(?:\[?[\d:]{4,8}\]?[ \t])?<[ @+]?[\w|`\[\]-]{1,40}>[ \t]$")
"""What stands before the words of a person in a chat."""

_GAME: Final = re.compile(r"\b(?:slain|respawn(?:s|ed)?)\b")

_TRACEBACK_LINES, _SHELL_LINES, _PRINTED_LINES = 8, 8, 3


def _is_in_place(place: str, text: str, match: re.Match[str]) -> bool:
    """Whether a message stands where its entry must: at the end of a traceback, or last of what a program printed."""
    if place in ("", "printed"):
        return not place or _is_printed(text, match)
    above = text[max(0, match.start() - 2 * WIDEST) : match.start()].split("\n")
    if place == "traceback":
        return any(FRAME.search(line) for line in above[-_TRACEBACK_LINES:-1])
    printed = [line for line in above if line.strip()][-_PRINTED_LINES:]
    last = printed[-1] if printed else ""
    if _CHAT.match(above[-1]) or _GAME.search(last):
        return False
    if _PROGRESS.search(last):
        return True
    if len(text) - match.end() > _SHELL_LINES * WIDEST:
        return False
    below = [line for line in text[match.end() :].split("\n") if line.strip()]
    is_end = len(below) <= _SHELL_LINES and all(_SHELL.search(line) for line in below)
    # A program that says that another one ended follows lines of a program.
    return is_end and any(map(_OUTPUT.search, printed if below else printed[-1:]))


_ERROR_WORD: Final = re.compile(
    r"(?i)\berr(?:or)?\b|error[ :\])=]|exception|\bfatal\b|\bfail(?:ed|ure)\b|panicked|\babort|\bterminat"
    r"|\bwarn(?:ing)?\b|cause:|caused by|\bcaught\b|stopped due|process died|refused"
)
_LOG_LEVEL: Final = re.compile(r"\d:\d\d[^\n]{0,40}\b(?:ERROR|FATAL|CRITICAL)\b")
"""What begins a line of a log on an error: its time and level. There a program may speak as a person does."""

_CODE_WORD: Final = re.compile(r"\w_\w|\w::\w|\w\(|[a-z][A-Z]|0x[\dA-Fa-f]|\.\w{1,4}:\d|\[[\w:#]+\]|\d:\d\d")
"""What lines of programs have and sentences of a person rarely: names, calls, places in code, times."""

_PERSON: Final = re.compile(
    r"(?i)(?<![\w./-])(?:I|I'm|I've|my|we|our|you|your|he|she|they|should|would|could(?! not)|might|maybe|because"
    r"|so that|whether|may|without|avoids?|prevents?|never|no longer|instead|detect|handles?|fix(?:es|ed)?|support"
    r"|add(?:s|ed)?|improve[sd]?|seems?|due to an?|(?<!likely )cause of|what(?! is\(\)|\(\))|how|why|when|whenever|if"
    r"|not|no|isn't|aren't|(?:that|which|who) (?:ran|runs?)|reduce|lower|means?|retry (?:with|on|after)"
    r"|expect(?:s|ed)?|raises?)\b"
)
_PERSON_AFTER: Final = re.compile(
    r"(?i)(?:[ \t](?:errors?|exceptions?|issues?|problems?|conditions?|situations?|crash(?:es)?))?[ \t]"
    r"(?:if|when|because|with|on(?! (?:cuda |hip )?(?:device|gpu) [#\d])|after|while|should|can|could|may|is|are|was"
    r"|happens?|occurs?|even|but|so|and|only|that|has|gets?)\b"
    r"|[ \t](?:errors|exceptions|issues|problems|conditions)\b|(?: memory)? in static TLS"
)
"""Words of a person, before and after those of a program; and another thing that can be too small."""

_SENTENCE_END: Final = re.compile(r"[.;!?][ \t]")
_MEMORY_WORD: Final = re.compile(
    r"(?i)memor|speicher|内存|buffer|texture|heap|(?:system|gpu|enough) resources|mem size|bad alloc"
)
_MEMORY_AFTER: Final = re.compile(
    r"(?i)[^\n]{0,80}?(?:memory|bytes?\b|buffer|textures?\b|surface|heap|tensor|image|array|region"
    r"|\d ?[KMG]i?B\b|\d{5})"
)
"""What was refused, in the words themselves, before or after them."""

_SOURCE_LINE: Final = re.compile(
    r"[ \t]*(?:[+-][ \t])?(?:from|import|def|class|return|raise|except|elif|if|with|self\.|#|//|/?\*)(?!\w)"
    r"|[ \t]+f?[\"']"
)
_PLACE_FOR_TEXT: Final = re.compile(r"\{[a-z_][\w.]*(?:\[|[^\"{}]{0,20}\})|%[sdlu]\b|\$\{")
"""A line of a source, and what stands in it for a number."""

_MESSAGE_BEFORE: Final = re.compile(r"(?:^|\w: |> |\] )[ \t]{0,9}$")
_MESSAGE_AFTER: Final = re.compile(r"(?: memory)?[ \t.]*|[ \t\w]{0,20}(?:!|:[^?]*)")
"""What stands around a message that is a whole line, or follows the name of a program: `a: Cannot allocate memory`."""

_CLASS_BEFORE: Final = re.compile(r"(?:^|[\s.])[A-Z]\w{1,60}(?:Error|Exception): $")
"""The class of an error before its message: then a program speaks, whatever follows."""

_NAME_AFTER: Final = re.compile(r"(?:Error|Exception|\)|\"|'|,|:|\.)*(?:[ \t:(]|$)")


def _is_printed(text: str, match: re.Match[str]) -> bool:
    """Whether words that any program may print stand in a line of a program, and are no words of a person."""
    before = text[max(0, match.start() - WIDEST) : match.start()].rpartition("\n")[2]
    after = text[match.end() : match.end() + WIDEST].partition("\n")[0]
    words, around = text[match.start() : match.end()], f"{before} {after}"
    if _is_of_source(before, words, after):
        return False
    is_memory = (
        words[0] == "0" or any(map(_MEMORY_WORD.search, (words, before))) or _MEMORY_AFTER.match(after)
    )
    is_logged = _LOG_LEVEL.search(before) is not None
    if not is_memory or (not is_logged and _PERSON.search(_SENTENCE_END.split(before)[-1])):
        return False
    if not (is_logged or _CLASS_BEFORE.search(before)) and _PERSON_AFTER.match(after):
        return False
    is_message = _MESSAGE_BEFORE.search(before) is not None and _MESSAGE_AFTER.fullmatch(after) is not None
    return is_message or any(each.search(f"{around} {words}") for each in (_CODE_WORD, _ERROR_WORD))


def _is_of_source(before: str, words: str, after: str) -> bool:
    """Whether words of a message stand in a line of a source or in code within a sentence, or are a mere name."""
    around = f"{before} {after}"
    if _SOURCE_LINE.match(before) or _PLACE_FOR_TEXT.search(around):
        return True
    if before.count("`") % 2 and "`" in after:
        return any(map(str.isalpha, before.partition("`")[0] + after.partition("`")[2]))
    if " " in words or words[0] == "0" or words.isupper() or not words.isascii():
        return False
    return not (_NAME_AFTER.match(after) and _ERROR_WORD.search(around))


_NUMBER_NEAR: Final = re.compile(r"[^\d\n]{0,40}\d")


_HINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": (
        "vllm",
        "enginecore",
        "[core.py:",
        "core_client.py",
        "gpu_memory_utilization",
        "gpu-memory-utilization",
    ),
    "sglang": ("mem-fraction-static", "sglang"),
    "trtllm_cache": ("could not be created: kv cache",),
    "loading": ("in load_model",),
    "loaded": ("load weight end",),
    "comfyui": ("comfy",),
    "llamacpp": ("llama.cpp", "llamacpp"),
    "ollama": ("ollama",),
    "whispercpp": ("whisper_",),
    "sdcpp": ("ggml_extend.hpp",),
    "initializer": ("variables_initializer",),
    "tensorflow_1": ("[[node: ",),
    "training": (".backward(", "optimizer.step", "optim/", "trainer", "train.py"),
    "inference": ("no_grad", "generate("),
    "kernel_error": (
        "device-side assert triggered",
        "] assertion `",
        "an illegal memory access was encountered",
    ),
    "library_mismatch": ("but source was compiled with",),
    "tiled": ("retrying with tiled vae",),
    "timeout": ("timeout -s kill", "timeout -s 9", "timeout --signal=kill"),
    "below_limit": ('"oomkilled": false',),
    "rocm": ("/opt/rocm", "hipmalloc", "hiperror", "rocblas", "miopen"),
    "metal": ("ggml_metal",),
    "vulkan": ("ggml_vulkan",),
    "windows": ("c:\\", "d:\\", "\\site-packages\\"),
}
"""What a text says of the program -> the words that say it, in lower case."""

_CLIENTS: Final = {
    "tensorflow": xla.TENSORFLOW_WORDS,
    "torch_xla": xla.TORCH_WORDS,
    "reactant": xla.REACTANT_WORDS_OF_ERRORS,
    "exla": xla.EXLA_WORDS,
    "jax": xla.JAX_WORDS,
}
"""A client of XLA -> the words that only it writes."""

_HINT_WORDS: Final = [(word, hint) for hint, words in [*_HINTS.items(), *_CLIENTS.items()] for word in words]
_HINT_SEARCH: Final = _WordSearch((word,) for word, _ in _HINT_WORDS)

_TENSORFLOW_1: Final = re.compile(
    r"201(?<=\b201)(?:[5-8]-\d\d|9-0[1-8])-\d\d \d\d:\d\d:\d\d\.\d{1,6}: [IWEF] (?:\.|[A-Za-z]:)?[/\\]?"
    r"(?:[\w.-]{1,40}[/\\]){0,16}tensorflow[/\\]"
)
"""A line of a log from before TensorFlow 2.0, which is of September 2019."""


def hints_of(text: str) -> set[str]:
    """What the words of a text around its messages say of the program: which one it is, where it runs."""
    lower = text.lower()
    possible = map(_HINT_WORDS.__getitem__, _HINT_SEARCH.possible(lower))
    found = {hint for word, hint in possible if word in (text if hint in _CLIENTS else lower)}
    if "alloc_conf" in lower:
        for match in torch.SET.finditer(text):
            found |= {mark for word, mark in torch.SET_MARKS.items() if word in match[1]}
    if _TENSORFLOW_1.search(text):
        found.add("tensorflow_1")
    return found


# ------------------------------------------------------------------------------
# Read one message.

_PREFIX: Final = re.compile(
    r"(?:[>#*\s]{1,40}"
    r"|\[?(?:rank|default|worker|gpu)[ _-]?\d{1,5}\]?:?\s"
    r"|\((?:\w{1,40}\s)?pid=\d{1,10}[^)\n]{0,60}\)\s"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]{0,12}Z?:?\s"
    r"|\d\d-\d\d\s\d\d:\d\d:\d\d\s"
    r"|(?:ERROR|INFO|WARNING|WARN|DEBUG)\b[:\s]"
    r"|\[[\w.]{1,60}\.py:\d{1,6}\]\s"
    r"|\[pod/[^\]\s]{1,200}\]\s"
    r"|[\w.-]{1,40}\s{1,4}\|\s"
    r"|E\s{3,}"
    r"|\d{1,7}:(?=\D))*"
)
"""What ranks, loggers and quotations put before a line."""

_POD: Final = re.compile(r"\[pod/[^\]\s]{1,200}\]")
"""What `kubectl logs --prefix` puts before a line: a container named `pytorch` does not say whose the error is."""

_RAISED: Final = re.compile(r"\braise\s{1,9}[\w.]{1,80}\(\s{0,9}[frFR]{0,2}[\"']\s{0,9}$")
"""What stands before a text in the line of a program that prints it, as a traceback shows it."""

_RANK: Final = (
    re.compile(r"\brank[ _-]?(\d{1,5})\b\]?:", re.IGNORECASE),
    re.compile(r"\[(?:\d{1,5},)?(\d{1,5})\]<std(?:err|out)>"),
    re.compile(r"\[default(\d{1,5})\]:"),
    re.compile(r"\b(?:ERROR on proc |Abort::)(\d{1,5})\b"),
)
"""The rank before a line: as PyTorch and launchers put it, as mpirun and Horovod do, as torchrun does: that of its
node; and as programs on MPI do themselves: LAMMPS, AMReX."""

_LABEL: Final = re.compile(r"[ \t]{0,6}(\d{1,5}): ")
_LABELS: Final = re.compile(rf"(?<=\n){_LABEL.pattern}(?!\s{{0,9}}(?:0x|at |[\w~]{{1,60}}::))")
_LEAST_LABELS: Final = 3
"""Lines with the same number before them that are no frames of a stack: `grep -n` and lists count each once."""

_STREAM: Final = re.compile(
    r"[ \t]{0,6}(?:\[(?![EWIF]?\d{4}|\w{0,9}[ :]?\d{1,2}:\d\d)[^\[\]\n]{1,120}\]|\([^()\n]{1,120}\)"
    r"|(?:[A-Za-z]{2,20} (?=\d))?[\w-][\w./-]{0,80}(?=:|[ ]{1,40}\|)|[a-z][\w-]{1,80}(?= [a-z][\w-]{1,40} ))"
    r"[ ]{0,40}(?:[:|][ ]?|[ ])"
)
"""What stands before a line of one of several processes: `[pod/x-3/trainer] `, `(Worker pid=7, ip=10.0.0.3) `,
`node3: `, `host 3: `, `trainer-3  | `, and the pod and the container of `stern`."""

_COUNTED: Final = re.compile(r"(?=\w{0,80}\d)\w{1,80}|\b[bcdfghjklmnpqrstvwxz]{5}\b")
"""What tells equal labels apart: a number, or the end of the name of a pod, which has no vowel."""

_OF_CODE: Final = re.compile(r"\.\w{1,4}:\d|^\s*[\d:]+\s*[:|]")
"""A place in a source, a time, a number without a name."""

_LEAST_OF_LINES: Final = 0.5


def _shape_of_label(label: str) -> str:
    """What the labels before the lines of all streams have in common; "" where nothing in it counts."""
    shape = _COUNTED.sub("#", label)
    is_other = shape == label or _OF_CODE.search(label) or _rank_before(label) is not None
    return "" if is_other else " ".join(shape.split())


def _name_of_stream(label: str) -> str:
    """The label before the lines of a stream, without its brackets."""
    return label.strip(" \t[]():|").removeprefix("pod/").replace(",", "")


def _shapes_of_streams(text: str) -> set[str]:
    """The shapes of the labels that part the lines of a text into streams.

    Several labels of the shape come back after others, and they stand before half of all lines: times never come back,
    the numbers of steps do not, and those of a list stand once.
    """
    lines = [line for line in text.split("\n") if line]
    labels = [found[0] for found in map(_STREAM.match, lines) if found is not None]
    shapes = {label: _shape_of_label(label) for label in set(labels)}
    labels = [label for label in labels if shapes[label]]
    runs = Counter(label for label, _ in groupby(labels))
    back = Counter(
        shapes[label]
        for label, count in Counter(labels).items()
        if runs[label] > 1 and count >= _LEAST_LABELS
    )
    covered = Counter(map(shapes.__getitem__, labels))
    return {
        shape
        for shape, several in back.items()
        if several > 1 and covered[shape] >= len(lines) * _LEAST_OF_LINES
    }


def _message_statement(
    found: _Beginning, buffer: str, around: range, line: int, rank: int | None
) -> _Statement:
    """A message, from the part of the buffer that may belong to it."""
    entry, first, last = found.entry, around.start, around.stop
    window = buffer[first:last].replace("\\n", "\n")  # a notebook and JSON logs hold escapes
    lines = window.split("\n")
    cleaned = [lines[0], *(part[end_of_message_prefix(part) :] for part in lines[1:])]
    flat, glued = " ".join(cleaned), "".join(cleaned)
    lead = buffer[max(0, first - WIDEST) : first].rpartition("\n")[2]
    before = buffer[max(0, found.start - WIDEST) : found.start].rpartition("\n")[2]
    shown = (before + buffer[found.start : found.start + WIDEST]).split("\n", 1)[0]
    letters = str if entry.patterns[found.variant].match(buffer, found.start) else str.lower
    near = letters(_POD.sub("", f"{shown}\n{window[: found.stop - first + 2000]}"))
    statement = _Statement(
        entry,
        found.variant,
        line,
        " ".join(shown.split())[:WIDEST],
        _message_numbers(entry, flat, glued, lambda: _joints([f"{lead}{lines[0]}", *lines[1:]], cleaned)),
        {mark for word, mark in entry.marks.items() if letters(word) in near},
        next((version for word, version in entry.versions.items() if letters(word) in near), ""),
        framework=entry.whose.get(entry.begins[found.variant], entry.framework),
        rank=_named_number(entry.rank_patterns, flat, rank),
        device=_named_number(entry.device_patterns, flat),
        is_raised=_RAISED.search(before) is not None,
    )
    if entry.name == "torch-cuda" and _moves_weights(buffer, found):
        statement.marks.add("moves_weights")
    _take_message_details(statement, buffer[found.start : min(last, found.start + WIDEST)], flat)
    if entry.name == "usage-slurm":
        _take_job_table(statement, buffer[found.start : found.start + REACH].split("\n"))
    _take_mention(statement, found, buffer)
    return statement


_FRAMES_NEAR: Final = 1500
"""Characters before an error, or after it where none stand before, in which the last frames of its traceback lie."""

_MOVERS: Final = re.compile(
    r"\b(?:_apply|load_state_dict|_load_from_state_dict|from_pretrained|set_module_tensor_to_device"
    r"|_load_state_dict_into_meta_model|load_checkpoint_in_model|dispatch_model)\b"
)
"""Functions of PyTorch, Transformers and Accelerate that move the weights of a model to a device."""

_OPTIMIZER: Final = re.compile(r"\boptim(?:izers?)?\b")
"""Words of a frame that moves the state of an optimizer, whose `load_state_dict` has the same name."""

_LAST_FRAMES: Final = 4


def _moves_weights(buffer: str, found: _Beginning) -> bool:
    """Whether the traceback of a message of PyTorch ends where the weights of a model are moved to the device."""
    for near in (
        buffer[max(0, found.start - _FRAMES_NEAR) : found.start],
        buffer[found.stop : found.stop + _FRAMES_NEAR],
    ):
        frames = [frame.start() for frame in FRAME.finditer(near)]
        if frames:
            last = near[frames[-_LAST_FRAMES:][0] :]
            return _MOVERS.search(last) is not None and _OPTIMIZER.search(last) is None
    return False


_TIME: Final = re.compile(
    r"(?<!\d)(?:(?P<year>20\d\d)([-/])(?P<month>\d\d)\2(?P<day>\d\d)[T_ ]{1,2}"
    r"|(?<=[EWIFCD])(?P<glog_month>[01]\d)(?P<glog_day>[0-3]\d) )"
    r"(?P<clock>[0-2]\d:[0-5]\d:[0-5]\d)(?:[.,](?P<part>\d{1,9}))?"
)
"""A time as loggers, Kubernetes and Slurm write it, and as glog does, without its year: `E1128 09:12:11.123456`."""


class _LogClock:
    """Finds when the lines around messages were written, going forward through the buffer of the text."""

    def __init__(self) -> None:
        self._seen = 0  # of the buffer: up to there it is searched
        self._last: int | None = None  # the last time before, if it is near

    def time_of(self, buffer: str, start: int) -> LogTime | None:
        """When the line of a message was written; where it does not say that, the last near line that does."""
        end = buffer.find("\n", start, start + WIDEST)
        line = buffer.rfind("\n", 0, start) + 1
        stop = end if end >= 0 else start + WIDEST
        own = next(map(_nanoseconds, _TIME.finditer(buffer, max(line, start - WIDEST), stop)), None)
        if own is not None:
            return LogTime(own, is_own=True)
        first = max(self._seen, line - _BEHIND, 0)
        if first > self._seen:
            self._last = None
        for found in _TIME.finditer(buffer, first, line):
            self._last = _nanoseconds(found)
        self._seen = max(self._seen, line)
        return None if self._last is None else LogTime(self._last, is_own=False)

    def shift(self, characters: int) -> None:
        """The buffer of the text has lost its beginning."""
        self._seen -= characters


def _nanoseconds(found: re.Match[str]) -> int | None:
    """The time of a line that a match of `_TIME` tells; None where there is no such day or hour."""
    date = found["year"] or "1972", found["month"] or found["glog_month"], found["day"] or found["glog_day"]
    seconds = calendar_seconds("-".join(date), found["clock"])
    return None if seconds is None else seconds * 10**9 + int((found["part"] or "").ljust(9, "0"))


_GOES_ON: Final = re.compile(
    r"(?i)\bfall(?:s|ing)? back\b|\bfallback\b|\bretrying\b|\btrying again (?:in|with)|\bskipping (?:the |this )?batch"
    r"|\bcontinuing with(?:out)?\b"
)
"""What a program prints that goes on after a refusal, on the same line or the next."""

_WARNING: Final = re.compile(r"(?:^|[\s\[|<(])(?:WARN(?:ING)?|Warning|warning|W)(?:[\]|>)]|\s{0,8}[:|])")
_ERROR_LEVEL: Final = re.compile(
    r"(?i)\b(?:error|fatal|critical|exception|panic(?:ked)?|abort(?:ed)?)\b|Error:"
)
"""The level of a line of a log."""

_LINES_AFTER: Final = 2
"""Lines after words that any program may print that may have numbers of the same failure."""


def _general_statement(
    found: _Beginning, buffer: str, line: int, writer: tuple[int | None, str]
) -> _Statement:
    """What the lines around words that any program may print say: whose they are, which memory, and the numbers."""
    entry, (rank, stream) = found.entry, writer
    start = max(buffer.rfind("\n", 0, found.start) + 1, found.start - WIDEST)
    rows = buffer[start : found.stop + 2 * WIDEST].replace("\\n", "\n").split("\n")[: 1 + _LINES_AFTER]
    words, own, near = buffer[found.start : found.stop], rows[0], "\n".join(rows)
    earlier = "\n".join(buffer[max(0, start - 2 * WIDEST) : start].split("\n")[-1 - _LINES_AFTER :])
    flat = " ".join(rows)
    program = next(
        (
            name
            for lines in (own, near, earlier)
            for name, pattern in message_tables.ANY_PROGRAMS.items()
            if pattern.search(lines)
        ),
        _program_before(own[: found.start - start]) or entry.framework,
    )
    statement = _Statement(
        entry,
        found.variant,
        line,
        " ".join(own.split())[:WIDEST],
        _message_numbers(entry, flat, flat),
        next(filter(None, map(_memory_of_lines, (words, own, near, earlier))), set()),
        "",
        framework=program,
        rank=rank,
        stream=stream,
        time=_LogClock().time_of(buffer, found.start),
        device=_named_number(entry.device_patterns, own),
    )
    if _GOES_ON.search("\n".join(rows[:2])):
        statement.marks.add("goes_on")
    elif _WARNING.search(own) and not _ERROR_LEVEL.search(own):
        statement.marks |= {"goes_on", "warned"}
    if "host" in statement.marks and "device_free" in statement.facts:
        statement.facts["available"] = statement.facts.pop("device_free")
    _take_mention(statement, found, buffer)
    return statement


_PROGRAM_BEFORE: Final = re.compile(
    r"(?:^|\s)(?:[\w.~:+-]*[/\\])*(?!(?:e?rr|error|warn|warning|info|fatal|note|what|log|msg|message|stderr|stdout|reason"
    r"|cause|status|panic|exception|failed|failure|details|result|memory)\b)([a-z][a-z\d+-]{1,24})(?:\.exe)?:[ \t]"
)
"""The name of a program before what it says, as compilers and commands print it."""


def _program_before(text: str) -> str:
    """The name of the program that a line begins with; "" where it begins otherwise."""
    named = _PROGRAM_BEFORE.match(text)
    return "" if named is None else named[1]


def _memory_of_lines(lines: str) -> set[str]:
    """Whose memory the lines around a message are about; nothing where they name both, or neither."""
    kinds = {
        mark
        for mark, pattern in (("gpu", message_tables.ANY_OF_GPU), ("host", message_tables.ANY_OF_HOST))
        if pattern.search(lines)
    }
    return kinds if len(kinds) == 1 else set()


def _is_part(before: _Statement, each: _Statement, between: str) -> bool:
    """Whether a weak text is a part of the message before it: on its line, or with no small letter between both."""
    if not each.entry.is_weak or (before.entry.is_weak and not before.is_part):
        return False
    return "\n" not in between.replace("\\n", "\n") or between.upper() == between


def _rank_before(text: str) -> int | None:
    """The rank that the beginning of a line names; None where it names none."""
    if ":" not in text and ">" not in text:  # found much faster
        return None
    return next((int(match[1]) for pattern in _RANK if (match := pattern.search(text))), None)


def _named_number(patterns: Iterable[re.Pattern[str]], flat: str, other: int | None = None) -> int | None:
    """The number of the device or rank that a message names; `other` where it names none."""
    found = (match for pattern in patterns if (match := pattern.search(flat)))
    number = next((match[1] for match in found), "")
    return int(number) if number.isdecimal() else other


def end_of_message_prefix(line: str) -> int:
    """Where the message of a line begins: behind the time, the rank and the level that a logger writes."""
    prefix = _PREFIX.match(line)
    return 0 if prefix is None else prefix.end()


def _joints(lines: Sequence[str], cleaned: Sequence[str]) -> set[int]:
    """The places in the lines of a message, joined by spaces, where a terminal may have cut lines that were long."""
    widest = max(map(len, lines[:-1]), default=0)
    ends = accumulate(len(line) + 1 for line in cleaned[:-1])
    least = max(_NARROWEST, widest - _LONGEST_CUT)
    return {end - 1 for line, end in zip(lines, ends, strict=False) if len(line) >= least}


_NARROWEST: Final = 40
"""Columns of a terminal: a shorter line has its own end."""

_LONGEST_CUT: Final = 12
"""Letters by which lines of a terminal differ once the words that it cut are put together."""


def _is_cut_number(flat: str, span: tuple[int, int], joints: Callable[[], set[int]]) -> bool:
    """Whether a number of a message is a part of one that the end of a line cut."""
    start, end = span
    start -= flat[start - 1 : start] == "."  # 1 | .72 GiB
    is_second = flat[start - 1 : start] == " " and flat[start - 2] in "0123456789."
    is_first = flat[end : end + 1] == " " and flat[end + 1 : end + 3].lstrip(".")[:1].isdigit()
    return (is_second and start - 1 in joints()) or (is_first and end in joints())


def _message_numbers(
    entry: Message, flat: str, glued: str, joints: Callable[[], set[int]] = set
) -> dict[str, StatedSize]:
    """The numbers of a message; those that no memory can have are left out.

    Args:
        entry: of the message.
        flat: its lines, joined by spaces.
        glued: its lines, joined by nothing.
        joints: gives the places of those spaces where a terminal may have cut a number.
    """
    found: dict[str, StatedSize] = {}
    for number in entry.numbers:
        if number.name in found:
            continue
        for pattern in number.patterns:
            match = pattern.search(flat)
            if match is None or _is_cut_number(flat, match.span(1), joints):
                match = pattern.search(glued)
            size = None if match is None else stated_size(match[1], number.unit)
            if size is not None:
                found[number.name] = size
                break
    return found


def _take_mention(statement: _Statement, found: _Beginning, buffer: str) -> None:
    """Mark a message that no program printed."""
    entry, has_facts = statement.entry, bool(statement.facts)
    span = (found.start, found.stop)
    statement.is_quoted, statement.is_named = mention_of(
        entry, buffer, span, has_facts=has_facts, is_raised=statement.is_raised
    )
    if not (has_facts or entry.is_weak or entry.patterns[found.variant].match(buffer, found.start)):
        statement.is_quoted = True  # it was found by its words alone


def _take_message_details(statement: _Statement, begins: str, flat: str) -> None:
    """Read from a message what a table cannot say: the tensor, the processes of the driver's list."""
    name = statement.entry.name
    if name in _TAKERS:
        _TAKERS[name](statement, flat)
    elif name in {"torch-cuda", "torch-cut", "torch-size"}:
        _take_torch_processes(statement, begins, flat)
    elif name in _OPS:
        op = _OPS[name].search(begins.partition("\n")[0])
        statement.op = op[op.lastindex or 0] if op else ""
    elif name in message_tables.NAMED:
        named = message_tables.NAMED[name].search(flat)
        statement.op = "" if named is None else named[1]
    elif name in xla.LARGEST_BUFFER:
        _take_largest_buffer(statement, xla.LARGEST_BUFFER[name].search(flat))


def _take_torch_processes(statement: _Statement, begins: str, flat: str) -> None:
    """Read from a message of PyTorch its backend, and the processes that hold memory."""
    backend = begins[:4].upper().strip("O ")
    statement.framework = torch.BACKENDS.get(backend, statement.framework)
    # torch_npu keeps an old text, and Intel's extension a very old one.
    if backend == "NPU" or (backend == "XPU" and statement.version.startswith(("0.", "1."))):
        statement.version = ""
    for pid, size in torch.PROCESS.findall(flat):
        stated = stated_size(size)
        if stated is not None and 0 <= stated.value < IMPOSSIBLE:
            statement.processes[int(pid)] = stated.value


_OPS: Final = {
    "tf-bfc": tensorflow.REQUESTED_BY,
    **dict.fromkeys(("host-killed", "host-reaped"), message_tables.KILLED),
}
"""Name of an entry -> the operation, or the program, that its first line names."""


def _take_largest_buffer(statement: _Statement, entry: re.Match[str] | None) -> None:
    """Read the largest buffer from XLA's table in a message: `f32[8,8] of jit(f)/dot at model.py:12`."""
    if entry is None or "due to padding" not in entry[0]:
        statement.facts.pop("padding", None)  # it is that of another buffer
    if entry is None:
        return
    found = {
        name: each[1] for name, pattern in xla.BUFFER_WORDS.items() if (each := pattern.search(entry[0]))
    }
    shape, op, file, line = (found.get(name, "") for name in ("shape", "op", "file", "line"))
    place = f"at {file}:{line}" if file and line else f"in {file}" if file else ""
    statement.largest = " ".join(part for part in (shape, f"of {op}" if op else "", place) if part)


_NEAR_TENSOR: Final = 2000
"""Characters after an error in which its operation stands."""


def _take_failed_tensor(statement: _Statement, flat: str) -> None:
    """Read from a message of TensorFlow which tensor could not be allocated."""
    tensor = tensorflow.TENSOR.search(flat)
    node = tensorflow.NODE.search(flat[:_NEAR_TENSOR])
    statement.op = "" if node is None else node[1] or node[2]
    if tensor is None:
        return
    allocator = tensor["name"] or ""
    statement.marks |= {mark for name, mark in tensorflow.ALLOCATORS.items() if allocator.startswith(name)}
    statement.shape = tuple(int(part[:18]) for part in tensor["shape"].replace(",", " ").split())
    statement.dtype = tensor["type"] or ""
    size = _bytes_of_tensor(statement)
    if size is not None:
        statement.facts["requested"] = size


def _bytes_of_tensor(statement: _Statement) -> StatedSize | None:
    """The bytes of a message's tensor, by shape and type; None where the type is not known or the size cannot be."""
    size = prod(statement.shape) * tensorflow.TYPE_BYTES.get(statement.dtype, 0)
    return StatedSize(size, 0) if 0 < size < 1 << 62 else None


def _take_pool_growth(statement: _Statement, flat: str) -> None:
    """Read from a message of TensorFlow whether its pool took its whole limit at the start."""
    growth = tensorflow.GROWTH_OF_POOL.search(flat)
    if growth is not None and tensorflow.is_one_region(int(growth[1]), int(growth[2])):
        statement.marks.add("one_region")


def _take_array(statement: _Statement, flat: str) -> None:
    """Read from a message of NumPy which array could not be allocated."""
    array = message_tables.ARRAY.search(flat)
    if array is not None:
        statement.shape = tuple(int(part[:18]) for part in array["shape"].replace(",", " ").split())
        statement.dtype = array["type"]
        size, printed = _bytes_of_tensor(statement), statement.facts.get("requested")
        if size is not None and (printed is None or abs(size.value - printed.value) <= printed.slack):
            statement.facts["requested"] = size


def _take_profiled_tokens(statement: _Statement, flat: str) -> None:
    """Read from a message how many tokens are too few, where the device's share is too small for the weights."""
    tokens = [int(each) for each in message_tables.PROFILED_TOKENS.findall(flat)]
    if tokens and tokens[-1] < 0:
        statement.facts["missing_tokens"] = StatedSize(-tokens[-1], 0)


def _take_nvidia_smi_table(statement: _Statement, flat: str) -> None:
    """Read a table of `nvidia-smi` in a text: of several devices the one with the least free memory."""
    devices = [
        (int(total) - int(used), int(used), int(total))
        for used, total in message_tables.SMI_DEVICE.findall(flat)
        if int(used) <= int(total)  # HAMi's counter can fall below zero
    ]
    if len(devices) > 1:
        statement.marks.add("several_devices")
    if devices:
        free, used, total = min(devices)
        facts = {"device_total": total, "device_used": used, "device_free_at_start": free}
        statement.facts |= {
            key: StatedSize(value << 20, 1 << 19) for key, value in facts.items() if value >= 0
        }
    for process in message_tables.SMI_PROCESS.finditer(flat):
        statement.processes[int(process["pid"])] = int(process["used"]) << 20


def _take_job_table(statement: _Statement, lines: Sequence[str]) -> None:
    """Read a table of `sacct` in a text: the most memory that a step used, and what the job asked for."""
    rows = [_job_table_cells(line, lines[1] if len(lines) > 1 else "") for line in lines[:_LONGEST_JOB_TABLE]]
    for name, column in (("memory_used", "MaxRSS"), ("memory_total", "ReqMem")):
        if column in rows[0]:
            at = rows[0].index(column)
            cells = [row[at].removesuffix("n") for row in rows[1:] if len(row) > at]  # 16Gn: of a node
            sizes = [size for cell in cells if (size := stated_size(cell)) is not None and size.value]
            if sizes:
                statement.facts[name] = max(sizes, key=lambda size: size.value)


_LONGEST_JOB_TABLE: Final = 40


def _job_table_cells(line: str, dashes: str) -> list[str]:
    """The cells of a row of `sacct`, which `|` separates, or which stand below the dashes of its columns."""
    if "|" in line:
        return [cell.strip() for cell in line.split("|")]
    cells = list(_JOB_TABLE_CELL.finditer(line))
    spans = [dash.span() for dash in _DASHES.finditer(dashes)]
    return [
        next((each[0] for each in cells if each.start() < end and start < each.end()), "")
        for start, end in spans
    ]


_DASHES: Final = re.compile(r"-{2,64}")
_JOB_TABLE_CELL: Final = re.compile(r"[^\s]{1,200}")

_TAKERS: Final[Mapping[str, Callable[[_Statement, str], None]]] = {
    "tf-tensor": _take_failed_tensor,
    "tf-pool": _take_pool_growth,
    "nvidia-smi": _take_nvidia_smi_table,
    "host-numpy": _take_array,
    "sglang-fraction": _take_profiled_tokens,
}
"""Name of an entry -> what takes its details."""


# ------------------------------------------------------------------------------
# Join the messages that tell of one failure.

_ZERO_IF_UNKNOWN: Final = {"largest_free"}
"""The pool prints 0 for what it does not count."""

_KEPT: Final = {"tf-device", "tf-limit", "ggml-device"}
"""Numbers of the start, which belong to every later failure."""

_REFUSALS: Final = {"trt-skipped", "torch-skipped", "torch-retry"}
"""They tell of a refusal, too, where no text before them does."""

_UNIT: Final = 256
"""The pool rounds requests up to it."""

_BACK_OFF: Final = 0.97
"""A region that the pool asks for after a refusal is a tenth smaller."""

_LEAST_BACK_OFF: Final = 0.85
"""The same for a pool of pinned memory, whose refusals are told with the size of each."""


@dataclass
class _Joined:
    """A failure in the making: messages that tell of one failure, joined."""

    first: _Statement
    is_soft: bool = False
    facts: dict[str, StatedSize] = field(default_factory=dict)
    told: Counter[tuple[str, int]] = field(default_factory=Counter)
    marks: set[str] = field(default_factory=set)
    processes: dict[int, int] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    rank: int | None = None
    stream: str = ""
    op: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    largest: str = ""
    devices: list[int] = field(default_factory=list)
    passed: int = 0
    """The line on which the program went on, another way."""
    last: int = 0
    """The line on which its last text begins."""
    smallest: int = 0
    """Bytes that its last text asks for."""

    def __post_init__(self) -> None:
        self._take(self.first)
        self.processes = dict(self.first.processes)
        self.told[self.first.entry.name, self.first.variant] = 1
        self.last, self.smallest = self.first.line, self.first.facts.get("requested", StatedSize(0, 0)).value

    def agrees(self, statement: _Statement) -> bool:
        """Whether a message can tell of the same failure: no number contradicts, nor the shape."""
        if self.shape and statement.shape and self.shape != statement.shape:
            return False
        return all(
            abs(size.value - self.facts[name].value) <= size.slack + self.facts[name].slack
            for name, size in statement.facts.items()
            if name in self.facts
        ) and all(self.processes.get(pid, used) == used for pid, used in statement.processes.items())

    def fill(self, statement: _Statement) -> None:
        """Take from a message what is missing, and what it states more exactly; nothing of a table of many devices."""
        if "several_devices" not in statement.marks:
            self._take(statement)

    def _take(self, statement: _Statement) -> None:
        for name, size in statement.facts.items():
            if name not in self.facts or (size.slack < self.facts[name].slack and self.agrees(statement)):
                self.facts[name] = size
        self.marks |= statement.marks
        self.rank = statement.rank if self.rank is None else self.rank
        self.stream = self.stream or statement.stream
        if statement.device is not None and statement.device not in self.devices:
            self.devices.append(statement.device)
        self.versions.append(statement.version)
        if statement.entry.name != "nvidia-smi":  # the table of another moment; it lists this process, too
            self.processes = statement.processes | self.processes
        self.largest = self.largest or statement.largest
        self.op = self.op or statement.op
        self.shape, self.dtype = self.shape or statement.shape, self.dtype or statement.dtype


def _failures_of_statements(
    statements: list[_Statement], hints: set[str]
) -> tuple[list[StatedFailure], list[StatedFailure]]:
    """The failures that the messages of a text tell, each joined from those that agree."""
    found: list[_Joined] = []
    waiting: list[_Statement] = []
    statements = [each for each in statements if not each.is_quoted]
    weak = [each for each in statements if each.entry.is_weak and not each.is_part and not each.is_named]
    named = [each for each in statements if each.is_named and not each.is_part]
    for each in statements:
        if not each.is_weak:
            _take_statement(each, found, waiting)
    rest = [each for each in waiting if not any(_of_family(join, each) for join in found)]
    for each in waiting:
        for join in reversed(found):
            if _of_family(join, each):
                join.fill(each)
                break
    found += _failures_of_lone_numbers(rest)
    if all(join.is_soft for join in found):
        told = _failure_of_weak_texts(weak or named, found)
        if told and told[0].first.entry.family == "host":  # what the job used says why it was ended
            used = [join for join in found if join.first.entry.name.startswith("usage-")]
            for join in used:
                told[0].fill(join.first)
            found = [join for join in found if join not in used]
        found += told
    elif all(join.is_soft or join.first.entry.name == "host-numpy" for join in found):  # the GPU is another
        calls = [each for each in weak if each.entry.name == "cuda-call"]
        found = sorted([*found, *_failure_of_weak_texts(calls, found)], key=lambda join: join.first.line)
    made = [(join.is_soft, _stated_failure(join, hints)) for join in found]
    failures, soft = ([each for is_soft, each in made if is_soft == wanted] for wanted in (False, True))
    return _distinct_message_failures(failures), _distinct_message_failures(soft)


def _failure_of_weak_texts(weak: list[_Statement], soft: list[_Joined]) -> list[_Joined]:
    """Weak messages tell of one failure, without those that stand where the program went on, another way."""
    passed = [
        range(join.first.line - join.first.entry.within, join.passed + 1) for join in soft if join.passed
    ]
    left = [each for each in weak if not any(each.line in lines for lines in passed)]
    left = [each for each in left if each.entry.role is not Role.SOFT] or left
    for names in message_tables.LEAST:
        left = [each for each in left if each.entry.name not in names] or left
    found = [_Joined(each, is_soft=each.entry.role is Role.SOFT) for each in left[:1]]
    for each in left[1:]:
        # A refusal of the GPU stays one, whatever the program then says of system memory.
        if ("host" in each.marks) == ("host" in left[0].marks):
            _add_repeated_message(found[0], each)
    return found


def _take_statement(each: _Statement, found: list[_Joined], waiting: list[_Statement]) -> None:
    role = each.entry.role
    same = next((join for join in reversed(found) if _of_family(join, each)), None)
    if role is Role.BEFORE or (role is Role.AFTER and same is None):
        waiting.append(each)
    elif role is Role.AFTER and same is not None:
        same.fill(each)
    elif role is Role.RETRY:
        _take_retry(each, found, same)
    elif role is Role.AFTER_ALL:
        if same is not None and same.is_soft:
            same.fill(each)
            same.is_soft = False
    elif role is Role.REPORT and same is not None and same.first.entry.role is not Role.REPORT:
        same.fill(each)
    else:
        ooms = each.facts.get("num_ooms", StatedSize(0, 0)).value
        is_soft = ooms == 0 if role is Role.REPORT else role is Role.SOFT or "soft" in each.marks
        if same is not None and same.is_soft == is_soft and (same.agrees(each) or _backs_off(same, each)):
            _add_repeated_message(same, each)
            return
        found.append(_Joined(each, is_soft=is_soft))
        if not is_soft:
            mine = [other for other in waiting if _of_family(found[-1], other)]
            for other in reversed(mine):
                found[-1].fill(other)
            _take_compiler_limit(found)
            waiting[:] = [
                other for other in waiting if other.entry.name in _KEPT or not _of_family(found[-1], other)
            ]


def _take_compiler_limit(found: list[_Joined]) -> None:
    """Take, for the last failure, what XLA's compiler counted on, where its request alone is more than that."""
    last, earlier = found[-1], [join for join in found[:-1] if join.first.entry.name == "xla-remat"]
    mine = [join for join in earlier if _of_family(join, last.first) and "limit" in join.facts]
    asked = last.facts.get("requested")
    if not mine or asked is None:
        return
    limit = mine[-1].facts["limit"]
    if 0 < limit.value < asked.value - asked.slack:
        last.facts.setdefault("compiler_limit", limit)
        if "program" in mine[-1].facts:
            last.facts.setdefault("program", mine[-1].facts["program"])


def _backs_off(join: _Joined, each: _Statement) -> bool:
    """Whether a pool of pinned memory asked again, for a tenth less, after the refusal before."""
    asked = each.facts.get("requested")
    if each.entry.name != "tf-host" or join.first.entry is not each.entry or asked is None:
        return False
    if not _LEAST_BACK_OFF * join.smallest <= asked.value <= join.smallest:
        return False
    join.marks |= {"backs_off"} if asked.value < _BACK_OFF * join.smallest else set()
    join.smallest = asked.value
    return True


def _take_retry(each: _Statement, found: list[_Joined], same: _Joined | None) -> None:
    """Take a message of a program that goes on, another way: the failure before is soft, unless that ended it."""
    failed = (join for join in reversed(found) if not join.is_soft and _of_family(join, each))
    before = next((join for join in failed if "after_all" not in join.marks), None)
    within = each.entry.within
    if before is not None and (not within or each.line - before.last <= within):
        before.is_soft = True
        before.passed = each.line
        before.marks |= each.marks
    elif (same is None or within) and each.entry.name in _REFUSALS:
        found.append(_Joined(each, is_soft=True))
        found[-1].passed = each.line if within else 0


def _of_family(join: _Joined, each: _Statement) -> bool:
    """Whether a message may tell of this failure: it is of the same framework, and of the same rank."""
    if None not in (join.rank, each.rank) and join.rank != each.rank:
        return False
    if join.stream and each.stream and join.stream != each.stream:
        return False
    family = each.entry.family
    return not family or join.first.entry.family == family


def _add_repeated_message(join: _Joined, each: _Statement) -> None:
    """Another message of the same failure."""
    join.fill(each)
    join.last = each.line
    if each.is_raised:  # the same line of the program tells it, not another failure
        return
    if join.first.is_raised and join.first.entry is each.entry:
        join.first = each
        return
    join.told[each.entry.name, each.variant] += 1


def _failures_of_lost_ranks(
    lost: Sequence[_Statement], failures: Sequence[StatedFailure]
) -> list[StatedFailure]:
    """One failure of all ranks that tell only that another was late or gone, and one of those that were ended.

    None where each failed itself; that a rank was ended says something only where another failed.
    """
    rest = [each for each in lost if not any(_is_of_rank(each, failure) for failure in failures)]
    late = [each for each in rest if each.entry.name == "peer-lost"]
    told = {(each.stream, each.rank) for each in late}
    ended = [each for each in rest if failures and (each.stream, each.rank) not in {*told, ("", None)}]
    # The system and launchers tell late that a process was ended.
    own = [each.line for each in failures if "host" not in each.marks]
    return [_failure_of_ranks(each, min(own, default=0)) for each in (late, ended) if each]


def _is_of_rank(lost: _Statement, failure: StatedFailure) -> bool:
    """Whether a failure is one of the rank that lost another."""
    if lost.stream and failure.streams and lost.stream not in failure.streams:
        return False
    return lost.rank in failure.ranks if lost.rank is not None else lost.stream in failure.streams


def _failure_of_ranks(told: Sequence[_Statement], before: int) -> StatedFailure:
    """What several ranks tell of others; `before`: the line of the first failure."""
    first = min(told, key=lambda each: each.line)
    ranks = sorted(each.rank for each in told if each.rank is not None)
    if len(set(ranks)) < len(ranks):  # those of each node
        ranks = []
    return StatedFailure(
        message=first.entry.name,
        framework=first.entry.framework,
        marks=frozenset({"before"} if first.line < before else ()),
        ranks=tuple(ranks),
        streams=tuple(
            sorted({each.stream for each in told if each.stream}, key=lambda name: (len(name), name))
        ),
        line=first.line,
        count=len(told),
        text=first.text,
    )


def _failures_of_lone_numbers(rest: list[_Statement]) -> list[_Joined]:
    """Numbers in messages without the failure that they belong to."""
    refused = [each for each in rest if each.entry.name == "tf-refused"]
    counters = [each for each in rest if each.entry.name in {"tf-stats", "tf-pool"}]
    others = [each for each in rest if each.entry.name not in {"tf-refused", "tf-stats", "tf-pool"}]
    found: list[_Joined] = []
    if counters:  # the pool prints them only when a request fails
        found.append(_Joined(counters[0]))
        for each in [*counters[1:], *reversed(refused)]:
            found[0].fill(each)
    elif refused:
        sizes = [each.facts["extension_refused"].value for each in refused if each.facts]
        backs_off = len(sizes) > 1 and any(b < a * _BACK_OFF for a, b in pairwise(sizes))
        found.append(_Joined(refused[-1], is_soft=backs_off))
        found[0].facts.setdefault("requested", refused[-1].facts.get("extension_refused", StatedSize(0, 0)))
        found[0].told["refused", 0] = len(refused)
    for each in others:
        if found:
            found[-1].fill(each)
        elif each.entry.name != "tf-limit" and (each.facts or "table" in each.marks):
            found.append(_Joined(each, is_soft=True))
    return found


_FIRST_NEGATIVE: Final = 1 << 63
"""Programs print a negative size as a number without a sign: from this on."""


def _failure_of_general_words(statements: list[_Statement]) -> _Joined | None:
    """What words of any program tell, of several lines the one that says most; of one that goes on it is soft."""
    told = [each for each in statements if not each.is_quoted]
    ended = [each for each in told if "goes_on" not in each.marks]
    if not told:
        return None
    best = max(ended or told, key=lambda each: ("requested" in each.facts, len(each.marks), len(each.facts)))
    return _Joined(best, is_soft=not ended)


def _stated_failure(join: _Joined, hints: set[str]) -> StatedFailure:
    """The failure that joined messages state."""
    facts = _exact_stated_sizes(join.facts)
    kept = {
        name: size
        for name, size in facts.items()
        if 0 <= size.value < (1 << 62 if name == "requested" else IMPOSSIBLE)
    }
    false = {"false_figures"} if any(name not in kept for name in facts if name != "limit") else set()
    asked = facts.get("requested")
    if asked is not None and _FIRST_NEGATIVE <= asked.value <= 2 * _FIRST_NEGATIVE:
        false |= {"below_zero", "wrapped"}
    elif asked is not None and asked.value < 0:
        false.add("below_zero")
    framework = _framework_of_message(join.first, hints)
    is_jax = framework.startswith("JAX")
    is_tensorflow_1 = framework == "TensorFlow" and "tensorflow_1" in hints
    versions = [*join.versions, "1.x" if is_tensorflow_1 else ""]
    slack = {name: size.slack for name, size in kept.items() if size.slack}
    values = {name: size.value for name, size in kept.items()}
    if asked is not None and "below_zero" in false and not asked.slack:
        values["below_zero"] = 2 * _FIRST_NEGATIVE - asked.value if "wrapped" in false else -asked.value
    if join.processes and join.first.entry.name in {"torch-cuda", "torch-cut"} and "process_in_use" in values:
        values["other_processes"] = sum(join.processes.values())
    return StatedFailure(
        message=join.first.entry.name,
        framework=framework,
        facts=values,
        slack=slack,
        marks=frozenset(join.marks | hints | false),
        version=next((each for each in versions if each and ("jaxlib" in each) is is_jax), ""),
        op=join.op,
        shape=join.shape,
        dtype=join.dtype,
        processes=dict(join.processes),
        largest=join.largest,
        ranks=() if join.rank is None else (join.rank,),
        streams=(join.stream,) if join.stream else (),
        devices=tuple(join.devices),
        line=join.first.line,
        count=max(join.told.values()),
        text=join.first.text,
        time=join.first.time,
    )


def _exact_stated_sizes(facts: Mapping[str, StatedSize]) -> dict[str, StatedSize]:
    """A request that a message prints becomes what it was rounded to: that is within 256 bytes of it."""
    found = dict(facts)
    requested, rounded = found.get("requested"), found.get("rounded")
    if (
        requested is not None
        and rounded is not None
        and abs(requested.value - rounded.value) <= requested.slack + _UNIT
        and requested.slack > _UNIT
    ):
        found["requested"] = StatedSize(rounded.value, _UNIT)
    total, request = found.get("total_with_request"), found.get("requested")
    if total is not None and request is not None:
        found.setdefault("allocated", StatedSize(max(0, total.value - request.value), 0))
    limit, used = found.get("limit"), found.get("in_use")
    if limit is not None and used is not None and limit.value == 0 < used.value:  # 0 is printed for no limit
        del found["limit"]
    found |= _driver_sizes(found)
    for name in _ZERO_IF_UNKNOWN & found.keys():
        if found[name].value == 0:
            del found[name]
    printed = found.get("requested_printed")
    if printed is not None:
        found.setdefault("requested", printed)
    return found


def _driver_sizes(facts: Mapping[str, StatedSize]) -> dict[str, StatedSize]:
    """What the bytes in use that the driver states and one more number say of the third: the total, or what is free."""
    used, free, total = (facts.get(f"device_{name}") for name in ("used", "free", "total"))
    if used is None:
        return {}
    if free is not None and total is None:
        # The driver never says that nothing is in use: then it is a limit of this process.
        name = "limit" if used.value == 0 or "limit" in facts else "device_total"
        whole = StatedSize(used.value + free.value, used.slack + free.slack)
        return {} if name in facts else {name: whole}
    if total is not None and free is None and "device_free_at_start" not in facts:
        return {"device_free": StatedSize(max(0, total.value - used.value), used.slack + total.slack)}
    return {}


def _framework_of_message(first: _Statement, hints: set[str]) -> str:
    """Whose message it is: several programs are clients of one allocator."""
    clients = _CLIENTS_OF_FAMILY.get(first.entry.family or "")
    if clients is None:
        return _framework_of_call(first)
    other = xla.TPU if first.entry.family == "tpu" else first.framework
    if other == "TensorFlow" and _ABSL_LINE.search(first.text):
        other = "XLA"
    return next((name for hint, name in clients.items() if hint in hints), other)


_ABSL_LINE: Final = re.compile(r"(?<![\w.])[EWI][01]\d[0-3]\d \d\d:\d\d:\d\d\.\d{6}")
"""How newer versions of XLA begin a line, in JAX and others; TensorFlow begins it with the date and year."""

_CLIENTS_OF_FAMILY: Final[Mapping[str, Mapping[str, str]]] = {
    "bfc": {"reactant": "Reactant", "exla": "EXLA", "tensorflow": "TensorFlow", "jax": "JAX"},
    "tpu": xla.TPU_CLIENTS,
    "ggml": {"llamacpp": "llama.cpp", "whispercpp": "whisper.cpp", "sdcpp": "stable-diffusion.cpp"},
}
"""A family of texts -> what the words of a text say -> whose it is; the first that fits."""


def _framework_of_call(first: _Statement) -> str:
    """Whose call of a driver failed, by the words around the message."""
    if first.entry.name in {"cuda-call", "metal-command", "metal-buffer"} and "ggml" in first.marks:
        return "llama.cpp"
    if first.entry.name == "cuda-call" and {"mxnet", "mxnet_pool"} & first.marks:
        return "MXNet"
    if first.entry.name == "cuda-library" and "tf" in first.marks:
        return "TensorFlow"
    client = next((name for mark, name in _CALLERS.items() if mark in first.marks), "")
    if client and first.entry.name in {"cuda-call", "cuda-library"}:
        return client
    if first.entry.name in {"cuda-call", "cuda-library"} and "torch" in first.marks:
        return {"ROCm": "PyTorch ROCm", "oneAPI": "PyTorch XPU"}.get(first.framework, "PyTorch CUDA")
    return first.framework


_CALLERS: Final = {
    "jax": "JAX",
    "cupy": "CuPy",
    "cumem": "vLLM",
    "onnx": "ONNX Runtime",
    "turbomind": "LMDeploy",
}
"""A mark of a refused call -> whose it is."""


def _distinct_message_failures(found: list[StatedFailure]) -> list[StatedFailure]:
    """Equal failures that the messages of a text tell once, in the order of their first."""
    kept: dict[tuple[object, ...], StatedFailure] = {}
    for each in found:
        numbers = (*sorted(each.facts.items()), *sorted(each.processes.items()))
        key = (each.message, each.framework, each.shape, *numbers)
        kept[key] = kept[key].joined(each) if key in kept else each
    return list(kept.values())


def device_of_messages(text: str) -> dict[str, Any]:
    """What the messages of a text say of the device: `device_total` and `device_free_at_start`, where all agree."""
    entry = ENTRIES["tf-device"]
    said = [
        {name: size.value for name, size in _message_numbers(entry, near, near).items()}
        for pattern in entry.patterns
        for match in list(pattern.finditer(text))[:_MOST_DEVICES]
        for near in [text[match.start() : match.start() + WIDEST]]
    ]
    names = ("device_total", "device_free_at_start")
    values = {name: {each[name] for each in said if name in each} for name in names}
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


_MOST_DEVICES: Final = 64


# ------------------------------------------------------------------------------
# Which files are texts with messages of memory that ran out, and which hold a heap.

_HEAP: Final = re.compile(
    rb"(?:InUse|Free|Chunk) {1,2}at (?:0x)?[0-9A-Fa-f]{1,16}(?: next \d{1,20})? of size \d"
    rb"|__LOG_MEMORY__|Extending allocation by "
)

_HEAP_WORDS: Final = (b" of size ", b"__LOG_MEMORY__", b"Extending allocation by ")
"""One of them is in every match: found much faster."""

_OVERLAP: Final = 200


def holds_more_than_messages(pieces: Iterable[bytes]) -> bool:
    """Whether a text file has the chunks of a heap, or its history: then it opens as a trace, not as messages."""
    tail = b""
    for piece in pieces:
        text = tail + piece
        if b"\0" in text:
            text = text.replace(b"\0", b"")
        if any(word in text for word in _HEAP_WORDS) and _HEAP.search(text) is not None:
            return True
        tail = text[-_OVERLAP:]
    return False


_MEMORY_WORDS: Final = re.compile(
    rb"(?i)memory|\bOOM|\bkilled\b|\bSIGKILL\b|\bbad_alloc\b|\b(?:code|status)\W{1,4}137\b"
)


def _words_of_memory(path: Path) -> str:
    """Which line of a text file without a message may be about memory, in brackets; "" where none is."""
    breaks = 0
    for piece in ContentPieces(path, UNPACKED_TEXT):
        if (found := _MEMORY_WORDS.search(piece)) is not None:
            line = 1 + breaks + piece.count(b"\n", 0, found.start())
            return f" (line {line:,} may be about memory, but holds no failure that bfcviz knows: give more lines)"
        breaks += piece.count(b"\n")
    return ""


_NAMED_ERROR: Final = re.compile(
    r"(?:[\w.]{1,80}(?:Error|Exception)|FATAL|Fatal Python error|panic|thread '[^'\n]{1,40}' panicked)\b(?::|$| at )"
)
"""What the line of an error begins with."""


def last_line(path: Path) -> str:
    """How a text file without messages ends: its last error near the end, else its last line with letters or digits."""
    tail = b""
    for piece in ContentPieces(path, UNPACKED_TEXT):
        tail = (tail + piece)[-REACH:]
    lines = TERMINAL_CODE.sub("", tail.decode("utf-8", "replace")).splitlines()
    told = [line for line in reversed(lines) if any(map(str.isalnum, line))]
    errors = (line for line in told[:_LAST_LINES] if _NAMED_ERROR.match(line, end_of_message_prefix(line)))
    last = next(errors, told[0] if told else "")
    return " ".join(last.split())[:WIDEST]


_LAST_LINES: Final = 40

_LARGEST_PASTE: Final = 1 << 23
"""Bytes of a text that someone copied. A larger log is read once only, as a trace."""


def _holds_only_cut_dumps(path: Path) -> bool:
    """Whether a text file holds chunks of a heap, but of no heap all of them, and no history."""
    # They need NumPy, and most texts have no chunks.
    from bfcviz.importers.bfc_log.failure_dumps import holds_only_cut_dumps  # noqa: PLC0415
    from bfcviz.importers.bfc_log.log_lines import log_text  # noqa: PLC0415
    from bfcviz.importers.bfc_log.log_memory_lines import holds_log_memory  # noqa: PLC0415
    from bfcviz.importers.bfc_log.vlog import holds_regions, holds_requests  # noqa: PLC0415

    if path.stat().st_size > _LARGEST_PASTE:
        return False
    log = log_text(read_content(path, unpacked=UNPACKED_TEXT).data)
    has_regions = holds_regions(log.text) and "ran out of memory trying" not in log.text
    has_history = has_regions or holds_requests(log.text) or holds_log_memory(log.text)
    return not has_history and holds_only_cut_dumps(log)


def _of_cut_dump(found: StatedFailures) -> StatedFailures:
    """The failures that a text file tells, with the mark that the list of its chunks is cut."""
    failures = [
        replace(each, marks=each.marks | {"cut_dump"}) if ENTRIES[each.message].family == "bfc" else each
        for each in found.failures
    ]
    return found._replace(failures=failures)


def read_message_file(path: Path) -> StatedFailures | None:
    """What a text file tells; None where it is no text, holds a heap, or tells nothing of memory that ran out.

    A heap of which many chunk lines are missing is none: then the other lines decide.

    Raises:
        NoMessage: it is a text that tells nothing and has no other format.
        FileError: the file cannot be read.
    """
    if not is_plain_text(path):
        return None
    is_cut = False
    if holds_more_than_messages(ContentPieces(path, UNPACKED_TEXT)):
        is_cut = _holds_only_cut_dumps(path)
        if not is_cut:
            return None
    found = read_messages(ContentPieces(path, UNPACKED_TEXT), path.name)
    if is_cut:
        return _of_cut_dump(found) if found.failures else None
    if found.failures or found.soft:
        return found
    try:
        detect_format(path)
    except FileError:
        raise NoMessage(
            path,
            "",
            f"this is a text file without an out-of-memory message, which `why` reads, too{_words_of_memory(path)}; "
            f"{READABLE}",
        ) from None
    return None
