"""`compare_policies`: serve the requests of a trace under several policies; the result is a table and figures.

May import everything but cli.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bfcviz.errors import InvalidRequest
from bfcviz.public_functions import trace_from
from bfcviz.whatif.comparison import (
    CALL_COST_US,
    Comparison,
    PolicyResult,
    compare,
    comparison_html,
    comparison_text,
    verdict_text,
)
from bfcviz.whatif.outcome import FirstDifference, Outcome
from bfcviz.whatif.own_rules import OwnRules, usual_policies
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import is_compared, on_device, replay_limit
from bfcviz.whatif.requests import RequestStream, stream_of

if TYPE_CHECKING:
    from pyarrow import Table

    from bfcviz.figures import Picture
    from bfcviz.figures.compared_policies import DrawnJob, DrawnPolicy
    from bfcviz.figures.theme import ThemeName


class PolicyComparison:
    """Several policies on the requests of one job; a notebook shows its table and figure.

    Attributes:
        comparison: the outcomes.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @property
    def table(self) -> "Table":
        """One row a policy; see `Comparison.to_arrow`."""
        return self.comparison.to_arrow()

    @property
    def text(self) -> str:
        """The table as text, with the definition of each measure."""
        return comparison_text(self.comparison)

    def outcome(self, name: str) -> Outcome:
        """The outcome of the policy that was asked for by this name; its `trace` has the events.

        Raises:
            InvalidRequest: there is none: the message says why.
        """
        result = self.comparison[name]
        if result.outcome is None:
            raise InvalidRequest(f"{name} has no outcome: {result.message}")
        return result.outcome

    def first_difference(self, one: str, other: str) -> FirstDifference | None:
        """The first request that two of the policies place differently; `print` it for the sentence.

        A place is different if another block in use lies next below it, or if it is in another region (a segment of
        the driver). As long as all blocks had the same sizes under both, another offset is different, too.

        Raises:
            InvalidRequest: where one of them places requests is not known; the message says why.
        """
        return self.comparison.first_difference(one, other)

    def figure(self, theme: "ThemeName" = "light") -> "Picture":
        """Peak pool and fragmentation of each policy, and its bytes over the job."""
        from bfcviz.figures import Look  # noqa: PLC0415  plotly, which texts do not need
        from bfcviz.figures.compared_policies import comparison_figure  # noqa: PLC0415

        return comparison_figure(*self._data(), self.table, Look(theme=theme))

    def curves(self, theme: "ThemeName" = "light") -> "Picture":
        """Bytes over the job under each policy; its table has the points."""
        from bfcviz.figures import Look  # noqa: PLC0415  plotly, which texts do not need
        from bfcviz.figures.compared_policies import curves_figure  # noqa: PLC0415

        return curves_figure(*self._data(), Look(theme=theme))

    def maps(
        self, request: int | None = None, names: Sequence[str] | None = None, theme: "ThemeName" = "light"
    ) -> "Picture":
        """The heaps after the same request, side by side.

        Args:
            request: its index; None: where the requested bytes in use are highest among those that all of them served.
            names: of the policies; None: all that have a heap.
            theme: light or dark.

        Raises:
            InvalidRequest: none of the policies has a heap, or there is no such request.
        """
        from bfcviz.figures import Look  # noqa: PLC0415  plotly, which texts do not need
        from bfcviz.figures.compared_policies import PolicyHeap, policy_maps_figure  # noqa: PLC0415

        results = [result for result in self.comparison.results if names is None or result.name in names]
        recorded = {result.name: result.recorded for result in results}
        known = {name: found for name, found in recorded.items() if found is not None}
        if not known:
            raise InvalidRequest(
                "none of these policies has a heap to draw: each is no allocator or cannot serve the requests"
            )
        stream = self.comparison.stream
        if not len(stream):
            raise InvalidRequest("there is no request: no heap has anything to draw")
        served = min(found.outcome.served for found in known.values())
        chosen = int(stream.live_bytes[:served].argmax()) if request is None else request
        if not 0 <= chosen < len(stream):
            raise InvalidRequest(f"there is no request {chosen:,}; give one of 0 to {len(stream) - 1:,}")
        heaps = []
        for name, found in known.items():
            result = self.comparison[name]
            failed = result.failed_request is not None and result.failed_request <= chosen
            heap = PolicyHeap(name, found.trace, found.step_after(chosen), failed=failed, role=result.role)
            heaps.append(heap)
        moment = f"{stream.source or 'requests'}: after request {chosen:,} of {len(stream):,}"
        return policy_maps_figure(heaps, moment, Look(theme=theme, colour="holder"))

    def _data(self) -> "tuple[DrawnJob, list[DrawnPolicy]]":
        """The job and the policies as the figures take them."""
        from bfcviz.figures.compared_policies import DrawnJob  # noqa: PLC0415  needs plotly

        stream, comparison = self.comparison.stream, self.comparison
        live = int(stream.live_bytes.max(initial=0))
        job = DrawnJob(stream.source, len(stream), live, comparison.limit, verdict_text(comparison))
        return job, [_compared_policy(result, comparison) for result in comparison.results]

    def __repr__(self) -> str:
        return f"<PolicyComparison of {self.comparison.stream.source or 'requests'}: {verdict_text(self.comparison)}>"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return comparison_html(self.comparison)


