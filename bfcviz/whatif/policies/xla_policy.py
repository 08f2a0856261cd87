"""XLAPolicy: which requests go to which end of XLA's address range, and the checks of its options.

XLA serves the memory space of collectives from the upper end, with the granularity of collective memory as alignment
(openxla/xla, xla/pjrt/gpu/se_gpu_pjrt_client.cc, early 2026; its CUDA growth test serves them from the lower end). No
trace holds the memory space of a request, so the options say by its label or size which ones go there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bfcviz.errors import InvalidRequest
from bfcviz.formats.tensorflow import UNIT
from bfcviz.whatif.outcome import Outcome
from bfcviz.whatif.policies.xla import XLAPool
from bfcviz.whatif.policy import PoolPolicy
from bfcviz.whatif.requests import ALLOCATE, RequestStream
from bfcviz.whatif.simulation import DriverMemory

XLA_OPTIONS: Final[Mapping[str, Any]] = {
    "upper_labels": "",
    "upper_from": None,
    "lower_order": "ascending",
    "upper_order": "ascending",
    "lower_split": "bfc",
    "upper_split": "bfc",
    "lower_alignment": UNIT,
    "upper_alignment": UNIT,
    "fragmentation_fraction": 0.0,
}
"""Options with their defaults; see `XLAPool`.

`upper_labels`: parts of labels between `|`, such as `all-gather|all-reduce`: requests whose label has one of these go
to the upper end. `upper_from`: so do requests of this size in bytes and more. By default all go to the lower end.
"""

_CHOICES: Final = {"order": ("ascending", "descending"), "split": ("bfc", "exact")}
_OF_ENDS: Final = ("upper_labels", "upper_from")


@dataclass(frozen=True)
class XLAPolicy:
    """The rules of XLA's spatially partitioned heap.

    Attributes:
        options: of `XLA_OPTIONS`.

    Raises:
        InvalidRequest: an option has none of its values.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "xla"

    def __post_init__(self) -> None:
        for key, value in self.options.items():
            known = _CHOICES.get(key.partition("_")[2])
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
        """Serve all requests from an empty heap; as `Policy.serve`. There must be a limit: the heap takes all of it."""
        if limit is None:
            raise InvalidRequest("xla takes its whole limit at once: give a limit")
        ends = self._ends(stream)

        def make(driver: DriverMemory, **options: Any) -> XLAPool:
            return XLAPool(driver, ends, **{key: options[key] for key in options if key not in _OF_ENDS})

        pools = PoolPolicy(self.name, make, self.options)
        return pools.serve(stream, limit, record=record, stop_at_failure=stop_at_failure)

    def _ends(self, stream: RequestStream) -> bytes:
        """For each request of 1 byte and more, in order, 1: the upper end."""
        rows = stream.rows
        asked = rows[(rows["kind"] == ALLOCATE) & (rows["size"] > 0)]
        parts = [part for part in self.options.get("upper_labels", "").split("|") if part]
        named = [number for number, name in stream.label_names.items() if any(part in name for part in parts)]
        upper = np.isin(asked["label"], named)
        least = self.options.get("upper_from")
        if least is not None:
            upper |= asked["size"] >= least
        return bytes(upper.astype(np.uint8))
