"""A report as Markdown, for an issue or a chat: the same data as the page, without pictures."""

import re
from collections.abc import Sequence
from typing import Final

from bfcviz.report import words
from bfcviz.report.content import HeapReport
from bfcviz.report.words import ReportRow
from bfcviz.terminal import printable

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~&@$]|:(?=//)|(?<=www)\.)")
_BAR: Final = 20  # characters


def as_markdown(report: HeapReport) -> str:
    """The report as Markdown text."""
    lines = [
        f"# {escaped(words.title(report))}",
        "",
        *([f"**{escaped(words.numbers(report))}**", ""] if words.numbers(report) else []),
        escaped(f"{report.origin.source or 'A trace'}: {', '.join(words.facts(report))}"),
        "",
        escaped(words.summary(report)),
        *(escaped(text) for text in (words.explanation(report), words.holder_line(report)) if text),
    ]
    if advice := words.advice(report):
        lines += [
            "",
            "## What would help",
            "",
            *(f"{n}. {escaped(text)}" for n, text in enumerate(advice, 1)),
        ]
    lines += _section("Sizes", words.sizes(report))
    sentence, pins = words.pins(report)
    lines += _section("What is in the way", pins, sentence)
    for found in report.holders:
        lines += _section(f"Who holds the memory, by {found.by.replace('_', ' ')}", words.holder_rows(found))
    if not report.holders:
        lines += _section("Chunks in use, by size", words.by_size(report), words.NO_HOLDERS)
    lines += _section("Settings", words.settings(report))
    lines += _section("All failed requests", words.other_failures(report))
    lines += _section("All heaps of the file", words.other_heaps(report))
    lines += ["", "## How complete the file is", ""]
    lines += [f"- {escaped(text)}" for text in words.completeness(report)]
    return "\n".join(lines) + "\n"


def _section(title: str, rows: Sequence[ReportRow], sentence: str = "") -> list[str]:
    """A heading and a table; nothing without rows."""
    if not rows:
        return []
    has_shares = any(row.share is not None for row in rows)
    lines = ["", f"## {title}", ""]
    lines += [escaped(sentence), ""] if sentence else []
    lines += [f"| | | |{' |' * has_shares}", f"|---|---:|---|{'---|' * has_shares}"]
    for row in rows:
        cells = [escaped(row.name), escaped(row.value), escaped(row.note)]
        if has_shares:
            cells.append("" if row.share is None else "█" * round(_BAR * row.share))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def escaped(text: str) -> str:
    """`text` as one line in which Markdown and HTML mean nothing."""
    return _SPECIAL.sub(r"\\\1", printable(text))
