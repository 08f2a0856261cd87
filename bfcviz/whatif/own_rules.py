"""The rules of a trace's own heap, and those to serve it by where no policy is named."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.heap_settings import Family
from bfcviz.errors import InvalidRequest
from bfcviz.formats.tensorflow import round_up
from bfcviz.formats.torch import LARGE_SEGMENT, Rules, divisions_text
from bfcviz.units import format_bytes
from bfcviz.whatif.bfc_policy import BFC_OPTIONS
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import other_than_default, policy_of, policy_text
from bfcviz.whatif.requests import ALLOCATE, RequestStream

# ------------------------------------------------------------------------------
# Own settings: the policy and the limit that the heap of a trace itself had.

BFC_SIGNS: Final = ("allow_growth", "allocator_name")
"""Options in the origin of a trace that only a BFC heap has: its own, and what TensorFlow's files say."""


class OwnPolicy(NamedTuple):
    """The policy of the heap of a trace, and its `limit` in bytes, None: not known."""

    policy: Policy
    limit: int | None


def own_policy(stream: RequestStream) -> OwnPolicy:
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
    options["regions"] = "exact" if _own_regions_match(stream, granted) else "recorded"
    if limit is None and not options["allow_growth"]:
        limit = int(granted["size"].sum()) or None
    return OwnPolicy(policy_of("bfc", **options), limit)


def _own_regions_match(stream: RequestStream, granted: NDArray[np.void]) -> bool:
    """Whether each region of the trace's own heap was granted for the request that it is beside."""
    at = granted["request"]
    if not len(at) or int(at.max()) >= len(stream):
        return False
    rows = stream.rows[at]
    rounded = round_up(rows["size"])
    return bool(((rows["kind"] == ALLOCATE) & (rounded.astype(np.uint64) == granted["needed"])).all())


def _is_value(value: Any, default: Any) -> bool:
    """Whether a value of the trace's own origin fits an option with this default; text is read as in a command."""
    if isinstance(value, str | bool) or isinstance(default, bool):
        return isinstance(value, str) or (isinstance(value, bool) and isinstance(default, bool))
    return isinstance(value, int) or (isinstance(value, float) and isinstance(default, float))


# ------------------------------------------------------------------------------
# Usual policies: the rules to serve a stream by where none is named, the job's own rules first.
#
# A BFC heap of TensorFlow on a GPU returns wholly free regions before a request fails: garbage collection is on
# unless `TF_ENABLE_GPU_GARBAGE_COLLECTION` is false (tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.cc of
# TensorFlow 2.21, `GPUBFCAllocator::GetGarbageCollectionValue`).

GROWING_BFC: Final = "bfc:allow_growth=true,garbage_collection=true"
"""TensorFlow's heap on a GPU with growth on."""

USUAL: Final = (
    GROWING_BFC,
    "torch",
    "torch:expandable_segments=true",
    "cupy",
    "stream_ordered",
    "exact_size",
)
"""The policies that are compared beside the job's own rules; none of them takes its whole limit at once."""

AS_RECORDED: Final = "as recorded"
OWN_RULES: Final = "own rules"


@dataclass(frozen=True)
class OwnRules:
    """The rules of a trace's own heap.

    Attributes:
        limit: under which they serve, in bytes; None: none.
        role: `AS_RECORDED`: each request as in the trace; `OWN_RULES`: the same rules, simulated.
        why: how they are known, as a sentence.
    """

    policy: Policy
    limit: int | None
    role: str
    why: str

    @property
    def text(self) -> str:
        """The rules of the trace's own heap, as `policy_of` reads them."""
        name = self.policy.name
        return policy_text(name, other_than_default(name, self.policy.options))


def usual_policies(stream: RequestStream, limit: int | None) -> tuple[str | OwnRules, ...]:
    """Policies of the table to serve a stream by: its own rules, if known, and those of `USUAL` that differ."""
    own = own_rules(stream, limit)
    if own is None:
        return USUAL
    return (own, *(text for text in USUAL if text != own.text))


