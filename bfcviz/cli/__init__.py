"""The `bfcviz` command: words of a command line come in, an exit status goes out.

One file a subcommand, each with `add_arguments(parser)` and `run(arguments)`; only the one that is asked for is
imported, so that `bfcviz --help` is instant. May import everything.
"""

from bfcviz.cli.command import main

__all__ = ["main"]