def compare_policies(  # noqa: PLR0913  the question, and what is assumed
    source: Any,
    policies: str | Policy | Iterable[str | Policy] | None = None,
    limit: int | str | None = None,
    *,
    pool: int | str | None = None,
    device: int | str | None = None,
    call_cost_us: float = CALL_COST_US,
) -> PolicyComparison:
    """Serve the requests of a trace under several policies, each up to its first failure.

    Args:
        source: as for `bfcviz.explain`, or a `RequestStream`.
        policies: one or several names with options, such as `"torch:expandable_segments=true"`; None: the job's own
            rules, if they are known, and those of `bfcviz.whatif.policy_table.USUAL`.
        limit: memory limit, in bytes or as text such as `"64MiB"`; None: none.
        pool: the heap: its index among `trace.origin.pools`, or its name; None: the one with a failed request, else
            the first. A `RequestStream` has one only.
        device: memory of the device, of which the limit is a share, as with `set_per_process_memory_fraction`; None:
            the limit is that of the device.
        call_cost_us: microseconds that a call to the driver is assumed to take.

    Raises:
        InvalidRequest: there is no such policy, option, limit or heap. A policy that cannot serve the requests under
            this limit is a row with a message.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    num_bytes, device_bytes = replay_limit(limit), replay_limit(device, "device")
    stream = stream_of(source if isinstance(source, RequestStream) else trace_from(source), pool)
    if policies is None:
        chosen: Iterable[str | Policy | OwnRules] = usual_policies(stream, num_bytes)
    elif isinstance(policies, str) or not isinstance(policies, Iterable):
        chosen = (policies,)
    else:
        chosen = policies
    if device_bytes is not None:
        chosen = [
            replace(each, policy=on_device(each.policy, device_bytes))
            if isinstance(each, OwnRules)
            else on_device(each, device_bytes)
            for each in chosen
        ]
    return PolicyComparison(compare(stream, tuple(chosen), num_bytes, call_cost_us=call_cost_us))


def _compared_policy(result: PolicyResult, comparison: Comparison) -> "DrawnPolicy":
    from bfcviz.figures.compared_policies import DrawnPolicy  # noqa: PLC0415  needs plotly

    outcome, role = result.outcome, result.role
    if not result.is_allocator:  # no policy like the others
        role = "lower bound" if result.kind == "bound" else result.kind
    if outcome is None:
        none = np.zeros(0, np.uint64)
        return DrawnPolicy(result.name, none, none, message=result.message, role=role)
    stream, calls = comparison.stream, sum(outcome.driver_calls)
    at = int(outcome.in_use.argmax()) if outcome.served else None
    failed, free = result.failed_request, result.free_at_peak
    return DrawnPolicy(
        name=result.name,
        reserved=outcome.reserved,
        in_use=outcome.in_use,
        requested_at_peak=0 if at is None else int(outcome.requested[at]),
        scattered_share=None if free is None else free.scattered_share,
        failed=failed,
        failed_size=0 if failed is None else int(stream.rows["size"][failed]),
        driver_calls=calls if result.is_allocator else None,
        stall_s=calls * comparison.call_cost_us / 1e6,
        role=role,
        is_allocator=result.is_allocator,
        is_compared=is_compared(result.name) is not False,
    )
