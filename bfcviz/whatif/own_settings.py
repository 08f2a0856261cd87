"""Own settings: the policy and the limit that the heap of a trace itself had."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz import native
from bfcviz.errors import InvalidRequest
from bfcviz.whatif.policies.bfc import BFC_OPTIONS
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import policy_of
from bfcviz.whatif.requests import ALLOCATE, RequestStream

BFC_SIGNS: Final = ("allow_growth", "allocator_name")
"""Options in the origin of a trace that only a BFC heap has: its own, and what TensorFlow's files say."""


class OwnSettings(NamedTuple):
    """The settings of the heap of a trace: `limit` in bytes, None: not known."""

    policy: Policy
    limit: int | None


def own_settings(stream: RequestStream) -> OwnSettings:
    """The policy and limit of the trace's own heap; they serve its requests again as the trace has them.

    Options are those of the trace's origin. Where it has none, garbage collection was on if a region was released, and
    the heap grew unless its one region has the whole limit. The driver grants the recorded regions, at the same
    requests; a trace of one moment has no requests for them, so there the sizes decide.

    Not repeated: what no request caused (`trim`), timestamps, and alignments above 256 bytes.

    Raises:
        InvalidRequest: the heap is no BFC heap.
    """
    origin = stream.options
    if not any(key in origin for key in BFC_SIGNS):
        known = ", ".join(origin) or "none"
        raise InvalidRequest(
            f"the heap of {stream.source or 'this trace'} is no BFC heap (its options: {known}); name a policy"
        )
    granted = stream.regions[stream.regions["size"] > 0]
    limit = stream.limit
    options: dict[str, Any] = {
        "allow_growth": limit is None or len(granted) != 1 or int(granted["size"][0]) < limit,
        "garbage_collection": len(granted) < len(stream.regions),
        "supports_coalescing": bool(granted["joined"].any()),
        **{key: origin[key] for key, default in BFC_OPTIONS.items() if _is_value(origin.get(key), default)},
    }
    options["regions"] = "exact" if _has_requests(stream, granted) else "recorded"
    if limit is None and not options["allow_growth"]:
        limit = int(granted["size"].sum()) or None
    return OwnSettings(policy_of("bfc", **options), limit)


def _has_requests(stream: RequestStream, granted: NDArray[np.void]) -> bool:
    """Whether each region was granted for the request that it is beside."""
    at = granted["request"]
    if not len(at) or int(at.max()) >= len(stream):
        return False
    rows = stream.rows[at]
    rounded = -(-rows["size"] // native.MIN_CHUNK) * native.MIN_CHUNK
    return bool(((rows["kind"] == ALLOCATE) & (rounded.astype(np.uint64) == granted["needed"])).all())


def _is_value(value: Any, default: Any) -> bool:
    """Whether a value of the origin can be one of the option with this default; text is read as in a command."""
    if isinstance(value, str | bool) or isinstance(default, bool):
        return isinstance(value, str) or (isinstance(value, bool) and isinstance(default, bool))
    return isinstance(value, int) or (isinstance(value, float) and isinstance(default, float))
