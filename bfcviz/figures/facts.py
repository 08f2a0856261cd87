"""The facts of a picture in one line: file, step and totals, for files that leave the page they were drawn in."""

from pathlib import PurePath
from typing import Final

from bfcviz.events.origin_details import facts_of as stated_facts
from bfcviz.events.trace import Trace
from bfcviz.figures.style.text import harmless
from bfcviz.model import Model
from bfcviz.units import format_bytes

_LONGEST: Final = 60  # characters of a name


def facts_of(model: Model) -> str:
    """The file, the step and the totals of the heap, escaped; numbers that the file does not give are left out."""
    trace, table = model.trace, model.table
    pool = trace.origin.pools[model.pool]
    stated = stated_facts(trace.origin.details, model.pool)
    totals = {
        "bytes_in_use": ("in use", table.bytes_in_use),
        "free_bytes": ("free", table.free_bytes),
        "largest_free_chunk": ("largest free chunk", table.largest_free_chunk),
        "pool_bytes": ("pool", table.pool_bytes),
    }
    known = [
        f"{name} {format_bytes(size)}"
        for key, (name, size) in totals.items()
        if stated.get(key, size) is not None
    ]
    limit = [] if pool.limit is None else [f"limit {format_bytes(pool.limit)}"]
    heap = [harmless(pool.name, _LONGEST)] if len(trace.origin.pools) > 1 else []
    return " · ".join(
        [file_name(trace), *heap, f"step {model.step:,} of {len(trace):,}", ", ".join([*known, *limit])]
    )


def file_name(trace: Trace) -> str:
    """The name of the trace's file without its folder, escaped."""
    name = PurePath(str(trace.path or trace.origin.source or "")).name
    return harmless(name or "not from a file", _LONGEST)
