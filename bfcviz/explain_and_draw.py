"""`explain`, `peak`, `worst_fragmentation` and `draw` for any source: a path, a trace, or a live heap.

The functions in `model` and `figures` that they call take a `Trace`. May import everything but cli.
"""

import os
from typing import TYPE_CHECKING, Any

from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.browse import navigation
from bfcviz.model.explain.text import event as event_text
from bfcviz.model.trace_from_source import trace_of

if TYPE_CHECKING:
    from bfcviz.figures import Picture


def explain(source: Any, event: int | None = None) -> str:
    """Explain in a sentence what one event did, or why a request failed.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a Recording, an EventLog, a live heap, or the result of
            `bfcviz.watch` or of a `serve_...` function.
        event: its index, 0..len(trace) - 1; None: the last event.

    Raises:
        TraceError: the trace has no such event, or its events contradict each other.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = _trace(source)
    if event is None and len(trace) == trace.first:
        raise TraceError("the trace has no event yet: give a trace with events, or record some first")
    return event_text.explain(trace, len(trace) - 1 if event is None else event)


def peak(source: Any, pool: int = 0) -> int:
    """The first step with the most bytes in use; a step is the state after that many events.

    Args:
        source: as for `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return navigation.peak(_trace(source), pool)


def worst_fragmentation(source: Any, pool: int = 0) -> int:
    """The first step with the highest external fragmentation (1 - largest_free_chunk / free_bytes).

    Args:
        source: as for `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return navigation.worst_fragmentation(_trace(source), pool)


def draw(name: str, source: Any, step: int | None = None, *, pool: int = 0, **look: Any) -> "Picture":
    """Draw the picture `name` of one heap at a step: a plotly figure with its numbers in `table`.

    Args:
        name: one of `bfcviz.figures.FIGURES`, such as `region_map`.
        source: as for `explain`.
        step: number of events applied, 0..len(trace); None: all.
        pool: index of the heap among `trace.origin.pools`.
        look: fields of `bfcviz.figures.Look`, such as `theme="dark"`; `wanted` may be text, such as `64MiB`.

    Raises:
        ValueError: no picture has this name; the message lists the names.
        TraceError: the trace has no such step.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    from bfcviz import figures  # noqa: PLC0415  plotly, which explanations do not need

    return figures.draw(name, _trace(source), step, pool=pool, **look)


def _trace(source: Any) -> Trace:
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | os.PathLike):
        return open_trace(source)
    if isinstance(found := getattr(source, "trace", None), Trace):  # a Watch, a LiveDashboard, a Model
        return found
    heaps = getattr(source, "heaps", None)
    return trace_of(heaps[0] if isinstance(heaps, list) and heaps else source)
