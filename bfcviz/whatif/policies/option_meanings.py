"""What the options of policies mean and which values they take, in a few words; `bfcviz whatif --list` prints them."""

from collections.abc import Mapping
from typing import Final

from bfcviz.whatif.policies.bfc import VERSIONS

MEANINGS: Final[Mapping[str, str]] = {
    "allow_growth": "true: the pool grows region by region; false: it takes the whole limit at once",
    "garbage_collection": "true: return wholly free regions before a request fails; TensorFlow on GPUs has true",
    "fragmentation_fraction": "share of the limit at which the rest of a chunk is split off; 0: at 128 MiB",
    "first_region": "bytes of the first region; each later one has twice as many",
    "exact_growth": "true: where the driver refuses, the last request is for no more than needed, as of bfcviz's heaps",
    "mode": "where the driver puts regions: gapped (apart), contiguous, or descending (each below the one before)",
    "capacity": "most bytes that the driver grants at one time; none: no limit of its own",
    "granule": "the driver grants multiples of this",
    "supports_coalescing": "true: adjacent regions become one",
    "gap": "bytes of addresses between regions, for mode=gapped",
    "regions": "simulated; recorded (those of recorded sizes get the recorded addresses); or exact (the driver "
    "grants and refuses as in the trace)",
    "backs_off_once": "only after the first refusal smaller regions are tried, as up to TensorFlow 2.7",
    "expandable_segments": "true: segments grow in place",
    "max_split_size": "larger blocks are not split; none: all are",
    "roundup_power2_divisions": "sizes are rounded up to so many steps between powers of two; 0 or 1: they are not",
    "garbage_collection_threshold": "share of the limit above which old segments are returned; 0: none is",
    "unit": "sizes are rounded up to a multiple of this",
    "release_threshold": "bytes that the pool keeps; none: all",
    "reuse_across_streams": "a block that one stream freed may serve another",
    "segment": "the pool grows by multiples of this; the driver's own number is not public",
    "min_block": "bytes of the smallest block",
    "arena": "bytes of each arena; 0: one arena for all, which grows",
}
"""Option -> what its values mean, with the same meaning for all policies that have it."""

XLA_MEANINGS: Final[Mapping[str, str]] = {
    "upper_labels": "requests with one of these parts of labels, between |, go to the upper end",
    "upper_from": "so do requests of this size and more; none: no size does",
    "lower_order": "of the lower end: ascending, or descending",
    "upper_order": "of the upper end: ascending, or descending",
    "lower_split": "of chunks of the lower end: bfc (a small rest stays with the chunk), or exact",
    "upper_split": "of chunks of the upper end: bfc, or exact",
    "lower_alignment": "of chunks of the lower end, in bytes",
    "upper_alignment": "of chunks of the upper end, in bytes",
    "fragmentation_fraction": MEANINGS["fragmentation_fraction"],
}


def meaning_of(name: str, option: str) -> str:
    """What the values of an option of this policy mean; empty: not known."""
    if option == "version":
        return f"the defaults of a TensorFlow: {', '.join(VERSIONS)}; from 2.21 on none differs"
    return XLA_MEANINGS.get(option, "") if name == "xla" else MEANINGS.get(option, "")
