"""`bfcviz why`: each failed request of a file or a pasted text and its cause; each growth while enough was free."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from bfcviz.analysis.diagnosis import Diagnosis, failure_lines, without_failure
from bfcviz.analysis.failures import all_failures, diagnose, diagnosis_json
from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.analysis.pool_growths import Growths, growths, growths_json
from bfcviz.analysis.ranks import RankSet
from bfcviz.analysis.would_fit import would_fit
from bfcviz.cli.arguments import add_more_files, asked_ranks, pool_number, status_of
from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.importers.message_reader import is_pasted, read_message_file, read_pasted
from bfcviz.importers.open_trace import open_trace
from bfcviz.importers.remote_file import is_url, local_copy
from bfcviz.model.find_steps import failures_left_out
from bfcviz.public_functions import growths_lead, lead_without_failure
from bfcviz.terminal import json_text, say
from bfcviz.units import parse_bytes

_HELP: Final = "the question `would this size fit?`, for a moment without a failure"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bfcviz why`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a trace, log or snapshot: anything that `bfcviz info` reads; a text with an out-of-memory message; `-` "
        "for standard input; or the message itself, in quotes",
    )
    add_more_files(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: sizes in bytes, null for unknown"
    )
    parser.add_argument(
        "--pool", metavar="NAME", help="only this allocator: its name, or its number in the file, from 0"
    )
    parser.add_argument(
        "--size", metavar="SIZE", type=_parse_request_size, help=f"{_HELP}: for example 500MiB"
    )
    parser.add_argument(
        "--limit",
        "--device",
        metavar="SIZE",
        type=_parse_request_size,
        help="with --size: the most that the pool may have, such as 80GiB: a limit, or the memory of a device without "
        "what others need of it (default: as the file says)",
    )
    parser.add_argument(
        "--step",
        metavar="N",
        type=_parse_why_step,
        help="with --size: how many events have happened, from 0 (default: all of the file)",
    )


def run(arguments: argparse.Namespace) -> int | None:
    """Print the diagnoses; of several ranks what differs, each failure once, and those of the worst rank.

    Raises:
        TraceError: a step or a limit was given without a size.
    """
    if arguments.step is not None and arguments.size is None:
        raise TraceError(
            "--step asks about one moment: give the size of a request, too, such as --size 500MiB"
        )
    if arguments.limit is not None and arguments.size is None:
        raise TraceError(
            "--limit asks about one request: give its size, too, such as --size 500MiB --limit 80GiB"
        )
    if is_pasted(arguments.file):
        _print_stated_answer(StatedAnswer.of(*read_pasted(arguments.file)), arguments)
        return None
    ranks = None if arguments.file == "-" else asked_ranks(arguments)
    if ranks is None:
        _explain_file(arguments)
        return None
    if arguments.json:
        print(json_text(_ranks_json(ranks, arguments)))
    else:
        shown = ranks.worst_heap if arguments.size else ranks.worst
        say(*ranks.lines)
        if shown.has_failed or shown.has_heap:
            say("", f"{shown.name}, {shown.place.file}:", "")
            arguments.file = str(shown.place.file)
            _explain_file(arguments)
    return status_of(ranks)


def _explain_file(arguments: argparse.Namespace) -> None:
    """Print what `bfcviz why` says of one file: the failures of its heaps, or those that its text states."""
    with _file_to_explain(arguments.file) as path:
        stated = read_message_file(path) if arguments.size is None and path.exists() else None
        if stated is not None:
            _print_stated_answer(StatedAnswer.of(*stated), arguments)
        else:
            _print_diagnoses(open_trace(path), arguments)


@contextmanager
def _file_to_explain(word: str) -> Iterator[Path]:
    """The file of `bfcviz why`; of standard input or a URL a temporary copy."""
    if is_url(word):
        with local_copy(word) as path:
            yield path
        return
    if word != "-":
        yield Path(word)
        return
    with tempfile.TemporaryDirectory(prefix="bfcviz-") as folder:
        path = Path(folder) / "standard input"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield path


def _print_stated_answer(answer: StatedAnswer, arguments: argparse.Namespace) -> None:
    """Print what `bfcviz why` says of what a text states."""
    if arguments.json:
        print(json_text(answer.to_json()))
    else:
        say(*answer.lines)


def _print_diagnoses(trace: Trace, arguments: argparse.Namespace) -> None:
    """Print the diagnoses of `bfcviz why` for one file."""
    pool = None if arguments.pool is None else pool_number(trace, arguments.pool)
    found = _answers(trace, pool, arguments)
    grown = [] if arguments.size else _growths_of_pools(trace, pool)
    if not any(each.event is not None for each in found):
        leads = {of_pool.pool: lead_without_failure(trace, of_pool) for of_pool in grown}
        found = [replace(each, lead=leads.get(each.pool, ())) for each in found]
    left_out = 0 if arguments.size else failures_left_out(trace, pool)
    if arguments.json:
        answer: dict[str, object] = {"failures": [diagnosis_json(each) for each in found]}
        answer |= {"failures_left_out": left_out} if left_out else {}
        answer |= {} if arguments.size else growths_json(grown)
        print(json_text(answer))
        return
    for number, each in enumerate(found):
        say(*([""] if number else []), *failure_lines(each))
    if any(each.event is not None for each in found):
        for of_pool in grown:
            say(*(["", *growths_lead(trace, of_pool)] if of_pool.found else []))
    if left_out:
        say("", f"{left_out:,} more OOM events follow: use bfcviz.why(file, event) for one of them")


_MOST_OPENED: Final = 20
"""Failures of different causes that are diagnosed of a set of ranks: each opens the file of a rank."""


def _ranks_json(ranks: RankSet, arguments: argparse.Namespace) -> dict[str, object]:
    """What `bfcviz why --json` prints of ranks: each failure once; without a failure the heaps of the worst rank."""
    failures = []
    for each in ranks.failures[:_MOST_OPENED]:
        if each.failure.stated is not None:
            told = each.failure.stated.to_json()
            failures.append({**told, "ranks": list(each.ranks), "count": each.count})
        elif each.failure.event is not None:
            found = diagnose(ranks.open(each.rank), each.failure.event)
            failures.append({**diagnosis_json(found), "ranks": list(each.ranks), "count": each.count})
    if not failures or arguments.size:
        trace = ranks.trace
        pool = None if arguments.pool is None else pool_number(trace, arguments.pool)
        asked = _answers(trace, pool, arguments)
        failures = [{**diagnosis_json(found), "ranks": [ranks.worst_heap.name]} for found in asked]
    has_heap = any(rank.has_heap for rank in ranks.known)
    grown = {} if arguments.size else growths_json(_growths_of_pools(ranks.trace, None) if has_heap else [])
    return {"failures": failures, **grown, **ranks.to_json()}


def _pools_asked(trace: Trace, pool: int | None) -> Sequence[int]:
    """The heaps that `bfcviz why` is asked about: one, or each where none is given."""
    return range(len(trace.origin.pools)) if pool is None else [pool]


def _answers(trace: Trace, pool: int | None, arguments: argparse.Namespace) -> list[Diagnosis]:
    """The answers of `bfcviz why`: whether the size fits; without one the failures, or the last state of each heap."""
    pools = _pools_asked(trace, pool)
    if not arguments.size:
        return all_failures(trace, pool) or [without_failure(trace, each) for each in pools]
    at = len(trace) if arguments.step is None else arguments.step
    return [would_fit(trace, at, arguments.size, pool=each, limit=arguments.limit) for each in pools]


def _growths_of_pools(trace: Trace, pool: int | None) -> list[Growths]:
    return [growths(trace, each) for each in _pools_asked(trace, pool)]


def _parse_request_size(text: str) -> int:
    """The argument `--size` of `bfcviz why`."""
    try:
        size = parse_bytes(text, "--size")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < size < 1 << 62:
        raise argparse.ArgumentTypeError(f"{text!r} is not the size of a request: give 1 byte to 2^62")
    return size


def _parse_why_step(text: str) -> int:
    """The argument `--step` of `bfcviz why`, which is a number."""
    try:
        return int(text.replace(",", ""))  # bfcviz prints 10,479
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a step: give a number") from None
