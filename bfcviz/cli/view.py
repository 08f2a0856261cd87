"""`bfcviz view`: show the dashboard of a file as a page, without a notebook."""

import argparse
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bfcviz.cli.arguments import add_kinds, add_more_files
from bfcviz.errors import EmptyPath, MissingExtra
from bfcviz.terminal import say

if TYPE_CHECKING:
    from bfcviz.analysis.ranks import RankSet
    from bfcviz.events.trace import Trace
    from bfcviz.exporters.heap_cards import OpeningCard

_LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz view`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a trace, profile, log, dump or snapshot: anything that `bfcviz info` reads",
    )
    add_more_files(parser)
    add_kinds(parser, "where memory is shown by kind")
    add_view_arguments(parser)


def add_view_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the page of `bfcviz view` or `bfcviz attach`: its address, its token and its theme."""
    parser.add_argument(
        "--port", type=parse_view_port, metavar="N", help="port of the server (default: a free port)"
    )
    parser.add_argument(
        "--ip",
        default=_LOOPBACK,
        metavar="ADDRESS",
        help=f"address that the server listens on (default: {_LOOPBACK}, reachable from this machine only)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address of the page, do not open a browser"
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="show the page without a token to anyone who can reach the address",
    )
    parser.add_argument("--theme", choices=("light", "dark"), default="light", help="default: light")


def run(arguments: argparse.Namespace) -> None:
    """Serve the page of `bfcviz view` until Ctrl-C.

    Raises:
        MissingExtra: Voila is not installed.
        BfcvizError: the file cannot be read, or the server cannot listen at that address.
    """
    need_voila_to_view("bfcviz view")
    if arguments.kinds is not None:
        from bfcviz.model.memory_kinds import kind_rules  # noqa: PLC0415  the server needs no traces

        kind_rules(arguments.kinds)  # raises before the server starts
    words = (arguments.file, *arguments.more)
    if "" in words:
        raise EmptyPath
    arguments.file = _SEPARATOR.join(str(Path(word).absolute()) for word in words)
    serve_view(arguments)


def need_voila_to_view(feature: str) -> None:
    """Raise MissingExtra, which names the feature, if Voila, which `bfcviz view` needs, is not installed."""
    if find_spec("voila") is None:
        raise MissingExtra(feature, "Voila", "view")


def serve_view(arguments: argparse.Namespace, module: str = "bfcviz.cli.view") -> None:
    """Serve the page of `bfcviz view`, or that `module` shows of the file, until Ctrl-C.

    Args:
        arguments: the file, and the arguments of a page.
        module: has `prepare` and `dashboard` of a file, as this module has.

    Raises:
        BfcvizError: the file cannot be read, or the server cannot listen at that address.
    """
    from bfcviz.cli.standby import Standby  # noqa: PLC0415  before the server, which takes long to import

    kinds = getattr(arguments, "kinds", None)
    options = [arguments.theme] if kinds is None else [arguments.theme, str(Path(kinds).absolute())]
    standby = Standby(module, arguments.file, options)
    say(
        f"Reading {', '.join(Path(each).name for each in arguments.file.split(_SEPARATOR))} ...",
        file=sys.stderr,
    )
    try:
        import secrets  # noqa: PLC0415  while the file is read

        from bfcviz.cli.page_server import Address, is_loopback, page_scripts, serve  # noqa: PLC0415  an extra

        page_scripts()  # begins while the file is read
        standby.check()
        if standby.headline:
            say(standby.headline, file=sys.stderr)
        token = "" if arguments.no_token else secrets.token_hex(16)
        if not token and not is_loopback(arguments.ip):
            say(
                f"Anyone who can reach {arguments.ip} can open this page: it needs no token.", file=sys.stderr
            )
        serve(
            Address(arguments.ip, arguments.port, token),
            standby,
            theme=arguments.theme,
            browser=not arguments.no_browser,
        )
    finally:
        standby.end()


_SEPARATOR = "\n"  # between several files where one is expected: the ranks of one job

_prepared: dict[str, "tuple[os.stat_result, Trace]"] = {}
_prepared_ranks: dict[str, "RankSet"] = {}


def prepare(file: str) -> "OpeningCard | None":
    """Read the file of `bfcviz view` for the `dashboard` that this process may show; of ranks their summaries.

    Returns:
        The verdict and the first screen of the page; None for several ranks.

    Raises:
        FileError: the file cannot be read.
        TraceError: no rank has a heap.
    """
    from bfcviz.importers.open_trace import open_trace  # noqa: PLC0415  the server needs no traces

    ranks = _ranks_to_view(file)
    if ranks is not None:
        _ = ranks.worst_heap  # raises where no rank has a heap
        _prepared_ranks[file] = ranks
        return None
    before = Path(file).stat() if Path(file).is_file() else None  # a folder may grow until then
    trace = open_trace(file)
    if before is not None:
        _prepared[file] = before, trace
    from bfcviz.exporters.heap_cards import opening_card  # noqa: PLC0415  the server needs no traces

    return opening_card(trace)


def dashboard(file: str, theme: str, kinds: str | None = None) -> Any:
    """Make the page of `bfcviz view`: an Inspector of `file` at its first failed request, else at its state or peak.

    Recordings that are still written are shown live, as by `bfcviz attach`. Of several ranks the table of all, and the
    Inspector of the worst. `kinds` is a file of rules for kinds of memory.

    Raises:
        BfcvizError: the file cannot be read: it may have changed since it was checked.
    """
    from bfcviz.dashboard import Inspector, LiveDashboard  # noqa: PLC0415  the server needs no widgets
    from bfcviz.model.find_steps import opening  # noqa: PLC0415
    from bfcviz.model.memory_kinds import use_kinds  # noqa: PLC0415

    ranks = _prepared_ranks.pop(file, None) or _ranks_to_view(file)
    if ranks is not None:
        from bfcviz.dashboard.trace_menus import RanksView  # noqa: PLC0415

        if _some_are_written(file, ranks):
            from bfcviz.watching.workers_dashboard import follow_workers  # noqa: PLC0415

            return follow_workers(file, theme=theme)
        use_kinds(ranks.trace, kinds)
        return RanksView(ranks, theme=theme)
    trace = _trace_to_view(file)
    use_kinds(trace, kinds)
    if trace.following:
        return LiveDashboard(trace, theme=theme)
    pool, step = opening(trace)
    return Inspector(trace, step=step, pool=pool, theme=theme)


def _some_are_written(file: str, ranks: "RankSet") -> bool:
    """Whether `bfcviz view` shows a folder into which some processes still record."""
    from bfcviz.events.origin import Status  # noqa: PLC0415  the server needs no traces
    from bfcviz.events.storage.folder import has_several  # noqa: PLC0415

    return has_several(Path(file)) and any(each.status == Status.RECORDING for each in ranks.ranks)


def _ranks_to_view(file: str) -> "RankSet | None":
    """The ranks in the files that `bfcviz view` shows; None: it is one file."""
    if Path(file).is_file():
        return None
    from bfcviz.public_functions import open_several  # noqa: PLC0415  imports much that one file does not need

    return open_several([file] if Path(file).exists() else re.split(r"\n(?=/)", file))  # all are absolute


def _trace_to_view(file: str) -> "Trace":
    """The trace that `prepare` read for `bfcviz view`, if the file did not change since then."""
    from bfcviz.importers.open_trace import open_trace  # noqa: PLC0415

    before, trace = _prepared.pop(file, (None, None))
    if before is not None and trace is not None and Path(file).exists():
        now = Path(file).stat()
        if (now.st_mtime_ns, now.st_size, now.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino):
            return trace
    return open_trace(file)


def parse_view_port(text: str) -> int:
    """The argument `--port` of `bfcviz view`: 1 to 65535."""
    try:
        port = int(text)
    except ValueError:
        port = 0
    if not 0 < port < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 1 to 65535")
    return port
