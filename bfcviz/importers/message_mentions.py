"""Texts that tell of no failure: a line of a program or of its documentation, and a sentence that names an error."""

import re
from typing import Final

from bfcviz.formats.message_grammar import (
    Message,
)

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
