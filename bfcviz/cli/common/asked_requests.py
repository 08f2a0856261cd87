"""The requests that `bfcviz whatif` and `bfcviz fit` serve: of which file and allocator."""

import argparse

from bfcviz.cli.common.reading import open_with_progress
from bfcviz.cli.why import pool_number
from bfcviz.whatif.failed_requests import without_failed
from bfcviz.whatif.replay import searchable, stream_of
from bfcviz.whatif.requests import RequestStream


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, the allocator, and whether failed requests are served."""
    parser.add_argument("file", metavar="FILE", help="a trace or profile: anything that `bfcviz info` reads")
    parser.add_argument(
        "--pool",
        default=None,
        metavar="NAME",
        help="the allocator: its name, or its number in the file, from 0 (default: the one with a failed request, else "
        "the first)",
    )
    parser.add_argument(
        "--without-failed",
        action="store_true",
        help="leave out the requests that failed in the file: for a job that went on without them",
    )


def asked_requests(arguments: argparse.Namespace) -> RequestStream:
    """The requests of the file.

    Raises:
        FileError: the file cannot be read.
        TraceError: the file has no such allocator.
        InvalidRequest: it has nothing to compare: no allocations, or no frees.
    """
    with open_with_progress(arguments.file) as trace:
        pool = None if arguments.pool is None else pool_number(trace, arguments.pool)
        stream = stream_of(trace, pool)
    return searchable(without_failed(stream) if arguments.without_failed else stream)
