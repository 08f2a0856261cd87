"""`replay` and `stream_of`: the requests of any source, served under other rules."""

import operator
import os
from dataclasses import replace
from typing import Any

from bfcviz import native
from bfcviz.analysis.why import failing_pool
from bfcviz.errors import InvalidRequest
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.trace_from_source import trace_of
from bfcviz.units import format_bytes, parse_bytes
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import FREE, RequestStream, are_failed, failed_note, requests_of


def replay(  # noqa: PLR0913  the source, the rules, the limit, and how to run
    source: Any,
    policy: str | Policy,
    limit: int | str | None = None,
    *,
    pool: int | str | None = None,
    record: bool = False,
    stop_at_failure: bool = False,
    **options: Any,
) -> Outcome:
    """Serve the requests of a trace under the rules of a policy, from an empty heap.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a RequestStream, or a live heap.
        policy: a name of the table of policies, a text such as `bfc:allow_growth=true`, or a Policy.
        limit: bytes, or text such as `12GiB`; None: no limit.
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first.
        record: whether the outcome has a trace.
        stop_at_failure: whether to end after the first request that fails.
        options: of the policy, by name.

    Raises:
        InvalidRequest: there is no such policy, option, pool or limit, or the policy cannot serve these requests.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    chosen, num_bytes = policy_of(policy, **options), bytes_of(limit)
    stream = stream_of(source, pool)
    return chosen.serve(stream, num_bytes, record=record, stop_at_failure=stop_at_failure)


def stream_of(source: Any, pool: int | str | None = None) -> RequestStream:
    """The requests of one heap of a source; those of a RequestStream itself.

    Args:
        source: as in `replay`.
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first.

    Raises:
        InvalidRequest: the source has no such heap; a RequestStream has one only.
        BfcvizError: `source` is none of those of `replay`, or cannot be read.
    """
    if isinstance(source, RequestStream):
        if pool not in {None, 0, "0"}:
            raise InvalidRequest(
                f"pool={pool!r} was given with a stream of requests, which is of one heap; give the pool to "
                "`requests_of`, or leave it out"
            )
        return source
    trace = _trace_to_replay(source)
    stream = requests_of(trace, failing_pool(trace) if pool is None else _number_of(pool, trace))
    note = failed_note(stream)
    return replace(stream, notes=(*stream.notes, note)) if note else stream


def _number_of(pool: int | str, trace: Trace) -> int:
    """The index of a heap.

    Raises:
        InvalidRequest: there is none of this index or name.
    """
    names = [each.name for each in trace.origin.pools]
    if pool in names:
        return names.index(str(pool))
    try:
        number = int(pool) if isinstance(pool, str) else operator.index(pool)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < len(names):
        raise InvalidRequest(
            f"the trace has no heap {pool!r}; it has {len(names)}, numbered from 0: {', '.join(names[:20])}"
        )
    return number


def searchable(stream: RequestStream) -> RequestStream:
    """The same stream.

    Raises:
        InvalidRequest: no search can say anything about it: it allocates nothing, or frees nothing.
    """
    if not stream.allocations:
        raise InvalidRequest(f"{stream.source or 'the trace'} has no allocation: there is nothing to serve")
    if not ((stream.rows["kind"] == FREE) & ~are_failed(stream.rows)).any():
        total = format_bytes(int(stream.live_bytes.max()))
        raise InvalidRequest(
            f"none of the {stream.allocations:,} allocations of {stream.source or 'the trace'} is freed: under any "
            f"rules they need {total}, and what rounding adds, so that there is nothing to compare; record a "
            "trace with frees (`bfcviz record`). `bfcviz why` says why a request failed, and what would have helped"
        )
    return stream


def bytes_of(limit: int | str | None, name: str = "limit") -> int | None:
    """A limit of memory in bytes; `name` of the argument is for the message.

    Raises:
        InvalidRequest: it is not a size of 1 byte or more.
    """
    if limit is None:
        return None
    try:
        num_bytes = parse_bytes(limit, name)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(str(error)) from None
    if not 0 < num_bytes < native.MAX_REQUEST:
        raise InvalidRequest(f"{name}={limit!r} is no limit of memory; give from 1 to 2^62 - 1 bytes")
    return num_bytes


def _trace_to_replay(source: Any) -> Trace:
    if isinstance(source, str | os.PathLike):
        return open_trace(source)
    if isinstance(found := getattr(source, "trace", None), Trace):  # a Watch, an Outcome, a Model
        return found
    return trace_of(source)