def own_rules(stream: RequestStream, limit: int | None) -> OwnRules | None:
    """The rules of the stream's own heap; None: not known.

    Args:
        stream: the requests.
        limit: that is asked about, in bytes; None: none. Under another limit than that of the trace the driver would
            grant other regions than the recorded ones: it is simulated.
    """
    if any(key in stream.options for key in BFC_SIGNS):
        return _own_bfc_rules(stream, limit)
    if stream.family == Family.TORCH:
        return _torch_rules(stream, limit)
    if stream.family == Family.CUPY:
        return OwnRules(policy_of("cupy"), limit, OWN_RULES, "the trace is of CuPy's own pool")
    return None


def own_or_bfc_rules(stream: RequestStream) -> OwnRules:
    """The stream's own rules, simulated; those of `bfc` with growth off where they are not known."""
    own = own_rules(stream, None)
    if own is None:
        why = "the file does not say which allocator the job had: these are TensorFlow's rules, growth is off"
        return OwnRules(policy_of("bfc"), None, "", why)
    return _own_bfc_simulated(stream, None) if own.role == AS_RECORDED else own


def _own_bfc_rules(stream: RequestStream, limit: int | None) -> OwnRules | None:
    try:
        policy, own_limit = own_policy(stream)
    except InvalidRequest:  # a value of an option that no heap has
        return None
    is_same_limit = limit is None or limit in {stream.limit, own_limit}
    if policy.options["regions"] != "exact" or not is_same_limit or _own_regions_unknown(stream):
        return _own_bfc_simulated(stream, limit)
    why = "the BFC heap of the trace with its settings; the driver grants what it granted then"
    return OwnRules(policy, own_limit, AS_RECORDED, why)


def _own_bfc_simulated(stream: RequestStream, limit: int | None) -> OwnRules:
    """The own rules of a trace's BFC heap, with regions that the driver might grant."""
    found = own_policy(stream).policy.options
    options = {key: value for key, value in found.items() if key != "regions"}
    assumed = "garbage_collection" not in stream.options and not options["garbage_collection"]
    if assumed:
        options["garbage_collection"] = True
    growth = "on" if options["allow_growth"] else "off"
    why = f"the BFC heap of the trace, growth {growth}"
    if assumed:
        why += "; garbage collection is not in the file: on, as TensorFlow sets it for GPUs"
    policy = policy_of("bfc", **other_than_default("bfc", options))
    return OwnRules(policy, limit, OWN_RULES, f"{why}{_own_pool_text(stream)}")


def _own_pool_text(stream: RequestStream) -> str:
    """The most bytes that the trace's own heap had, as the end of `OwnRules.why`; empty where not known."""
    regions = stream.regions
    if not len(regions) or regions["joined"].any() or _own_regions_unknown(stream):
        return ""
    sizes: dict[int, int] = {}
    pool = most = 0
    for address, size in regions[["address", "size"]].tolist():
        pool += size or -sizes.get(address, 0)
        sizes[address] = size
        most = max(most, pool)
    return f"; in the trace its pool had at most {format_bytes(most)}"


def _own_regions_unknown(stream: RequestStream) -> bool:
    """Whether the first regions of the trace's own heap are not known: the first requests have no event."""
    return bool((stream.rows["event"] < 0).any())


def _torch_rules(stream: RequestStream, limit: int | None) -> OwnRules:
    """The own rules of PyTorch's heap: the settings that a snapshot names; PyTorch's defaults where it names none."""
    given, rules = stream.options, Rules.of(stream.options)
    options: dict[str, Any] = {}
    if rules.expandable:
        options["expandable_segments"] = True
    if rules.max_split is not None:
        options["max_split_size"] = rules.max_split
    if rules.non_split_rounding is not None:
        options["max_non_split_rounding"] = rules.non_split_rounding
    if rules.large_segment != LARGE_SEGMENT:
        options["large_segment_size"] = rules.large_segment
    if rules.collection_threshold:
        options["garbage_collection_threshold"] = rules.collection_threshold
    if rules.divisions:
        text = divisions_text(rules.divisions)
        options["roundup_power2_divisions"] = int(text) if text.isdecimal() else text
    told = (
        "its settings in the file" if "expandable_segments" in given else "its settings are not in the file"
    )
    why = f"the trace is of PyTorch's caching allocator; {told}{_own_pool_text(stream)}"
    return OwnRules(policy_of("torch", **options), limit, OWN_RULES, why)
