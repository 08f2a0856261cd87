"""Comparison: one request stream served under several policies, as a table of measures.

The measures of fragmentation have many definitions; `MEASURES` has the one of each column. Sources: F1 is
TensorFlow's (xla/tsl/framework/bfc_allocator.cc, `GetFragmentation`); F2 is that of GMLake (Guo et al., ASPLOS 2024,
arXiv 2401.08156) and STAlloc (arXiv 2507.16274).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bfcviz.errors import BfcvizError, InvalidRequest
from bfcviz.whatif.first_difference import FirstDifference, first_difference
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy import Policy, checked_limit
from bfcviz.whatif.policy_table import POLICIES, policy_of, policy_text
from bfcviz.whatif.recorded_outcome import FreeMemory, RecordedOutcome
from bfcviz.whatif.requests import MARK, RequestStream

BOUNDS: Final = ("packed", "live_bytes")
"""Policies that no allocator can be: the least memory that one could need."""

CALL_COST_US: Final = 500.0
"""Microseconds that a call to the driver is assumed to take; measure those of your device, for its own number."""

MOST_RECORDED: Final = 300_000
"""Requests: the events of a longer stream are not recorded, and what needs them is not known."""

MEASURES: Final = {
    "peak_reserved": "most bytes that the driver had granted",
    "peak_in_use": "most bytes of blocks in use, after rounding",
    "unused_share": "1 - most bytes in use / peak pool",
    "scattered_share": "1 - largest free chunk / free bytes, where most is in use",
    "failure_scattered_share": "F1 scattered at the first failure",
    "rounding_share": "(in use - requested) / in use, where most is in use",
    "failure_free_bytes": "F4 = pool that is not in use at the first failure",
    "driver_calls": "to the driver: grants, refused grants and releases",
    "stall_s": "calls to the driver x the assumed cost of one",
}
"""Column -> its definition."""


@dataclass(frozen=True)
class PolicyResult:
    """What one policy did, up to its first failure: a job does not go on after it. A lower bound has no limit.

    Attributes:
        name: as it was asked for, such as `bfc:allow_growth=true`.
        outcome: None: the policy cannot serve the stream.
        message: why it cannot; empty if it can.
    """

    name: str
    outcome: Outcome | None
    message: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether this is a lower bound, not an allocator."""
        return self.name.partition(":")[0] in BOUNDS

    @property
    def failed_request(self) -> int | None:
        """Index of the first request that failed; None: none did."""
        return None if self.outcome is None or self.outcome.fits else int(self.outcome.failures[0])

    @cached_property
    def recorded(self) -> RecordedOutcome | None:
        """The outcome with its trace, if it was recorded."""
        if self.outcome is None or self.outcome.trace is None or self.is_bound:
            return None
        return RecordedOutcome(self.outcome)

    @cached_property
    def free_at_peak(self) -> FreeMemory | None:
        """The free memory where most is in use; None: not known."""
        if self.outcome is None or not self.outcome.served:
            return None
        return self._free_memory(int(self.outcome.in_use.argmax()))

    @cached_property
    def free_at_failure(self) -> FreeMemory | None:
        """The free memory at the first failure; None: none, or not known."""
        return None if self.failed_request is None else self._free_memory(self.failed_request)

    def _free_memory(self, request: int) -> FreeMemory | None:
        outcome = self.outcome
        if outcome is None or self.is_bound:
            return None
        if outcome.largest_free is not None:
            free = int(outcome.reserved[request]) - int(outcome.in_use[request])
            return FreeMemory(free, int(outcome.largest_free[request]))
        return None if self.recorded is None else self.recorded.free_memory(request)


