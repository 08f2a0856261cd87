"""Comparison: one request stream served under several policies, as a table of measures.

The measures of fragmentation have many definitions; `MEASURES` has the one of each column. Sources: external
fragmentation is TensorFlow's (xla/tsl/framework/bfc_allocator.cc, `GetFragmentation`); reserved-not-in-use is that of
GMLake (Guo et al., ASPLOS 2024, arXiv 2401.08156) and STAlloc (arXiv 2507.16274).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from bfcviz.errors import BfcvizError, InvalidRequest
from bfcviz.whatif.first_difference import FirstDifference, first_difference
from bfcviz.whatif.outcome import FreeMemory, Outcome
from bfcviz.whatif.policy import Policy, checked_limit
from bfcviz.whatif.policy_table import policy_of, policy_text
from bfcviz.whatif.recorded_outcome import RecordedOutcome
from bfcviz.whatif.requests import MARK, RequestStream
from bfcviz.whatif.usual_policies import OwnRules

PLANS: Final = ("packed",)
"""Policies that are plans, made with all lifetimes known: no allocators, and no bounds, since one may need less."""

BOUNDS: Final = ("live_bytes",)
"""Policies that no allocator can be, and that none can beat: the least memory that one could need."""

CALL_COST_US: Final = 500.0
"""Microseconds that a call to the driver is assumed to take; measure those of your device, for its own number."""

MOST_RECORDED: Final = 300_000
"""Requests: the events of a longer stream are not recorded, and what needs them is not known."""

MEASURES: Final = {
    "peak_reserved": "most bytes that the driver had granted",
    "peak_in_use": "most bytes of blocks in use, after rounding",
    "reserved_not_in_use": "1 - most bytes in use / peak pool (F2: GMLake, STAlloc)",
    "external_fragmentation": "1 - largest free chunk / free bytes, where most is in use (F1: TensorFlow)",
    "internal_fragmentation": "1 - requested bytes / bytes in use, where most is in use (F3): what rounding adds",
    "splits": "free chunks cut in two, one for the request",
    "merges": "neighbours that became one free chunk",
    "driver_calls": "to the driver: grants, refused grants and releases",
    "stall_s": "calls to the driver x the assumed cost of one",
    "failure_external_fragmentation": "external at the first failure",
    "failure_free_bytes": "pool that is not in use at the first failure (F4)",
    "failure_room_bytes": "limit - pool at the first failure: what the driver would still grant",
}
"""Column -> its definition."""

Kind = Literal["allocator", "plan", "bound"]


@dataclass(frozen=True)
class PolicyResult:
    """What one policy did, up to its first failure: a job does not go on after it. Plans and bounds have no limit.

    Attributes:
        name: as it was asked for, such as `bfc:allow_growth=true`.
        outcome: None: the policy cannot serve the stream.
        message: why it cannot; empty if it can.
        kind: an allocator; a plan of `PLANS`; or a lower bound of `BOUNDS`.
        role: `as recorded` or `own rules` for the heap of the trace itself; else empty.
    """

    name: str
    outcome: Outcome | None
    message: str = ""
    kind: Kind = "allocator"
    role: str = ""

    @property
    def is_allocator(self) -> bool:
        """Whether these are rules that a heap can have: no plan, no bound."""
        return self.kind == "allocator"

    @property
    def title(self) -> str:
        """The name, with the role before it."""
        return f"{self.role}: {self.name}" if self.role else self.name

    @property
    def failed_request(self) -> int | None:
        """Index of the first request that failed; None: none did."""
        return None if self.outcome is None or self.outcome.fits else int(self.outcome.failures[0])

    @cached_property
    def recorded(self) -> RecordedOutcome | None:
        """The outcome with its trace, if it was recorded."""
        if self.outcome is None or self.outcome.trace is None or not self.is_allocator:
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
        if self.outcome is None or not self.is_allocator:
            return None
        if self.outcome.largest_free is None and self.recorded is not None:
            return self.recorded.free_memory(request)
        return self.outcome.free_memory(request)


@dataclass(frozen=True)
class Comparison:
    """Several outcomes of one stream.

    Attributes:
        stream: the requests.
        limit: memory limit in bytes; None: none.
        results: of each policy, in the order asked; plans and bounds last.
        call_cost_us: assumed cost of a driver call, in microseconds.
        own: the rules of the trace's own heap, if they are among the policies.
    """

    stream: RequestStream = field(repr=False)
    limit: int | None
    results: tuple[PolicyResult, ...]
    call_cost_us: float = CALL_COST_US
    own: OwnRules | None = None

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
            InvalidRequest: one was not compared, cannot serve the stream, is no allocator, or was not recorded.
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
        if not result.is_allocator:
            return f"it is a {result.kind}, not an allocator"
        if result.outcome is None:
            return f"it cannot serve them: {result.message}"
        if len(self.stream) > MOST_RECORDED:
            return f"there are {len(self.stream):,} requests, and events of at most {MOST_RECORDED:,} are recorded"
        return "its outcome has no trace; let the `serve` of this policy return one if it is called with record=True"

    def is_above_limit(self, result: PolicyResult) -> bool:
        """Whether this is a plan or a bound that needs more than the limit.

        Above a bound no allocator can serve the stream; above a plan one may.
        """
        if result.is_allocator or result.outcome is None or self.limit is None:
            return False
        return result.outcome.peak_reserved > self.limit

    def _row(self, result: PolicyResult) -> dict[str, Any]:
        outcome, request = result.outcome, result.failed_request
        row: dict[str, Any] = {"policy": result.name, "kind": result.kind, "message": result.message}
        row["role"] = result.role
        if outcome is None:
            return row
        calls = outcome.driver_calls
        row |= {
            "limit": outcome.limit if result.is_allocator else self.limit,
            "fits": outcome.fits and not self.is_above_limit(result),
            "requests_served": outcome.served,
            "peak_reserved": outcome.peak_reserved,
            "peak_in_use": outcome.peak_in_use,
            "reserved_not_in_use": outcome.reserved_not_in_use,
            "internal_fragmentation": outcome.internal_fragmentation,
            "external_fragmentation": _external(result.free_at_peak),
        }
        if result.is_allocator:
            row |= {f"driver_{name}": number for name, number in calls._asdict().items()}
            row["stall_s"] = sum(calls) * self.call_cost_us / 1e6
        if result.recorded is not None:
            counts = result.recorded.counts
            row |= {f"{kind}s": counts[kind] for kind in ("split", "merge", "extend", "release")}
        return row if request is None else row | self._failure(result, outcome, request)

    def _failure(self, result: PolicyResult, outcome: Outcome, request: int) -> dict[str, Any]:
        rows = self.stream.rows
        marks = rows[:request][rows["kind"][:request] == MARK]
        reserved, free = int(outcome.reserved[request]), result.free_at_failure
        return {
            "failed_request": request,
            "failed_event": int(rows["event"][request]),
            "failed_size": int(rows["size"][request]),
            "failed_label": self.stream.labels.name(int(rows["label"][request])),
            "failed_after_mark": self.stream.labels.name(int(marks["label"][-1])) if len(marks) else None,
            "failed_after_mark_value": int(marks["size"].view(np.uint64)[-1]) if len(marks) else None,
            "marks_before_failure": len(marks),
            "failure_external_fragmentation": _external(free),
            "failure_free_bytes": reserved - int(outcome.in_use[request]),
            "failure_largest_free_bytes": None if free is None else free.largest,
            "failure_room_bytes": None if outcome.limit is None else max(0, outcome.limit - reserved),
        }


_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("policy", "role", "kind", "message")),
        *(("limit", pa.int64()), ("fits", pa.bool_()), ("requests_served", pa.int64())),
        *((name, pa.int64()) for name in ("peak_reserved", "peak_in_use")),
        *((name, pa.float64()) for name in ("reserved_not_in_use", "external_fragmentation")),
        ("internal_fragmentation", pa.float64()),
        *((name, pa.int64()) for name in ("splits", "merges", "extends", "releases")),
        *((name, pa.int64()) for name in ("driver_grants", "driver_refusals", "driver_releases")),
        ("stall_s", pa.float64()),
        *((name, pa.int64()) for name in ("failed_request", "failed_event", "failed_size")),
        *(("failed_label", pa.string()), ("failed_after_mark", pa.string())),
        ("failed_after_mark_value", pa.uint64()),
        *(("marks_before_failure", pa.int64()), ("failure_external_fragmentation", pa.float64())),
        *((f"failure_{name}_bytes", pa.int64()) for name in ("free", "largest_free", "room")),
    ]
)


def compare(
    stream: RequestStream,
    policies: Sequence[str | Policy | OwnRules],
    limit: int | None = None,
    *,
    bounds: bool = True,
    call_cost_us: float = CALL_COST_US,
) -> Comparison:
    """Serve a stream under each policy, each up to its first failure.

    Args:
        stream: the requests.
        policies: names with options, such as `torch:expandable_segments=true`, policies, or the stream's own rules.
        limit: memory limit in bytes; None: none.
        bounds: whether those of `PLANS` and `BOUNDS` are added.
        call_cost_us: assumed cost of a driver call, in microseconds.

    Raises:
        InvalidRequest: a name or an option does not exist, or is given twice. A policy that cannot serve the stream
            is a result with a message.
    """
    served = [_asked(policy, limit) for policy in policies]
    names = [each.name for each in served]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"a policy is given twice: {', '.join(names)}; give each once")
    if bounds:
        served += [_asked(name, limit) for name in (*PLANS, *BOUNDS) if name not in names]
    own = next((policy for policy in policies if isinstance(policy, OwnRules)), None)
    return Comparison(stream, limit, tuple(_result(each, stream) for each in served), call_cost_us, own)


class _Asked(NamedTuple):
    """A policy that was asked for."""

    name: str
    policy: Policy
    limit: int | None
    role: str = ""


def _asked(policy: str | Policy | OwnRules, limit: int | None) -> _Asked:
    if isinstance(policy, OwnRules):
        return _Asked(policy.text, policy.policy, policy.limit, policy.role)
    name = policy if isinstance(policy, str) else policy_text(policy.name, policy.options)
    return _Asked(name, policy_of(policy), limit)


def _kind(policy: Policy) -> Kind:
    """Rounded sizes make the lower bound a plan: an allocator may round less."""
    if policy.name in PLANS:
        return "plan"
    if policy.name in BOUNDS:
        return "bound" if policy.options.get("unit", 1) == 1 else "plan"
    return "allocator"


def _result(asked: _Asked, stream: RequestStream) -> PolicyResult:
    kind = _kind(asked.policy)
    is_allocator = kind == "allocator"
    record = len(stream) <= MOST_RECORDED and is_allocator
    try:
        checked_limit(asked.limit)
        # Under a limit, a plan or bound would say only what it has served before its first failure.
        limit = asked.limit if is_allocator else None
        outcome = asked.policy.serve(stream, limit, record=record, stop_at_failure=True)
        return PolicyResult(asked.name, outcome, kind=kind, role=asked.role)
    except BfcvizError as error:
        return PolicyResult(asked.name, None, str(error), kind, asked.role)
    except Exception as error:  # noqa: BLE001  policies of users may raise anything
        return PolicyResult(asked.name, None, f"{type(error).__name__}: {error}", kind, asked.role)


def _external(free: FreeMemory | None) -> float | None:
    return None if free is None else free.scattered_share
