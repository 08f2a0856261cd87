"""`bfcviz report`: one page on a file: why a request failed, who held the memory, how the heap came there."""

import argparse
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Final

from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.ranks import RankSet
from bfcviz.cli.arguments import (
    add_more_files,
    add_range_argument,
    asked_ranks,
    pool_number,
    status_of,
    steps_of,
    writable,
)
from bfcviz.cli.progress_bar import open_with_progress
from bfcviz.errors import BfcvizError
from bfcviz.events.storage.files import replacing
from bfcviz.exporters.report import HeapReport, as_json, as_markdown, report_of
from bfcviz.public_functions import stated_answer_of
from bfcviz.terminal import escaped, json_text, say

FORMATS: Final = ("html", "md", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz report`."""
    parser.add_argument(
        "file", metavar="FILE", help="a trace, log or snapshot: anything that `bfcviz info` reads"
    )
    add_more_files(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="PATH",
        help="the file to write; it ends in .html, .md or .json. Without it, Markdown and JSON are printed",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="html (default): one page that needs no network and, unless it is interactive, no script; md; json",
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="a page that steps through the events, zooms and searches, with its own script and without a network",
    )
    parser.add_argument(
        "--pool", metavar="NAME", help="the allocator to show: its name or number in the file"
    )
    add_range_argument(parser)
    parser.add_argument("--force", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> int | None:
    """Write or print the report; of several ranks a table of them, then that of the worst.

    Raises:
        FileError: the file cannot be written.
        BfcvizError: a page was asked for without a file to write.
    """
    form = arguments.format or _report_format(arguments.out)
    if arguments.interactive and form != "html":
        raise BfcvizError(f"--interactive makes a page, and --format {form} is none: leave one of them out")
    out = None
    if arguments.out is not None:
        out = writable(arguments.out, arguments.file, (f".{form}",), force=arguments.force)
    elif form == "html":
        raise BfcvizError("a page needs a file: give -o report.html, or --format md to print the report here")
    ranks = asked_ranks(arguments)
    file = arguments.file if ranks is None else str(ranks.worst_heap.place.file)
    stated = stated_answer_of(Path(file)) if ranks is None else None
    if stated is not None:
        if arguments.interactive or arguments.pool or arguments.steps or arguments.time:
            raise BfcvizError(
                "the file states a failure, and has no heap and no events: leave --interactive, --pool and a range out"
            )
        return _write_report(_message_report(stated, form), out, force=arguments.force, status=None)
    with open_with_progress(file, says_others=False) as trace:
        pool = None if arguments.pool is None else pool_number(trace, arguments.pool)
        report = report_of(trace, *steps_of(arguments, trace), pool)
        if report.worst_growth is not None and report.grown is not None:
            from bfcviz.whatif.tuning import replayed_saving  # noqa: PLC0415  only a growth needs the rules

            saving = replayed_saving(trace, report.grown)
            if saving.startswith("To do: "):
                report = replace(report, saving=saving.removeprefix("To do: "))
        text = rendered(report, "interactive" if arguments.interactive else form, ranks)
    return _write_report(text, out, force=arguments.force, status=None if ranks is None else status_of(ranks))


def _write_report(text: str, out: Path | None, *, force: bool, status: int | None) -> int | None:
    if out is None:
        print(text, end="")
        return status
    with replacing(out, overwrite=force) as made:
        made.write_text(text, encoding="utf-8")
    say(f"{out}: {out.stat().st_size / 1000:,.0f} kB")
    return status


def _message_report(answer: StatedAnswer, form: str) -> str:
    """What a text without a heap states, in the words of `bfcviz why`, in place of a report."""
    if form == "json":
        return f"{json_text(answer.to_json())}\n"
    first, *rest = answer.unwrapped
    if form == "md":
        return "\n".join([f"# {escaped(first)}", "", "```text", *rest, "```", ""])
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(first)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"></head>'
        f"<body>{answer._repr_html_()}</body></html>\n"
    )


def rendered(report: HeapReport, form: str, ranks: RankSet | None = None) -> str:
    """The text of a report in one of `FORMATS`, or `interactive`; below the ranks, of which it is about the worst."""
    if form == "json":
        return as_json(report, ranks)
    if form == "md":
        return as_markdown(report, ranks)
    if form == "interactive":
        from bfcviz.exporters.interactive_page import interactive_html  # noqa: PLC0415  figures import plotly

        return interactive_html(report, ranks)
    from bfcviz.exporters.report_page import as_html  # noqa: PLC0415  the same

    return as_html(report, ranks)


def _report_format(out: Path | None) -> str:
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    return suffix if suffix in FORMATS else FORMATS[0]
