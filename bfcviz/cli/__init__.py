"""The `bfcviz` command: takes a command line, returns an exit status.

Each subcommand is a module of its name with `add_arguments(parser)` and `run(arguments)`. Only the module of the given
subcommand is imported, so that `bfcviz --help` is fast. May import everything.
"""

from bfcviz.cli.command import main

__all__ = ["main"]