@dataclass(frozen=True)
class Comparison:
    """Several outcomes of one stream.

    Attributes:
        stream: the requests.
        limit: memory limit in bytes; None: none.
        results: of each policy, in the order asked; lower bounds last.
        call_cost_us: assumed cost of a driver call, in microseconds.
    """

    stream: RequestStream = field(repr=False)
    limit: int | None
    results: tuple[PolicyResult, ...]
    call_cost_us: float = CALL_COST_US

    def __getitem__(self, name: str) -> PolicyResult:
        """The result of the policy that was asked for by this name.

        Raises:
            InvalidRequest: there is none.
        """
        for result in self.results:
            if result.name == name:
                return result
        names = ", ".join(result.name for result in self.results)
        raise InvalidRequest(f"no policy {name!r} was compared; there are: {names}")

    def to_arrow(self) -> pa.Table:
        """One row a policy; sizes in bytes, shares from 0 to 1; null: not known, or no such moment."""
        return pa.Table.from_pylist([self._row(result) for result in self.results], _SCHEMA)

    def first_difference(self, one: str, other: str) -> FirstDifference | None:
        """The first request that the policies of these names place differently; None: there is none.

        What counts as different: see `bfcviz.whatif.first_difference.first_difference`.

        Raises:
            InvalidRequest: one was not compared, cannot serve the stream, is a lower bound, or was not recorded.
        """
        found = []
        for name in (one, other):
            recorded = self[name].recorded
            if recorded is None:
                raise InvalidRequest(
                    f"where {name!r} places requests is not known: {self._why_not_recorded(self[name])}"
                )
            found.append(recorded)
        return first_difference(found[0], found[1], (one, other))

    def _why_not_recorded(self, result: PolicyResult) -> str:
        if result.is_bound:
            return "it is a lower bound, not an allocator"
        if result.outcome is None:
            return f"it cannot serve them: {result.message}"
        if len(self.stream) > MOST_RECORDED:
            return f"there are {len(self.stream):,} requests, and events of at most {MOST_RECORDED:,} are recorded"
        return "its outcome has no trace; let the `serve` of this policy return one if it is called with record=True"

    def is_above_limit(self, result: PolicyResult) -> bool:
        """Whether this is a lower bound that the limit does not reach: no allocator can serve the stream."""
        if not result.is_bound or result.outcome is None or self.limit is None:
            return False
        return result.outcome.peak_reserved > self.limit

    def _row(self, result: PolicyResult) -> dict[str, Any]:
        outcome, request = result.outcome, result.failed_request
        row: dict[str, Any] = {"policy": result.name, "bound": result.is_bound, "message": result.message}
        if outcome is None:
            return row
        calls = outcome.driver_calls
        row |= {
            "limit": self.limit,
            "fits": outcome.fits and not self.is_above_limit(result),
            "requests_served": outcome.served,
            "peak_reserved": outcome.peak_reserved,
            "peak_in_use": outcome.peak_in_use,
            "unused_share": outcome.unused_share,
            "rounding_share": outcome.rounding_share,
            "scattered_share": _scattered(result.free_at_peak),
        }
        if not result.is_bound:
            row |= {f"driver_{name}": number for name, number in calls._asdict().items()}
            row["stall_s"] = sum(calls) * self.call_cost_us / 1e6
        if result.recorded is not None:
            counts = result.recorded.counts
            row |= {f"{kind}s": counts[kind] for kind in ("split", "merge", "extend", "release")}
        return row if request is None else row | self._failure(result, outcome, request)

    def _failure(self, result: PolicyResult, outcome: Outcome, request: int) -> dict[str, Any]:
        rows = self.stream.rows
        marks = rows[:request][rows["kind"][:request] == MARK]
        return {
            "failed_request": request,
            "failed_event": int(rows["event"][request]),
            "failed_size": int(rows["size"][request]),
            "failed_label": self.stream.labels.name(int(rows["label"][request])),
            "failed_after_mark": self.stream.labels.name(int(marks["label"][-1])) if len(marks) else None,
            "failed_after_mark_value": int(marks["size"].view(np.uint64)[-1]) if len(marks) else None,
            "marks_before_failure": len(marks),
            "failure_scattered_share": _scattered(result.free_at_failure),
            "failure_free_bytes": int(outcome.reserved[request]) - int(outcome.in_use[request]),
        }


_SCHEMA: Final = pa.schema(
    [
        *(("policy", pa.string()), ("bound", pa.bool_()), ("message", pa.string())),
        *(("limit", pa.int64()), ("fits", pa.bool_()), ("requests_served", pa.int64())),
        *((name, pa.int64()) for name in ("peak_reserved", "peak_in_use")),
        *((name, pa.float64()) for name in ("unused_share", "scattered_share", "rounding_share")),
        *((name, pa.int64()) for name in ("splits", "merges", "extends", "releases")),
        *((name, pa.int64()) for name in ("driver_grants", "driver_refusals", "driver_releases")),
        ("stall_s", pa.float64()),
        *((name, pa.int64()) for name in ("failed_request", "failed_event", "failed_size")),
        *(("failed_label", pa.string()), ("failed_after_mark", pa.string())),
        ("failed_after_mark_value", pa.uint64()),
        *(("marks_before_failure", pa.int64()), ("failure_scattered_share", pa.float64())),
        ("failure_free_bytes", pa.int64()),
    ]
)


def compare(
    stream: RequestStream,
    policies: Sequence[str | Policy],
    limit: int | None = None,
    *,
    bounds: bool = True,
    call_cost_us: float = CALL_COST_US,
) -> Comparison:
    """Serve a stream under each policy, each up to its first failure.

    Args:
        stream: the requests.
        policies: names with options, such as `torch:expandable_segments=true`, or policies.
        limit: memory limit in bytes; None: none.
        bounds: whether the lower bounds are added.
        call_cost_us: assumed cost of a driver call, in microseconds.

    Raises:
        InvalidRequest: a name or an option does not exist, or is given twice. A policy that cannot serve the stream
            is a result with a message.
    """
    served = [(_name(policy), policy_of(policy)) for policy in policies]
    names = [name for name, _ in served]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"a policy is given twice: {', '.join(names)}; give each once")
    if bounds:
        added = [name for name in BOUNDS if name in POLICIES and name not in names]
        served += [(name, policy_of(name)) for name in added]
    results = tuple(_result(name, policy, stream, limit) for name, policy in served)
    return Comparison(stream, limit, results, call_cost_us)


def _name(policy: str | Policy) -> str:
    if isinstance(policy, str):
        return policy
    return policy_text(policy.name, policy.options)


def _result(name: str, policy: Policy, stream: RequestStream, limit: int | None) -> PolicyResult:
    is_bound = name.partition(":")[0] in BOUNDS
    record = len(stream) <= MOST_RECORDED and not is_bound
    try:
        checked_limit(limit)
        # Under a limit, a bound would say only what it has served before its first failure.
        outcome = policy.serve(stream, None if is_bound else limit, record=record, stop_at_failure=True)
        return PolicyResult(name, outcome)
    except BfcvizError as error:
        return PolicyResult(name, None, str(error))


def _scattered(free: FreeMemory | None) -> float | None:
    return None if free is None else free.scattered_share
