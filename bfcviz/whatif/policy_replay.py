"""`bfcviz.replay`: the requests of a trace, served under the rules of one policy."""

from functools import partial
from typing import Any

from bfcviz import native
from bfcviz.errors import InvalidRequest
from bfcviz.units import parse_bytes
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import RequestStream, stream_of


def replay(
    source: Any,
    policy: str | Policy,
    limit: int | str | None = None,
    *,
    pool: int | str | None = None,
    with_failed: bool = True,
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
        with_failed: whether requests that failed in the trace are served, too; see `RequestStream.without_failed`.
        record: whether the outcome has a trace.
        stop_at_failure: whether to end after the first request that fails.
        options: of the policy, by name.

    Raises:
        InvalidRequest: there is no such policy, option, pool or limit, or the policy cannot serve these requests.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    chosen, num_bytes = policy_of(policy, **options), replay_limit(limit)
    stream = stream_of(source, pool, with_failed=with_failed)
    found = chosen.serve(stream, num_bytes, record=record, stop_at_failure=stop_at_failure)
    return (
        found
        if record
        else found.drawn_by(partial(_replay_figure, chosen, stream, num_bytes, stop_at_failure))
    )


def _replay_figure(
    policy: Policy, stream: RequestStream, limit: int | None, stop_at_failure: bool, **options: Any
) -> Any:
    """The picture of a replay that kept no events: serves the requests again, and records them."""
    return policy.serve(stream, limit, record=True, stop_at_failure=stop_at_failure).figure(**options)


def replay_limit(limit: int | str | None, name: str = "limit") -> int | None:
    """The memory limit of a replay, in bytes; `name` of the argument is for the message.

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
