"""`serve_point`: the result of one point, in whatever process and thread."""

from dataclasses import replace
from time import perf_counter
from typing import Any

from bfcviz.errors import BfcvizError
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import RequestStream
from bfcviz.whatif.sweep.point import PointResult, SentStream, SweepPoint
from bfcviz.whatif.sweep.read_requests import read_requests
from bfcviz.whatif.sweep.stream_cache import STREAMS


def serve_point(point: SweepPoint, sent: SentStream | None = None) -> PointResult:
    """Serve the requests of a point; an error becomes the message of the result.

    Args:
        point: what to serve.
        sent: the requests, if its source has no path.
    """
    try:
        return _served(point, sent)
    except BfcvizError as error:
        return point.failed(str(error))
    except MemoryError:
        return point.failed("this machine has not enough memory to serve this trace; use fewer processes")
    except Exception as error:  # noqa: BLE001  policies of users may raise anything
        return point.failed(f"{type(error).__name__}: {error}")


def _served(point: SweepPoint, sent: SentStream | None) -> PointResult:
    def read() -> RequestStream:
        return sent.stream() if sent is not None else read_requests(point.source.path, point.source.pool)

    stream, peak_requested = STREAMS.get(point.source.key, read)
    if not stream.allocations:
        return point.failed("the trace has no allocation: there is nothing to serve")
    limit = point.limit.bytes_for(peak_requested)
    policy = policy_of(point.policy)
    start = perf_counter()
    outcome = policy.serve(stream, limit, stop_at_failure=point.stop_at_failure)
    seconds = perf_counter() - start
    return replace(
        point.failed(""),
        limit_bytes=limit,
        requests=len(stream),
        served=outcome.served,
        **_first_failure(outcome),
        peak_requested=peak_requested,
        peak_in_use=outcome.peak_in_use,
        peak_reserved=outcome.peak_reserved,
        reserved_not_in_use=float(outcome.reserved_not_in_use),
        internal_fragmentation=float(outcome.internal_fragmentation),
        external_fragmentation=_external_fragmentation(outcome),
        **outcome.driver_calls._asdict(),
        seconds=seconds,
        notes="; ".join(stream.notes),
    )


def _first_failure(outcome: Outcome) -> dict[str, Any]:
    failures = outcome.failures
    if not len(failures):
        return {"failures": 0}
    first = outcome.stream.rows[int(failures[0])]
    return {
        "failures": len(failures),
        "first_failure": int(first["event"]),
        "first_failure_bytes": int(first["size"]),
    }


def _external_fragmentation(outcome: Outcome) -> float | None:
    """At the first failure, else where most is in use; 0 if nothing is free there, None if it is not known."""
    if not outcome.served:
        return None
    at = int(outcome.failures[0]) if len(outcome.failures) else int(outcome.in_use.argmax())
    free = outcome.free_memory(at)
    return None if free is None else free.scattered_share
