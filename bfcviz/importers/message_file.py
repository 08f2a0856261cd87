"""Which files are texts with messages of memory that ran out, and which hold a heap."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bfcviz.errors import FileError, NoMessage
from bfcviz.formats.message_grammar import TERMINAL_CODE
from bfcviz.formats.message_tables import ENTRIES
from bfcviz.importers.file_content import ContentPieces, read_content
from bfcviz.importers.file_format import READABLE, detect_format, is_plain_text
from bfcviz.importers.file_limits import UNPACKED_TEXT
from bfcviz.importers.message_mentions import WIDEST
from bfcviz.importers.message_reader import REACH, StatedFailures, end_of_message_prefix, read_messages

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
