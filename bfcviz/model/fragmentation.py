"""Measures of fragmentation: three ratios of 0..1, each with a name of its own. Other tools use one word for all."""

from bfcviz.model.model import ModelStats

DEFINITIONS = {
    "internal": "Internal fragmentation = 1 - requested_bytes_in_use / bytes_in_use: "
    "the share of allocated memory that was not requested. 0 where nothing is in use.",
    "external": "External fragmentation = 1 - largest_free_chunk / free_bytes (TensorFlow's): "
    "the share of free memory outside its largest piece. 0 where nothing is free.",
    "reserved_not_in_use": "Reserved-not-in-use = 1 - bytes_in_use / pool_bytes: "
    "the share of the pool that no chunk in use covers. 0 where nothing is in use.",
}
"""What each function computes, for tooltips and captions."""


def internal(stats: ModelStats) -> float:
    """Internal fragmentation: 1 - requested_bytes_in_use / bytes_in_use, 0 where nothing is in use."""
    return _fragmentation_ratio(stats.bytes_in_use - stats.requested_bytes_in_use, stats.bytes_in_use)


def external(stats: ModelStats) -> float:
    """External fragmentation: 1 - largest_free_chunk / free_bytes, 0 where nothing is free."""
    return _fragmentation_ratio(stats.free_bytes - stats.largest_free_chunk, stats.free_bytes)


def reserved_not_in_use(stats: ModelStats) -> float:
    """Fragmentation as reserved-not-in-use: 1 - bytes_in_use / pool_bytes, 0 where nothing is in use."""
    free = stats.pool_bytes - stats.bytes_in_use
    return _fragmentation_ratio(free, stats.pool_bytes if stats.bytes_in_use else 0)


def _fragmentation_ratio(part: int, whole: int) -> float:
    # Not 1 - x / y, which rounds twice: `Extremes` divides in the same way and gets the same float.
    return part / whole if whole else 0.0
