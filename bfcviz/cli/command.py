"""From the words of a command line to an exit status: 0 done, 1 could not be done (and why), 2 not understood.

A subcommand that runs another program returns that one's.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn, TextIO

import bfcviz
from bfcviz.errors import BfcvizError
from bfcviz.terminal import printable, say

PURPOSE: Final = "See every split, merge and extension of a GPU memory heap."
COMMANDS: Final = {
    "demo": "step through a bundled training run in JupyterLab",
    "info": "what a file holds, and its heap after the last event",
    "record": "run a program and record its heap, without changing its code",
    "attach": "the live page of a recording that another process is writing",
    "view": "the dashboard of a file as a page in your browser, without a notebook",
    "export": "one picture of a heap at one step, as HTML, PNG, SVG or PDF, or its numbers as CSV or Parquet",
}
"""Subcommand -> what it does; each is a module of its own beside this one."""

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130  # as a shell counts it: 128 + SIGINT


def main(words: Sequence[str] | None = None) -> int:
    """Carry out one command line (by default this process's own) and return its exit status.

    Raises:
        SystemExit: after `--help`, `--version` or a usage error, as argparse does.
    """
    asked = sys.argv[1:] if words is None else list(words)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            arguments = make_parser(asked).parse_args(asked)
            status: int | None = arguments.run(arguments)
            sys.stdout.flush()  # a reader that left shows here, not while Python ends
        except BfcvizError as error:
            _say(f"error: {error}")
            return FAILED
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:  # `bfcviz info FILE | head`: who read has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
    return DONE if status is None else status


class _Parser(argparse.ArgumentParser):
    """Repeats words of the command line in its errors, and those may have come from anywhere."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def make_parser(asked: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of every subcommand, with the arguments of those named among the words asked."""
    parser = _Parser(prog="bfcviz", description=PURPOSE)
    parser.add_argument("--version", action="version", version=f"bfcviz {bfcviz.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in asked:
            module = import_module(f"bfcviz.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _say(text: str) -> None:
    say(f"bfcviz: {' '.join(text.splitlines())}", file=sys.stderr)


def _show_warning(  # noqa: PLR0913, PLR0917  the signature is Python's
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning is one line too; where in our code it was raised helps nobody at a prompt."""
    del category, filename, lineno, file, line
    _say(f"warning: {message}")
