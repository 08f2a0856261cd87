"""XLAPolicy: which requests go to which end of the heap of XLA (`xla.py`), and the checks of its options.

XLA partitions the pool of a GPU where it is preallocated, unless the flag
`--xla_gpu_enable_allocator_spatial_partitioning=false` is set in XLA_FLAGS: by default since about JAX 0.11. A pool
that is not preallocated grows without ends (`bfc:allow_growth=true`); a partitioned one grows with `preallocated`, as
by `XLA_PYTHON_CLIENT_MEM_FRACTION=0.75+` (to the whole device) or `0.75-0.85`, or by
`--xla_gpu_memory_fraction_policy`. Which end the memory of collectives has, and how ends split, changed in 2026
(openxla/xla)::

    collectives=upper   the first form (xla/pjrt/gpu/se_gpu_pjrt_client.cc): collectives at the upper end, all others
                        at the lower; both take the lowest equal hole, split holes by BFC's rule, the gap exactly
    collectives=lower   since the ends have policies of their own (commit 00df9eefeb54 has them; ends as in the
                        tests of the contiguous CUDA sub-allocator): collectives at the lower end, which splits
                        exactly; all others at the upper, which takes the highest equal hole and splits as BFC does

Collectives are aligned to the granularity of their memory, which the driver says; 2 MiB is assumed. No trace holds
the memory space of a request, so options say by its label or size which ones are collectives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bfcviz.errors import InvalidRequest
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policy import PoolPolicy
from bfcviz.whatif.requests import ALLOCATE, RequestStream
from bfcviz.whatif.xla import XLAPool

XLA_OPTIONS: Final[Mapping[str, Any]] = {
    "collectives": "upper",
    "collective_labels": "",
    "collective_from": None,
    "collective_alignment": 2 << 20,
    "lower_order": "ascending",
    "upper_order": "ascending",
    "lower_split": "bfc",
    "upper_split": "bfc",
    "lower_gap_split": "exact",
    "upper_gap_split": "exact",
    "fragmentation_fraction": 0.0,
    "preallocated": None,
}
"""Options with their defaults; `policy_table.XLA_MEANINGS` says what they mean. By default no request is a collective;
`collective_labels` is for example `all-gather|all-reduce`."""

OF_LOWER_COLLECTIVES: Final[Mapping[str, Any]] = {
    "lower_split": "exact",
    "upper_order": "descending",
    "upper_gap_split": "bfc",
}
"""Defaults of `collectives=lower` that differ."""

_XLA_CHOICES: Final = {
    "collectives": ("upper", "lower"),
    "order": ("ascending", "descending"),
    "split": ("bfc", "exact"),
}
_OF_COLLECTIVES: Final = ("collectives", "collective_labels", "collective_from", "collective_alignment")


@dataclass(frozen=True)
class XLAPolicy:
    """The policy of XLA's spatially partitioned heap.

    Attributes:
        options: of `XLA_OPTIONS`.

    Raises:
        InvalidRequest: an option has none of its values.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "xla"

    def __post_init__(self) -> None:
        if self.options.get("preallocated") is not None and self.options.get("collectives") != "lower":
            raise InvalidRequest(
                "preallocated of policy 'xla' is of the form whose upper end grows: give collectives=lower with it"
            )
        for key, value in self.options.items():
            known = _XLA_CHOICES.get(key.rpartition("_")[2])
            if known and value not in known:
                raise InvalidRequest(
                    f"option {key!r} of policy 'xla' is {value!r}; give one of {', '.join(known)}"
                )
            if key.endswith("_alignment") and (value <= 0 or value & (value - 1)):
                raise InvalidRequest(f"option {key!r} of policy 'xla' is {value}; give a power of two")
        if not 0 <= self.options.get("fragmentation_fraction", 0.0) <= 1:
            raise InvalidRequest(
                "fragmentation_fraction of policy 'xla' is a share of the limit: give 0 to 1"
            )

    def serve(
        self,
        stream: RequestStream,
        limit: int | None = None,
        *,
        record: bool = False,
        stop_at_failure: bool = False,
    ) -> Outcome:
        """Serve all requests by XLA's policy, as `Policy.serve`. There must be a limit: the heap takes all of it."""
        if limit is None:
            raise InvalidRequest("xla takes its whole limit at once: give a limit")
        ends = self._ends(stream)
        is_lower = self.options.get("collectives") == "lower"
        own = dict(OF_LOWER_COLLECTIVES) if is_lower else {}
        alignment = self.options.get("collective_alignment", XLA_OPTIONS["collective_alignment"])
        own[f"{'lower' if is_lower else 'upper'}_alignment"] = alignment

        def make(driver: DriverMemory, **options: Any) -> XLAPool:
            given = {key: options[key] for key in options if key not in _OF_COLLECTIVES}
            return XLAPool(driver, ends, **{**own, **given})

        pools = PoolPolicy(self.name, make, self.options)
        return pools.serve(stream, limit, record=record, stop_at_failure=stop_at_failure)

    def _ends(self, stream: RequestStream) -> bytes:
        """By XLA's policy, for each request of 1 byte and more, in order, 1: the upper end."""
        rows = stream.rows
        asked = rows[(rows["kind"] == ALLOCATE) & (rows["size"] > 0)]
        parts = [part for part in self.options.get("collective_labels", "").split("|") if part]
        named = [number for number, name in stream.label_names.items() if any(part in name for part in parts)]
        collective = np.isin(asked["label"], named)
        least = self.options.get("collective_from")
        if least is not None:
            collective |= asked["size"] >= least
        upper = ~collective if self.options.get("collectives") == "lower" else collective
        return bytes(upper.astype(np.uint8))
