"""The `bfcviz` command: takes a command line, returns an exit status.

Each subcommand is a module of its name with `add_arguments(parser)` and `run(arguments)`, whose errors `main` prints:
among them FileError for a file that cannot be read, and TraceError for an allocator or a step that it does not have.
Only the module of the given subcommand is imported, so that `bfcviz --help` is fast. May import everything.
"""

from bfcviz.cli.command import main

__all__ = ["main"]
