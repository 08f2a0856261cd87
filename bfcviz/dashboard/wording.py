"""The lines above the picture: what the last event did, and the numbers of this moment."""

from bfcviz.model import Model
from bfcviz.model.fragmentation import external, internal
from bfcviz.model.state import Stats
from bfcviz.model.words import explain
from bfcviz.units import format_bytes


def explain_step(model: Model) -> str:
    """What led to the model's step, in plain words."""
    if len(model.trace) == 0:
        return "this trace holds no events."
    if model.step == 0:
        return "before the first event: the heap has asked the sub-allocator for nothing yet. Press forward."
    return explain(model.trace, model.step - 1, model)


def summary(stats: Stats) -> str:
    """The numbers of this moment in one line."""
    limit = "limit not known" if stats.bytes_limit is None else f"limit {format_bytes(stats.bytes_limit)}"
    return (
        f"in use {format_bytes(stats.bytes_in_use)} in {_chunks(stats.chunks_in_use)} "
        f"(peak {format_bytes(stats.peak_bytes_in_use)}) · "
        f"free {format_bytes(stats.free_bytes)} in {_chunks(stats.chunks_free)}, "
        f"the largest {format_bytes(stats.largest_free_chunk)} · "
        f"pool {format_bytes(stats.pool_bytes)}, {limit} · "
        f"external fragmentation {external(stats):.1%} (1 - largest free chunk / free) · "
        f"internal {internal(stats):.1%} (1 - requested / in use)"
    )


def _chunks(count: int) -> str:
    return "1 chunk" if count == 1 else f"{count:,} chunks"
