"""Parse a command line and run its subcommand. Exit status: 0 success, 1 error (with a message), 2 usage error.

A subcommand that runs a program returns the program's exit status.
"""

import argparse
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final, NoReturn, TextIO

import bfcviz
from bfcviz.cli.process_folder import recorded_folder
from bfcviz.errors import BfcvizError
from bfcviz.terminal import printable, say
from bfcviz.units import is_size_unit

PURPOSE: Final = "See every split, merge and extension of a GPU memory heap."
COMMANDS: Final = {
    "demo": "step through a bundled training run in JupyterLab",
    "info": "show what a file contains, and its heap after the last event",
    "why": "say why each request of a file failed, and what would have helped",
    "holders": "show who holds the memory at a step, and what leaks",
    "whatif": "serve the requests of a file by the rules of other allocators, and compare them",
    "fit": "find the smallest memory limit under which an allocator serves the requests of a file",
    "tune": "find the setting of the job's own allocator that saves most memory: the line to set",
    "sweep": "serve the requests of many files under many policies and limits, also on a Dask cluster",
    "plan": "plan one region with a place for each block of a file ahead, and write the offsets",
    "compare": "compare two recordings: who needs more memory, what appeared, vanished, grew or leaks now",
    "record": "run a program and record its heap, without changing its code",
    "attach": "show the live page of a recording that another process is writing",
    "view": "show the dashboard of a file as a page in your browser, without a notebook",
    "report": "write one page on a file: why a request failed, who held the memory, what would have helped",
    "sql": "answer a question in SQL on the events, heaps, failures and timelines of a file",
    "mcp": "let agents and editors ask about the files of a folder, by the Model Context Protocol",
    "convert": "write a trace as Parquet, CSV, counters for Perfetto, or a snapshot for PyTorch's memory viewer",
    "export": "write one picture of a heap at one step, as HTML, PNG, SVG or PDF, or its numbers as CSV or Parquet",
}
"""Subcommand -> what it does; each is a module in this folder."""

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130  # as shells report it: 128 + SIGINT


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line (by default that of this process) and return its exit status.

    Raises:
        SystemExit: after `--help`, `--version` or a usage error, as argparse does.
    """
    given = sys.argv[1:] if words is None else list(words)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            arguments = make_parser(given).parse_args(given)
            _take_process(arguments)
            status: int | None = arguments.run(arguments)
            sys.stdout.flush()  # raises here, not while Python exits, if the reader has closed the pipe
        except BfcvizError as error:
            _print_command_message(f"error: {error}")
            return FAILED
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # `bfcviz info FILE | head`: the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        except OSError as error:  # such as no temporary folder
            place = f"{error.filename}: " if error.filename else ""
            _print_command_message(f"error: {place}{error.strerror or error}")
            return FAILED
    return DONE if status is None else status


def _take_process(arguments: argparse.Namespace) -> None:
    """In place of the number of a process, take the folder that it records into.

    Raises:
        FileError: the number names no file, and the process is not recorded.
    """
    word = getattr(arguments, "file", None)
    if isinstance(word, str) and word.isdecimal():
        folder = recorded_folder(word)
        if folder != word:
            say(f"Process {word} records into {folder}", file=sys.stderr)
        arguments.file = folder


class _CommandParser(argparse.ArgumentParser):
    """A parser that escapes its errors: they repeat words of the command line, which can hold control characters."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def make_parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the subcommand that the first word names, or of all, with the arguments of those that are given."""
    parser = _CommandParser(prog="bfcviz", description=PURPOSE)
    parser.add_argument("--version", action="version", version=f"bfcviz {bfcviz.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    named = given[:1] if given and given[0] in COMMANDS else COMMANDS
    for name in named:
        purpose = COMMANDS[name]
        command = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in given:
            module = import_module(f"bfcviz.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    if not given or (given[0] not in COMMANDS and not given[0].startswith("-")):
        parser.error(_no_command(given))
    _refuse_wrong_option(parser if given[0].startswith("-") else commands.choices[given[0]], given)
    return parser


def _refuse_wrong_option(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Say that the command line has no such option or value, before argparse says that something else is missing."""
    words = given[: given.index("--")] if "--" in given else given
    known = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001  has no public name
    takes_words = any(action.nargs in {argparse.REMAINDER, argparse.PARSER} for action in parser._actions)  # noqa: SLF001
    if not takes_words:
        _refuse_split_size(parser, words)
    names = [word.partition("=")[0] for word in words if word.startswith("--")]
    unknown = [name for name in names if not any(option.startswith(name) for option in known)]
    if not unknown or (takes_words and not given[0].startswith("-")):
        return
    option = f"{shlex.quote(unknown[0])}{_nearest(unknown[0], known, 0.75)}"
    parser.error(f"there is no option {option}; `{parser.prog} --help` lists the options")


def _refuse_split_size(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Say that a size of the command line is one word, before its unit is taken as a file."""
    for option, number, unit in zip(words, words[1:], words[2:], strict=False):
        is_split = option.startswith("--") and _NUMBER.fullmatch(number) and is_size_unit(unit)
        if is_split and not os.path.lexists(unit):
            parser.error(f"a size is one word: write {option} {number}{unit}, without a blank")


_NUMBER: Final = re.compile(r"[0-9][0-9,_]*(?:\.[0-9]*)?")


def _no_command(given: Sequence[str]) -> str:
    """What to type on the command line instead of words that begin with no command."""
    listed = "`bfcviz --help` lists the commands"
    if not given:
        return f"give a command, such as `bfcviz why FILE` or `bfcviz view FILE`; {listed}"
    word = shlex.quote(given[0])
    if os.path.lexists(given[0]):
        return f"{word} is a file, not a command: `bfcviz view {word}` shows it, `bfcviz why {word}` tells what failed"
    instead = _INSTEAD.get(given[0].replace("-", "_"))
    near = f"; `bfcviz {instead}` does that" if instead else _nearest(given[0], COMMANDS, 0.6)
    return f"there is no command {word}{near}; {listed}"


_INSTEAD: Final = {
    "leaks": "holders --leaks FILE",
    "what_grew": "holders --since MARK FILE",
    "peak": "holders --step peak FILE",
    "explain": "why FILE",
    "growths": "why FILE",
    "draw": "export FILE --figure NAME --out PATH",
    "plot": "export FILE --figure NAME --out PATH",
    "save": "convert FILE -o OUT",
    "open": "view FILE",
    "inspect": "view FILE",
    "dashboard": "view FILE",
    "replay": "whatif FILE",
    "compare_policies": "whatif FILE",
    "watch": "record -- COMMAND",
    "run": "record -- COMMAND",
    "trace": "record -- COMMAND",
}
"""Commands that do what a Python function of this name does, or what the word asks for."""


def _nearest(word: str, known: Iterable[str], least: float) -> str:
    """A part of an error of the command line: the known word nearest to one that is not, if it is near enough."""
    from difflib import get_close_matches  # noqa: PLC0415  only for an error

    near = get_close_matches(word, list(known), 1, least)
    return f"; the nearest is {near[0]}" if near else ""


def _print_command_message(text: str) -> None:
    """Print an error or a warning of a command as one line."""
    say(f"bfcviz: {' '.join(text.splitlines())}", file=sys.stderr)


def _show_warning(  # noqa: PLR0913, PLR0917  the signature is Python's
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of a command as one line, without its place in the code: that does not help at a prompt."""
    del category, filename, lineno, file, line
    _print_command_message(f"warning: {message}")
